//! SQL: embedded SQLite, or PostgreSQL for several coordinators, with one set of statements.
//!
//! SQLite has one writer, which commits in groups ([`group_commit`]), and a pool of readers; WAL with
//! `synchronous=FULL`, checkpointed in a separate task ([`checkpoint`]). PostgreSQL has pools for reading, for writing
//! and for the counters, `READ COMMITTED`. What SQLite's single writer implies is requested explicitly, so that it
//! holds on both: a transaction that moves money begins with [`Store::begin_locked`], and every other write that
//! depends on an earlier read is one conditional statement.
//!
//! Statements use only what both databases understand, with text and 64-bit integers. Each noun has its module, each
//! function takes a connection, and the caller that began a transaction commits it.

// A guard in a scrutinee lives to the end of the block, and the block may wait for what needs the guard.
#![warn(clippy::significant_drop_in_scrutinee)]
#![expect(clippy::implicit_hasher, reason = "maps of the coordinator have the default hasher")]
#![expect(
    missing_docs,
    reason = "items are public for the coordinator's other crates; documented where names and types do not suffice"
)]

pub mod account;
mod account_queues;
pub mod audit;
pub mod backup;
pub mod batch;
pub mod books;
mod checkpoint;
pub mod coordinator;
pub mod counters;
pub mod file;
pub mod file_lock;
mod group_commit;
pub mod host;
pub mod idempotency;
pub mod indexes;
pub mod invitation;
pub mod jobs;
pub mod key;
pub mod ledger;
pub mod login;
pub mod market;
pub mod measure;
mod migrations;
pub mod network;
mod open;
pub mod pairing;
pub mod payout;
mod pool;
pub mod progress;
pub mod publication;
pub mod quota;
pub mod response;
pub mod retention;
pub mod revocation;
pub mod session;
pub mod setup;
pub mod statement;
pub mod usage;
pub mod webhook;
pub mod workload;

use std::{
    collections::BTreeSet,
    ops::{Deref, DerefMut},
    path::PathBuf,
    str::FromStr,
    sync::Arc,
};

use fail::fail_point;
use island_protocol::{ids::AccountId, time::Timestamp};
use sqlx::Transaction;
use tokio::time::Instant;

use account_queues::{AccountQueues, Turn};
use checkpoint::Checkpoints;
use counters::Counters;
use group_commit::{GroupCommit, WriterTurn};
use island_coordinator_domain::{
    config::{Database, DatabaseUrl},
    metrics,
};
pub use pool::Pool;

/// A failed operation of the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be opened or migrated to this version.
    #[error("open the database")]
    Open(#[source] sqlx::Error),
    /// The file does not exist.
    #[error("there is no database {}: a coordinator creates it at its first start; `--database` selects another file", path.display())]
    Absent {
        /// The file.
        path: PathBuf,
    },
    /// The server cannot be reached, or refuses the connection.
    #[error("connect to PostgreSQL, {url}")]
    Connect {
        /// Its address, without the password.
        url: DatabaseUrl,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// A migration failed.
    #[error("migrate the database")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// A newer version of this program migrated it in a way that this one does not know.
    #[error(
        "the database needs {needed} or later: it requires migration {oldest}, and this one, {}, has migrations up to {newest}; \
         start the newer program, or restore a backup from before the upgrade, since a database is never migrated back",
        env!("CARGO_PKG_VERSION")
    )]
    TooNew {
        /// The migration that is needed.
        oldest: i64,
        /// The newest that this program has.
        newest: i64,
        /// The program that migrated it.
        needed: String,
    },
    /// A migration was applied whose content is not that of this program.
    #[error(
        "migration {version} of the database is not that of island-coordinator {}: another build migrated it; start that build, or \
         restore a backup from before",
        env!("CARGO_PKG_VERSION")
    )]
    Foreign {
        /// The migration.
        version: i64,
    },
    /// A statement failed.
    #[error("{what}")]
    Query {
        /// The attempted operation.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: sqlx::Error,
    },
    /// The transactions of a group could not be committed.
    #[error("commit a transaction")]
    Commit(#[source] Arc<sqlx::Error>),
    /// A row has an invalid value.
    #[error("the database holds a malformed {what}")]
    Corrupt {
        /// Column of the value.
        what: &'static str,
    },
}

impl StoreError {
    /// Whether the database replied that it does not accept the values of a statement, which another try does not
    /// change. Locks, connections, resources and rules of uniqueness do not count.
    pub fn is_rejection(&self) -> bool {
        let source = match self {
            Self::Query { source, .. } => source,
            Self::Commit(source) => source.as_ref(),
            Self::Open(_)
            | Self::Absent { .. }
            | Self::Connect { .. }
            | Self::Migrate(_)
            | Self::TooNew { .. }
            | Self::Foreign { .. }
            | Self::Corrupt { .. } => return false,
        };
        match source {
            sqlx::Error::Encode(_) => true,
            sqlx::Error::Database(error) => match error.code().as_deref() {
                // SQLite: SQLITE_TOOBIG. PostgreSQL: data exceptions, and a value beyond a limit of the program.
                Some("18") => true,
                Some(code) => code.len() == 5 && (code.starts_with("22") || code.starts_with("54")),
                None => false,
            },
            _ => false,
        }
    }

