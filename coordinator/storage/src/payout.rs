//! Payouts: earnings leave their accounts when they are exported, and the network when they are confirmed.

use std::collections::BTreeMap;

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, PayoutId},
    time::Timestamp,
};
use island_protocol_api::payout::{Payment, Payout, PayoutState};
use sqlx::{AssertSqlSafe, Row as _};

use super::{
    Connection, Pool, QueryContext as _, Row, StoreError, integer,
    ledger::{self, Details},
    moment, parsed, to_text,
};
use island_coordinator_domain::ledger::{Book, Posting};

const COLUMNS: &str = "id, state, ends_at, accounts, amount, reason, created_at, ended_at";

fn read(row: &Row) -> Result<Payout, StoreError> {
    Ok(Payout {
        id: parsed(row, "id")?,
        state: parsed(row, "state")?,
        until: Timestamp::from_unix_ms(integer(row, "ends_at")?),
        accounts: integer(row, "accounts")?.unsigned_abs(),
        amount: MicroCredits(integer(row, "amount")?),
        reason: row.try_get("reason").context("read a column")?,
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        ended_at: moment(row, "ended_at")?,
    })
}

/// Accounts that earned something before a time, whatever Islands they have now: an Island may have left since, and
/// returned to another account.
pub async fn earners(pool: &Pool, until: Timestamp) -> Result<Vec<AccountId>, StoreError> {
    let rows = sqlx::query(
        "SELECT id FROM accounts WHERE EXISTS (SELECT 1 FROM ledger_entries e \
         WHERE e.ledger = 'account:' || accounts.id AND e.kind = 'settle' AND e.created_at < $1)",
    )
    .bind(until.unix_ms())
    .fetch_all(pool)
    .await
    .context("list the accounts with earnings")?;
    rows.iter().map(|row| parsed(row, "id")).collect()
}

/// Unpaid earnings of an account before a time from credits that were paid for: at most its spendable balance, and of its
/// credits, held ones included, those that were not granted. What it spent of its earnings is not paid. Counts its earnings; the account must be locked.
async fn payable(
    conn: &mut Connection,
    account: AccountId,
    until: Timestamp,
) -> Result<MicroCredits, StoreError> {
    ledger::count(conn, account).await?;
    let row = sqlx::query(
        "SELECT CAST((SELECT COALESCE(SUM(amount - granted), 0) FROM ledger_entries \
          WHERE ledger = $1 AND kind = 'settle' AND created_at < $2) AS BIGINT) AS earned, \
         CAST((SELECT COALESCE(SUM(amount - granted), 0) FROM balances WHERE ledger IN ($1, $3)) AS BIGINT) AS backed, \
         CAST((SELECT COALESCE(SUM(amount), 0) FROM ledger_entries \
          WHERE ledger = $1 AND kind IN ('payout', 'payout_return')) AS BIGINT) AS paid",
    )
    .bind(Book::Balance(account).to_string())
    .bind(until.unix_ms())
    .bind(Book::Holds(account).to_string())
    .fetch_one(&mut *conn)
    .await
    .context("sum what an account earned")?;
    let unpaid = MicroCredits(integer(&row, "earned")? + integer(&row, "paid")?);
    let balance = ledger::balance_in(conn, account).await?;
    let backed = MicroCredits(integer(&row, "backed")?);
    Ok(unpaid.min(balance).min(backed).max(MicroCredits::ZERO))
}

