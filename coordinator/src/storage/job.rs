//! Jobs: accepted, assigned, ended. Every write after the first is a compare-and-set on the owner and the fence.

mod adopt;
mod end;
mod read;

pub(crate) use adopt::{adopt, held, open, open_of};
pub(crate) use end::{Ending, end};
pub(crate) use read::{events, get, page, recent};

use island_protocol::{
    credits::MicroCredits,
    event::{JobEvent, Numbered},
    ids::{ApiKeyId, AttemptKey, HostId, InstanceId, JobId},
    job::JobStatus,
    time::Timestamp,
};
use sqlx::Row as _;

use super::{
    Attempt as _, Connection, Store, StoreError, account, commit,
    idempotency::{self, Claim, Known},
    key::{self, Spending},
    ledger as books, to_json,
};
use crate::{job::Job, ledger};

/// Why a job is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceptError {
    /// The hold is more than what is left.
    #[error("{needed} credits are needed and {available} are available")]
    InsufficientCredits { needed: MicroCredits, available: MicroCredits },
    /// The hold is more than what the key's cap leaves.
    #[error("{needed} credits are needed and this key's spend_cap of {cap} leaves {left}")]
    Capped { needed: MicroCredits, cap: MicroCredits, left: MicroCredits },
    /// The key was revoked meanwhile.
    #[error("this API key is unknown or revoked")]
    Revoked,
    /// Too many jobs at once.
    #[error("{limit} jobs run already")]
    TooMany { limit: u32 },
    /// The idempotency key came before with another body.
    #[error("the idempotency key came before with another body")]
    Reused,
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a job is accepted under.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    /// Coordinator that will own it.
    pub owner: InstanceId,
    /// Key it comes with.
    pub key: ApiKeyId,
    /// Jobs an account may have open; 0: no limit.
    pub limit: u32,
    /// Its idempotency key, if it has one.
    pub claim: Option<Claim<'a>>,
}

/// What became of a job that was to be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// It is stored.
    New,
    /// The same request made this job before; nothing is stored.
    Before(JobId),
}

/// Stores a new job with its credit hold and its idempotency key, in one transaction.
pub(crate) async fn accept(store: &Store, job: &Job, terms: &Terms<'_>) -> Result<Accepted, AcceptError> {
    let mut tx = store.begin().await?;
    account::lock(&mut tx, [job.account]).await?;
    if let Some(claim) = &terms.claim {
        match idempotency::claim(&mut tx, claim, &job.id.to_string(), job.created_at).await? {
            Known::New => {}
            Known::Before(made) => {
                // It may be in the same group, and is not to be told of before it is on disk.
                commit(tx).await?;
                return Ok(Accepted::Before(made.parse().map_err(|_| StoreError::Corrupt { what: "made" })?));
            }
            Known::Reused => return Err(AcceptError::Reused),
        }
    }
    if !insert(&mut tx, job, terms.owner, Some(terms.key), terms.limit).await? {
        return Err(AcceptError::TooMany { limit: terms.limit });
    }
    let needed = job.price;
    let hold = ledger::hold(job.account, needed);
    if needed > MicroCredits::ZERO && !books::try_post(&mut tx, &hold, Some(job.id), job.created_at).await? {
        let available = books::balance_in(&mut tx, job.account).await?;
        return Err(AcceptError::InsufficientCredits { needed, available });
    }
    match key::spend(&mut tx, terms.key, needed).await? {
        Spending::Taken => {}
        Spending::Capped { cap, left } => return Err(AcceptError::Capped { needed, cap, left }),
        Spending::Revoked => return Err(AcceptError::Revoked),
    }
    commit(tx).await?;
    Ok(Accepted::New)
}

