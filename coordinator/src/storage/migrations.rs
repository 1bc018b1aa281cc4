//! The schema's migrations: those that both databases share, and those of one of them, numbered together.

use std::borrow::Cow;

use sqlx::{
    SqlSafeStr as _,
    migrate::{Migration, MigrationType, Migrator},
};

use super::{Dialect, Pool, StoreError};

/// File name without `.sql`, and content. Listed by hand: `sqlx::migrate!` would build SQLite and both drivers a second time, for the
/// compiler's side.
type File = (&'static str, &'static str);

macro_rules! files {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../migrations/", $folder, $name, ".sql")))),*]
    };
}

const SHARED: &[File] = files!["": "0001_start", "0002_keys_and_limits", "0006_coordinators", "0013_pairings", "0014_checks", "0015_books", "0016_coordinator_id"];
const SQLITE: &[File] = files!["sqlite/": "0005_guards", "0012_counters"];
const POSTGRES: &[File] = files!["postgres/": "0005_guards", "0012_counters"];

fn of(dialect: Dialect) -> Vec<Migration> {
    let own = match dialect {
        Dialect::Sqlite => SQLITE,
        Dialect::Postgres => POSTGRES,
    };
    let mut all: Vec<_> = SHARED.iter().chain(own).map(migration).collect();
    all.sort();
    all
}

fn migration((name, sql): &File) -> Migration {
    let (version, description) = name.split_once('_').expect("a name is VERSION_DESCRIPTION");
    let version = version.parse().expect("a version is a number");
    let description = Cow::Owned(description.replace('_', " "));
    Migration::new(version, description, MigrationType::Simple, sql.into_sql_str(), false)
}

/// Migrates a database to this version. Coordinators that start together wait for each other.
pub(super) async fn run(dialect: Dialect, pool: &Pool) -> Result<(), StoreError> {
    Migrator::with_migrations(of(dialect)).run(pool).await.map_err(StoreError::Migrate)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_file_is_listed() {
        for (folder, files) in [("", SHARED), ("sqlite", SQLITE), ("postgres", POSTGRES)] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(folder);
            let names =
                fs::read_dir(folder).expect("read the folder").map(|entry| entry.expect("an entry").path());
            let mut names: Vec<_> =
                names.filter(|path| path.extension().is_some_and(|end| end == "sql")).collect();
            names.sort();
            let names: Vec<_> =
                names.iter().map(|path| path.file_stem().and_then(|name| name.to_str())).collect();
            assert_eq!(names, files.iter().map(|(name, _)| Some(*name)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn both_databases_have_the_same_unique_versions() {
        let versions = |dialect| of(dialect).iter().map(|one| one.version).collect::<Vec<_>>();
        let (sqlite, postgres) = (versions(Dialect::Sqlite), versions(Dialect::Postgres));
        assert_eq!(sqlite.iter().collect::<BTreeSet<_>>().len(), sqlite.len());
        assert_eq!(sqlite, postgres);
    }
}
