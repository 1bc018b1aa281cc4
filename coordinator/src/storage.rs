//! SQL: SQLite embedded, or PostgreSQL for several coordinators, behind one set of statements.
//!
//! SQLite has one writer with `BEGIN IMMEDIATE` and a pool of readers, WAL with `synchronous=FULL`. PostgreSQL has one
//! pool, `READ COMMITTED`. What the one writer gives for free on SQLite is asked for by name, so that it holds on both:
//! a transaction that moves money begins with [`account::lock`], and every other write that depends on what was read is
//! one conditional statement.
//!
//! Statements keep to what both understand, with text and 64-bit integers only; each noun has its module, each function
//! takes a connection, and whoever began a transaction commits it.

pub(crate) mod account;
pub(crate) mod coordinator;
pub(crate) mod counters;
pub(crate) mod host;
pub(crate) mod idempotency;
pub(crate) mod job;
pub(crate) mod key;
pub(crate) mod ledger;
pub(crate) mod market;
mod migrations;
mod open;
pub(crate) mod workload;

use std::str::FromStr;

use sqlx::Transaction;

use crate::config::Database;
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
pub(crate) fn parsed<T: FromStr>(row: &Row, column: &'static str) -> Result<T, StoreError> {
    use sqlx::Row as _;
    let text: String = row.try_get(column).attempt("read a column")?;
    text.parse().map_err(|_| StoreError::Corrupt { what: column })
}

/// Reads a JSON column into its type.
pub(crate) fn json<T: serde::de::DeserializeOwned>(
    row: &Row,
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

/// Text for a column. PostgreSQL keeps no NUL, so neither database does.
pub(crate) fn to_text(value: &str) -> String {
    value.replace('\0', "\u{fffd}")
}

/// What one statement runs on.
pub(crate) type Connection = sqlx::AnyConnection;
/// Where reading statements run.
pub(crate) type Pool = sqlx::AnyPool;
/// What a statement answers.
pub(crate) type Row = sqlx::any::AnyRow;
/// A write transaction; dropped without [`commit`] it never happened.
pub(crate) type Tx = Transaction<'static, sqlx::Any>;

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// What a connection speaks.
    fn of(conn: &Connection) -> Self {
        if conn.backend_name() == "SQLite" { Self::Sqlite } else { Self::Postgres }
    }
}

/// The database. A clone is the same database.
#[derive(Debug, Clone)]
pub struct Store {
    dialect: Dialect,
    writer: Pool,
    readers: Pool,
    /// One connection that no load takes away, for saying that this coordinator lives. None where it is the only one.
    pulse: Option<Pool>,
    counters: Counters,
}

impl Store {
    /// Opens the database, made if it is a file that is absent, and brings it to this version.
    pub async fn open(settings: &Database) -> Result<Self, StoreError> {
        match &settings.url {
            Some(url) => open::postgres(url, settings.connections).await,
            None => open::sqlite(&settings.path).await,
        }
    }

    /// Begins a write transaction. On SQLite it waits for the one before it.
    pub(crate) async fn begin(&self) -> Result<Tx, StoreError> {
        let begun = match self.dialect {
            Dialect::Sqlite => self.writer.begin_with("BEGIN IMMEDIATE").await,
            Dialect::Postgres => self.writer.begin().await,
        };
        begun.attempt("begin a transaction")
    }

    /// Where to read.
    pub(crate) fn reader(&self) -> &Pool {
        &self.readers
    }

    /// Where to say that this coordinator lives, if others share the database.
    pub(crate) fn pulse(&self) -> Option<&Pool> {
        self.pulse.as_ref()
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
        if let Some(pulse) = &self.pulse {
            pulse.close().await;
        }
        self.counters.close().await;
        self.readers.close().await;
        self.writer.close().await;
    }
}

/// Commits a transaction.
pub(crate) async fn commit(tx: Tx) -> Result<(), StoreError> {
    tx.commit().await.attempt("commit a transaction")
}
