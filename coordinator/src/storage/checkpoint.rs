//! Moves what SQLite's log holds into the database, beside the writer: left to SQLite, one commit in some dozens does it
//! for all the others, and whoever waits for that one waits for the disk a hundred times as long.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sqlx::Row as _;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use super::{Attempt as _, Pool, StoreError};

/// From the first commit to the move: what comes in between is moved with it.
const AFTER: Duration = Duration::from_millis(500);
/// Pages in the log (32 MB) at which writers wait for a moment, so that it begins anew. Otherwise that happens by itself whenever
/// all of it is moved and nobody reads, which under load may be never.
const MOST: i64 = 8192;

/// The task that does it.
#[derive(Debug)]
pub(super) struct Checkpoints {
    stop: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

/// How far the log has been moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moved {
    /// Pages in the log.
    log: i64,
    /// Those of them that are in the database, too.
    pages: i64,
}

impl Checkpoints {
    /// Starts the task on `pool`, which has one connection of its own. `committed` tells it that there is something to move.
    pub(super) fn start(pool: Pool, committed: Arc<Notify>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run(pool, committed, stopped));
        Self { stop: Mutex::new(Some((stop, task))) }
    }

    /// Ends the task after what it is at. SQLite moves the rest when the database is closed.
    pub(super) async fn close(&self) {
        let running = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((stop, task)) = running {
            drop(stop);
            // A panic in there was told when it happened.
            let _ = task.await;
        }
    }
}

async fn run(pool: Pool, committed: Arc<Notify>, mut stopped: oneshot::Receiver<()>) {
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => return,
            () = async {
                committed.notified().await;
                tokio::time::sleep(AFTER).await;
            } => {}
        }
        if let Err(error) = move_log(&pool, MOST).await {
            // The log keeps everything until the next time.
            tracing::warn!(error = %island_daemon::chain::Chain(&error), "the log of the database was not moved");
        }
    }
}

/// Moves what nobody reads there any more, and has the log begin anew if it has more than `most` pages.
async fn move_log(pool: &Pool, most: i64) -> Result<Moved, StoreError> {
    let moved = checkpoint(pool, "PRAGMA wal_checkpoint(PASSIVE)").await?;
    if moved.log > most {
        return checkpoint(pool, "PRAGMA wal_checkpoint(RESTART)").await;
    }
    Ok(moved)
}

async fn checkpoint(pool: &Pool, statement: &'static str) -> Result<Moved, StoreError> {
    let row = sqlx::query(statement).fetch_one(pool).await.attempt("move the log of the database")?;
    let pages = |column: usize| row.try_get(column).attempt("read a column");
    Ok(Moved { log: pages(1)?, pages: pages(2)? })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sqlx::{Row as _, sqlite::SqliteConnectOptions};

    use super::*;
    use crate::storage::open;

    async fn pool(path: &Path) -> Pool {
        let file = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        open::pool(&file, 1, &["PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;"])
            .await
            .expect("open")
    }

    async fn write(pool: &Pool, rows: i64) {
        for _ in 0..rows {
            sqlx::query("INSERT INTO t (text) VALUES ($1)")
                .bind("x".repeat(3000))
                .execute(pool)
                .await
                .expect("write");
        }
    }

    #[tokio::test]
    async fn a_log_that_is_moved_is_written_over() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("books.db");
        let (writer, mover) = (pool(&path).await, pool(&path).await);
        sqlx::query("CREATE TABLE t (text TEXT)").execute(&writer).await.expect("set up");
        write(&writer, 50).await;
        let first = move_log(&mover, MOST).await.expect("move");
        assert!(first.log > 50 && first.pages == first.log, "{first:?}");
        write(&writer, 20).await;
        let second = move_log(&mover, MOST).await.expect("move again");
        assert!(second.log < first.log && second.pages == second.log, "it began anew: {second:?}");
    }

    #[tokio::test]
    async fn a_log_that_never_comes_to_rest_is_begun_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("books.db");
        let (writer, mover, reader) = (pool(&path).await, pool(&path).await, pool(&path).await);
        sqlx::query("CREATE TABLE t (text TEXT)").execute(&writer).await.expect("set up");
        let mut reading = reader.begin().await.expect("begin");
        let count = "SELECT COUNT(*) AS n FROM t";
        let seen = sqlx::query(count).fetch_one(&mut *reading).await.expect("read");
        assert_eq!(seen.try_get::<i64, _>("n").expect("a number"), 0);
        write(&writer, 50).await;
        let held = move_log(&mover, MOST).await.expect("move");
        assert!(held.pages < held.log, "a reader may still want it: {held:?}");
        reading.rollback().await.expect("end");
        let most = held.log - 1;
        move_log(&mover, most).await.expect("begin anew");
        write(&writer, 1).await;
        let after = move_log(&mover, MOST).await.expect("move");
        assert!(after.log < 10, "{after:?}");
        let seen = sqlx::query(count).fetch_one(&reader).await.expect("read");
        assert_eq!(seen.try_get::<i64, _>("n").expect("a number"), 51);
    }
}
