//! Deletion of the data of ended jobs: after a time, and on request. The jobs remain, and so does the ledger.

use island_protocol::{ids::JobId, time::Timestamp};
use sqlx::Row as _;

use super::{
    Connection, Pool, QueryContext as _, Store, StoreError, commit, moment,
    progress::{self, Task},
};

/// Jobs of one transaction.
const BATCH: i64 = 500;

/// Deletes inputs, outputs or events of the next jobs that ended before `cutoff`. Returns their number, or `None` if no such
/// job remains.
pub async fn delete_ended_before(
    store: &Store,
    task: Task,
    cutoff: Timestamp,
    now: Timestamp,
) -> Result<Option<u64>, StoreError> {
    let from = progress::get(store.reader(), task).await?;
    let cutoff = cutoff.unix_ms();
    let Some(to) = end_of_batch(store.reader(), from, cutoff).await? else { return Ok(None) };
    let mut tx = store.begin().await?;
    if !progress::advance(&mut tx, task, from, to).await? {
        // Another coordinator deletes this batch.
        return Ok(Some(0));
    }
    if task == Task::Inputs {
        sqlx::query(
            "DELETE FROM responses WHERE job_id IN (SELECT id FROM jobs WHERE completed_at > $1 AND completed_at <= $2)",
        )
        .bind(from)
        .bind(to)
        .execute(&mut *tx)
        .await
        .context("delete responses of ended jobs")?;
    }
    let (jobs, events) = match task {
        Task::Inputs => ("input = '{}'", false),
        Task::Outputs => ("output = NULL", false),
        Task::Events => ("head = '[]'", true),
        Task::Market | Task::Usage | Task::Clock => return Ok(None),
    };
    let range = "completed_at > $1 AND completed_at <= $2";
    if events {
        for table in ["job_event_pieces", "job_events"] {
            sqlx::query(sqlx::AssertSqlSafe(format!(
                "DELETE FROM {table} WHERE job_id IN (SELECT id FROM jobs WHERE {range})"
            )))
            .bind(from)
            .bind(to)
            .execute(&mut *tx)
            .await
            .context("delete events of ended jobs")?;
        }
    }
    let done = sqlx::query(sqlx::AssertSqlSafe(format!(
        "UPDATE jobs SET {jobs}, data_deleted_at = COALESCE(data_deleted_at, $3) WHERE {range}"
    )))
    .bind(from)
    .bind(to)
    .bind(now.unix_ms())
    .execute(&mut *tx)
    .await
    .context("delete data of ended jobs")?;
    commit(tx).await?;
    Ok(Some(done.rows_affected()))
}

/// The time of completion of the last job in the next batch; jobs of the same time belong to it as well.
async fn end_of_batch(pool: &Pool, from: i64, cutoff: i64) -> Result<Option<i64>, StoreError> {
    let row = sqlx::query(
        "SELECT MAX(completed_at) AS until FROM (SELECT completed_at FROM jobs \
         WHERE completed_at > $1 AND completed_at <= $2 ORDER BY completed_at LIMIT $3) AS batch",
    )
    .bind(from)
    .bind(cutoff)
    .bind(BATCH)
    .fetch_one(pool)
    .await
    .context("find ended jobs with data")?;
    row.try_get("until").context("read a column")
}

/// Deletes all data of a job that has ended: input, output and events. Returns when a part of it was first deleted, or
/// `None`, and deletes nothing, if the job is open.
pub async fn delete(
    conn: &mut Connection,
    job: JobId,
    now: Timestamp,
) -> Result<Option<Timestamp>, StoreError> {
    let row = sqlx::query(
        "UPDATE jobs SET input = '{}', output = NULL, head = '[]', \
         data_deleted_at = COALESCE(data_deleted_at, $2) WHERE id = $1 AND completed_at IS NOT NULL \
         RETURNING data_deleted_at",
    )
    .bind(job.to_string())
    .bind(now.unix_ms())
    .fetch_optional(&mut *conn)
    .await
    .context("delete the data of a job")?;
    let Some(row) = row else { return Ok(None) };
    for statement in [
        "DELETE FROM job_event_pieces WHERE job_id = $1",
        "DELETE FROM job_events WHERE job_id = $1",
        "DELETE FROM responses WHERE job_id = $1",
    ] {
        sqlx::query(statement)
            .bind(job.to_string())
            .execute(&mut *conn)
            .await
            .context("delete the events of a job")?;
    }
    moment(&row, "data_deleted_at")
}

/// When a part of a job's data was first deleted.
pub async fn deleted_at(pool: &Pool, job: JobId) -> Result<Option<Timestamp>, StoreError> {
    let row = sqlx::query("SELECT data_deleted_at FROM jobs WHERE id = $1")
        .bind(job.to_string())
        .fetch_optional(pool)
        .await
        .context("read when data was deleted")?;
    row.as_ref().map_or(Ok(None), |row| moment(row, "data_deleted_at"))
}
