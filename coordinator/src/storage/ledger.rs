//! The books in SQL. Entries are append-only; the cached balance is written by the same transaction.

use island_protocol::{
    api::books::LedgerEntry,
    credits::MicroCredits,
    ids::{AccountId, JobId},
    time::Timestamp,
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{Attempt as _, Connection, Pool, Row, StoreError};
use crate::ledger::{Ledger, Posting};

/// Writes a posting that the books are known to cover. Fails, and with it the transaction, where they do not.
pub(crate) async fn post(
    conn: &mut Connection,
    posting: &Posting,
    job: Option<JobId>,
    now: Timestamp,
) -> Result<(), StoreError> {
    if try_post(conn, posting, job, now).await? {
        return Ok(());
    }
    Err(StoreError::Corrupt { what: "balance" })
}

/// Writes a posting: two balances and two entries, in two statements. False: the first book has less than that, and nothing is
/// written. The accounts are locked before, so that no two transactions write the same balances in turn.
pub(crate) async fn try_post(
    conn: &mut Connection,
    posting: &Posting,
    job: Option<JobId>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let [(from, taken), (to, given)] = posting.entries();
    let (from, to) = (from.to_string(), to.to_string());
    let moved = sqlx::query(
        "UPDATE balances SET amount = amount + CASE ledger WHEN $1 THEN CAST($2 AS BIGINT) ELSE CAST($4 AS BIGINT) END \
         WHERE ledger IN ($1, $3) AND EXISTS (SELECT 1 FROM balances AS source \
          WHERE source.ledger = $1 AND (source.amount >= $4 OR source.ledger = $5))",
    )
    .bind(&from)
    .bind(taken.0)
    .bind(&to)
    .bind(given.0)
    .bind(Ledger::Issue.to_string())
    .execute(&mut *conn)
    .await
    .attempt("update two balances")?;
    match moved.rows_affected() {
        0 => return Ok(false),
        2 => {}
        // Both are opened with their account.
        _ => return Err(StoreError::Corrupt { what: "balance" }),
    }
    sqlx::query(
        "INSERT INTO ledger_entries (id, ledger, kind, job_id, amount, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6), ($7, $8, $3, $4, $9, $6)",
    )
    .bind(Uuid::now_v7().to_string())
    .bind(&from)
    .bind(posting.kind.as_str())
    .bind(job.map(|job| job.to_string()))
    .bind(taken.0)
    .bind(now.unix_ms())
    .bind(Uuid::now_v7().to_string())
    .bind(&to)
    .bind(given.0)
    .execute(conn)
    .await
    .attempt("write two ledger entries")?;
    Ok(true)
}

/// Opens the books of a new account.
pub(crate) async fn open(conn: &mut Connection, account: AccountId) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO balances (ledger, amount) VALUES ($1, 0), ($2, 0)")
        .bind(Ledger::Balance(account).to_string())
        .bind(Ledger::Holds(account).to_string())
        .execute(conn)
        .await
        .attempt("open the books of an account")?;
    Ok(())
}

/// What an account may spend, as this transaction sees it.
pub(crate) async fn balance_in(
    conn: &mut Connection,
    account: AccountId,
) -> Result<MicroCredits, StoreError> {
    let row = sqlx::query("SELECT amount FROM balances WHERE ledger = $1")
        .bind(Ledger::Balance(account).to_string())
        .fetch_optional(conn)
        .await
        .attempt("read a balance")?;
    row.map_or(Ok(MicroCredits::ZERO), |row| row.try_get("amount").map(MicroCredits).attempt("read a column"))
}

/// What an account may spend.
pub(crate) async fn balance(pool: &Pool, account: AccountId) -> Result<MicroCredits, StoreError> {
    let mut conn = pool.acquire().await.attempt("take a reader")?;
    balance_in(&mut conn, account).await
}

/// What the books say all together: the sum of all entries, and the number of balances that differ from theirs.
pub(crate) async fn audit(pool: &Pool) -> Result<(MicroCredits, i64), StoreError> {
    let row = sqlx::query(
        "SELECT (SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM ledger_entries) AS total, \
         (SELECT COUNT(*) FROM balances b WHERE b.amount <> \
          (SELECT COALESCE(SUM(e.amount), 0) FROM ledger_entries e WHERE e.ledger = b.ledger)) AS wrong",
    )
    .fetch_one(pool)
    .await
    .attempt("audit the ledger")?;
    Ok((
        MicroCredits(row.try_get("total").attempt("read a column")?),
        row.try_get("wrong").attempt("read a column")?,
    ))
}

/// An account's entries in both of its books, newest first, and how many there are.
pub(crate) async fn page(
    pool: &Pool,
    account: AccountId,
    limit: u64,
    offset: u64,
) -> Result<(Vec<LedgerEntry>, u64), StoreError> {
    let (balance, holds) = (Ledger::Balance(account).to_string(), Ledger::Holds(account).to_string());
    let total = sqlx::query("SELECT COUNT(*) AS n FROM ledger_entries WHERE ledger IN ($1, $2)")
        .bind(&balance)
        .bind(&holds)
        .fetch_one(pool)
        .await
        .and_then(|row| row.try_get::<i64, _>("n"))
        .attempt("count ledger entries")?;
    let rows = sqlx::query(
        "SELECT id, ledger, kind, job_id, amount, created_at FROM ledger_entries WHERE ledger IN ($1, $2) \
         ORDER BY created_at DESC, id DESC LIMIT $3 OFFSET $4",
    )
    .bind(&balance)
    .bind(&holds)
    .bind(limit as i64)
    .bind(i64::try_from(offset).unwrap_or(i64::MAX))
    .fetch_all(pool)
    .await
    .attempt("list ledger entries")?;
    let entries = rows.iter().map(|row| entry(row, &holds)).collect::<Result<_, _>>()?;
    Ok((entries, total.max(0) as u64))
}

fn entry(row: &Row, holds: &str) -> Result<LedgerEntry, StoreError> {
    let ledger: String = row.try_get("ledger").attempt("read a column")?;
    let job: Option<String> = row.try_get("job_id").attempt("read a column")?;
    Ok(LedgerEntry {
        id: row.try_get("id").attempt("read a column")?,
        kind: row.try_get("kind").attempt("read a column")?,
        book: if ledger == holds { "holds" } else { "balance" }.to_owned(),
        amount: MicroCredits(row.try_get("amount").attempt("read a column")?),
        job_id: job.map(|id| id.parse()).transpose().map_err(|_| StoreError::Corrupt { what: "job_id" })?,
        created_at: Timestamp::from_unix_ms(row.try_get("created_at").attempt("read a column")?),
    })
}
