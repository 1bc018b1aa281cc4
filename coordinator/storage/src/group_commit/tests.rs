use std::time::Duration;

use sqlx::{Row as _, any::AnyPoolOptions};

use super::*;

async fn open(dir: &std::path::Path) -> (Arc<GroupCommit>, Pool) {
    sqlx::any::install_default_drivers();
    let url = format!("sqlite://{}?mode=rwc", dir.join("island.db").display());
    let pool = |connections| AnyPoolOptions::new().max_connections(connections);
    let writer = Pool::new(pool(1).connect(&url).await.expect("open"));
    sqlx::raw_sql("PRAGMA journal_mode = WAL; CREATE TABLE t (n INTEGER PRIMARY KEY)")
        .execute(&writer)
        .await
        .expect("set up");
    let readers = Pool::new(pool(2).connect(&url).await.expect("open again"));
    (GroupCommit::start(writer, Arc::default(), Storage::default()), readers)
}

async fn put(turn: &mut WriterTurn, n: i64) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO t (n) VALUES ($1)").bind(n).execute(&mut **turn).await.map(drop)
}

async fn numbers(readers: &Pool) -> Vec<i64> {
    let rows = sqlx::query("SELECT n FROM t ORDER BY n").fetch_all(readers).await.expect("read");
    rows.iter().map(|row| row.try_get("n").expect("a number")).collect()
}

#[tokio::test]
async fn each_transaction_of_a_group_is_atomic() {
    let dir = tempfile::tempdir().expect("a folder");
    let (group, readers) = open(dir.path()).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..200_i64 {
        let group = Arc::clone(&group);
        tasks.spawn(async move {
            let mut turn = group.begin().await.expect("a turn");
            put(&mut turn, n).await.expect("insert");
            match n % 4 {
                // Rolled back: dropped after a write.
                0 => drop(turn),
                // Rolled back after an error.
                1 => assert!(put(&mut turn, n).await.is_err(), "twice the same key"),
                _ => turn.commit().await.expect("commit"),
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    let expected: Vec<i64> = (0..200).filter(|n| n % 4 > 1).collect();
    assert_eq!(numbers(&readers).await, expected);
    group.close().await;
}

#[tokio::test]
async fn a_commit_is_reported_when_others_can_read_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let (group, readers) = open(dir.path()).await;
    let mut first = group.begin().await.expect("a turn");
    put(&mut first, 1).await.expect("insert");
    // The second waits for the connection until the first returns it, and then delays the commit of both.
    let waiting = tokio::spawn({
        let group = Arc::clone(&group);
        async move { group.begin().await.expect("a turn") }
    });
    tokio::task::yield_now().await;
    let committed = tokio::spawn(first.commit());
    let mut second = waiting.await.expect("no panic");
    put(&mut second, 2).await.expect("insert");
    assert!(!committed.is_finished() && numbers(&readers).await.is_empty());
    second.commit().await.expect("commit");
    committed.await.expect("no panic").expect("commit");
    assert_eq!(numbers(&readers).await, [1, 2]);
    group.close().await;
}

#[tokio::test]
async fn a_caller_that_stops_waiting_blocks_no_other() {
    let dir = tempfile::tempdir().expect("a folder");
    let (group, readers) = open(dir.path()).await;
    let holder = group.begin().await.expect("a turn");
    let gave_up = tokio::time::timeout(Duration::from_millis(20), group.begin()).await;
    assert!(gave_up.is_err());
    drop(holder);
    let mut turn = group.begin().await.expect("a turn");
    put(&mut turn, 7).await.expect("insert");
    turn.commit().await.expect("commit");
    assert_eq!(numbers(&readers).await, [7]);
    group.close().await;
    assert!(group.begin().await.is_err(), "closed");
}
