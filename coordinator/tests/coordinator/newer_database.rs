//! A coordinator on a database that a newer one has migrated.

use std::fs;

use sqlx::{AssertSqlSafe, Row as _};

use crate::support::network::Network;

/// Records a migration that this program does not have.
async fn migrate_further(network: &Network, also: &str) {
    let pool = network.sql().await;
    let applied = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         SELECT 9001, 'newer', success, checksum, execution_time FROM _sqlx_migrations WHERE version = 1";
    for statement in [applied, also] {
        sqlx::query(AssertSqlSafe(statement.to_owned())).execute(&pool).await.expect("changed");
    }
    pool.close().await;
}

async fn migrated_by(network: &Network) -> Option<String> {
    let pool = network.sql().await;
    let row = sqlx::query("SELECT migrated_by FROM compatibility").fetch_one(&pool).await.expect("a row");
    pool.close().await;
    row.try_get("migrated_by").expect("text")
}

#[tokio::test]
async fn a_database_that_needs_a_newer_coordinator_names_it_and_the_way_back() {
    let mut network = Network::start().await;
    assert_eq!(migrated_by(&network).await.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    network.down().await;
    migrate_further(&network, "UPDATE compatibility SET oldest = 9001, migrated_by = '9.9.9'").await;
    assert!(!network.start_failing("").await, "it must not serve");
    let log = fs::read_to_string(network.path("coordinator.log")).expect("a log");
    for part in ["needs island-coordinator 9.9.9 or later", "migration 9001", "restore a backup", env!("CARGO_PKG_VERSION")] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert_eq!(migrated_by(&network).await.as_deref(), Some("9.9.9"), "nothing was changed");
}

#[tokio::test]
async fn a_database_with_migrations_that_only_add_is_used_as_it_is() {
    let mut network = Network::start().await;
    network.down().await;
    migrate_further(&network, "UPDATE compatibility SET migrated_by = '9.9.9'").await;
    network.up().await;
    assert_eq!(network.get("/jobs").await["meta"]["total"], 0);
    assert_eq!(migrated_by(&network).await.as_deref(), Some("9.9.9"), "the newest one is remembered");
    network.audit().await;
}
