//! Whose a job is: looking it up, and taking over the jobs of a coordinator that is gone.

use island_protocol::{
    ids::{InstanceId, JobId},
    job::JobStatus,
};
use sqlx::{AssertSqlSafe, Row as _};

use super::read;
use crate::{
    job::Job,
    storage::{Attempt as _, Pool, Store, StoreError, commit, parsed},
};

/// Where a job stands and who looks after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub status: JobStatus,
    pub by: Option<InstanceId>,
}

/// Who looks after a job.
pub(crate) async fn held(pool: &Pool, id: JobId) -> Result<Option<Held>, StoreError> {
    let row = sqlx::query("SELECT status, owner FROM jobs WHERE id = $1")
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .attempt("read the owner of a job")?;
    let Some(row) = row else { return Ok(None) };
    let owner: Option<String> = row.try_get("owner").attempt("read a column")?;
    let by = owner.map(|owner| owner.parse()).transpose();
    let by = by.map_err(|_| StoreError::Corrupt { what: "owner" })?;
    Ok(Some(Held { status: read::status(&row)?, by }))
}

/// Ids of the open jobs of a coordinator, in any order.
pub(crate) async fn open(pool: &Pool, owner: InstanceId) -> Result<Vec<JobId>, StoreError> {
    let rows = sqlx::query(
        "SELECT id FROM jobs WHERE owner = $1 AND status IN ('submitted', 'pending', 'queued', 'running')",
    )
    .bind(owner.to_string())
    .fetch_all(pool)
    .await
    .attempt("list open jobs")?;
    rows.iter().map(|row| parsed(row, "id")).collect()
}

/// A job, if it is open and `owner` has it.
pub(crate) async fn open_of(pool: &Pool, id: JobId, owner: InstanceId) -> Result<Option<Job>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!(
        "SELECT {} FROM jobs WHERE id = $1 AND owner = $2 AND status IN ('submitted', 'pending', 'queued', 'running')",
        read::COLUMNS
    )))
    .bind(id.to_string())
    .bind(owner.to_string())
    .fetch_optional(pool)
    .await
    .attempt("read an open job")?;
    row.as_ref().map(read::read).transpose()
}

/// Takes over every open job whose owner is gone, and returns how many. Of several coordinators that try, one gets each.
pub(crate) async fn adopt(store: &Store, own: InstanceId) -> Result<u64, StoreError> {
    let gone = sqlx::query(
        "SELECT DISTINCT owner FROM jobs WHERE status IN ('submitted', 'pending', 'queued', 'running') \
         AND owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM coordinators c WHERE c.id = jobs.owner)",
    )
    .fetch_all(store.reader())
    .await
    .attempt("look for jobs without an owner")?;
    let mut jobs = 0;
    for row in gone {
        let owner = parsed(&row, "owner")?;
        jobs += adopt_from(store, owner, own).await?;
    }
    Ok(jobs)
}

/// The owner is named, so that a job which somebody else takes over meanwhile no longer matches.
async fn adopt_from(store: &Store, gone: InstanceId, own: InstanceId) -> Result<u64, StoreError> {
    let mut tx = store.begin().await?;
    let done = sqlx::query(
        "UPDATE jobs SET owner = $1 WHERE owner = $2 AND status IN ('submitted', 'pending', 'queued', 'running') \
         AND NOT EXISTS (SELECT 1 FROM coordinators c WHERE c.id = $2)",
    )
    .bind(own.to_string())
    .bind(gone.to_string())
    .execute(&mut *tx)
    .await
    .attempt("take jobs over")?;
    commit(tx).await?;
    Ok(done.rows_affected())
}
