//! The end of a job: status, output, usage, money and events in one transaction.

use island_protocol::{
    event::{JobEvent, Numbered},
    ids::{HostId, InstanceId},
    job::{FinishReason, JobStatus},
    time::Timestamp,
};
use island_protocol_api::admin::AdminAction;

use sqlx::Row as _;

use crate::{
    Connection, QueryContext as _, Store, StoreError,
    audit::{self, Action},
    batch, commit, host,
    idempotency::{self, OF_UNREAD_JOBS},
    integer, key,
    ledger::{self, Details},
    quota, response, to_json, to_text,
    webhook::{self, Subject},
};
use island_coordinator_domain::{
    job::{Canceller, End, Job},
    ledger::{Earner, Kind, Posting},
    quota::Settlement,
};

/// Bytes of an input that is kept in any case: as much as the rest of a job takes.
const KEPT_INPUT: usize = 4 << 10;

/// The end of a job.
#[derive(Debug)]
pub struct Ending<'a> {
    /// The job with its current attempt.
    pub job: &'a Job,
    /// The coordinator that executes the job.
    pub coordinator: InstanceId,
    pub status: JobStatus,
    pub end: &'a End,
    /// The Islands with their owners' accounts, and what each earns of the held price.
    pub earners: &'a [Earner],
    /// Karma for the Island that completed it, in milliseconds of computation.
    pub karma: Option<(HostId, i64)>,
    /// Who cancelled it; what an operator did goes into the audit log.
    pub canceller: Option<&'a Canceller>,
    /// All events, including the last.
    pub events: &'a [Numbered<JobEvent>],
}