/// Stores the job of an Island that checks itself, unless it had one since a moment. It costs nothing and needs no key.
pub(crate) async fn accept_check(
    store: &Store,
    job: &Job,
    owner: InstanceId,
    since: Timestamp,
) -> Result<bool, StoreError> {
    let mut tx = store.begin().await?;
    account::lock(&mut tx, [job.account]).await?;
    let lately = sqlx::query("SELECT COUNT(*) AS n FROM jobs WHERE only_host = $1 AND created_at > $2")
        .bind(job.only.map(|host| host.to_string()))
        .bind(since.unix_ms())
        .fetch_one(&mut *tx)
        .await
        .and_then(|row| row.try_get::<i64, _>("n"))
        .attempt("count an Island's checks")?;
    if lately > 0 {
        return Ok(false);
    }
    insert(&mut tx, job, owner, None, 0).await?;
    commit(tx).await?;
    Ok(true)
}

/// Adds a row, unless its account has `limit` jobs open (0: as many as it likes). False: it has.
async fn insert(
    conn: &mut Connection,
    job: &Job,
    owner: InstanceId,
    key: Option<ApiKeyId>,
    limit: u32,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO jobs (id, account_id, workload_id, workload_slug, status, input, priority, price, max_tokens, \
         owner, head, first_event, deadline, created_at, api_key_id, attempt, epoch, host_id, only_host) \
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19 \
         WHERE $20 = 0 OR $20 > (SELECT COUNT(*) FROM jobs WHERE account_id = $2 AND only_host IS NULL \
          AND status IN ('submitted', 'pending', 'queued', 'running'))",
    )
    .bind(job.id.to_string())
    .bind(job.account.to_string())
    .bind(job.workload_id)
    .bind(job.workload.as_str())
    .bind(job.status.as_str())
    .bind(to_json(&job.input))
    .bind(i64::from(job.priority))
    .bind(job.price.0)
    .bind(job.max_tokens.map(|tokens| i64::try_from(tokens).unwrap_or(i64::MAX)))
    .bind(owner.to_string())
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
    .execute(conn)
    .await
    .attempt("insert a job")?;
    Ok(done.rows_affected() == 1)
}

/// The row's next fence and what goes with it.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    /// What the row must hold now. It may hold `to` as well: an earlier try was committed and its answer lost.
    pub from: AttemptKey,
    /// What it holds afterwards.
    pub to: AttemptKey,
    pub status: JobStatus,
    pub host: Option<HostId>,
    pub head: &'a [Numbered<JobEvent>],
    pub first_event: u64,
    /// Who looks after it, before and afterwards.
    pub owner: InstanceId,
}

/// Moves a job to another attempt or epoch. Idempotent. False: another coordinator moved it, and nothing is written.
pub(crate) async fn step(store: &Store, step: &Step<'_>) -> Result<bool, StoreError> {
    let mut tx = store.begin().await?;
    let done = sqlx::query(
        "UPDATE jobs SET attempt = $4, epoch = $5, status = $6, host_id = $7, head = $8, first_event = $9 \
         WHERE id = $1 AND owner = $10 AND ((attempt = $2 AND epoch = $3) OR (attempt = $4 AND epoch = $5)) \
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
    .bind(step.owner.to_string())
    .execute(&mut *tx)
    .await
    .attempt("step a job")?;
    commit(tx).await?;
    Ok(done.rows_affected() == 1)
}

/// Notes that attempts of jobs of `owner` began to execute. In the order of their ids, so that no two such
/// transactions wait for each other.
pub(crate) async fn started(
    store: &Store,
    owner: InstanceId,
    started: &mut [(AttemptKey, Timestamp)],
) -> Result<(), StoreError> {
    started.sort_unstable_by_key(|(key, _)| *key);
    let mut tx = store.begin().await?;
    for (key, at) in &*started {
        sqlx::query(
            "UPDATE jobs SET status = 'running', started_at = COALESCE(started_at, $4) \
             WHERE id = $1 AND attempt = $2 AND epoch = $3 AND owner = $5 AND status = 'queued'",
        )
        .bind(key.job_id.to_string())
        .bind(i64::from(key.attempt))
        .bind(key.epoch as i64)
        .bind(at.unix_ms())
        .bind(owner.to_string())
        .execute(&mut *tx)
        .await
        .attempt("note the start of a job")?;
    }
    commit(tx).await
}

#[cfg(test)]
mod tests;
