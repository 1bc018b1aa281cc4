//! How far tasks over ended jobs have come, in the order of completion.

use strum::IntoStaticStr;

use super::{Connection, Dialect, Pool, QueryContext as _, Store, StoreError, integer};
use island_coordinator_domain::clock::Clock;

/// A task over ended jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Task {
    /// The sums of completed jobs and their prices.
    Market,
    /// The sums of ended jobs by account, day, Cargo and key.
    Usage,
    /// Deletion of inputs.
    Inputs,
    /// Deletion of outputs.
    Outputs,
    /// Deletion of events.
    Events,
    /// None: the newest time by which the others went.
    Clock,
}

/// The time of completion up to which a task has come.
pub async fn get(pool: &Pool, task: Task) -> Result<i64, StoreError> {
    let row = sqlx::query("SELECT until FROM progress WHERE task = $1")
        .bind(<&str>::from(task))
        .fetch_one(pool)
        .await
        .context("read the progress of a task")?;
    integer(&row, "until")
}

/// Records a time by which tasks go, unless a later one is known.
pub async fn see(conn: &mut Connection, now: i64) -> Result<(), StoreError> {
    sqlx::query("UPDATE progress SET until = $2 WHERE task = $1 AND until < $2")
        .bind(<&str>::from(Task::Clock))
        .bind(now)
        .execute(conn)
        .await
        .context("record the newest time")?;
    Ok(())
}

/// By how many milliseconds the clock of a database server on another machine is ahead of this one's; `None` without such a server.
pub async fn clock_difference(store: &Store, clock: &Clock) -> Result<Option<i64>, StoreError> {
    if store.dialect() == Dialect::Sqlite {
        return Ok(None);
    }
    let row = sqlx::query(
        "SELECT CASE WHEN inet_server_addr() IS DISTINCT FROM inet_client_addr() THEN 1::bigint ELSE 0::bigint END AS remote, \
         CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now",
    )
    .fetch_one(store.reader())
    .await
    .context("read the clock of the database server")?;
    let difference = integer(&row, "now")? - clock.now().unix_ms();
    Ok((integer(&row, "remote")? == 1).then_some(difference))
}

/// Advances a task. Returns `false`, and writes nothing, if another coordinator advanced it meanwhile.
pub async fn advance(conn: &mut Connection, task: Task, from: i64, to: i64) -> Result<bool, StoreError> {
    let done = sqlx::query("UPDATE progress SET until = $3 WHERE task = $1 AND until = $2")
        .bind(<&str>::from(task))
        .bind(from)
        .bind(to)
        .execute(conn)
        .await
        .context("record the progress of a task")?;
    Ok(done.rows_affected() == 1)
}
