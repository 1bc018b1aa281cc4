//! SQL: one writer with `BEGIN IMMEDIATE`, a pool of readers, WAL with `synchronous=FULL`.
//!
//! Statements keep to what PostgreSQL understands too; each noun has its module, each function takes a connection, and
//! whoever began a transaction commits it.

pub(crate) mod account;
pub(crate) mod counters;
pub(crate) mod host;
pub(crate) mod idempotency;
pub(crate) mod job;
pub(crate) mod key;
pub(crate) mod ledger;
pub(crate) mod workload;

use std::{path::Path, str::FromStr, time::Duration};

use sqlx::{
    Sqlite, SqlitePool, Transaction,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous},
};

use counters::Counters;

/// What is not in order with the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be opened or brought to this version.
    #[error("open the database")]
    Open(#[source] sqlx::Error),
    /// A migration failed.
    #[error("migrate the database")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// A statement failed.
    #[error("{what}")]
    Query {
        /// What was attempted.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: sqlx::Error,
    },
    /// A row does not hold what it must.
    #[error("the database holds a malformed {what}")]
    Corrupt {
        /// Which value.
        what: &'static str,
    },
}

impl StoreError {
    /// Whether a uniqueness rule was broken.
    pub(crate) fn is_duplicate(&self) -> bool {
        matches!(self, Self::Query { source: sqlx::Error::Database(error), .. } if error.is_unique_violation())
    }
}

/// Attaches what was attempted to an SQL error.
pub(crate) trait Attempt<T> {
    fn attempt(self, what: &'static str) -> Result<T, StoreError>;
}

impl<T> Attempt<T> for Result<T, sqlx::Error> {
    fn attempt(self, what: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Query { what, source })
    }
}

/// Reads a text column into its type.
pub(crate) fn parsed<T: FromStr>(row: &SqliteRow, column: &'static str) -> Result<T, StoreError> {
    use sqlx::Row as _;
    let text: String = row.try_get(column).attempt("read a column")?;
    text.parse().map_err(|_| StoreError::Corrupt { what: column })
}

/// Reads a JSON column into its type.
pub(crate) fn json<T: serde::de::DeserializeOwned>(
    row: &SqliteRow,
    column: &'static str,
) -> Result<Option<T>, StoreError> {
    use sqlx::Row as _;
    let text: Option<String> = row.try_get(column).attempt("read a column")?;
    text.map(|text| serde_json::from_str(&text).map_err(|_| StoreError::Corrupt { what: column })).transpose()
}

/// JSON for a column. What we store always has a text form.
pub(crate) fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// What one statement runs on.
pub(crate) type Connection = sqlx::SqliteConnection;
/// Where reading statements run.
pub(crate) type Pool = sqlx::SqlitePool;
/// What a statement answers.
pub(crate) type Row = sqlx::sqlite::SqliteRow;

/// The database. A clone is the same database.
#[derive(Debug, Clone)]
pub struct Store {
    writer: SqlitePool,
    readers: SqlitePool,
    counters: Counters,
}

/// A write transaction; dropped without [`Transaction::commit`] it never happened.
pub(crate) type Tx = Transaction<'static, Sqlite>;

impl Store {
    /// Opens the database at `path`, made if absent, and brings it to this version.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(5))
            .foreign_keys(true);
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options.clone())
            .await
            .map_err(StoreError::Open)?;
        sqlx::migrate!("./migrations").run(&writer).await.map_err(StoreError::Migrate)?;
        let readers = SqlitePoolOptions::new()
            .max_connections(4)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options.read_only(true))
            .await
            .map_err(StoreError::Open)?;
        let counters = Counters::beside(path).await?;
        Ok(Self { writer, readers, counters })
    }

    /// Begins a write transaction; waits for the one before it.
    pub(crate) async fn begin(&self) -> Result<Tx, StoreError> {
        self.writer.begin_with("BEGIN IMMEDIATE").await.attempt("begin a transaction")
    }

    /// Where to read.
    pub(crate) fn reader(&self) -> &SqlitePool {
        &self.readers
    }

    /// What counts against the limits.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether the database answers.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.readers).await.attempt("ask the database").map(|_| ())
    }

    /// Waits for what runs and closes every connection.
    pub async fn close(&self) {
        self.counters.close().await;
        self.readers.close().await;
        self.writer.close().await;
    }
}

/// Commits a transaction.
pub(crate) async fn commit(tx: Tx) -> Result<(), StoreError> {
    tx.commit().await.attempt("commit a transaction")
}
