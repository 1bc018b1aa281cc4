//! Group commit for the one writer of SQLite: transactions that come while one is being written to disk are committed together, so
//! that they share the one wait for the disk that each would have had.
//!
//! One task owns the connection and hands it from one transaction to the next. Each but the first runs behind a savepoint, so that
//! it can be taken back alone. None is told that it is committed before all of them are on disk.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
};

use sqlx::{Any, pool::PoolConnection};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::JoinHandle,
};

use super::{Attempt as _, Connection, Pool, StoreError};

/// Transactions that go to disk together, so that the first does not wait for ever under load.
const MOST: usize = 64;

/// The writer's queue.
#[derive(Debug)]
pub(super) struct Group {
    asks: mpsc::UnboundedSender<Ask>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
enum Ask {
    Turn(oneshot::Sender<Result<Turn, StoreError>>),
    Close,
}

/// The connection, while it is one transaction's turn. Dropped without [`Turn::commit`] the transaction never happened.
#[derive(Debug)]
pub(crate) struct Turn {
    conn: Option<PoolConnection<Any>>,
    back: Option<oneshot::Sender<Back>>,
}

/// The connection on its way back, and who waits for the commit; nobody: the transaction is taken back.
#[derive(Debug)]
struct Back {
    conn: PoolConnection<Any>,
    done: Option<oneshot::Sender<Result<(), StoreError>>>,
}

impl Group {
    /// Starts the task that writes through `pool`, which has one connection. It tells `committed` of every group.
    pub(super) fn start(pool: Pool, committed: Arc<Notify>) -> Arc<Self> {
        let (asks, asked) = mpsc::unbounded_channel();
        let task = Mutex::new(Some(tokio::spawn(run(pool, asked, committed))));
        Arc::new(Self { asks, task })
    }

    /// The next turn.
    pub(super) async fn begin(&self) -> Result<Turn, StoreError> {
        let (ask, turn) = oneshot::channel();
        self.asks.send(Ask::Turn(ask)).map_err(|_| closed())?;
        turn.await.map_err(|_| closed())?
    }

    /// Ends the task once it has written what was asked for before.
    pub(super) async fn close(&self) {
        let _ = self.asks.send(Ask::Close);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // A panic in there was told when it happened.
            let _ = task.await;
        }
    }
}

impl Turn {
    /// Waits until the transaction is on disk.
    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        let (done, committed) = oneshot::channel();
        self.give_back(Some(done));
        committed.await.map_err(|_| closed())?
    }

    fn give_back(&mut self, done: Option<oneshot::Sender<Result<(), StoreError>>>) {
        if let (Some(conn), Some(back)) = (self.conn.take(), self.back.take()) {
            // A task that is gone has dropped the connection's pool, too.
            let _ = back.send(Back { conn, done });
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.give_back(None);
    }
}

impl Deref for Turn {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        self.conn.as_ref().expect("given back only when the turn ends")
    }
}

impl DerefMut for Turn {
    fn deref_mut(&mut self) -> &mut Connection {
        self.conn.as_mut().expect("given back only when the turn ends")
    }
}

/// The writer: groups one after the other, until closed.
async fn run(pool: Pool, mut asked: mpsc::UnboundedReceiver<Ask>, committed: Arc<Notify>) {
    let mut idle = None;
    while let Some(Ask::Turn(ask)) = asked.recv().await {
        let conn = match idle.take() {
            Some(conn) => Ok(conn),
            None => pool.acquire().await.attempt("get the writer's connection"),
        };
        let begun = match conn {
            Ok(conn) => begin(conn).await,
            Err(error) => Err((error, None)),
        };
        match begun {
            Ok(conn) => {
                let (conn, more) = group(conn, ask, &mut asked).await;
                committed.notify_one();
                idle = conn;
                if !more {
                    return;
                }
            }
            Err((error, conn)) => {
                idle = conn;
                let _ = ask.send(Err(error));
            }
        }
    }
}

/// Serves turns until nobody waits for one, and commits. False: closed meanwhile.
async fn group(
    mut conn: PoolConnection<Any>,
    first: oneshot::Sender<Result<Turn, StoreError>>,
    asked: &mut mpsc::UnboundedReceiver<Ask>,
) -> (Option<PoolConnection<Any>>, bool) {
    let mut waiting = Vec::new();
    let mut next = Some(Ask::Turn(first));
    let more = loop {
        match next {
            Some(Ask::Turn(ask)) => match serve(conn, ask, &mut waiting).await {
                Some(back) => conn = back,
                // Lost in the middle of a transaction: none of the group happened, as their senders' end says.
                None => return (None, true),
            },
            Some(Ask::Close) => break false,
            None => break true,
        }
        next = if waiting.len() < MOST { asked.try_recv().ok() } else { None };
    };
    let committed = say(&mut conn, "COMMIT").await;
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
            // Where the commit itself ended the transaction there is nothing left to take back.
            let _ = say(&mut conn, "ROLLBACK").await;
        }
    }
    (Some(conn), more)
}

/// One turn, to its end.
async fn serve(
    mut conn: PoolConnection<Any>,
    ask: oneshot::Sender<Result<Turn, StoreError>>,
    waiting: &mut Vec<oneshot::Sender<Result<(), StoreError>>>,
) -> Option<PoolConnection<Any>> {
    let alone = waiting.is_empty();
    if !alone && let Err(error) = say(&mut conn, "SAVEPOINT turn").await {
        let _ = ask.send(Err(error).attempt("begin a transaction"));
        return Some(conn);
    }
    let (back, returned) = oneshot::channel();
    // Whoever asked may be gone; then the turn comes back at once.
    drop(ask.send(Ok(Turn { conn: Some(conn), back: Some(back) })));
    let Back { mut conn, done } = returned.await.ok()?;
    let ended = match (&done, alone) {
        (Some(_), true) => Ok(()),
        (Some(_), false) => say(&mut conn, "RELEASE turn").await,
        (None, true) => restart(&mut conn).await,
        (None, false) => forget(&mut conn).await,
    };
    match (done, ended) {
        (Some(done), Ok(())) => waiting.push(done),
        (Some(done), Err(error)) => drop(done.send(Err(error).attempt("commit a transaction"))),
        (None, Ok(())) => {}
        // What cannot be taken back must not be committed with the rest, nor stay open for whoever has the connection next.
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
    match say(&mut conn, "BEGIN IMMEDIATE").await.attempt("begin a transaction") {
        Ok(()) => Ok(conn),
        Err(error) => Err((error, Some(conn))),
    }
}

/// Takes back a transaction that is alone in its group so far, and begins the group again.
async fn restart(conn: &mut Connection) -> Result<(), sqlx::Error> {
    say(conn, "ROLLBACK").await?;
    say(conn, "BEGIN IMMEDIATE").await
}

/// Takes back one transaction of several.
async fn forget(conn: &mut Connection) -> Result<(), sqlx::Error> {
    say(conn, "ROLLBACK TO turn").await?;
    say(conn, "RELEASE turn").await
}

async fn say(conn: &mut Connection, statement: &'static str) -> Result<(), sqlx::Error> {
    sqlx::query(statement).execute(conn).await.map(drop)
}

fn closed() -> StoreError {
    StoreError::Open(sqlx::Error::PoolClosed)
}

#[cfg(test)]
mod tests;
