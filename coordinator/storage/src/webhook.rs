//! Webhooks and the events for them. The transaction that ends a job or a batch writes its events, so none is lost; the
//! task of `webhooks` sends them.

use island_protocol::{
    ids::{AccountId, BatchId, DeliveryId, JobId, WebhookId},
    job::JobStatus,
    time::Timestamp,
};
use island_protocol_api::{
    batch::{self, BatchStatus},
    responses,
    webhook::{Delivery, EventType, Webhook},
};
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

use super::{Connection, Pool, QueryContext as _, Row, StoreError, integer, moment, parsed, to_text};

/// Deliveries that are read by one statement, of these for one webhook, and that one statement deletes.
const DUE: i64 = 200;
pub const PER_WEBHOOK: i64 = 4;
const DELETED: i64 = 1_000;

fn read(row: &Row) -> Result<Webhook, StoreError> {
    Ok(Webhook {
        id: parsed(row, "id")?,
        url: row.try_get("url").context("read a column")?,
        events: events(row)?,
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        failing_since: moment(row, "failing_since")?,
        disabled_at: moment(row, "disabled_at")?,
    })
}

fn events(row: &Row) -> Result<Vec<EventType>, StoreError> {
    let names: String = row.try_get("events").context("read a column")?;
    // A newer coordinator may know others.
    Ok(names.split(',').filter_map(|name| name.parse().ok()).collect())
}

/// Adds a webhook, unless the account has `limit` of them. Returns `false` if it has. The account must be locked.
pub async fn insert(
    conn: &mut Connection,
    account: AccountId,
    webhook: &Webhook,
    secret: &str,
    limit: u32,
) -> Result<bool, StoreError> {
    let names: Vec<&str> = webhook.events.iter().map(|event| event.as_str()).collect();
    let done = sqlx::query(
        "INSERT INTO webhooks (id, account_id, url, secret, events, created_at) SELECT $1, $2, $3, $4, $5, $6 \
         WHERE $7 > (SELECT COUNT(*) FROM webhooks WHERE account_id = $2)",
    )
    .bind(webhook.id.to_string())
    .bind(account.to_string())
    .bind(to_text(&webhook.url))
    .bind(secret)
    .bind(names.join(","))
    .bind(webhook.created_at.unix_ms())
    .bind(i64::from(limit))
    .execute(conn)
    .await
    .context("insert a webhook")?;
    Ok(done.rows_affected() == 1)
}

/// An account's webhooks, oldest first.
pub async fn list(pool: &Pool, account: AccountId) -> Result<Vec<Webhook>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, url, events, created_at, failing_since, disabled_at FROM webhooks \
         WHERE account_id = $1 ORDER BY created_at, id",
    )
    .bind(account.to_string())
    .fetch_all(pool)
    .await
    .context("list webhooks")?;
    rows.iter().map(read).collect()
}

/// A webhook of an account.
pub async fn get(pool: &Pool, id: WebhookId, account: AccountId) -> Result<Option<Webhook>, StoreError> {
    let row = sqlx::query(
        "SELECT id, url, events, created_at, failing_since, disabled_at FROM webhooks WHERE id = $1 AND account_id = $2",
    )
    .bind(id.to_string())
    .bind(account.to_string())
    .fetch_optional(pool)
    .await
    .context("read a webhook")?;
    row.as_ref().map(read).transpose()
}

/// Deletes a webhook with its deliveries. Returns `false` if the account has no such webhook. The account must be locked, so
/// that no event is written meanwhile.
pub async fn delete(conn: &mut Connection, id: WebhookId, account: AccountId) -> Result<bool, StoreError> {
    for statement in [
        "DELETE FROM webhook_deliveries WHERE webhook_id IN (SELECT id FROM webhooks WHERE id = $1 AND account_id = $2)",
        "DELETE FROM webhooks WHERE id = $1 AND account_id = $2",
    ] {
        let done = sqlx::query(statement)
            .bind(id.to_string())
            .bind(account.to_string())
            .execute(&mut *conn)
            .await
            .context("delete a webhook")?;
        if statement.starts_with("DELETE FROM webhooks") {
            return Ok(done.rows_affected() == 1);
        }
    }
    Ok(false)
}

