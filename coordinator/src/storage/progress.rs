//! How far tasks over ended jobs have come, in the order of completion.

use strum::IntoStaticStr;

use super::{Connection, Pool, QueryContext as _, StoreError, integer};

/// A task over ended jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Task {
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
}

/// The time of completion up to which a task has come.
pub(crate) async fn get(pool: &Pool, task: Task) -> Result<i64, StoreError> {
    let row = sqlx::query("SELECT until FROM progress WHERE task = $1")
        .bind(<&str>::from(task))
        .fetch_one(pool)
        .await
        .context("read the progress of a task")?;
    integer(&row, "until")
}

/// Advances a task. Returns `false`, and writes nothing, if another coordinator advanced it meanwhile.
pub(crate) async fn advance(
    conn: &mut Connection,
    task: Task,
    from: i64,
    to: i64,
) -> Result<bool, StoreError> {
    let done = sqlx::query("UPDATE progress SET until = $3 WHERE task = $1 AND until = $2")
        .bind(<&str>::from(task))
        .bind(from)
        .bind(to)
        .execute(conn)
        .await
        .context("record the progress of a task")?;
    Ok(done.rows_affected() == 1)
}
