//! The database of one test: a file, or a database on a PostgreSQL server that this process runs.

use std::{path::Path, sync::OnceLock};

use island_coordinator_domain::config::Database;
use sqlx::AnyPool;

use super::postgres::{MISSING, Server};

/// Whether this target runs the tests on PostgreSQL.
pub(crate) const ON_POSTGRES: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"postgres");

static SERVER: OnceLock<Server> = OnceLock::new();

/// Settings of an empty database.
pub(crate) fn fresh(folder: &Path) -> Database {
    let file = Database { path: folder.join("island.db"), ..Database::default() };
    if !ON_POSTGRES {
        return file;
    }
    if !Server::is_installed() {
        island_testing::skip("the coordinator on PostgreSQL", MISSING);
        // Every test of this target needs the server, and the harness cannot skip a test that has begun.
        std::process::exit(0);
    }
    let url = SERVER.get_or_init(Server::start).database();
    Database { url: Some(url.parse().expect("URL")), connections: 6, ..file }
}

/// Another connection to the database.
pub(crate) async fn connect(settings: &Database) -> AnyPool {
    sqlx::any::install_default_drivers();
    // The address has no password, so nothing of it is hidden.
    let url = settings.url.as_ref().map(ToString::to_string);
    let url = url.unwrap_or_else(|| format!("sqlite://{}", settings.path.display()));
    AnyPool::connect(&url).await.expect("database")
}