/// Replaces the key of a webhook's signatures. The key before signs as well until `old_until`. Returns `false` if the account
/// has no such webhook.
pub async fn replace_secret(
    conn: &mut Connection,
    id: WebhookId,
    account: AccountId,
    secret: &str,
    old_until: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE webhooks SET old_secret = secret, old_until = $4, secret = $3 WHERE id = $1 AND account_id = $2",
    )
    .bind(id.to_string())
    .bind(account.to_string())
    .bind(secret)
    .bind(old_until.unix_ms())
    .execute(conn)
    .await
    .context("replace the secret of a webhook")?;
    Ok(done.rows_affected() == 1)
}

/// Deletes the webhooks of an account.
pub(super) async fn delete_all_of(conn: &mut Connection, account: AccountId) -> Result<(), StoreError> {
    for statement in [
        "DELETE FROM webhook_deliveries WHERE webhook_id IN (SELECT id FROM webhooks WHERE account_id = $1)",
        "DELETE FROM webhooks WHERE account_id = $1",
    ] {
        sqlx::query(statement)
            .bind(account.to_string())
            .execute(&mut *conn)
            .await
            .context("delete the webhooks of an account")?;
    }
    Ok(())
}

/// What has ended.
#[derive(Debug, Clone, Copy)]
pub enum Subject {
    /// A job in a final state; whether its reply reached its maximum length.
    Job { id: JobId, status: JobStatus, is_cut: bool },
    /// A batch in a final state.
    Batch(BatchId, BatchStatus),
}

/// The events of what has ended, and the id in each. A job that is a stored response has two.
pub(crate) fn events_of(subject: &Subject, is_response: bool) -> Vec<(EventType, String)> {
    match *subject {
        Subject::Batch(id, status) => {
            let event = match status {
                BatchStatus::Completed => EventType::BatchCompleted,
                BatchStatus::Failed => EventType::BatchFailed,
                BatchStatus::Expired => EventType::BatchExpired,
                BatchStatus::Cancelled => EventType::BatchCancelled,
                _ => return Vec::new(),
            };
            vec![(event, format!("{}{id}", batch::PREFIX))]
        }
        Subject::Job { id, status, is_cut } => {
            let (job, response) = match status {
                JobStatus::Completed if is_cut => (EventType::JobCompleted, EventType::ResponseIncomplete),
                JobStatus::Completed => (EventType::JobCompleted, EventType::ResponseCompleted),
                JobStatus::Cancelled => (EventType::JobCancelled, EventType::ResponseCancelled),
                _ => (EventType::JobFailed, EventType::ResponseFailed),
            };
            let mut events = vec![(job, id.to_string())];
            if is_response {
                events.push((response, format!("{}{id}", responses::PREFIX)));
            }
            events
        }
    }
}

/// Writes the events of what has ended for the webhooks of its account that want them.
pub(crate) async fn enqueue(
    conn: &mut Connection,
    account: AccountId,
    subject: &Subject,
    now: Timestamp,
) -> Result<(), StoreError> {
    let webhooks =
        sqlx::query("SELECT id, events FROM webhooks WHERE account_id = $1 AND disabled_at IS NULL")
            .bind(account.to_string())
            .fetch_all(&mut *conn)
            .await
            .context("list the webhooks of an account")?;
    if webhooks.is_empty() {
        return Ok(());
    }
    let is_response = match subject {
        Subject::Job { id, .. } => sqlx::query("SELECT job_id FROM responses WHERE job_id = $1")
            .bind(id.to_string())
            .fetch_optional(&mut *conn)
            .await
            .context("find the response of a job")?
            .is_some(),
        Subject::Batch(..) => false,
    };
    let of_subject = events_of(subject, is_response);
    for row in &webhooks {
        let (id, wanted): (WebhookId, _) = (parsed(row, "id")?, events(row)?);
        for (event, subject) in of_subject.iter().filter(|(event, _)| wanted.contains(event)) {
            write(conn, DeliveryId(Uuid::now_v7()), id, *event, subject, now).await?;
        }
    }
    Ok(())
}

