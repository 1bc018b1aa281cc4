//! The schema's migrations: those that both databases share, and those of one of them, numbered together.

use std::borrow::Cow;

use sqlx::{
    Row as _, SqlSafeStr as _,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
};

use super::{Dialect, Pool, QueryContext as _, StoreError, integer};

const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// File name without `.sql`, and content. Listed by hand: `sqlx::migrate!` would build SQLite and both drivers a second time, for the
/// compiler's side.
type File = (&'static str, &'static str);

macro_rules! files {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../migrations/", $folder, $name, ".sql")))),*]
    };
}

const SHARED: &[File] = files!["": "0001_start", "0002_keys_and_limits", "0006_coordinators", "0013_pairings", "0014_checks", "0015_books", "0016_coordinator_id", "0020_listing", "0022_market", "0023_retention", "0024_revocations", "0025_compatibility", "0031_job_parts", "0032_uncounted", "0034_operators", "0035_quotas", "0036_operators_and_owners", "0037_sign_in", "0038_publications", "0039_agreements", "0040_sessions", "0042_files", "0043_batches", "0044_webhooks", "0050_usage", "0053_migrated_by", "0055_job_times", "0056_origins", "0058_clock"];
const SQLITE: &[File] = files!["sqlite/": "0005_guards", "0012_counters", "0021_counts", "0026_pieces_stay", "0030_claim_nonces", "0033_uncounted", "0041_conversations", "0051_filters", "0052_jobs_of_account", "0054_earned", "0057_granted"];
const POSTGRES: &[File] = files!["postgres/": "0005_guards", "0012_counters", "0021_counts", "0026_pieces_stay", "0030_claim_nonces", "0033_uncounted", "0041_conversations", "0051_filters", "0052_jobs_of_account", "0054_earned", "0057_granted"];

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
///
/// A database that a newer coordinator migrated is used as it is, so that an older one may start again during an
/// upgrade, unless one of the newer migrations did more than add.
pub(super) async fn run(dialect: Dialect, pool: &Pool) -> Result<(), StoreError> {
    run_all(of(dialect), pool).await
}

async fn run_all(migrations: Vec<Migration>, pool: &Pool) -> Result<(), StoreError> {
    let newest = migrations.iter().map(|migration| migration.version).max().unwrap_or_default();
    let mut migrator = Migrator::with_migrations(migrations);
    migrator.set_ignore_missing(true).run(pool.connections()).await.map_err(|error| match error {
        MigrateError::VersionMismatch(version) => StoreError::Foreign { version },
        error => StoreError::Migrate(error),
    })?;
    let row = sqlx::query(
        "SELECT oldest, migrated_by, (SELECT MAX(version) FROM _sqlx_migrations) AS applied FROM compatibility",
    )
    .fetch_one(pool)
    .await
    .context("read the compatibility of the database")?;
    let (oldest, applied) = (integer(&row, "oldest")?, integer(&row, "applied")?);
    let by: Option<String> = row.try_get("migrated_by").context("read a column")?;
    if oldest > newest {
        let needed = by
            .map_or_else(|| "a newer island-coordinator".to_owned(), |by| format!("island-coordinator {by}"));
        return Err(StoreError::TooNew { oldest, newest, needed });
    }
    if applied > newest {
        tracing::info!(applied, newest, "a newer coordinator migrated the database; this one can use it");
    } else if by.as_deref() != Some(PROGRAM_VERSION) {
        sqlx::query("UPDATE compatibility SET migrated_by = $1")
            .bind(PROGRAM_VERSION)
            .execute(pool)
            .await
            .context("record the version of the coordinator")?;
    }
    Ok(())
}

/// The newest migration of this program.
pub(super) fn newest(dialect: Dialect) -> i64 {
    of(dialect).iter().map(|migration| migration.version).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_file_is_listed() {
        for (folder, files) in [("", SHARED), ("sqlite", SQLITE), ("postgres", POSTGRES)] {
            let folder = Path::new("migrations").join(folder);
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

    #[tokio::test]
    async fn an_older_coordinator_starts_unless_a_newer_migration_forbids_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = sqlx::sqlite::SqliteConnectOptions::new();
        let file = file.filename(dir.path().join("island.db")).create_if_missing(true);
        let pool = crate::open::pool(&file, 1, &[]).await.expect("database");
        let newer = |sql: &'static str| {
            let mut all = of(Dialect::Sqlite);
            all.push(migration(&("9000_newer", sql)));
            all
        };
        run_all(newer("CREATE TABLE later (id TEXT)"), &pool).await.expect("the newer one migrates");
        run(Dialect::Sqlite, &pool).await.expect("the older one starts");
        let forbids = migration(&("9001_breaks", "UPDATE compatibility SET oldest = 9001"));
        let all = newer("CREATE TABLE later (id TEXT)").into_iter().chain([forbids]).collect();
        run_all(all, &pool).await.expect("the newest one migrates");
        let error = run(Dialect::Sqlite, &pool).await.expect_err("the older one refuses");
        assert!(matches!(error, StoreError::TooNew { oldest: 9001, .. }), "{error}");
    }

    #[tokio::test]
    async fn a_migration_with_another_content_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = sqlx::sqlite::SqliteConnectOptions::new();
        let file = file.filename(dir.path().join("island.db")).create_if_missing(true);
        let pool = crate::open::pool(&file, 1, &[]).await.expect("database");
        run(Dialect::Sqlite, &pool).await.expect("migrated");
        let mut other = of(Dialect::Sqlite);
        other.pop();
        let last = newest(Dialect::Sqlite);
        let name: &'static str = format!("{last:04}_other").leak();
        other.push(migration(&(name, "CREATE TABLE other (id TEXT)")));
        let error = run_all(other, &pool).await.expect_err("refused").to_string();
        assert!(error.contains(&format!("migration {last} ")), "{error}");
    }

    /// The tables that grow with every job.
    const LARGE_TABLES: [&str; 5] =
        ["jobs", "job_events", "job_event_pieces", "ledger_entries", "idempotency"];
    /// The last migration that no release has executed on tables with rows.
    const LAST_BEFORE_RELEASES: i64 = 33;

    /// The large table of which a statement builds an index. Its transaction refuses writes to the table meanwhile.
    fn indexed_large_table(statement: &str) -> Option<&'static str> {
        let statement = statement.to_lowercase().replace('(', " (");
        let mut words = statement.split_whitespace();
        let is_index = words.next() == Some("create") && words.any(|word| word == "index");
        let table = words.skip_while(|word| *word != "on").nth(1);
        LARGE_TABLES.into_iter().find(|name| is_index && table == Some(*name))
    }

    #[test]
    fn migrations_build_no_index_of_a_large_table_on_postgres() {
        assert_eq!(indexed_large_table("CREATE UNIQUE INDEX jobs_by_x ON jobs(x) WHERE on_y"), Some("jobs"));
        assert_eq!(indexed_large_table("CREATE INDEX hosts_by_x ON hosts (x)"), None);
        for migration in of(Dialect::Postgres) {
            let table = migration.sql.as_str().split(';').find_map(|part| indexed_large_table(part.trim()));
            let is_early = migration.version <= LAST_BEFORE_RELEASES;
            assert!(
                is_early || table.is_none(),
                "{}: docs/decisions/0079 has the other way",
                migration.version
            );
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
