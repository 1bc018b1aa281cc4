//! Batches. One coordinator runs a batch; every write of its runner compares the coordinator, so a runner whose batch
//! was taken over writes nothing.

use std::collections::{BTreeMap, HashSet};

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, ApiKeyId, BatchId, FileId, InstanceId, JobId},
    time::Timestamp,
};
use island_protocol_api::batch::{BatchEndpoint, BatchError, BatchStatus, RequestCounts};
use sqlx::{AssertSqlSafe, Row as _};

use super::{
    Connection, Pool, QueryContext as _, Row, Store, StoreError, commit, file, integer, json, moment,
    optional, parsed, to_json, to_text,
    webhook::{self, Subject},
};
use island_coordinator_domain::job::Agreement;

/// States of a batch that has not ended, as the partial index has them.
pub(super) const OPEN: &str = "status IN ('validating', 'in_progress', 'finalizing', 'cancelling')";
const COLUMNS: &str = "id, account_id, api_key_id, endpoint, input_file_id, output_file_id, error_file_id, completion_window, \
     metadata, max_credits, spent, status, total, completed, failed, errors, created_at, expires_at, in_progress_at, \
     finalizing_at, cancelling_at, ended_at";

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredBatch {
    pub id: BatchId,
    pub account: AccountId,
    pub key: ApiKeyId,
    pub endpoint: BatchEndpoint,
    pub input: FileId,
    /// Where successful answers are written; `None` if there were none.
    pub output: Option<FileId>,
    /// Where errors are written; `None` if there were none.
    pub failures: Option<FileId>,
    pub window: String,
    pub metadata: Option<BTreeMap<String, String>>,
    pub max_credits: Option<MicroCredits>,
    pub spent: MicroCredits,
    pub status: BatchStatus,
    pub counts: RequestCounts,
    pub errors: Option<Vec<BatchError>>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub in_progress_at: Option<Timestamp>,
    pub finalizing_at: Option<Timestamp>,
    pub cancelling_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

fn read(row: &Row) -> Result<StoredBatch, StoreError> {
    let count = |column| integer(row, column).map(i64::unsigned_abs);
    let cap: Option<i64> = row.try_get("max_credits").context("read a column")?;
    Ok(StoredBatch {
        id: parsed(row, "id")?,
        account: parsed(row, "account_id")?,
        key: parsed(row, "api_key_id")?,
        endpoint: parsed(row, "endpoint")?,
        input: parsed(row, "input_file_id")?,
        output: optional(row, "output_file_id")?,
        failures: optional(row, "error_file_id")?,
        window: row.try_get("completion_window").context("read a column")?,
        metadata: json(row, "metadata")?,
        max_credits: cap.map(MicroCredits),
        spent: MicroCredits(integer(row, "spent")?),
        status: parsed(row, "status")?,
        counts: RequestCounts {
            total: count("total")?,
            completed: count("completed")?,
            failed: count("failed")?,
        },
        errors: json(row, "errors")?,
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        expires_at: Timestamp::from_unix_ms(integer(row, "expires_at")?),
        in_progress_at: moment(row, "in_progress_at")?,
        finalizing_at: moment(row, "finalizing_at")?,
        cancelling_at: moment(row, "cancelling_at")?,
        ended_at: moment(row, "ended_at")?,
    })
}

/// Adds a batch, which any coordinator may run.
pub async fn insert(conn: &mut Connection, batch: &StoredBatch) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO batches (id, account_id, api_key_id, endpoint, input_file_id, output_file_id, error_file_id, \
         completion_window, metadata, max_credits, status, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
    )
    .bind(batch.id.to_string())
    .bind(batch.account.to_string())
    .bind(batch.key.to_string())
    .bind(batch.endpoint.as_str())
    .bind(batch.input.to_string())
    .bind(batch.output.map(|id| id.to_string()))
    .bind(batch.failures.map(|id| id.to_string()))
    .bind(&batch.window)
    .bind(batch.metadata.as_ref().map(|metadata| to_text(&to_json(metadata))))
    .bind(batch.max_credits.map(|most| most.0))
    .bind(batch.status.as_str())
    .bind(batch.created_at.unix_ms())
    .bind(batch.expires_at.unix_ms())
    .execute(conn)
    .await
    .context("insert a batch")?;
    Ok(())
}

