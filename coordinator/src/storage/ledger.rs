//! The books in SQL. Entries are append-only; the cached balance is written by the same transaction.

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, JobId},
    time::Timestamp,
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{Attempt as _, Connection, Pool, StoreError};
use crate::ledger::{Ledger, Posting};

/// Writes a posting: two entries and two balances. Fails, and with it the transaction, below zero. The accounts are
/// locked before, so that no two transactions write the same balances in turn.
pub(crate) async fn post(
    conn: &mut Connection,
    posting: &Posting,
    job: Option<JobId>,
    now: Timestamp,
) -> Result<(), StoreError> {
    for (ledger, amount) in posting.entries() {
        sqlx::query(
            "INSERT INTO ledger_entries (id, ledger, kind, job_id, amount, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(Uuid::now_v7().to_string())
        .bind(ledger.to_string())
        .bind(posting.kind.as_str())
        .bind(job.map(|job| job.to_string()))
        .bind(amount.0)
        .bind(now.unix_ms())
        .execute(&mut *conn)
        .await
        .attempt("write a ledger entry")?;
        sqlx::query("INSERT INTO balances (ledger, amount) VALUES ($1, 0) ON CONFLICT (ledger) DO NOTHING")
            .bind(ledger.to_string())
            .execute(&mut *conn)
            .await
            .attempt("open a balance")?;
        sqlx::query("UPDATE balances SET amount = amount + $2 WHERE ledger = $1")
            .bind(ledger.to_string())
            .bind(amount.0)
            .execute(&mut *conn)
            .await
            .attempt("update a balance")?;
    }
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
