//! Accounts.

use std::collections::BTreeSet;

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, ApiKeyId},
    time::Timestamp,
};
use island_protocol_api::admin::{AdminAccount, Suspension};
use sqlx::{AssertSqlSafe, Row as _};

use super::{
    Connection, Pool, QueryContext as _, Row, StoreError, batch, file, integer, key,
    ledger::{self, Details},
    login, moment, parsed, revocation, to_text, webhook,
};
use island_coordinator_domain::ledger::Posting;

/// An account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub id: AccountId,
    pub email: String,
    pub operator: bool,
    pub created_at: Timestamp,
}

impl Account {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: parsed(row, "id")?,
            email: row.try_get("email").context("read a column")?,
            operator: row.try_get::<i64, _>("operator").context("read a column")? != 0,
            created_at: Timestamp::from_unix_ms(row.try_get("created_at").context("read a column")?),
        })
    }
}

/// Adds an account and its books.
pub async fn insert(conn: &mut Connection, account: &Account) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO accounts (id, email, operator, created_at) VALUES ($1, $2, $3, $4)")
        .bind(account.id.to_string())
        .bind(to_text(&account.email))
        .bind(i64::from(account.operator))
        .bind(account.created_at.unix_ms())
        .execute(&mut *conn)
        .await
        .context("insert an account")?;
    ledger::open(conn, account.id).await
}

/// Adds an account that begins with these credits.
pub async fn insert_with_credits(
    conn: &mut Connection,
    account: &Account,
    credits: MicroCredits,
) -> Result<(), StoreError> {
    insert(conn, account).await?;
    if credits > MicroCredits::ZERO {
        let posting = Posting::grant(account.id, credits);
        ledger::post(conn, &posting, &Details::default(), account.created_at).await?;
    }
    Ok(())
}

/// Locks the rows of accounts until the transaction ends, in one order, so that transactions cannot deadlock.
pub(super) async fn lock(conn: &mut Connection, accounts: &BTreeSet<AccountId>) -> Result<(), StoreError> {
    for id in accounts {
        sqlx::query("SELECT id FROM accounts WHERE id = $1 FOR NO KEY UPDATE")
            .bind(id.to_string())
            .execute(&mut *conn)
            .await
            .context("lock an account")?;
    }
    Ok(())
}

/// One account.
pub async fn get(pool: &Pool, id: AccountId) -> Result<Option<Account>, StoreError> {
    let row = sqlx::query("SELECT id, email, operator, created_at FROM accounts WHERE id = $1")
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("read an account")?;
    row.as_ref().map(Account::read).transpose()
}

/// All accounts, oldest first.
pub async fn list(pool: &Pool) -> Result<Vec<Account>, StoreError> {
    let rows = sqlx::query("SELECT id, email, operator, created_at FROM accounts ORDER BY created_at, id")
        .fetch_all(pool)
        .await
        .context("list accounts")?;
    rows.iter().map(Account::read).collect()
}

/// What operators see of an account. The two sums are those of its books.
const ADMIN_VIEW: &str = "SELECT accounts.id, email, operator, created_at, suspended_at, suspended_reason, closed_at, \
     CAST((SELECT COALESCE(SUM(b.amount), 0) FROM balances b WHERE b.ledger = 'account:' || accounts.id) + \
      (SELECT COALESCE(SUM(u.amount), 0) FROM uncounted_entries u WHERE u.ledger = 'account:' || accounts.id) \
      AS BIGINT) AS credits, \
     CAST((SELECT COALESCE(SUM(h.amount), 0) FROM balances h WHERE h.ledger = 'holds:' || accounts.id) AS BIGINT) AS held \
     FROM accounts";

fn admin_view(row: &Row) -> Result<AdminAccount, StoreError> {
    let Account { id, email, operator, created_at } = Account::read(row)?;
    let (credits, held) = (MicroCredits(integer(row, "credits")?), MicroCredits(integer(row, "held")?));
    let (suspended, closed_at) = (suspension(row)?, moment(row, "closed_at")?);
    Ok(AdminAccount { id, email, operator, credits, held, suspended, created_at, closed_at })
}

