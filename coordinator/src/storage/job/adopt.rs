//! Whose a job is, and taking over what belonged to a coordinator that is gone.

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

/// Takes over every open job whose owner is gone; oldest first. Of several coordinators that try, one gets each.
pub(crate) async fn adopt(store: &Store, own: InstanceId) -> Result<Vec<Job>, StoreError> {
    let gone = sqlx::query(
        "SELECT DISTINCT owner FROM jobs WHERE status IN ('submitted', 'pending', 'queued', 'running') \
         AND owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM coordinators c WHERE c.id = jobs.owner)",
    )
    .fetch_all(store.reader())
    .await
    .attempt("look for jobs without an owner")?;
    let mut jobs = Vec::new();
    for row in gone {
        let owner = parsed(&row, "owner")?;
        jobs.extend(adopt_from(store, owner, own).await?);
    }
    jobs.sort_by_key(|job| (job.created_at, job.id));
    Ok(jobs)
}

/// The owner is named, so that a job which somebody else takes over meanwhile no longer matches.
async fn adopt_from(store: &Store, gone: InstanceId, own: InstanceId) -> Result<Vec<Job>, StoreError> {
    let mut tx = store.begin().await?;
    let rows = sqlx::query(AssertSqlSafe(format!(
        "UPDATE jobs SET owner = $1 WHERE owner = $2 AND status IN ('submitted', 'pending', 'queued', 'running') \
         AND NOT EXISTS (SELECT 1 FROM coordinators c WHERE c.id = $2) RETURNING {}",
        read::COLUMNS
    )))
    .bind(own.to_string())
    .bind(gone.to_string())
    .fetch_all(&mut *tx)
    .await
    .attempt("take jobs over")?;
    commit(tx).await?;
    rows.iter().map(read::read).collect()
}