/// Writes the event that tests a webhook. Returns `false` if the webhook was deleted.
pub async fn enqueue_test(
    conn: &mut Connection,
    id: DeliveryId,
    webhook: WebhookId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    write(conn, id, webhook, EventType::WebhookTest, &webhook.to_string(), now).await
}

/// Names of the events that this coordinator knows, as a list of SQL. A newer coordinator may have written others, which it
/// sends itself.
fn known() -> String {
    let names: Vec<String> = EventType::ALL.iter().map(|event| format!("'{}'", event.as_str())).collect();
    names.join(", ")
}

/// Writes an event for a webhook, unless it was deleted meanwhile.
async fn write(
    conn: &mut Connection,
    id: DeliveryId,
    webhook: WebhookId,
    event: EventType,
    subject: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO webhook_deliveries (id, webhook_id, event, subject, state, next_at, created_at) \
         SELECT $1, w.id, $3, $4, 'pending', $5, $5 FROM webhooks w WHERE w.id = $2",
    )
    .bind(id.to_string())
    .bind(webhook.to_string())
    .bind(event.as_str())
    .bind(subject)
    .bind(now.unix_ms())
    .execute(conn)
    .await
    .context("write an event for a webhook")?;
    Ok(done.rows_affected() == 1)
}

/// A delivery that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub id: DeliveryId,
    pub webhook: WebhookId,
    pub event: EventType,
    pub subject: String,
    pub url: String,
    /// The keys of its signatures: the current one, and one that was replaced recently.
    pub secrets: Vec<String>,
    /// Attempts before.
    pub attempts: u32,
    pub created_at: Timestamp,
    next_at: i64,
}

fn secrets(row: &Row) -> Result<Vec<String>, StoreError> {
    let secret = row.try_get("secret").context("read a column")?;
    let old: Option<String> = row.try_get("old_secret").context("read a column")?;
    Ok([secret].into_iter().chain(old).collect())
}

/// Deliveries that may be tried now, the longest due first, and some only of each webhook, so that many of one do not delay others.
pub async fn due(pool: &Pool, now: Timestamp) -> Result<Vec<Due>, StoreError> {
    let rows = sqlx::query(AssertSqlSafe(format!(
        "SELECT d.id, d.webhook_id, d.event, d.subject, d.attempts, d.created_at, d.next_at, w.url, w.secret, \
         CASE WHEN w.old_until > $1 THEN w.old_secret END AS old_secret \
         FROM (SELECT id, webhook_id, event, subject, attempts, created_at, next_at, \
         ROW_NUMBER() OVER (PARTITION BY webhook_id ORDER BY next_at, id) AS place \
         FROM webhook_deliveries WHERE state = 'pending' AND next_at <= $1 AND event IN ({})) d \
         JOIN webhooks w ON w.id = d.webhook_id WHERE d.place <= $3 ORDER BY d.next_at LIMIT $2",
        known()
    )))
    .bind(now.unix_ms())
    .bind(DUE)
    .bind(PER_WEBHOOK)
    .fetch_all(pool)
    .await
    .context("list deliveries that are due")?;
    let delivery = |row: &Row| {
        Ok(Due {
            id: parsed(row, "id")?,
            webhook: parsed(row, "webhook_id")?,
            event: parsed(row, "event")?,
            subject: row.try_get("subject").context("read a column")?,
            url: row.try_get("url").context("read a column")?,
            secrets: secrets(row)?,
            attempts: u32::try_from(integer(row, "attempts")?)
                .map_err(|_| StoreError::Corrupt { what: "attempts" })?,
            created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
            next_at: integer(row, "next_at")?,
        })
    };
    rows.iter().map(delivery).collect()
}

