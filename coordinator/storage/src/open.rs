//! Opens the database and configures its connections.

use std::{io, path::Path, sync::Arc, time::Duration};

use island_daemon::files::create_private;
use sqlx::{
    AnyConnection, ConnectOptions as _, Connection as _, Executor as _,
    any::{AnyConnectOptions, AnyPoolOptions},
    sqlite::SqliteConnectOptions,
};
use tokio::sync::Notify;

use super::{
    AccountQueues, Dialect, GroupCommit, Pool, Store, StoreError, Writer, checkpoint::Checkpoints,
    counters::Counters, migrations,
};
use island_coordinator_domain::{config::DatabaseUrl, metrics};

/// Names of the pools that are measured.
pub(super) const READING: &str = "read";
pub(super) const COUNTING: &str = "count";
/// Name of the pool of heartbeats, which is not measured.
pub(super) const BEATING: &str = "heartbeat";

/// Connections that read the embedded database.
const READERS: u32 = 4;
/// Maximum time to wait for a connection to PostgreSQL.
const ACQUIRE: Duration = Duration::from_secs(5);

/// Settings of every connection to SQLite; the journal mode is stored in the file. Statement journals are in memory: as temporary files they
/// were a third of what a job wrote.
const SQLITE: &str = "PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 5000; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;";
const SQLITE_WRITER: &str = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;";
/// Settings of every connection to PostgreSQL. The timeouts keep a coordinator that hangs from holding locks forever.
const POSTGRES: &str = "SET application_name = 'island-coordinator'; \
     SET default_transaction_isolation = 'read committed'; \
     SET synchronous_commit = on; \
     SET lock_timeout = '20s'; \
     SET statement_timeout = '60s'; \
     SET idle_in_transaction_session_timeout = '30s';";
/// Settings of a connection whose statements may take long: migrations wait for each other and build indexes, a backup
/// reads everything.
pub(super) const POSTGRES_PATIENT: &str = "SET application_name = 'island-coordinator'; \
     SET lock_timeout = 0; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;";

/// Opens the file, created if absent, with one writer and several readers.
pub(super) async fn sqlite(path: &Path) -> Result<Store, StoreError> {
    let path = std::path::absolute(path).map_err(|error| StoreError::Open(error.into()))?;
    create_for_the_service(&path).map_err(|error| StoreError::Open(error.into()))?;
    let file = SqliteConnectOptions::new().filename(&path);
    let writer = pool(&file.clone().create_if_missing(true), 1, &[SQLITE, SQLITE_WRITER]).await?;
    migrations::run(Dialect::Sqlite, &writer).await?;
    let checkpointer = pool(&file, 1, &[SQLITE]).await?;
    let readers = pool(&file.read_only(true), READERS, &[SQLITE]).await?;
    let metrics = metrics::Storage::default();
    let readers = readers.measured(&metrics, READING);
    let counters = Counters::open_beside(path.as_path(), &metrics).await?;
    let committed = Arc::new(Notify::new());
    let group = GroupCommit::start(writer.clone(), Arc::clone(&committed), metrics.clone());
    let checkpoints = Arc::new(Checkpoints::start(checkpointer.clone(), committed));
    let writer = Writer::Sqlite { group, checkpoints, pools: [writer, checkpointer] };
    Ok(Store { writer, readers, heartbeats: None, counters, metrics })
}

/// As the superuser, creates what is absent for the owner of the folder, under whom the service runs: a command may be the first one to open the
/// database. SQLite gives the files that it creates beside a database to the owner of that.
fn create_for_the_service(database: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let counters = Counters::beside(database);
    [database, counters.as_path()].into_iter().filter(|file| !file.exists()).try_for_each(create_private)
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
    pool.connect_with(options).await.map(Pool::new).map_err(StoreError::Open)
}

