//! The coordinator of a job: reads it, and takes over the jobs of coordinators that are gone.

use std::collections::{HashMap, HashSet};

use island_protocol::{
    ids::{InstanceId, JobId},
    job::JobStatus,
};
use sqlx::{AssertSqlSafe, Row as _};

use super::read;
use crate::{Pool, QueryContext as _, Row, Store, StoreError, commit, integer, parsed};
use island_coordinator_domain::{job::Job, peers::Share};

/// Status of a job and the coordinator that executes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssignedCoordinator {
    pub status: JobStatus,
    pub coordinator: Option<InstanceId>,
}

/// Reads the status and the coordinator of a job.
pub async fn assigned_coordinator(pool: &Pool, id: JobId) -> Result<Option<AssignedCoordinator>, StoreError> {
    let row = sqlx::query("SELECT status, coordinator_id FROM jobs WHERE id = $1")
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("read the coordinator of a job")?;
    let Some(row) = row else { return Ok(None) };
    let coordinator: Option<String> = row.try_get("coordinator_id").context("read a column")?;
    let coordinator = coordinator.map(|id| id.parse()).transpose();
    let coordinator = coordinator.map_err(|_| StoreError::Corrupt { what: "coordinator_id" })?;
    Ok(Some(AssignedCoordinator { status: read::status(&row)?, coordinator }))
}

/// Maximum number of jobs that [`open_among`] and [`status_and_epoch`] read.
pub const MAX_STATUS_IDS: usize = 64;

/// Returns those of at most [`MAX_STATUS_IDS`] jobs that have not ended.
pub async fn open_among(pool: &Pool, ids: &[JobId]) -> Result<HashSet<JobId>, StoreError> {
    let open = "AND status IN ('submitted', 'pending', 'queued', 'running')";
    let rows = among(pool, "id", ids, open).await.context("read which jobs are open")?;
    rows.iter().map(|row| parsed(row, "id")).collect()
}

/// Reads the status and the epoch of at most [`MAX_STATUS_IDS`] jobs, as far as they exist.
pub async fn status_and_epoch(
    pool: &Pool,
    ids: &[JobId],
) -> Result<HashMap<JobId, (JobStatus, u64)>, StoreError> {
    let rows = among(pool, "id, status, epoch", ids, "").await.context("read the status of jobs")?;
    let read = |row| Ok((parsed(row, "id")?, (read::status(row)?, integer(row, "epoch")? as u64)));
    rows.iter().map(read).collect()
}

/// Selects columns of at most [`MAX_STATUS_IDS`] jobs.
async fn among(pool: &Pool, columns: &str, ids: &[JobId], condition: &str) -> sqlx::Result<Vec<Row>> {
    // One statement for any number of jobs, so that it is prepared once: the last one fills the list.
    let places: Vec<String> = (1..=MAX_STATUS_IDS).map(|n| format!("${n}")).collect();
    let statement = format!("SELECT {columns} FROM jobs WHERE id IN ({}) {condition}", places.join(", "));
    let filled = ids.iter().chain(ids.last().into_iter().cycle()).take(MAX_STATUS_IDS);
    let query = sqlx::query(AssertSqlSafe(statement));
    filled.fold(query, |query, id| query.bind(id.to_string())).fetch_all(pool).await
}

/// Ids of the open jobs of a coordinator, in any order.
pub async fn open(pool: &Pool, coordinator: InstanceId) -> Result<Vec<JobId>, StoreError> {
    let rows = sqlx::query(
        "SELECT id FROM jobs WHERE coordinator_id = $1 AND status IN ('submitted', 'pending', 'queued', 'running')",
    )
    .bind(coordinator.to_string())
    .fetch_all(pool)
    .await
    .context("list open jobs")?;
    rows.iter().map(|row| parsed(row, "id")).collect()
}

/// A job, if it is open and `coordinator` executes it.
pub async fn open_of(pool: &Pool, id: JobId, coordinator: InstanceId) -> Result<Option<Job>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!(
        "SELECT {} FROM jobs WHERE id = $1 AND coordinator_id = $2 AND status IN ('submitted', 'pending', 'queued', 'running')",
        read::COLUMNS
    )))
    .bind(id.to_string())
    .bind(coordinator.to_string())
    .fetch_optional(pool)
    .await
    .context("read an open job")?;
    row.as_ref().map(read::read).transpose()
}

/// Result of a takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Adopted {
    /// Number of jobs that were taken over.
    pub taken: u64,
    /// Whether jobs of other shares have no coordinator.
    pub has_others: bool,
}

/// Takes over the open jobs of a share whose coordinator was removed. If several coordinators try, one gets each job.
pub async fn adopt(store: &Store, own: InstanceId, share: &Share) -> Result<Adopted, StoreError> {
    let gone = removed(store).await?;
    let mut taken = 0;
    for coordinator in &gone {
        taken += adopt_from(store, *coordinator, own, share).await?;
    }
    let has_others = !gone.is_empty() && !removed(store).await?.is_empty();
    Ok(Adopted { taken, has_others })
}

/// Coordinators that were removed and have open jobs.
async fn removed(store: &Store) -> Result<Vec<InstanceId>, StoreError> {
    let rows = sqlx::query(
        "SELECT DISTINCT coordinator_id FROM jobs WHERE status IN ('submitted', 'pending', 'queued', 'running') \
         AND coordinator_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM coordinators c WHERE c.id = jobs.coordinator_id)",
    )
    .fetch_all(store.reader())
    .await
    .context("list coordinators that were removed")?;
    rows.iter().map(|row| parsed(row, "coordinator_id")).collect()
}

/// The statement names the former coordinator, so that it does not match a job that another coordinator takes over
/// meanwhile.
async fn adopt_from(
    store: &Store,
    gone: InstanceId,
    own: InstanceId,
    share: &Share,
) -> Result<u64, StoreError> {
    let mut tx = store.begin().await?;
    let done = sqlx::query(
        "UPDATE jobs SET coordinator_id = $1 WHERE coordinator_id = $2 AND status IN ('submitted', 'pending', 'queued', 'running') \
         AND NOT EXISTS (SELECT 1 FROM coordinators c WHERE c.id = $2) AND $3 LIKE '%' || substr(id, 36, 1) || '%'",
    )
    .bind(own.to_string())
    .bind(gone.to_string())
    .bind(share.digits().to_owned())
    .execute(&mut *tx)
    .await
    .context("take jobs over")?;
    commit(tx).await?;
    Ok(done.rows_affected())
}
