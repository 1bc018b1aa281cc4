//! Jobs: acceptance, assignment, end. Every write after the first is a compare-and-set on the job's coordinator and its
//! attempt.

mod adopt;
mod end;
mod events;
mod list;
mod queue;
mod read;

pub use adopt::{
    Adopted, MAX_STATUS_IDS, adopt, assigned_coordinator, open, open_among, open_of, status_and_epoch,
};
pub use end::{Ending, end};
pub use events::{has_ended, piece};
pub use list::{JobFilter, Position, page};
pub use queue::{WaitingFilter, waiting, waiting_by_cargo};
pub use read::{get, open_by_status, recent, was_checked};

use island_protocol::{
    credits::MicroCredits,
    event::{JobEvent, Numbered},
    ids::{ApiKeyId, AttemptKey, HostId, InstanceId, JobId},
    job::JobStatus,
    time::Timestamp,
};
use sqlx::Row as _;

use super::{
    Connection, QueryContext as _, Store, StoreError, batch, commit,
    idempotency::{self, Claim, Claimed},
    key::{self, Spending},
    ledger::{self, Details},
    quota::{self, Refused},
    response, to_json,
};
use island_coordinator_domain::{
    job::{Job, Part, Times},
    ledger::Posting,
};

/// Why a job was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The price exceeds the balance.
    #[error("{needed} credits are needed and {available} are available")]
    InsufficientCredits { needed: MicroCredits, available: MicroCredits },
    /// The price exceeds what the key's cap leaves.
    #[error("{needed} credits are needed and this key's spend_cap of {cap} leaves {left}")]
    Capped { needed: MicroCredits, cap: MicroCredits, left: MicroCredits },
    /// The key was revoked meanwhile.
    #[error("this API key is unknown or revoked")]
    Revoked,
    /// The account has too many open jobs.
    #[error("{limit} jobs are open already")]
    TooMany { limit: u32 },
    /// The price exceeds what the batch may still cost.
    #[error("{needed} credits are needed and the batch's max_credits of {most} leaves {left}")]
    BatchCapped { needed: MicroCredits, most: MicroCredits, left: MicroCredits },
    /// A quota has no room for the job.
    #[error(transparent)]
    Quota(Refused),
    /// The idempotency key was used before with another body.
    #[error("the idempotency key was used before with another body")]
    Reused,
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Conditions of acceptance.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// The coordinator that executes the job.
    pub coordinator: InstanceId,
    /// The API key of the request.
    pub key: ApiKeyId,
    /// Whether its account or the key may have quotas.
    pub has_quotas: bool,
    /// Maximum open jobs of an account; 0 means no limit.
    pub limit: u32,
    /// The request's idempotency key, if it has one.
    pub claim: Option<Claim<'a>>,
    /// What is kept of the request of a stored response.
    pub response: Option<&'a str>,
}

/// Result of acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// The job is stored.
    New,
    /// The same request created this job before; nothing is stored.
    Existing(JobId),
}