pub(super) fn suspension(row: &Row) -> Result<Option<Suspension>, StoreError> {
    let Some(at) = moment(row, "suspended_at")? else { return Ok(None) };
    let reason: Option<String> = row.try_get("suspended_reason").context("read a column")?;
    Ok(Some(Suspension { at, reason: reason.unwrap_or_default() }))
}

/// One account, as operators see it.
pub async fn admin_get(pool: &Pool, id: AccountId) -> Result<Option<AdminAccount>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!("{ADMIN_VIEW} WHERE accounts.id = $1")))
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("read an account")?;
    row.as_ref().map(admin_view).transpose()
}

/// A page of the accounts, oldest first, or the one with this e-mail address; and their total number.
pub async fn admin_page(
    pool: &Pool,
    email: Option<&str>,
    limit: u64,
    offset: u64,
) -> Result<(Vec<AdminAccount>, u64), StoreError> {
    let of = if email.is_some() { "WHERE email = $3" } else { "" };
    let statement = format!("{ADMIN_VIEW} {of} ORDER BY created_at, accounts.id LIMIT $1 OFFSET $2");
    let query = sqlx::query(AssertSqlSafe(statement)).bind(limit as i64).bind(offset as i64);
    let query = if let Some(email) = email { query.bind(to_text(email)) } else { query };
    let rows = query.fetch_all(pool).await.context("list accounts")?;
    let accounts: Vec<_> = rows.iter().map(admin_view).collect::<Result<_, _>>()?;
    if email.is_some() {
        let total = accounts.len() as u64;
        return Ok((accounts, total));
    }
    let row = sqlx::query("SELECT COUNT(*) AS n FROM accounts").fetch_one(pool).await;
    let total = integer(&row.context("count accounts")?, "n")?;
    Ok((accounts, total.unsigned_abs()))
}

/// Why the keys of an account are refused; `None` if they are not.
pub async fn suspended(pool: &Pool, id: AccountId) -> Result<Option<Suspension>, StoreError> {
    let row = sqlx::query("SELECT suspended_at, suspended_reason FROM accounts WHERE id = $1")
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("read the suspension of an account")?;
    row.as_ref().map_or(Ok(None), suspension)
}

/// Refuses the keys of an account from now on, and revokes the fabric credentials that were made with them. Returns `false` if it is
/// suspended already.
pub async fn suspend(
    conn: &mut Connection,
    id: AccountId,
    reason: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE accounts SET suspended_at = $2, suspended_reason = $3 WHERE id = $1 AND suspended_at IS NULL",
    )
    .bind(id.to_string())
    .bind(now.unix_ms())
    .bind(to_text(reason))
    .execute(&mut *conn)
    .await
    .context("suspend an account")?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    revoke_watchers(conn, id, now).await?;
    Ok(true)
}

/// Revokes the fabric credentials that were made with the keys of an account.
async fn revoke_watchers(conn: &mut Connection, id: AccountId, now: Timestamp) -> Result<(), StoreError> {
    let keys = sqlx::query("SELECT id FROM api_keys WHERE account_id = $1 AND revoked_at IS NULL")
        .bind(id.to_string())
        .fetch_all(&mut *conn)
        .await
        .context("list the keys of an account")?;
    for key in &keys {
        revocation::revoke_watchers(conn, parsed::<ApiKeyId>(key, "id")?, now).await?;
    }
    Ok(())
}

/// What keeps an account from being closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the account still has {credits} credits, {jobs} open jobs, {worked_on} open jobs of others that its Islands have worked on, \
     {islands} Islands and {payments} unconfirmed payments"
)]
pub struct InUse {
    credits: MicroCredits,
    jobs: i64,
    /// Open jobs of other accounts on Islands of this one, also on those that have left the network.
    worked_on: i64,
    islands: i64,
    payments: i64,
}