/// Number of an account's batches that have not ended. The account must be locked if the result decides about a write.
pub async fn open_of(conn: &mut Connection, account: AccountId) -> Result<u64, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!(
        "SELECT COUNT(*) AS n FROM batches WHERE account_id = $1 AND {OPEN}"
    )))
    .bind(account.to_string())
    .fetch_one(conn)
    .await
    .context("count open batches")?;
    Ok(integer(&row, "n")?.unsigned_abs())
}

/// The open batch whose input a file is.
pub async fn open_with_input(conn: &mut Connection, input: FileId) -> Result<Option<BatchId>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!(
        "SELECT id FROM batches WHERE {OPEN} AND input_file_id = $1 LIMIT 1"
    )))
    .bind(input.to_string())
    .fetch_optional(conn)
    .await
    .context("find the batch of a file")?;
    row.as_ref().map(|row| parsed(row, "id")).transpose()
}

/// A batch of an account.
pub async fn get(pool: &Pool, id: BatchId, account: AccountId) -> Result<Option<StoredBatch>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!(
        "SELECT {COLUMNS} FROM batches WHERE id = $1 AND account_id = $2"
    )))
    .bind(id.to_string())
    .bind(account.to_string())
    .fetch_optional(pool)
    .await
    .context("read a batch")?;
    row.as_ref().map(read).transpose()
}

/// An account's batches, newest first: those behind the batch `after`.
pub async fn list(
    pool: &Pool,
    account: AccountId,
    after: Option<BatchId>,
    limit: u64,
) -> Result<Vec<StoredBatch>, StoreError> {
    let behind = if after.is_some() {
        "AND (created_at, id) < (SELECT a.created_at, a.id FROM batches a WHERE a.id = $3 AND a.account_id = $1)"
    } else {
        ""
    };
    let statement = format!(
        "SELECT {COLUMNS} FROM batches WHERE account_id = $1 {behind} ORDER BY created_at DESC, id DESC LIMIT $2"
    );
    let query = sqlx::query(AssertSqlSafe(statement)).bind(account.to_string()).bind(limit as i64);
    let query = if let Some(after) = after { query.bind(after.to_string()) } else { query };
    let rows = query.fetch_all(pool).await.context("list batches")?;
    rows.iter().map(read).collect()
}

/// Requests the cancellation of a batch that runs. Returns `false` if it does not.
pub async fn cancel(conn: &mut Connection, id: BatchId, now: Timestamp) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE batches SET status = 'cancelling', cancelling_at = $2 \
         WHERE id = $1 AND status IN ('validating', 'in_progress')",
    )
    .bind(id.to_string())
    .bind(now.unix_ms())
    .execute(conn)
    .await
    .context("cancel a batch")?;
    Ok(done.rows_affected() == 1)
}

/// How many batches a coordinator takes.
#[derive(Debug, Clone, Copy)]
pub struct ClaimLimits {
    /// In all.
    pub batches: usize,
    /// Of one account, those that run here included.
    pub of_account: usize,
}

/// Takes open batches that no coordinator runs, up to the limits: the first of each account, then the second, the oldest first. If
/// several coordinators try, one gets each batch. `running` are those that run here: others of this coordinator were taken by a commit
/// whose reply was lost.
pub async fn claim(
    store: &Store,
    own: InstanceId,
    running: &HashSet<BatchId>,
    limits: ClaimLimits,
) -> Result<Vec<StoredBatch>, StoreError> {
    let unclaimed = format!(
        "{OPEN} AND (coordinator_id IS NULL OR coordinator_id = $1 OR \
         NOT EXISTS (SELECT 1 FROM coordinators c WHERE c.id = batches.coordinator_id))"
    );
    let statement = format!(
        "SELECT id FROM (SELECT id, created_at, ROW_NUMBER() OVER (PARTITION BY account_id \
         ORDER BY CASE WHEN coordinator_id = $1 THEN 0 ELSE 1 END, created_at, id) AS place \
         FROM batches WHERE {unclaimed}) b WHERE b.place <= $3 ORDER BY b.place, b.created_at LIMIT $2"
    );
    let rows = sqlx::query(AssertSqlSafe(statement))
        .bind(own.to_string())
        .bind(i64::try_from(limits.batches.saturating_add(running.len())).unwrap_or(i64::MAX))
        .bind(i64::try_from(limits.of_account).unwrap_or(i64::MAX))
        .fetch_all(store.reader())
        .await
        .context("list batches that nobody runs")?;
    let mut claimed = Vec::new();
    for row in &rows {
        let id: BatchId = parsed(row, "id")?;
        if running.contains(&id) || claimed.len() >= limits.batches {
            continue;
        }
        let mut tx = store.begin().await?;
        let statement = format!("UPDATE batches SET coordinator_id = $1 WHERE id = $2 AND {unclaimed}");
        let done = sqlx::query(AssertSqlSafe(statement))
            .bind(own.to_string())
            .bind(id.to_string())
            .execute(&mut *tx)
            .await
            .context("take a batch")?;
        commit(tx).await?;
        if done.rows_affected() == 1 {
            claimed.extend(owned(store.reader(), id, own).await?);
        }
    }
    Ok(claimed)
}