/// Connects to a server. Reads, writes and counters have pools of their own, so that none of them can occupy the
/// connections of the others.
pub(super) async fn postgres(url: &DatabaseUrl, connections: u32) -> Result<Store, StoreError> {
    check_server(url).await?;
    let migrator = postgres_pool(url, 1, &[POSTGRES_PATIENT])?;
    let migrated = migrations::run(Dialect::Postgres, &migrator).await;
    migrator.close().await;
    migrated?;
    let [reading, writing, counting] = shares(connections);
    let pool = |connections| postgres_pool(url, connections, &[POSTGRES]);
    let metrics = metrics::Storage::default();
    let counters = Counters::shared(pool(counting)?.measured(&metrics, COUNTING));
    let writer = Writer::Postgres { pool: pool(writing)?, queues: AccountQueues::default() };
    let readers = pool(reading)?.measured(&metrics, READING);
    let heartbeats = Some(pool(1)?.named(BEATING));
    Ok(Store { writer, readers, heartbeats, counters, metrics })
}

/// Connects once. A pool would only report that it has waited in vain, not why.
async fn check_server(url: &DatabaseUrl) -> Result<(), StoreError> {
    sqlx::any::install_default_drivers();
    let options = url.secret().parse::<AnyConnectOptions>().map_err(StoreError::Open)?;
    let failed = |source| StoreError::Connect { url: url.clone(), source };
    let connected = tokio::time::timeout(ACQUIRE, AnyConnection::connect_with(&options)).await;
    let connection = connected.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(failed)?;
    connection.close().await.map_err(failed)
}

/// A pool that connects when it is used first.
pub(super) fn postgres_pool(
    url: &DatabaseUrl,
    connections: u32,
    setup: &'static [&'static str],
) -> Result<Pool, StoreError> {
    sqlx::any::install_default_drivers();
    let options = url.secret().parse::<AnyConnectOptions>().map_err(StoreError::Open)?;
    let pool = AnyPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE)
        .after_connect(move |conn, _| Box::pin(configure(conn, setup)));
    Ok(Pool::new(pool.connect_lazy_with(options)))
}

/// Connections for reading, writing and counting, at least one each.
fn shares(connections: u32) -> [u32; 3] {
    let counting = (connections / 5).max(1);
    let reading = ((connections.saturating_sub(counting)) / 2).max(1);
    let writing = connections.saturating_sub(counting + reading).max(1);
    [reading, writing, counting]
}

async fn configure(conn: &mut AnyConnection, statements: &[&'static str]) -> Result<(), sqlx::Error> {
    for statements in statements {
        conn.execute(sqlx::raw_sql(*statements)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, chown},
    };

    use super::*;

    #[tokio::test]
    async fn statement_journals_of_sqlite_are_in_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = sqlite(&folder.path().join("island.db")).await.expect("database");
        let Writer::Sqlite { pools: [writer, checkpointer], .. } = &store.writer else { panic!("SQLite") };
        for pool in [writer, checkpointer, store.reader()] {
            let row = sqlx::query("PRAGMA temp_store").fetch_one(pool).await.expect("a setting");
            assert_eq!(sqlx::Row::get::<i64, _>(&row, 0), 2);
        }
        store.close().await;
    }

    #[tokio::test]
    async fn the_files_of_a_database_belong_to_the_owner_of_their_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        // Others than the superuser own whatever they create, and cannot give it away.
        if rustix::process::geteuid().is_root() {
            chown(folder.path(), Some(12_345), Some(12_345)).expect("given away");
        }
        let owner = fs::metadata(folder.path()).expect("a folder").uid();
        let store = sqlite(&folder.path().join("island.db")).await.expect("database");
        let entries = fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry"));
        let files: Vec<_> =
            entries.map(|entry| (entry.file_name(), entry.metadata().expect("metadata").uid())).collect();
        assert!(files.len() >= 2 && files.iter().all(|(_, uid)| *uid == owner), "{owner}: {files:?}");
        store.close().await;
    }

    #[test]
    fn connections_are_shared_out_completely() {
        assert_eq!(shares(10), [4, 4, 2]);
        for connections in 3..100 {
            let shares = shares(connections);
            assert_eq!(shares.iter().sum::<u32>(), connections);
            assert!(shares.iter().all(|share| *share > 0));
        }
    }
}