/// Takes what these accounts earned before `payout.until`, from `minimum` on, out of their balances. They must be
/// locked. Returns the payout with its sums.
pub async fn export(
    conn: &mut Connection,
    mut payout: Payout,
    accounts: &[AccountId],
    minimum: MicroCredits,
) -> Result<Payout, StoreError> {
    let now = payout.created_at;
    let mut payments = BTreeMap::new();
    for account in accounts {
        let amount = payable(conn, *account, payout.until).await?;
        if amount > MicroCredits::ZERO && amount >= minimum {
            ledger::post(conn, &Posting::payout(*account, amount), &Details::default(), now).await?;
            payments.insert(*account, amount);
        }
    }
    payout.accounts = payments.len() as u64;
    payout.amount = payments.values().copied().sum();
    sqlx::query(
        "INSERT INTO payouts (id, state, ends_at, accounts, amount, reason, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(payout.id.to_string())
    .bind(payout.state.as_str())
    .bind(payout.until.unix_ms())
    .bind(payout.accounts as i64)
    .bind(payout.amount.0)
    .bind(to_text(&payout.reason))
    .bind(now.unix_ms())
    .execute(&mut *conn)
    .await
    .context("insert a payout")?;
    for (account, amount) in payments {
        sqlx::query("INSERT INTO payments (payout_id, account_id, amount) VALUES ($1, $2, $3)")
            .bind(payout.id.to_string())
            .bind(account.to_string())
            .bind(amount.0)
            .execute(&mut *conn)
            .await
            .context("insert a payment")?;
    }
    Ok(payout)
}

/// Confirms that a payout was paid, or returns its payments; then their accounts must be locked. Returns `false`, and
/// writes nothing, if it was confirmed or cancelled before.
pub async fn finish(
    conn: &mut Connection,
    payout: &Payout,
    payments: &[Payment],
    state: PayoutState,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done =
        sqlx::query("UPDATE payouts SET state = $2, ended_at = $3 WHERE id = $1 AND state = 'exported'")
            .bind(payout.id.to_string())
            .bind(state.as_str())
            .bind(now.unix_ms())
            .execute(&mut *conn)
            .await
            .context("end a payout")?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    if state == PayoutState::Confirmed {
        if payout.amount > MicroCredits::ZERO {
            ledger::post(conn, &Posting::paid(payout.amount), &Details::default(), now).await?;
        }
        return Ok(true);
    }
    for Payment { account, amount, .. } in payments {
        ledger::post(conn, &Posting::payout_return(*account, *amount), &Details::default(), now).await?;
    }
    Ok(true)
}

/// One payout.
pub async fn get(pool: &Pool, id: PayoutId) -> Result<Option<Payout>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!("SELECT {COLUMNS} FROM payouts WHERE id = $1")))
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("read a payout")?;
    row.as_ref().map(read).transpose()
}

/// The payments of a payout, ordered by account.
pub async fn payments(pool: &Pool, id: PayoutId) -> Result<Vec<Payment>, StoreError> {
    let rows = sqlx::query(
        "SELECT p.account_id, a.email, p.amount FROM payments p JOIN accounts a ON a.id = p.account_id \
         WHERE p.payout_id = $1 ORDER BY p.account_id",
    )
    .bind(id.to_string())
    .fetch_all(pool)
    .await
    .context("list payments")?;
    let payment = |row: &Row| {
        Ok(Payment {
            account: parsed(row, "account_id")?,
            email: row.try_get("email").context("read a column")?,
            amount: MicroCredits(integer(row, "amount")?),
        })
    };
    rows.iter().map(payment).collect()
}

/// A page of the payouts, newest first, and their total number.
pub async fn page(pool: &Pool, limit: u64, offset: u64) -> Result<(Vec<Payout>, u64), StoreError> {
    let statement =
        format!("SELECT {COLUMNS} FROM payouts ORDER BY created_at DESC, id DESC LIMIT $1 OFFSET $2");
    let rows = sqlx::query(AssertSqlSafe(statement))
        .bind(limit as i64)
        .bind(offset as i64)
        .fetch_all(pool)
        .await
        .context("list payouts")?;
    let row = sqlx::query("SELECT COUNT(*) AS n FROM payouts").fetch_one(pool).await;
    let total = integer(&row.context("count payouts")?, "n")?;
    Ok((rows.iter().map(read).collect::<Result<_, _>>()?, total.unsigned_abs()))
}