/// Takes a delivery for one attempt, until `lease`. Returns `false` if another coordinator took it.
pub async fn take(conn: &mut Connection, due: &Due, lease: Timestamp) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE webhook_deliveries SET next_at = $3, attempts = attempts + 1 \
         WHERE id = $1 AND state = 'pending' AND next_at = $2",
    )
    .bind(due.id.to_string())
    .bind(due.next_at)
    .bind(lease.unix_ms())
    .execute(conn)
    .await
    .context("take a delivery")?;
    Ok(done.rows_affected() == 1)
}

/// What an attempt resulted in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempted {
    pub status: Option<u16>,
    pub error: Option<String>,
    /// Before which the address wants no further attempt.
    pub not_before: Option<Timestamp>,
}

impl Attempted {
    /// Whether the address wants no events any more.
    pub fn is_gone(&self) -> bool {
        self.status == Some(410)
    }
}

/// Records that an event was delivered. A webhook that was disabled is enabled again.
pub async fn delivered(
    conn: &mut Connection,
    due: &Due,
    attempted: &Attempted,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE webhook_deliveries SET state = 'delivered', last_status = $2, last_error = NULL, ended_at = $3 \
         WHERE id = $1 AND state = 'pending'",
    )
    .bind(due.id.to_string())
    .bind(attempted.status.map(i64::from))
    .bind(now.unix_ms())
    .execute(&mut *conn)
    .await
    .context("record a delivery")?;
    sqlx::query(
        "UPDATE webhooks SET failing_since = NULL, disabled_at = NULL WHERE id = $1 AND failing_since IS NOT NULL",
    )
        .bind(due.webhook.to_string())
        .execute(conn)
        .await
        .context("record that a webhook works")?;
    Ok(())
}

/// Records that an attempt failed: the delivery is tried again at `next`, or never. Other deliveries of the webhook that are
/// due wait as well, so that an address which does not reply costs one attempt at a time.
pub async fn failed(
    conn: &mut Connection,
    due: &Due,
    attempted: &Attempted,
    next: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE webhook_deliveries SET state = CASE WHEN CAST($4 AS BIGINT) IS NULL THEN 'failed' ELSE state END, \
         next_at = COALESCE(CAST($4 AS BIGINT), next_at), ended_at = CASE WHEN CAST($4 AS BIGINT) IS NULL THEN $5 ELSE NULL END, \
         last_status = $2, last_error = $3 WHERE id = $1 AND state = 'pending'",
    )
    .bind(due.id.to_string())
    .bind(attempted.status.map(i64::from))
    .bind(attempted.error.as_deref().map(to_text))
    .bind(next.map(Timestamp::unix_ms))
    .bind(now.unix_ms())
    .execute(&mut *conn)
    .await
    .context("record a failed delivery")?;
    sqlx::query("UPDATE webhooks SET failing_since = COALESCE(failing_since, $2) WHERE id = $1")
        .bind(due.webhook.to_string())
        .bind(now.unix_ms())
        .execute(&mut *conn)
        .await
        .context("record that a webhook fails")?;
    if let Some(next) = next {
        sqlx::query(
            "UPDATE webhook_deliveries SET next_at = $3 WHERE webhook_id = $1 AND state = 'pending' AND next_at <= $2",
        )
        .bind(due.webhook.to_string())
        .bind(now.unix_ms())
        .bind(next.unix_ms())
        .execute(conn)
        .await
        .context("postpone the deliveries of a webhook")?;
    }
    Ok(())
}

