//! SQL: SQLite embedded, or PostgreSQL for several coordinators, behind one set of statements.
//!
//! SQLite has one writer, which commits in groups ([`group`]), and a pool of readers, WAL with `synchronous=FULL`, whose log is moved
//! into the database beside them ([`checkpoint`]). PostgreSQL has one
//! pool, `READ COMMITTED`. What the one writer gives for free on SQLite is asked for by name, so that it holds on both:
//! a transaction that moves money begins with [`account::lock`], and every other write that depends on what was read is
//! one conditional statement.
//!
//! Statements keep to what both understand, with text and 64-bit integers only; each noun has its module, each function
//! takes a connection, and whoever began a transaction commits it.

pub(crate) mod account;
mod checkpoint;
pub(crate) mod coordinator;
pub(crate) mod counters;
mod group;
pub(crate) mod host;
pub(crate) mod idempotency;
pub(crate) mod job;
pub(crate) mod key;
pub(crate) mod ledger;
pub(crate) mod market;
mod migrations;
mod open;
pub(crate) mod pairing;
pub(crate) mod workload;

use std::{
    ops::{Deref, DerefMut},
    str::FromStr,
    sync::Arc,
};

use island_protocol::time::Timestamp;
use sqlx::Transaction;

use crate::config::Database;
use checkpoint::Checkpoints;
use counters::Counters;
use group::{Group, Turn};

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
    /// The transactions of a group could not be committed.
    #[error("commit a transaction")]
    Commit(#[source] Arc<sqlx::Error>),
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

/// Reads a column that always holds a number.
pub(crate) fn integer(row: &Row, column: &'static str) -> Result<i64, StoreError> {
    use sqlx::Row as _;
    row.try_get(column).attempt("read a column")
}

/// Reads a column that may hold a time.
pub(crate) fn moment(row: &Row, column: &'static str) -> Result<Option<Timestamp>, StoreError> {
    use sqlx::Row as _;
    let ms: Option<i64> = row.try_get(column).attempt("read a column")?;
    Ok(ms.map(Timestamp::from_unix_ms))
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
#[derive(Debug)]
pub(crate) enum Tx {
    /// A turn of SQLite's one writer.
    Turn(Turn),
    /// One of many on PostgreSQL, which groups commits itself.
    Own(Transaction<'static, sqlx::Any>),
}

impl Deref for Tx {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        match self {
            Self::Turn(turn) => turn,
            Self::Own(tx) => tx,
        }
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Connection {
        match self {
            Self::Turn(turn) => turn,
            Self::Own(tx) => tx,
        }
    }
}

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

/// Where transactions that write begin.
#[derive(Debug, Clone)]
enum Writer {
    /// The pools are of one connection each: that of the group, and that of the checkpoints.
    Sqlite {
        group: Arc<Group>,
        checkpoints: Arc<Checkpoints>,
        pools: [Pool; 2],
    },
    Postgres(Pool),
}

/// The database. A clone is the same database.
#[derive(Debug, Clone)]
pub struct Store {
    writer: Writer,
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

    /// Begins a write transaction. On SQLite it waits until the one before it has said what it writes.
    pub(crate) async fn begin(&self) -> Result<Tx, StoreError> {
        match &self.writer {
            Writer::Sqlite { group, .. } => group.begin().await.map(Tx::Turn),
            Writer::Postgres(pool) => pool.begin().await.map(Tx::Own).attempt("begin a transaction"),
        }
    }

    /// Which database it is.
    pub(crate) fn dialect(&self) -> Dialect {
        match self.writer {
            Writer::Sqlite { .. } => Dialect::Sqlite,
            Writer::Postgres(_) => Dialect::Postgres,
        }
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
        match &self.writer {
            Writer::Sqlite { group, checkpoints, pools: [writer, mover] } => {
                group.close().await;
                checkpoints.close().await;
                mover.close().await;
                writer.close().await;
            }
            Writer::Postgres(pool) => pool.close().await,
        }
    }
}

/// Commits a transaction: it is on disk, and others can read it.
pub(crate) async fn commit(tx: Tx) -> Result<(), StoreError> {
    match tx {
        Tx::Turn(turn) => turn.commit().await,
        Tx::Own(tx) => tx.commit().await.attempt("commit a transaction"),
    }
}
