//! Group commit for SQLite's one writer: transactions that arrive while another one is being synced to disk are
//! committed together, and so wait for one sync instead of one each.
//!
//! One task owns the connection and passes it from one transaction to the next. Each but the first runs inside a
//! savepoint, so that it can be rolled back alone. No transaction is reported as committed before all of its group are
//! on disk.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use parking_lot::Mutex;
use sqlx::{Any, pool::PoolConnection};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::JoinHandle,
};

use super::{Connection, Pool, QueryContext as _, StoreError};
use island_coordinator_domain::metrics::Storage;

/// Maximum transactions in a group. Without it the first one could wait forever under load.
const MAX_GROUP: usize = 64;

/// The writer's queue.
#[derive(Debug)]
pub(super) struct GroupCommit {
    requests: mpsc::UnboundedSender<Request>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
enum Request {
    Begin(oneshot::Sender<Result<WriterTurn, StoreError>>),
    Close,
}

/// The connection during one transaction. Rolled back on drop; see [`WriterTurn::commit`].
#[derive(Debug)]
pub(crate) struct WriterTurn {
    conn: Option<PoolConnection<Any>>,
    returned: Option<oneshot::Sender<Returned>>,
}

/// The connection, returned by a transaction. `done` waits for the commit; without it the transaction is rolled back.
#[derive(Debug)]
struct Returned {
    conn: PoolConnection<Any>,
    done: Option<oneshot::Sender<Result<(), StoreError>>>,
}

impl GroupCommit {
    /// Starts the task that writes through `pool`, which has one connection. It notifies `committed` after each group.
    pub(super) fn start(pool: Pool, committed: Arc<Notify>, metrics: Storage) -> Arc<Self> {
        let (requests, inbox) = mpsc::unbounded_channel();
        let task = Mutex::new(Some(tokio::spawn(run(pool, inbox, committed, metrics))));
        Arc::new(Self { requests, task })
    }

    /// Waits for the connection and begins a transaction.
    pub(super) async fn begin(&self) -> Result<WriterTurn, StoreError> {
        let (respond, turn) = oneshot::channel();
        self.requests.send(Request::Begin(respond)).map_err(|_| closed())?;
        turn.await.map_err(|_| closed())?
    }

    /// Ends the task after it has written everything that was requested before.
    pub(super) async fn close(&self) {
        let _ = self.requests.send(Request::Close);
        let task = self.task.lock().take();
        if let Some(task) = task {
            // A panic in the task was logged when it happened.
            let _ = task.await;
        }
    }
}

impl WriterTurn {
    /// Waits until the transaction is on disk.
    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        let (done, committed) = oneshot::channel();
        self.return_connection(Some(done));
        committed.await.map_err(|_| closed())?
    }

    fn return_connection(&mut self, done: Option<oneshot::Sender<Result<(), StoreError>>>) {
        if let (Some(conn), Some(returned)) = (self.conn.take(), self.returned.take()) {
            // If the task has ended, it has dropped the connection's pool as well.
            let _ = returned.send(Returned { conn, done });
        }
    }
}

impl Drop for WriterTurn {
    fn drop(&mut self) {
        self.return_connection(None);
    }
}

impl Deref for WriterTurn {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        self.conn.as_ref().expect("the connection is held until the turn ends")
    }
}

impl DerefMut for WriterTurn {
    fn deref_mut(&mut self) -> &mut Connection {
        self.conn.as_mut().expect("the connection is held until the turn ends")
    }
}

/// Commits one group after the other until it is closed.
async fn run(
    pool: Pool,
    mut inbox: mpsc::UnboundedReceiver<Request>,
    committed: Arc<Notify>,
    metrics: Storage,
) {
    let mut idle = None;
    while let Some(Request::Begin(respond)) = inbox.recv().await {
        let conn = match idle.take() {
            Some(conn) => Ok(conn),
            None => pool.acquire().await.context("get the writer's connection"),
        };
        let begun = match conn {
            Ok(conn) => begin(conn).await,
            Err(error) => Err((error, None)),
        };
        match begun {
            Ok(conn) => {
                let (conn, more) = group(conn, respond, &mut inbox, &metrics).await;
                committed.notify_one();
                idle = conn;
                if !more {
                    return;
                }
            }
            Err((error, conn)) => {
                idle = conn;
                let _ = respond.send(Err(error));
            }
        }
    }
}