/// Commits the end. Idempotent. Returns `false`, and writes nothing, if another coordinator executes the job or it
/// ended otherwise.
pub async fn end(store: &Store, ending: &Ending<'_>) -> Result<bool, StoreError> {
    let Ending { job, end, .. } = ending;
    let now = end.completed_at;
    // Earners are not locked: their balances are increased later.
    let mut tx = store.begin_locked([job.account]).await?;
    let ended = sqlx::query(
        "UPDATE jobs SET status = $4, completed_at = $5, started_at = $6, output = $7, usage = $8, error_code = $9, \
         error_message = $10, placed_at = $12, first_output_at = $13, \
         input = CASE WHEN $14 = 1 THEN '{}' ELSE input END, \
         data_deleted_at = CASE WHEN $14 = 1 THEN $5 ELSE data_deleted_at END \
         WHERE id = $1 AND attempt = $2 AND epoch = $3 AND coordinator_id = $11 \
         AND status IN ('submitted', 'pending', 'queued', 'running') \
         RETURNING api_key_id, (SELECT COUNT(*) FROM quotas q \
         WHERE jobs.only_host IS NULL AND q.holder IN (jobs.api_key_id, jobs.account_id)) \
         AS quotas",
    )
    .bind(job.id.to_string())
    .bind(i64::from(job.attempt))
    .bind(job.epoch as i64)
    .bind(ending.status.as_str())
    .bind(now.unix_ms())
    .bind(job.times.started_at.map(Timestamp::unix_ms))
    .bind(end.output.as_ref().map(to_json))
    .bind(to_json(&end.usage))
    .bind(end.error.as_ref().map(|error| error.code.clone()))
    .bind(end.error.as_ref().map(|error| to_text(&error.message)))
    .bind(ending.coordinator.to_string())
    .bind(job.times.placed_at.map(Timestamp::unix_ms))
    .bind(job.times.first_output_at.map(Timestamp::unix_ms))
    .bind(i64::from(is_input_dropped(ending)))
    .fetch_optional(&mut *tx)
    .await
    .context("end a job")?;
    let Some(ended) = ended else {
        let is_same = is_this_end(&mut tx, ending).await?;
        // What was read may be in the same commit group, so the caller must not act on it before it is on disk.
        commit(tx).await?;
        return Ok(is_same);
    };
    let postings = Posting::close_hold(job.account, ending.earners, job.price);
    for posting in &postings {
        // An Island that delivered an earlier part did not report its device.
        let device =
            end.usage.device.as_deref().filter(|_| posting.host.is_some() && posting.host == job.host);
        ledger::post(&mut tx, posting, &Details { job: Some(job.id), device }, now).await?;
    }
    let released = postings.iter().filter(|posting| posting.kind == Kind::Release);
    let released = released.map(|posting| posting.amount).sum();
    key::refund_job(&mut tx, job.id, released).await?;
    if let Some(id) = job.agreement.batch {
        batch::refund(&mut tx, id, released).await?;
    }
    if integer(&ended, "quotas")? > 0 {
        let key = ended.try_get("api_key_id").context("read a column")?;
        let settlement = Settlement { accepted_at: job.created_at, released, tokens: end.usage.total_tokens };
        quota::settle(&mut tx, job.account, key, &settlement, now).await?;
    }
    // A request that waits for its job, and whose job was cancelled before any output may be repeated with the same key.
    if ending.status == JobStatus::Cancelled && postings.iter().all(|posting| posting.kind != Kind::Settle) {
        for route in OF_UNREAD_JOBS {
            idempotency::remove(&mut tx, route, &job.id.to_string()).await?;
        }
    }
    if let Some((island, ms)) = ending.karma {
        host::credit_karma(&mut tx, job.id, island, ms).await?;
    }
    if let Some(Canceller::Operator { account, reason }) = ending.canceller {
        let on_account = Action::on_account(*account, AdminAction::CancelJob, job.account, reason);
        let action = Action { subject: audit::Subject::Job(job.id), ..on_account };
        audit::insert(&mut tx, &action, now).await?;
    }
    super::events::store(&mut tx, job.id, ending.events).await?;
    let about = subject(ending);
    if matches!(about, Subject::Job { is_cut: true, .. }) {
        response::mark_cut(&mut tx, job.id).await?;
    }
    // An Island's check of itself is not a job of its account, and a batch has events of its own.
    if job.only.is_none() && job.agreement.batch.is_none() {
        webhook::enqueue(&mut tx, job.account, &about, now).await?;
    }
    commit(tx).await?;
    Ok(true)
}

/// Whether the input is deleted with the end. Nobody has paid for keeping the large input of a job that no Island took; one that failed
/// may be submitted again.
fn is_input_dropped(ending: &Ending<'_>) -> bool {
    let Ending { job, status, .. } = ending;
    job.times.placed_at.is_none()
        && matches!(status, JobStatus::Cancelled | JobStatus::Timeout)
        && job.input.as_str().len() > KEPT_INPUT
}

/// What webhooks are sent about the end.
fn subject(ending: &Ending<'_>) -> Subject {
    let last = ending.events.last().map(|last| &last.event);
    let is_cut = matches!(last, Some(JobEvent::Done { finish_reason: Some(FinishReason::Length), .. }));
    Subject::Job { id: ending.job.id, status: ending.status, is_cut }
}

/// Whether a job that is not open has exactly this end: then an earlier try was committed and the reply was lost.
async fn is_this_end(conn: &mut Connection, ending: &Ending<'_>) -> Result<bool, StoreError> {
    let row = sqlx::query(
        "SELECT id FROM jobs WHERE id = $1 AND attempt = $2 AND epoch = $3 AND coordinator_id = $4 AND status = $5 \
         AND completed_at = $6",
    )
    .bind(ending.job.id.to_string())
    .bind(i64::from(ending.job.attempt))
    .bind(ending.job.epoch as i64)
    .bind(ending.coordinator.to_string())
    .bind(ending.status.as_str())
    .bind(ending.end.completed_at.unix_ms())
    .fetch_optional(conn)
    .await
    .context("read the end of a job")?;
    Ok(row.is_some())
}
