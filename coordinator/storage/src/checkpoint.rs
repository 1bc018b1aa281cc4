//! Checkpoints SQLite's write-ahead log in a task beside the writer. SQLite's automatic checkpoint would run inside one
//! commit in some dozens, and that commit would take a hundred times as long.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use sqlx::Row as _;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use super::{Pool, QueryContext as _, StoreError};

/// Delay from the first commit to the checkpoint, which also covers the commits in between.
const DELAY: Duration = Duration::from_millis(500);
/// Pages in the log (32 MB) above which writers wait shortly, so that the log restarts from its beginning. SQLite
/// restarts it automatically when it is checkpointed completely and nobody reads, which may never happen under load.
const MAX_LOG_PAGES: i64 = 8192;

/// The checkpoint task.
#[derive(Debug)]
pub(super) struct Checkpoints {
    stop: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

/// Result of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Checkpointed {
    /// Pages in the log.
    log: i64,
    /// Pages of them that are in the database as well.
    pages: i64,
}

impl Checkpoints {
    /// Starts the task on `pool`, which has one connection. `committed` notifies it of commits.
    pub(super) fn start(pool: Pool, committed: Arc<Notify>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run(pool, committed, stopped));
        Self { stop: Mutex::new(Some((stop, task))) }
    }

    /// Ends the task after the current checkpoint. SQLite checkpoints the rest when the database is closed.
    pub(super) async fn close(&self) {
        let running = self.stop.lock().take();
        if let Some((stop, task)) = running {
            drop(stop);
            // A panic in the task was logged when it happened.
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
                tokio::time::sleep(DELAY).await;
            } => {}
        }
        if let Err(error) = checkpoint_log(&pool, MAX_LOG_PAGES).await {
            // Nothing is lost: the log holds the pages until the next checkpoint.
            tracing::warn!(error = %island_daemon::chain::Chain(&error), "write-ahead log not checkpointed; will retry");
        }
    }
}

/// Checkpoints the pages that no reader needs in the log, and restarts the log if it has more than `max_pages` pages.
async fn checkpoint_log(pool: &Pool, max_pages: i64) -> Result<Checkpointed, StoreError> {
    let done = checkpoint(pool, "PRAGMA wal_checkpoint(PASSIVE)").await?;
    if done.log > max_pages {
        return checkpoint(pool, "PRAGMA wal_checkpoint(RESTART)").await;
    }
    Ok(done)
}

async fn checkpoint(pool: &Pool, statement: &'static str) -> Result<Checkpointed, StoreError> {
    let row = sqlx::query(statement).fetch_one(pool).await.context("checkpoint the write-ahead log")?;
    let pages = |column: usize| row.try_get(column).context("read a column");
    Ok(Checkpointed { log: pages(1)?, pages: pages(2)? })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sqlx::{Row as _, sqlite::SqliteConnectOptions};

    use super::*;
    use crate::open;

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
    async fn a_checkpointed_log_is_overwritten() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("island.db");
        let (writer, checkpointer) = (pool(&path).await, pool(&path).await);
        sqlx::query("CREATE TABLE t (text TEXT)").execute(&writer).await.expect("set up");
        write(&writer, 50).await;
        let first = checkpoint_log(&checkpointer, MAX_LOG_PAGES).await.expect("checkpoint");
        assert!(first.log > 50 && first.pages == first.log, "{first:?}");
        write(&writer, 20).await;
        let second = checkpoint_log(&checkpointer, MAX_LOG_PAGES).await.expect("checkpoint");
        assert!(second.log < first.log && second.pages == second.log, "the log restarted: {second:?}");
    }

    #[tokio::test]
    async fn a_log_that_is_always_read_is_restarted() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("island.db");
        let (writer, checkpointer, reader) = (pool(&path).await, pool(&path).await, pool(&path).await);
        sqlx::query("CREATE TABLE t (text TEXT)").execute(&writer).await.expect("set up");
        let mut reading = reader.begin().await.expect("begin");
        let count = "SELECT COUNT(*) AS n FROM t";
        let row = sqlx::query(count).fetch_one(&mut *reading).await.expect("read");
        assert_eq!(row.try_get::<i64, _>("n").expect("a number"), 0);
        write(&writer, 50).await;
        let held = checkpoint_log(&checkpointer, MAX_LOG_PAGES).await.expect("checkpoint");
        assert!(held.pages < held.log, "a reader may still need it:  {held:?}");
        reading.rollback().await.expect("end");
        let max_pages = held.log - 1;
        checkpoint_log(&checkpointer, max_pages).await.expect("restart");
        write(&writer, 1).await;
        let after = checkpoint_log(&checkpointer, MAX_LOG_PAGES).await.expect("checkpoint");
        assert!(after.log < 10, "{after:?}");
        let row = sqlx::query(count).fetch_one(&reader).await.expect("read");
        assert_eq!(row.try_get::<i64, _>("n").expect("a number"), 51);
    }
}
