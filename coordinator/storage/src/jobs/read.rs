//! Reading jobs.

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, HostId, JobId},
    job::JobStatus,
    time::Timestamp,
};
use island_protocol_api::JobError;
use sqlx::{AssertSqlSafe, Row as _};

use crate::{Pool, QueryContext as _, Row, StoreError, integer, json, moment, parsed};
use island_coordinator_domain::job::{End, Job, Times, input::JobInput};

/// Listed by name, so that a column which a newer coordinator adds does not affect this one.
pub(super) const COLUMNS: &str = "id, account_id, workload_id, workload_slug, status, input, priority, price, max_tokens, \
     attempt, epoch, host_id, only_host, head, first_event, deadline, created_at, started_at, completed_at, output, usage, \
     error_code, error_message, parts, cancel_unread, agreement, placed_at, first_output_at";

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
        input: input(row)?,
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
        times: Times {
            placed_at: moment(row, "placed_at")?,
            started_at: moment(row, "started_at")?,
            first_output_at: moment(row, "first_output_at")?,
        },
        parts: json(row, "parts")?.unwrap_or_default(),
        cancel_unread: integer(row, "cancel_unread")? != 0,
        conversation: None,
        holder: None,
        end: read_end(row)?,
    })
}

fn input(row: &Row) -> Result<JobInput, StoreError> {
    let text: String = row.try_get("input").context("read a column")?;
    JobInput::from_json(text).ok_or(StoreError::Corrupt { what: "input" })
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
pub async fn get(pool: &Pool, id: JobId) -> Result<Option<Job>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!("SELECT {COLUMNS} FROM jobs WHERE id = $1")))
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("read a job")?;
    row.as_ref().map(read).transpose()
}

/// An account's newest jobs.
pub async fn recent(pool: &Pool, account: AccountId, limit: u32) -> Result<Vec<JobId>, StoreError> {
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
pub async fn open_by_status(pool: &Pool) -> Result<Vec<(String, i64)>, StoreError> {
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
pub async fn was_checked(pool: &Pool, host: HostId, since: Timestamp) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT id FROM jobs WHERE only_host = $1 AND created_at > $2 LIMIT 1")
        .bind(host.to_string())
        .bind(since.unix_ms())
        .fetch_optional(pool)
        .await
        .context("find an Island's last check")?;
    Ok(row.is_some())
}