/// Closes an account for good, unless it is in use: its keys are revoked, its batches end, its files and webhooks are
/// deleted, its e-mail address is removed and may be used again, and a person who signed in to it gets another account the
/// next time. The account must be locked, and its earnings counted.
pub async fn close(
    conn: &mut Connection,
    id: AccountId,
    reason: &str,
    now: Timestamp,
) -> Result<Result<(), InUse>, StoreError> {
    // A coordinator that has not read yet that an Island left pays its owner at the end of a job. The owner is not locked then, so
    // the open jobs are counted before the credits. The join goes from the account's Islands, which are few, to the open jobs.
    let row = sqlx::query(
        "SELECT (SELECT COUNT(*) FROM hosts WHERE account_id = $1 AND left_at IS NULL) AS islands, \
         (SELECT COUNT(DISTINCT j.id) FROM hosts h CROSS JOIN jobs j WHERE h.account_id = $1 AND j.account_id <> $1 \
         AND j.status IN ('submitted', 'pending', 'queued', 'running') \
         AND (j.host_id = h.id OR j.parts LIKE '%' || h.id || '%')) AS worked_on, \
         (SELECT COUNT(*) FROM jobs WHERE account_id = $1 AND status IN ('submitted', 'pending', 'queued', 'running')) \
         AS jobs, \
         (SELECT COUNT(*) FROM payouts o JOIN payments p ON p.payout_id = o.id \
         WHERE o.state = 'exported' AND p.account_id = $1) AS payments",
    )
    .bind(id.to_string())
    .fetch_one(&mut *conn)
    .await
    .context("read whether an account is in use")?;
    let credits = ledger::balance_in(conn, id).await?;
    let count = |column| integer(&row, column);
    // A payment that is not confirmed is made by its e-mail address, and may be returned.
    let in_use = InUse {
        credits,
        jobs: count("jobs")?,
        worked_on: count("worked_on")?,
        islands: count("islands")?,
        payments: count("payments")?,
    };
    if in_use != (InUse { credits: MicroCredits::ZERO, jobs: 0, worked_on: 0, islands: 0, payments: 0 }) {
        return Ok(Err(in_use));
    }
    revoke_watchers(conn, id, now).await?;
    key::revoke_all(conn, id, now).await?;
    batch::close_all_of(conn, id, now).await?;
    file::delete_all_of(conn, id).await?;
    webhook::delete_all_of(conn, id).await?;
    login::delete_identities_of(conn, id).await?;
    sqlx::query(
        "UPDATE accounts SET closed_at = $2, email = 'closed-' || id, operator = 0, \
         suspended_at = COALESCE(suspended_at, $2), suspended_reason = $3 WHERE id = $1 AND closed_at IS NULL",
    )
    .bind(id.to_string())
    .bind(now.unix_ms())
    .bind(to_text(reason))
    .execute(conn)
    .await
    .context("close an account")?;
    Ok(Ok(()))
}

/// Whether an account is closed for good. The account must be locked if the result decides about a write.
pub async fn is_closed(conn: &mut Connection, id: AccountId) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT closed_at FROM accounts WHERE id = $1")
        .bind(id.to_string())
        .fetch_optional(conn)
        .await
        .context("read whether an account is closed")?;
    let closed_at = row.as_ref().map_or(Ok(None), |row| moment(row, "closed_at"))?;
    Ok(closed_at.is_some())
}

/// Accepts the keys of an account again. Returns `false` if it is not suspended.
pub async fn resume(conn: &mut Connection, id: AccountId) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE accounts SET suspended_at = NULL, suspended_reason = NULL \
         WHERE id = $1 AND suspended_at IS NOT NULL AND closed_at IS NULL",
    )
    .bind(id.to_string())
    .execute(conn)
    .await
    .context("resume an account")?;
    Ok(done.rows_affected() == 1)
}
