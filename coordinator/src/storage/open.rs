//! Opens the database and configures its connections.

use std::{path::Path, sync::Arc, time::Duration};

use sqlx::{
    AnyConnection, ConnectOptions as _, Executor as _,
    any::{AnyConnectOptions, AnyPoolOptions},
    sqlite::SqliteConnectOptions,
};
use tokio::sync::Notify;

use super::{
    Dialect, GroupCommit, Pool, Store, StoreError, Writer, checkpoint::Checkpoints, counters::Counters,
    migrations,
};
use crate::config::DatabaseUrl;

/// Connections that read the embedded database.
const READERS: u32 = 4;
/// Maximum time to wait for a connection to PostgreSQL.
const ACQUIRE: Duration = Duration::from_secs(5);

/// Settings of every connection to SQLite; the journal mode is stored in the file.
const SQLITE: &str = "PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 5000; PRAGMA synchronous = FULL;";
const SQLITE_WRITER: &str = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;";
/// Settings of every connection to PostgreSQL. The timeouts keep a coordinator that hangs from holding locks forever.
const POSTGRES: &str = "SET application_name = 'island-coordinator'; \
     SET default_transaction_isolation = 'read committed'; \
     SET synchronous_commit = on; \
     SET lock_timeout = '20s'; \
     SET statement_timeout = '60s'; \
     SET idle_in_transaction_session_timeout = '30s';";

/// Opens the file, created if absent, with one writer and several readers.
pub(super) async fn sqlite(path: &Path) -> Result<Store, StoreError> {
    let path = std::path::absolute(path).map_err(|error| StoreError::Open(error.into()))?;
    let file = SqliteConnectOptions::new().filename(&path);
    let writer = pool(&file.clone().create_if_missing(true), 1, &[SQLITE, SQLITE_WRITER]).await?;
    migrations::run(Dialect::Sqlite, &writer).await?;
    let checkpointer = pool(&file, 1, &[SQLITE]).await?;
    let readers = pool(&file.read_only(true), READERS, &[SQLITE]).await?;
    let counters = Counters::open_beside(path.as_path()).await?;
    let committed = Arc::new(Notify::new());
    let group = GroupCommit::start(writer.clone(), Arc::clone(&committed));
    let checkpoints = Arc::new(Checkpoints::start(checkpointer.clone(), committed));
    let writer = Writer::Sqlite { group, checkpoints, pools: [writer, checkpointer] };
    Ok(Store { writer, readers, heartbeats: None, counters })
}

pub(super) async fn pool(
    options: &SqliteConnectOptions,
    connections: u32,
    setup: &'static [&'static str],
) -> Result<Pool, StoreError> {
    sqlx::any::install_default_drivers();
    let options = AnyConnectOptions::from_url(&options.to_url_lossy()).map_err(StoreError::Open)?;
    let pool = AnyPoolOptions::new()
        .max_connections(connections)
        .idle_timeout(None)
        .max_lifetime(None)
        // A local file cannot disconnect, and the test would cost as much as most statements.
        .test_before_acquire(false)
        .after_connect(move |conn, _| Box::pin(configure(conn, setup)));
    pool.connect_with(options).await.map_err(StoreError::Open)
}

/// Connects to a server; reads and writes share one pool.
pub(super) async fn postgres(url: &DatabaseUrl, connections: u32) -> Result<Store, StoreError> {
    sqlx::any::install_default_drivers();
    let options = url.secret().parse::<AnyConnectOptions>().map_err(StoreError::Open)?;
    let pool = |connections| {
        AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ACQUIRE)
            .after_connect(|conn, _| Box::pin(configure(conn, &[POSTGRES])))
    };
    let shared = pool(connections).connect_with(options.clone()).await.map_err(StoreError::Open)?;
    migrations::run(Dialect::Postgres, &shared).await?;
    let heartbeats = Some(pool(1).connect_lazy_with(options));
    let counters = Counters::shared(shared.clone());
    Ok(Store { writer: Writer::Postgres(shared.clone()), readers: shared, heartbeats, counters })
}

async fn configure(conn: &mut AnyConnection, statements: &[&'static str]) -> Result<(), sqlx::Error> {
    for statements in statements {
        conn.execute(sqlx::raw_sql(*statements)).await?;
    }
    Ok(())
}