/// Stores a new job with its credit hold and its idempotency key, in one transaction.
pub async fn accept(store: &Store, job: &Job, terms: &Terms<'_>) -> Result<Accepted, AcceptError> {
    let mut tx = store.begin_locked([job.account]).await?;
    if let Some(claim) = &terms.claim {
        match idempotency::claim(&mut tx, claim, &job.id.to_string(), job.created_at).await? {
            Claimed::New => {}
            Claimed::Existing(made) => {
                // The record may be in the same commit group, so the caller must not see it before it is on disk.
                commit(tx).await?;
                return Ok(Accepted::Existing(
                    made.parse().map_err(|_| StoreError::Corrupt { what: "made" })?,
                ));
            }
            Claimed::Reused => return Err(AcceptError::Reused),
        }
    }
    if !insert(&mut tx, job, terms.coordinator, Some(terms.key), terms.limit).await? {
        return Err(AcceptError::TooMany { limit: terms.limit });
    }
    if let Some(request) = terms.response {
        response::insert(&mut tx, job.id, request).await?;
    }
    if terms.has_quotas {
        let admitted = quota::accept(&mut tx, job.account, terms.key, job.price, job.created_at).await?;
        admitted.map_err(AcceptError::Quota)?;
    }
    let needed = job.price;
    let hold = Posting::hold(job.account, needed);
    if needed > MicroCredits::ZERO && !covered(&mut tx, job, &hold).await? {
        let available = ledger::balance_in(&mut tx, job.account).await?;
        return Err(AcceptError::InsufficientCredits { needed, available });
    }
    match key::spend(&mut tx, terms.key, needed).await? {
        Spending::Taken => {}
        Spending::Capped { cap, left } => return Err(AcceptError::Capped { needed, cap, left }),
        Spending::Revoked => return Err(AcceptError::Revoked),
    }
    if let Some(id) = job.agreement.batch {
        match batch::spend(&mut tx, id, needed).await? {
            batch::Spending::Taken => {}
            batch::Spending::Capped { most, left } => {
                return Err(AcceptError::BatchCapped { needed, most, left });
            }
        }
    }
    commit(tx).await?;
    Ok(Accepted::New)
}

/// Writes the hold of a job. Returns `false` if the account has less, with what it earned and was not counted yet.
async fn covered(conn: &mut Connection, job: &Job, hold: &Posting) -> Result<bool, StoreError> {
    let details = Details::of_job(job.id);
    if ledger::try_post(conn, hold, &details, job.created_at).await? {
        return Ok(true);
    }
    Ok(ledger::count(conn, job.account).await?
        && ledger::try_post(conn, hold, &details, job.created_at).await?)
}

/// Stores the job of an Island that checks itself, unless it had one after `since`. The job is free and needs no key.
pub async fn accept_check(
    store: &Store,
    job: &Job,
    coordinator: InstanceId,
    since: Timestamp,
) -> Result<bool, StoreError> {
    let mut tx = store.begin_locked([job.account]).await?;
    let recent = sqlx::query("SELECT COUNT(*) AS n FROM jobs WHERE only_host = $1 AND created_at > $2")
        .bind(job.only.map(|host| host.to_string()))
        .bind(since.unix_ms())
        .fetch_one(&mut *tx)
        .await
        .and_then(|row| row.try_get::<i64, _>("n"))
        .context("count an Island's checks")?;
    if recent > 0 {
        return Ok(false);
    }
    insert(&mut tx, job, coordinator, None, 0).await?;
    commit(tx).await?;
    Ok(true)
}

/// Adds a row, unless the account has `limit` open jobs (0: no limit). Returns `false` if it has. The count reads the
/// index of open jobs; `only_host IS NULL` would let the database choose the one of all jobs.
pub(super) async fn insert(
    conn: &mut Connection,
    job: &Job,
    coordinator: InstanceId,
    key: Option<ApiKeyId>,
    limit: u32,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO jobs (id, account_id, workload_id, workload_slug, status, input, priority, price, max_tokens, \
         coordinator_id, head, first_event, deadline, created_at, api_key_id, attempt, epoch, host_id, only_host, \
         cancel_unread, agreement) \
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $21, $22 \
         WHERE $20 = 0 OR $20 > (SELECT COUNT(*) FROM jobs WHERE account_id = $2 AND COALESCE(only_host, '') = '' \
          AND status IN ('submitted', 'pending', 'queued', 'running'))",
    )
    .bind(job.id.to_string())
    .bind(job.account.to_string())
    .bind(job.workload_id)
    .bind(job.workload.as_str())
    .bind(job.status.as_str())
    .bind(job.input.as_str().to_owned())
    .bind(i64::from(job.priority))
    .bind(job.price.0)
    .bind(job.max_tokens.map(|tokens| i64::try_from(tokens).unwrap_or(i64::MAX)))
    .bind(coordinator.to_string())
    .bind(to_json(&job.head))
    .bind(job.first_event as i64)
    .bind(job.deadline.unix_ms())
    .bind(job.created_at.unix_ms())
    .bind(key.map(|key| key.to_string()))
    .bind(i64::from(job.attempt))
    .bind(job.epoch as i64)
    .bind(job.host.map(|host| host.to_string()))
    .bind(job.only.map(|host| host.to_string()))
    .bind(i64::from(limit))
    .bind(i64::from(job.cancel_unread))
    .bind((!job.agreement.is_default()).then(|| to_json(&job.agreement)))
    .execute(conn)
    .await
    .context("insert a job")?;
    Ok(done.rows_affected() == 1)
}