    /// Whether a uniqueness rule was broken.
    pub fn is_duplicate(&self) -> bool {
        matches!(self, Self::Query { source: sqlx::Error::Database(error), .. } if error.is_unique_violation())
    }
}

/// Attaches the attempted operation to an SQL error.
pub(crate) trait QueryContext<T> {
    fn context(self, what: &'static str) -> Result<T, StoreError>;
}

impl<T> QueryContext<T> for Result<T, sqlx::Error> {
    fn context(self, what: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Query { what, source })
    }
}

/// Reads a text column into its type.
pub fn parsed<T: FromStr>(row: &Row, column: &'static str) -> Result<T, StoreError> {
    use sqlx::Row as _;
    let text: String = row.try_get(column).context("read a column")?;
    text.parse().map_err(|_| StoreError::Corrupt { what: column })
}

/// Reads a column with the text form of a type, which may be null.
pub fn optional<T: FromStr>(row: &Row, column: &'static str) -> Result<Option<T>, StoreError> {
    use sqlx::Row as _;
    let text: Option<String> = row.try_get(column).context("read a column")?;
    text.map(|text| text.parse().map_err(|_| StoreError::Corrupt { what: column })).transpose()
}

/// Reads a JSON column into its type.
pub fn json<T: serde::de::DeserializeOwned>(
    row: &Row,
    column: &'static str,
) -> Result<Option<T>, StoreError> {
    use sqlx::Row as _;
    let text: Option<String> = row.try_get(column).context("read a column")?;
    text.map(|text| serde_json::from_str(&text).map_err(|_| StoreError::Corrupt { what: column })).transpose()
}

/// Reads a column that is never null.
pub fn integer(row: &Row, column: &'static str) -> Result<i64, StoreError> {
    use sqlx::Row as _;
    row.try_get(column).context("read a column")
}

/// Reads a time that may be null.
pub fn moment(row: &Row, column: &'static str) -> Result<Option<Timestamp>, StoreError> {
    use sqlx::Row as _;
    let ms: Option<i64> = row.try_get(column).context("read a column")?;
    Ok(ms.map(Timestamp::from_unix_ms))
}

/// JSON for a column. Every stored type has a text form.
pub fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// Text for a column. PostgreSQL stores no NUL, so neither database does.
pub(crate) fn to_text(value: &str) -> String {
    value.replace('\0', "\u{fffd}")
}

/// A connection that runs statements.
pub type Connection = sqlx::AnyConnection;
/// A row of a result.
pub type Row = sqlx::any::AnyRow;
/// A write transaction, rolled back unless it is passed to [`commit`].
#[derive(Debug)]
pub struct Tx {
    writing: Writing,
    metrics: metrics::Storage,
}

#[derive(Debug)]
enum Writing {
    /// A transaction of SQLite's one writer.
    Grouped(WriterTurn),
    /// A transaction on PostgreSQL, which groups commits itself, with its place in the queues of the locked accounts.
    Single(Transaction<'static, sqlx::Any>, Option<Turn>),
}

impl Deref for Tx {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        match &self.writing {
            Writing::Grouped(turn) => turn,
            Writing::Single(tx, _) => tx,
        }
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Connection {
        match &mut self.writing {
            Writing::Grouped(turn) => turn,
            Writing::Single(tx, _) => tx,
        }
    }
}

/// The kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The kind of database of a connection.
    fn of(conn: &Connection) -> Self {
        if conn.backend_name() == "SQLite" { Self::Sqlite } else { Self::Postgres }
    }
}

/// Begins write transactions.
#[derive(Debug, Clone)]
enum Writer {
    /// The pools have one connection each: for the group, and for checkpoints.
    Sqlite {
        group: Arc<GroupCommit>,
        checkpoints: Arc<Checkpoints>,
        pools: [Pool; 2],
    },
    Postgres {
        pool: Pool,
        queues: AccountQueues,
    },
}

/// The database. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    writer: Writer,
    readers: Pool,
    /// One connection for heartbeats, which load cannot occupy. `None` where there is only one coordinator.
    heartbeats: Option<Pool>,
    counters: Counters,
    metrics: metrics::Storage,
}

impl Store {
    /// Opens the database, creates its file if it does not exist, and migrates it to this version.
    pub async fn open(settings: &Database) -> Result<Self, StoreError> {
        match &settings.url {
            Some(url) => open::postgres(url, settings.connections).await,
            None => open::sqlite(&settings.path).await,
        }
    }

    /// The same for a database that exists. A command in another folder must not create an empty file there.
    ///
    /// # Errors
    /// [`StoreError::Absent`] if there is no file, besides those of [`Self::open`].
    pub async fn open_existing(settings: &Database) -> Result<Self, StoreError> {
        if settings.url.is_none() && !settings.path.exists() {
            return Err(StoreError::Absent { path: settings.path.clone() });
        }
        Self::open(settings).await
    }

