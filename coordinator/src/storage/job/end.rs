//! The end of a job: status, output, usage, money and events in one transaction.

use island_protocol::{
    credits::MicroCredits,
    event::{JobEvent, Numbered},
    ids::{AccountId, HostId, InstanceId},
    job::JobStatus,
    time::Timestamp,
};

use crate::{
    job::{End, Job},
    ledger::{self, Kind},
    storage::{
        Attempt as _, Connection, Store, StoreError, account, commit, host,
        idempotency::{self, CHAT},
        key, ledger as books, to_json, to_text,
    },
};

/// How a job ends.
#[derive(Debug)]
pub(crate) struct Ending<'a> {
    /// The job as it stands, with its fence.
    pub job: &'a Job,
    /// Who looks after it.
    pub owner: InstanceId,
    pub status: JobStatus,
    pub end: &'a End,
    /// Part of the held price that is charged.
    pub charged: MicroCredits,
    /// Owner of the Island that earns it.
    pub earner: Option<AccountId>,
    /// Karma for the Island that completed it, milliseconds of compute.
    pub karma: Option<(HostId, i64)>,
    /// The whole sequence, last event included.
    pub events: &'a [Numbered<JobEvent>],
}

/// Commits the end. Idempotent. False: the job has another owner or another end, and nothing is written.
pub(crate) async fn end(store: &Store, ending: &Ending<'_>) -> Result<bool, StoreError> {
    let Ending { job, end, .. } = ending;
    let now = end.completed_at;
    let mut tx = store.begin().await?;
    account::lock(&mut tx, [job.account].into_iter().chain(ending.earner)).await?;
    let done = sqlx::query(
        "UPDATE jobs SET status = $4, completed_at = $5, started_at = $6, output = $7, usage = $8, error_code = $9, \
         error_message = $10 WHERE id = $1 AND attempt = $2 AND epoch = $3 AND owner = $11 \
         AND status IN ('submitted', 'pending', 'queued', 'running')",
    )
    .bind(job.id.to_string())
    .bind(i64::from(job.attempt))
    .bind(job.epoch as i64)
    .bind(ending.status.as_str())
    .bind(now.unix_ms())
    .bind(job.started_at.map(Timestamp::unix_ms))
    .bind(end.output.as_ref().map(to_json))
    .bind(to_json(&end.usage))
    .bind(end.error.as_ref().map(|error| error.code.clone()))
    .bind(end.error.as_ref().map(|error| to_text(&error.message)))
    .bind(ending.owner.to_string())
    .execute(&mut *tx)
    .await
    .attempt("end a job")?;
    if done.rows_affected() == 0 {
        let is_ours = is_this_end(&mut tx, ending).await?;
        // What was read may be in the same group, and is not to be acted on before it is on disk.
        commit(tx).await?;
        return Ok(is_ours);
    }
    let postings = ledger::close(job.account, ending.earner, job.price, ending.charged);
    for posting in &postings {
        books::post(&mut tx, posting, Some(job.id), now).await?;
    }
    let released = postings.iter().filter(|posting| posting.kind == Kind::Release);
    key::give_back_of_job(&mut tx, job.id, released.map(|posting| posting.amount).sum()).await?;
    // A chat that was given up before it said anything may be asked again under the same key.
    if ending.status == JobStatus::Cancelled && ending.charged == MicroCredits::ZERO {
        idempotency::forget(&mut tx, CHAT, &job.id.to_string()).await?;
    }
    if let Some((island, ms)) = ending.karma {
        host::credit_karma(&mut tx, island, ms, now).await?;
    }
    sqlx::query("INSERT INTO job_events (job_id, events) VALUES ($1, $2)")
        .bind(job.id.to_string())
        .bind(to_json(&ending.events))
        .execute(&mut *tx)
        .await
        .attempt("store the events of a job")?;
    commit(tx).await?;
    Ok(true)
}

/// Whether a job that is not open ended exactly so: an earlier try was committed and its answer lost.
async fn is_this_end(conn: &mut Connection, ending: &Ending<'_>) -> Result<bool, StoreError> {
    let row = sqlx::query(
        "SELECT id FROM jobs WHERE id = $1 AND attempt = $2 AND epoch = $3 AND owner = $4 AND status = $5 \
         AND completed_at = $6",
    )
    .bind(ending.job.id.to_string())
    .bind(i64::from(ending.job.attempt))
    .bind(ending.job.epoch as i64)
    .bind(ending.owner.to_string())
    .bind(ending.status.as_str())
    .bind(ending.end.completed_at.unix_ms())
    .fetch_optional(conn)
    .await
    .attempt("read the end of a job")?;
    Ok(row.is_some())
}