/// Disables a webhook that has failed since `since` or longer, and gives its deliveries up. Returns `false` if it has not.
pub async fn disable(
    conn: &mut Connection,
    id: WebhookId,
    since: Timestamp,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE webhooks SET disabled_at = $3 WHERE id = $1 AND disabled_at IS NULL AND failing_since <= $2",
    )
    .bind(id.to_string())
    .bind(since.unix_ms())
    .bind(now.unix_ms())
    .execute(&mut *conn)
    .await
    .context("disable a webhook")?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query(
        "UPDATE webhook_deliveries SET state = 'failed', ended_at = $2, last_error = COALESCE(last_error, 'the webhook was disabled') \
         WHERE webhook_id = $1 AND state = 'pending'",
    )
    .bind(id.to_string())
    .bind(now.unix_ms())
    .execute(conn)
    .await
    .context("give up the deliveries of a webhook")?;
    Ok(true)
}

/// A page of a webhook's deliveries, newest first, and their total number, without events of a newer coordinator.
pub async fn deliveries(
    pool: &Pool,
    id: WebhookId,
    limit: u64,
    offset: u64,
) -> Result<(Vec<Delivery>, u64), StoreError> {
    let of = format!("FROM webhook_deliveries WHERE webhook_id = $1 AND event IN ({})", known());
    let rows = sqlx::query(AssertSqlSafe(format!(
        "SELECT id, event, subject, state, attempts, next_at, last_status, last_error, created_at, ended_at \
         {of} ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3"
    )))
    .bind(id.to_string())
    .bind(limit as i64)
    .bind(i64::try_from(offset).unwrap_or(i64::MAX))
    .fetch_all(pool)
    .await
    .context("list deliveries")?;
    let total = sqlx::query(AssertSqlSafe(format!("SELECT COUNT(*) AS n {of}")))
        .bind(id.to_string())
        .fetch_one(pool)
        .await
        .context("count deliveries")?;
    let deliveries = rows.iter().map(delivery).collect::<Result<_, _>>()?;
    Ok((deliveries, integer(&total, "n")?.unsigned_abs()))
}

fn delivery(row: &Row) -> Result<Delivery, StoreError> {
    let ended_at = moment(row, "ended_at")?;
    let status: Option<i64> = row.try_get("last_status").context("read a column")?;
    Ok(Delivery {
        id: parsed(row, "id")?,
        event: parsed(row, "event")?,
        subject: row.try_get("subject").context("read a column")?,
        state: parsed(row, "state")?,
        attempts: integer(row, "attempts")?.unsigned_abs() as u32,
        last_status: status.and_then(|status| u16::try_from(status).ok()),
        last_error: row.try_get("last_error").context("read a column")?,
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        next_at: moment(row, "next_at")?.filter(|_| ended_at.is_none()),
        ended_at,
    })
}

/// Deletes some of the deliveries that ended until `cutoff`. Returns their number.
pub async fn delete_ended(conn: &mut Connection, cutoff: Timestamp) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "DELETE FROM webhook_deliveries WHERE id IN (SELECT id FROM webhook_deliveries \
         WHERE ended_at IS NOT NULL AND ended_at <= $1 ORDER BY ended_at LIMIT $2)",
    )
    .bind(cutoff.unix_ms())
    .bind(DELETED)
    .execute(conn)
    .await
    .context("delete ended deliveries")?;
    Ok(done.rows_affected())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_event() {
        let id = JobId(Uuid::nil());
        let names = |status, is_cut, is_response| -> Vec<&str> {
            let events = events_of(&Subject::Job { id, status, is_cut }, is_response);
            events.iter().map(|(event, _)| event.as_str()).collect()
        };
        assert_eq!(names(JobStatus::Completed, false, false), ["job.completed"]);
        assert_eq!(names(JobStatus::Completed, true, true), ["job.completed", "response.incomplete"]);
        assert_eq!(names(JobStatus::Timeout, false, true), ["job.failed", "response.failed"]);
        assert_eq!(names(JobStatus::Cancelled, false, true), ["job.cancelled", "response.cancelled"]);
        let batch = BatchId(Uuid::nil());
        for status in BatchStatus::ALL {
            let events = events_of(&Subject::Batch(batch, *status), false);
            assert_eq!(events.len(), usize::from(status.is_final()), "{status:?}");
        }
    }
}