/// The next attempt of a job.
#[derive(Debug)]
pub struct Step<'a> {
    /// Attempt that the row must have. It may have `to` as well: then an earlier try was committed and the reply was
    /// lost.
    pub from: AttemptKey,
    /// Attempt that the row gets.
    pub to: AttemptKey,
    pub status: JobStatus,
    pub host: Option<HostId>,
    pub head: &'a [Numbered<JobEvent>],
    /// What earlier attempts delivered.
    pub parts: &'a [Part],
    /// How far the job got.
    pub times: Times,
    pub first_event: u64,
    /// The coordinator that executes the job, before and afterwards.
    pub coordinator: InstanceId,
}

/// Sets a job's attempt. Idempotent. Returns `false`, and writes nothing, if another coordinator changed the job.
pub async fn step(store: &Store, step: &Step<'_>) -> Result<bool, StoreError> {
    let mut tx = store.begin().await?;
    let done = sqlx::query(
        "UPDATE jobs SET attempt = $4, epoch = $5, status = $6, host_id = $7, head = $8, first_event = $9, \
         parts = $11, placed_at = $12, started_at = $13, first_output_at = $14 \
         WHERE id = $1 AND coordinator_id = $10 AND ((attempt = $2 AND epoch = $3) OR (attempt = $4 AND epoch = $5)) \
         AND status IN ('submitted', 'pending', 'queued', 'running')",
    )
    .bind(step.from.job_id.to_string())
    .bind(i64::from(step.from.attempt))
    .bind(step.from.epoch as i64)
    .bind(i64::from(step.to.attempt))
    .bind(step.to.epoch as i64)
    .bind(step.status.as_str())
    .bind(step.host.map(|host| host.to_string()))
    .bind(to_json(&step.head))
    .bind(step.first_event as i64)
    .bind(step.coordinator.to_string())
    .bind((!step.parts.is_empty()).then(|| to_json(&step.parts)))
    .bind(step.times.placed_at.map(Timestamp::unix_ms))
    .bind(step.times.started_at.map(Timestamp::unix_ms))
    .bind(step.times.first_output_at.map(Timestamp::unix_ms))
    .execute(&mut *tx)
    .await
    .context("step a job")?;
    commit(tx).await?;
    Ok(done.rows_affected() == 1)
}

/// Records that attempts of this coordinator's jobs began to execute. Rows are written in the order of their ids, so
/// that two such transactions cannot deadlock.
pub async fn started(
    store: &Store,
    coordinator: InstanceId,
    started: &mut [(AttemptKey, Times)],
) -> Result<(), StoreError> {
    started.sort_unstable_by_key(|(key, _)| *key);
    let mut tx = store.begin().await?;
    for (key, times) in &*started {
        sqlx::query(
            "UPDATE jobs SET status = 'running', started_at = COALESCE(started_at, $4), \
             placed_at = COALESCE(placed_at, $6) \
             WHERE id = $1 AND attempt = $2 AND epoch = $3 AND coordinator_id = $5 AND status = 'queued'",
        )
        .bind(key.job_id.to_string())
        .bind(i64::from(key.attempt))
        .bind(key.epoch as i64)
        .bind(times.started_at.map(Timestamp::unix_ms))
        .bind(coordinator.to_string())
        .bind(times.placed_at.map(Timestamp::unix_ms))
        .execute(&mut *tx)
        .await
        .context("record the start of a job")?;
    }
    commit(tx).await
}

#[cfg(test)]
mod tests;