/// A batch that has not ended, if this coordinator runs it.
pub async fn owned(pool: &Pool, id: BatchId, own: InstanceId) -> Result<Option<StoredBatch>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!(
        "SELECT {COLUMNS} FROM batches WHERE id = $1 AND coordinator_id = $2 AND {OPEN}"
    )))
    .bind(id.to_string())
    .bind(own.to_string())
    .fetch_optional(pool)
    .await
    .context("read a batch that runs")?;
    row.as_ref().map(read).transpose()
}

/// Open jobs of a batch.
pub async fn open_jobs(pool: &Pool, id: BatchId, account: AccountId) -> Result<Vec<JobId>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, agreement FROM jobs WHERE account_id = $1 AND status IN ('submitted', 'pending', 'queued', 'running')",
    )
    .bind(account.to_string())
    .fetch_all(pool)
    .await
    .context("list the open jobs of a batch")?;
    let mut jobs = Vec::new();
    for row in &rows {
        let agreement: Option<Agreement> = json(row, "agreement")?;
        if agreement.is_some_and(|agreement| agreement.batch == Some(id)) {
            jobs.push(parsed(row, "id")?);
        }
    }
    Ok(jobs)
}

/// Keys of the requests of a batch to `route` that have created a job.
pub async fn keys_of_begun(
    pool: &Pool,
    account: AccountId,
    route: &str,
    prefix: &str,
) -> Result<HashSet<String>, StoreError> {
    let rows = sqlx::query(
        "SELECT idempotency_key FROM idempotency WHERE account_id = $1 AND route = $2 AND idempotency_key LIKE $3",
    )
    .bind(account.to_string())
    .bind(route)
    .bind(format!("{prefix}%"))
    .fetch_all(pool)
    .await
    .context("list the requests of a batch that have begun")?;
    rows.iter().map(|row| row.try_get("idempotency_key").context("read a column")).collect()
}

/// The result of a request.
#[derive(Debug, Clone)]
pub struct LineResult {
    /// Number of the line.
    pub number: u64,
    /// What is written.
    pub text: String,
    pub kind: ResultKind,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultKind {
    /// It was answered with success.
    Completed,
    /// It was answered with an error.
    Failed,
    /// It was not run.
    NotRun,
}

/// Writes results. Those that are written already are left out. Returns `false`, and writes nothing, if another
/// coordinator runs the batch.
pub async fn record(
    store: &Store,
    batch: &StoredBatch,
    own: InstanceId,
    results: &[LineResult],
) -> Result<bool, StoreError> {
    let mut tx = store.begin().await?;
    let (mut completed, mut failed) = (0_i64, 0_i64);
    for result in results {
        let file = if result.kind == ResultKind::Completed { batch.output } else { batch.failures };
        let Some(file) = file else { continue };
        if file::add_piece(&mut tx, file, result.number, &result.text).await? {
            match result.kind {
                ResultKind::Completed => completed += 1,
                ResultKind::Failed => failed += 1,
                ResultKind::NotRun => {}
            }
        }
    }
    let done = sqlx::query(AssertSqlSafe(format!(
        "UPDATE batches SET completed = completed + $3, failed = failed + $4 WHERE id = $1 AND coordinator_id = $2 AND {OPEN}"
    )))
    .bind(batch.id.to_string())
    .bind(own.to_string())
    .bind(completed)
    .bind(failed)
    .execute(&mut *tx)
    .await
    .context("count the results of a batch")?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    commit(tx).await?;
    Ok(true)
}

/// A step of a batch from one state to another.
#[derive(Debug)]
pub struct Step<'a> {
    pub to: BatchStatus,
    /// Requests of the input file, once they are counted.
    pub total: Option<u64>,
    /// What is wrong with the batch.
    pub errors: Option<&'a [BatchError]>,
    /// When files of results are deleted.
    pub files_until: Option<Timestamp>,
}

