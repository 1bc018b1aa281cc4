//! The books of one test: a file, or a database of a PostgreSQL server that this process runs.

use std::{
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

use island_coordinator::config::Database;
use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, Connection as _, Executor as _};
use tokio::sync::OnceCell;

use super::postgres::Server;

/// Whether this is the target that runs the stories on PostgreSQL.
pub(crate) const ON_POSTGRES: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"postgres");

static SERVER: OnceCell<Server> = OnceCell::const_new();
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Settings of an empty database.
pub(crate) async fn fresh(folder: &Path) -> Database {
    let file = Database { path: folder.join("island.db"), ..Database::default() };
    if !ON_POSTGRES {
        return file;
    }
    let server = SERVER.get_or_init(Server::start).await;
    let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut connection = AnyConnection::connect(&server.url("postgres")).await.expect("server");
    let statement = format!("CREATE DATABASE {name}");
    connection.execute(AssertSqlSafe(statement)).await.expect("database");
    connection.close().await.expect("connection");
    Database { url: Some(server.url(&name).parse().expect("URL")), connections: 6, ..file }
}

/// A second way into the database.
pub(crate) async fn connect(settings: &Database) -> AnyPool {
    sqlx::any::install_default_drivers();
    // Without a password there is nothing to hide in the address as it is shown.
    let url = settings.url.as_ref().map(ToString::to_string);
    let url = url.unwrap_or_else(|| format!("sqlite://{}", settings.path.display()));
    AnyPool::connect(&url).await.expect("database")
}
