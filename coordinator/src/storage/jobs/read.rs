//! Reading jobs.

use island_protocol::{
    api::{JobError, JobSummary},
    credits::MicroCredits,
    ids::{AccountId, HostId, JobId},
    job::JobStatus,
    time::Timestamp,
};
use sqlx::{AssertSqlSafe, Row as _};

use crate::{
    job::{End, Job, duration_ms},
    storage::{Pool, QueryContext as _, Row, StoreError, integer, json, moment, parsed},
};

/// Listed by name, so that a column which a newer coordinator adds does not affect this one.
pub(super) const COLUMNS: &str = "id, account_id, workload_id, workload_slug, status, input, priority, price, max_tokens, \
     attempt, epoch, host_id, only_host, head, first_event, deadline, created_at, started_at, completed_at, output, usage, \
     error_code, error_message, parts, cancel_unread, agreement";

pub(super) fn status(row: &Row) -> Result<JobStatus, StoreError> {
    let name: String = row.try_get("status").context("read a column")?;
    name.parse().map_err(|_| StoreError::Corrupt { what: "status" })
}

pub(super) fn read(row: &Row) -> Result<Job, StoreError> {
    let corrupt = |what| StoreError::Corrupt { what };
    let max_tokens: Option<i64> = row.try_get("max_tokens").context("read a column")?;
    let host = |column: &'static str| -> Result<Option<HostId>, StoreError> {
        let id: Option<String> = row.try_get(column).context("read a column")?;
        id.map(|id| id.parse()).transpose().map_err(|_| corrupt(column))
    };
    Ok(Job {
        id: parsed(row, "id")?,
        account: parsed(row, "account_id")?,
        workload_id: integer(row, "workload_id")?,
        workload: parsed(row, "workload_slug")?,
        status: status(row)?,
        input: json(row, "input")?.unwrap_or_default(),
        priority: u8::try_from(integer(row, "priority")?).map_err(|_| corrupt("priority"))?,
        price: MicroCredits(integer(row, "price")?),
        agreement: json(row, "agreement")?.unwrap_or_default(),
        max_tokens: max_tokens.map(|tokens| tokens.max(0) as u64),
        attempt: u32::try_from(integer(row, "attempt")?).map_err(|_| corrupt("attempt"))?,
        epoch: integer(row, "epoch")? as u64,
        host: host("host_id")?,
        only: host("only_host")?,
        head: json(row, "head")?.unwrap_or_default(),
        first_event: integer(row, "first_event")? as u64,
        deadline: Timestamp::from_unix_ms(integer(row, "deadline")?),
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        started_at: moment(row, "started_at")?,
        parts: json(row, "parts")?.unwrap_or_default(),
        cancel_unread: integer(row, "cancel_unread")? != 0,
        conversation: None,
        holder: None,
        end: read_end(row)?,
    })
}

fn read_end(row: &Row) -> Result<Option<End>, StoreError> {
    let Some(completed_at) = moment(row, "completed_at")? else { return Ok(None) };
    let code: Option<String> = row.try_get("error_code").context("read a column")?;
    let message: Option<String> = row.try_get("error_message").context("read a column")?;
    Ok(Some(End {
        completed_at,
        output: json(row, "output")?,
        usage: json(row, "usage")?.unwrap_or_default(),
        error: code.map(|code| JobError { code, message: message.unwrap_or_default() }),
    }))
}

/// One job.
pub(crate) async fn get(pool: &Pool, id: JobId) -> Result<Option<Job>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!("SELECT {COLUMNS} FROM jobs WHERE id = $1")))
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("read a job")?;
    row.as_ref().map(read).transpose()
}

/// A page of an account's jobs.
#[derive(Debug)]
pub(crate) struct JobPage {
    pub jobs: Vec<JobSummary>,
    pub total: u64,
}

/// An account's jobs, newest first, without its Islands' checks of themselves: those behind the job `after`, none
/// if that is not one of them, without the first `offset`. Skipped jobs are counted in the index only.
pub(crate) async fn page(
    pool: &Pool,
    account: AccountId,
    after: Option<JobId>,
    limit: u64,
    offset: u64,
) -> Result<JobPage, StoreError> {
    let total = sqlx::query("SELECT jobs FROM accounts WHERE id = $1")
        .bind(account.to_string())
        .fetch_one(pool)
        .await
        .and_then(|row| row.try_get::<i64, _>("jobs"))
        .context("count jobs")?
        .max(0) as u64;
    if offset >= total {
        return Ok(JobPage { jobs: Vec::new(), total });
    }
    let behind = if after.is_some() {
        "AND (created_at, id) < (SELECT a.created_at, a.id FROM jobs a WHERE a.id = $4 AND a.account_id = $1)"
    } else {
        ""
    };
    let statement = format!(
        "SELECT id, workload_slug, status, created_at, started_at, completed_at FROM jobs WHERE id IN \
         (SELECT id FROM jobs WHERE account_id = $1 AND only_host IS NULL {behind} \
          ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3) ORDER BY created_at DESC, id DESC"
    );
    let query = sqlx::query(AssertSqlSafe(statement))
        .bind(account.to_string())
        .bind(limit as i64)
        .bind(i64::try_from(offset).unwrap_or(i64::MAX));
    let query = if let Some(after) = after { query.bind(after.to_string()) } else { query };
    let rows = query.fetch_all(pool).await.context("list jobs")?;
    let jobs = rows.iter().map(summary).collect::<Result<_, _>>()?;
    Ok(JobPage { jobs, total })
}

fn summary(row: &Row) -> Result<JobSummary, StoreError> {
    let completed_at = moment(row, "completed_at")?;
    Ok(JobSummary {
        id: parsed(row, "id")?,
        workload_slug: parsed(row, "workload_slug")?,
        status: status(row)?,
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        completed_at,
        duration_ms: duration_ms(moment(row, "started_at")?, completed_at),
    })
}

/// An account's newest jobs.
pub(crate) async fn recent(pool: &Pool, account: AccountId, limit: u32) -> Result<Vec<JobId>, StoreError> {
    let rows =
        sqlx::query("SELECT id FROM jobs WHERE account_id = $1 AND only_host IS NULL ORDER BY created_at DESC, id DESC LIMIT $2")
            .bind(account.to_string())
            .bind(i64::from(limit))
            .fetch_all(pool)
            .await
            .context("list recent jobs")?;
    rows.iter().map(|row| parsed(row, "id")).collect()
}

/// Number of open jobs of each status.
pub(crate) async fn open_by_status(pool: &Pool) -> Result<Vec<(String, i64)>, StoreError> {
    let rows = sqlx::query(
        "SELECT status, COUNT(*) AS n FROM jobs \
         WHERE status IN ('submitted', 'pending', 'queued', 'running') GROUP BY status",
    )
    .fetch_all(pool)
    .await
    .context("count open jobs")?;
    rows.iter().map(|row| Ok((row.try_get("status").context("read a column")?, integer(row, "n")?))).collect()
}

/// Whether an Island checked itself after a time.
pub(crate) async fn was_checked(pool: &Pool, host: HostId, since: Timestamp) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT id FROM jobs WHERE only_host = $1 AND created_at > $2 LIMIT 1")
        .bind(host.to_string())
        .bind(since.unix_ms())
        .fetch_optional(pool)
        .await
        .context("find an Island's last check")?;
    Ok(row.is_some())
}