/// Runs transactions until no further one waits, then commits. Returns `false` if the writer was closed meanwhile.
async fn group(
    mut conn: PoolConnection<Any>,
    first: oneshot::Sender<Result<WriterTurn, StoreError>>,
    inbox: &mut mpsc::UnboundedReceiver<Request>,
    metrics: &Storage,
) -> (Option<PoolConnection<Any>>, bool) {
    let mut waiting = Vec::new();
    let mut next = Some(Request::Begin(first));
    let more = loop {
        match next {
            Some(Request::Begin(respond)) => match serve(conn, respond, &mut waiting).await {
                Some(returned) => conn = returned,
                // The connection was lost inside a transaction, so the whole group is rolled back. The callers learn it
                // from their dropped senders.
                None => return (None, true),
            },
            Some(Request::Close) => break false,
            None => break true,
        }
        next = if waiting.len() < MAX_GROUP { inbox.try_recv().ok() } else { None };
    };
    metrics.grouped(waiting.len());
    let committed = execute(&mut conn, "COMMIT").await;
    match committed {
        Ok(()) => {
            for done in waiting {
                drop(done.send(Ok(())));
            }
        }
        Err(error) => {
            let error = Arc::new(error);
            for done in waiting {
                drop(done.send(Err(StoreError::Commit(Arc::clone(&error)))));
            }
            // If the failed commit already ended the transaction, this has no effect.
            let _ = execute(&mut conn, "ROLLBACK").await;
        }
    }
    (Some(conn), more)
}

/// Runs one transaction to its end.
async fn serve(
    mut conn: PoolConnection<Any>,
    respond: oneshot::Sender<Result<WriterTurn, StoreError>>,
    waiting: &mut Vec<oneshot::Sender<Result<(), StoreError>>>,
) -> Option<PoolConnection<Any>> {
    let alone = waiting.is_empty();
    if !alone && let Err(error) = execute(&mut conn, "SAVEPOINT turn").await {
        let _ = respond.send(Err(error).context("begin a transaction"));
        return Some(conn);
    }
    let (returned, outcome) = oneshot::channel();
    // If the caller has gone, the turn is dropped and the connection returns at once.
    drop(respond.send(Ok(WriterTurn { conn: Some(conn), returned: Some(returned) })));
    let Returned { mut conn, done } = outcome.await.ok()?;
    let ended = match (&done, alone) {
        (Some(_), true) => Ok(()),
        (Some(_), false) => execute(&mut conn, "RELEASE turn").await,
        (None, true) => restart(&mut conn).await,
        (None, false) => roll_back(&mut conn).await,
    };
    match (done, ended) {
        (Some(done), Ok(())) => waiting.push(done),
        (Some(done), Err(error)) => drop(done.send(Err(error).context("commit a transaction"))),
        (None, Ok(())) => {}
        // A transaction that cannot be rolled back must neither be committed with the rest nor stay open for the next
        // user of the connection.
        (None, Err(_)) => {
            let _ = conn.close().await;
            return None;
        }
    }
    Some(conn)
}

async fn begin(
    mut conn: PoolConnection<Any>,
) -> Result<PoolConnection<Any>, (StoreError, Option<PoolConnection<Any>>)> {
    match execute(&mut conn, "BEGIN IMMEDIATE").await.context("begin a transaction") {
        Ok(()) => Ok(conn),
        Err(error) => Err((error, Some(conn))),
    }
}

/// Rolls back the only transaction of the group so far and begins the group again.
async fn restart(conn: &mut Connection) -> Result<(), sqlx::Error> {
    execute(conn, "ROLLBACK").await?;
    execute(conn, "BEGIN IMMEDIATE").await
}

/// Rolls back one transaction of several.
async fn roll_back(conn: &mut Connection) -> Result<(), sqlx::Error> {
    execute(conn, "ROLLBACK TO turn").await?;
    execute(conn, "RELEASE turn").await
}

async fn execute(conn: &mut Connection, statement: &'static str) -> Result<(), sqlx::Error> {
    sqlx::query(statement).execute(conn).await.map(drop)
}

fn closed() -> StoreError {
    StoreError::Open(sqlx::Error::PoolClosed)
}

#[cfg(test)]
mod tests;
