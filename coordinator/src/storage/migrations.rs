//! The schema, step by step: what both databases understand, and what only one of them does, in one order.

use sqlx::migrate::{Migration, Migrator};

use super::{Dialect, Pool, StoreError};

static SHARED: Migrator = sqlx::migrate!("./migrations");
static SQLITE: Migrator = sqlx::migrate!("./migrations/sqlite");
static POSTGRES: Migrator = sqlx::migrate!("./migrations/postgres");

fn of(dialect: Dialect) -> Vec<Migration> {
    let own = match dialect {
        Dialect::Sqlite => &SQLITE,
        Dialect::Postgres => &POSTGRES,
    };
    SHARED.iter().chain(own.iter()).cloned().collect()
}

/// Brings a database to this version. Coordinators that start together wait for each other.
pub(super) async fn run(dialect: Dialect, pool: &Pool) -> Result<(), StoreError> {
    Migrator::with_migrations(of(dialect)).run(pool).await.map_err(StoreError::Migrate)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn versions_are_counted_over_both_folders_and_both_databases_have_the_same() {
        let versions = |dialect| of(dialect).iter().map(|one| one.version).collect::<Vec<_>>();
        let (sqlite, postgres) = (versions(Dialect::Sqlite), versions(Dialect::Postgres));
        assert_eq!(sqlite.iter().collect::<BTreeSet<_>>().len(), sqlite.len());
        assert_eq!(sqlite, postgres);
    }
}