/// Takes a step; a final one shows the files of results, and writes the event for webhooks. Returns `false`, and writes
/// nothing, if another coordinator runs the batch or its state has changed.
pub async fn advance(
    store: &Store,
    batch: &StoredBatch,
    own: InstanceId,
    step: &Step<'_>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let mut tx = store.begin().await?;
    let time = match step.to {
        BatchStatus::InProgress => "in_progress_at",
        BatchStatus::Finalizing => "finalizing_at",
        _ => "ended_at",
    };
    let done = sqlx::query(AssertSqlSafe(format!(
        "UPDATE batches SET status = $4, {time} = $5, total = COALESCE($6, total), errors = COALESCE($7, errors) \
         WHERE id = $1 AND coordinator_id = $2 AND status = $3"
    )))
    .bind(batch.id.to_string())
    .bind(own.to_string())
    .bind(batch.status.as_str())
    .bind(step.to.as_str())
    .bind(now.unix_ms())
    .bind(step.total.map(|total| total as i64))
    .bind(step.errors.map(|errors| to_text(&to_json(&errors))))
    .execute(&mut *tx)
    .await
    .context("change the state of a batch")?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    if step.to.is_final() {
        for (column, id) in [("output_file_id", batch.output), ("error_file_id", batch.failures)] {
            let Some(id) = id else { continue };
            if file::delete_empty(&mut tx, id).await?
                || !file::complete(&mut tx, id, now, step.files_until).await?
            {
                let statement = format!("UPDATE batches SET {column} = NULL WHERE id = $1");
                sqlx::query(AssertSqlSafe(statement))
                    .bind(batch.id.to_string())
                    .execute(&mut *tx)
                    .await
                    .context("remove an empty file of a batch")?;
            }
        }
        webhook::enqueue(&mut tx, batch.account, &Subject::Batch(batch.id, step.to), now).await?;
    }
    commit(tx).await?;
    Ok(true)
}

/// Result of spending for a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spending {
    /// The amount is counted.
    Taken,
    /// The maximum of the batch leaves less than the amount.
    Capped { most: MicroCredits, left: MicroCredits },
}

/// Counts the hold of a job.
pub async fn spend(conn: &mut Connection, id: BatchId, amount: MicroCredits) -> Result<Spending, StoreError> {
    let done = sqlx::query(
        "UPDATE batches SET spent = spent + $2 WHERE id = $1 AND (max_credits IS NULL OR spent + $2 <= max_credits)",
    )
    .bind(id.to_string())
    .bind(amount.0)
    .execute(&mut *conn)
    .await
    .context("spend for a batch")?;
    if done.rows_affected() == 1 {
        return Ok(Spending::Taken);
    }
    let row = sqlx::query("SELECT COALESCE(max_credits, 0) AS most, spent FROM batches WHERE id = $1")
        .bind(id.to_string())
        .fetch_one(conn)
        .await
        .context("read the maximum of a batch")?;
    let (most, spent) = (integer(&row, "most")?, integer(&row, "spent")?);
    Ok(Spending::Capped { most: MicroCredits(most), left: MicroCredits((most - spent).max(0)) })
}

/// Returns what of a job's hold was not charged, or what was charged and is refunded.
pub async fn refund(conn: &mut Connection, id: BatchId, amount: MicroCredits) -> Result<(), StoreError> {
    if amount == MicroCredits::ZERO {
        return Ok(());
    }
    sqlx::query("UPDATE batches SET spent = spent - $2 WHERE id = $1")
        .bind(id.to_string())
        .bind(amount.0)
        .execute(conn)
        .await
        .context("refund a batch")?;
    Ok(())
}

/// Ends the batches of an account that is closed, and deletes what it wrote into them.
pub(super) async fn close_all_of(
    conn: &mut Connection,
    account: AccountId,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE batches SET metadata = NULL, output_file_id = NULL, error_file_id = NULL, errors = NULL, \
         ended_at = COALESCE(ended_at, $2), \
         status = CASE WHEN ended_at IS NULL THEN 'cancelled' ELSE status END WHERE account_id = $1",
    )
    .bind(account.to_string())
    .bind(now.unix_ms())
    .execute(conn)
    .await
    .context("end the batches of an account")?;
    Ok(())
}