    /// Begins a write transaction. On SQLite it waits until the transaction before it has returned the connection.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        fail_point!("store.begin", |action| {
            island_daemon::failpoint::crash_if_requested(action);
            Err(StoreError::Query { what: "a failure that a test injected", source: sqlx::Error::PoolClosed })
        });
        let requested = Instant::now();
        let writing = match &self.writer {
            Writer::Sqlite { group, .. } => Writing::Grouped(group.begin().await?),
            Writer::Postgres { pool, .. } => {
                Writing::Single(pool.begin().await.context("begin a transaction")?, None)
            }
        };
        Ok(self.begun(writing, requested))
    }

    fn begun(&self, writing: Writing, requested: Instant) -> Tx {
        self.metrics.begun(requested);
        Tx { writing, metrics: self.metrics.clone() }
    }

    /// Begins a write transaction that moves the money of these accounts or counts their jobs. Every other such
    /// transaction waits until it ends, in a queue of this process or for the locked rows.
    pub async fn begin_locked(
        &self,
        accounts: impl IntoIterator<Item = AccountId>,
    ) -> Result<Tx, StoreError> {
        let Writer::Postgres { pool, queues } = &self.writer else { return self.begin().await };
        let accounts: BTreeSet<AccountId> = accounts.into_iter().collect();
        let turn = queues.wait(&accounts).await;
        let requested = Instant::now();
        let writing = Writing::Single(pool.begin().await.context("begin a transaction")?, Some(turn));
        let mut tx = self.begun(writing, requested);
        account::lock(&mut tx, &accounts).await?;
        Ok(tx)
    }

    /// The kind of database.
    pub fn dialect(&self) -> Dialect {
        match self.writer {
            Writer::Sqlite { .. } => Dialect::Sqlite,
            Writer::Postgres { .. } => Dialect::Postgres,
        }
    }

    /// What it measures.
    pub fn metrics(&self) -> &metrics::Storage {
        &self.metrics
    }

    /// The pool for reading.
    pub fn reader(&self) -> &Pool {
        &self.readers
    }

    /// The connection for heartbeats, if coordinators share the database.
    pub fn heartbeats(&self) -> Option<&Pool> {
        self.heartbeats.as_ref()
    }

    /// Counters of rate and stream limits.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Name, connections and idle connections of each pool.
    pub fn connections(&self) -> Vec<(&'static str, u32, usize)> {
        let mut pools = vec![("read", &self.readers)];
        match &self.writer {
            Writer::Sqlite { pools: [writer, _], .. } => pools.push(("write", writer)),
            Writer::Postgres { pool, .. } => pools.push(("write", pool)),
        }
        pools.push(("count", self.counters.pool()));
        let sized = |(name, pool): (_, &Pool)| {
            let (connections, idle) = pool.size();
            (name, connections, idle)
        };
        pools.into_iter().map(sized).collect()
    }

    /// Checks that the database replies.
    pub async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.readers).await.context("ping the database").map(|_| ())
    }

    /// Waits for running statements and closes every connection.
    pub async fn close(&self) {
        if let Some(heartbeats) = &self.heartbeats {
            heartbeats.close().await;
        }
        self.counters.close().await;
        self.readers.close().await;
        match &self.writer {
            Writer::Sqlite { group, checkpoints, pools: [writer, checkpointer] } => {
                group.close().await;
                checkpoints.close().await;
                checkpointer.close().await;
                writer.close().await;
            }
            Writer::Postgres { pool, .. } => pool.close().await,
        }
    }
}

/// Commits a transaction: afterwards it is on disk and visible to others.
pub async fn commit(tx: Tx) -> Result<(), StoreError> {
    fail_point!("store.commit", |action| {
        island_daemon::failpoint::crash_if_requested(action);
        Err(StoreError::Query { what: "a failure that a test injected", source: sqlx::Error::PoolClosed })
    });
    let Tx { writing, metrics } = tx;
    let begin = Instant::now();
    let committed = match writing {
        Writing::Grouped(turn) => turn.commit().await,
        Writing::Single(tx, _turn) => tx.commit().await.context("commit a transaction"),
    };
    metrics.committed(begin);
    // The transaction is committed, and its caller does not learn it.
    fail_point!("store.committed", |action| {
        island_daemon::failpoint::crash_if_requested(action);
        Err(StoreError::Query { what: "a failure that a test injected", source: sqlx::Error::PoolClosed })
    });
    committed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn values_that_a_database_refuses_are_told_from_other_errors() {
        let dir = tempfile::tempdir().expect("folder");
        let settings = Database { path: dir.path().join("island.db"), ..Database::default() };
        let store = Store::open(&settings).await.expect("database");
        let error = async |sql: &'static str| {
            let done = sqlx::query(sql).execute(store.reader()).await.context("a test");
            done.expect_err("an error")
        };
        // Longer than a value of SQLite may be.
        let too_long = error("SELECT zeroblob(2147483647)").await;
        assert!(too_long.is_rejection(), "{too_long:?}");
        let unknown = error("SELECT 1 FROM nothing").await;
        assert!(!unknown.is_rejection(), "{unknown:?}");
        store.close().await;
    }
}
