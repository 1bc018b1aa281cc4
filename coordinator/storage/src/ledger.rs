//! The ledger in SQL. Entries are append-only; cached balances are written by the same transaction, except those of
//! earners: a trigger records their entries as uncounted, and [`count`] adds them to the balance later. What an account
//! has is its balance and its uncounted entries.

use std::{collections::BTreeSet, fmt};

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, JobId},
    time::Timestamp,
};
use island_protocol_api::ledger::LedgerEntry;
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

use super::{
    Connection, Pool, QueryContext as _, Row, Store, StoreError, commit, host, integer, optional, to_text,
};
use island_coordinator_domain::ledger::{Book, Posting};

/// Uncounted entries that are taken at once.
const COUNTED: i64 = 1_000;

/// What an entry refers to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Details<'a> {
    pub job: Option<JobId>,
    /// The device that the paid Island's engine reported.
    pub device: Option<&'a str>,
}

impl Details<'_> {
    /// An entry of a job.
    pub fn of_job(job: JobId) -> Self {
        Self { job: Some(job), device: None }
    }
}

/// Writes a posting that the books are known to cover. Returns an error, which rolls the transaction back, if they do
/// not.
pub async fn post(
    conn: &mut Connection,
    posting: &Posting,
    details: &Details<'_>,
    now: Timestamp,
) -> Result<(), StoreError> {
    if try_post(conn, posting, details, now).await? {
        return Ok(());
    }
    Err(StoreError::Corrupt { what: "balance" })
}

/// Writes a posting: its balances and two entries, in two statements. Returns `false`, and writes nothing, if the first
/// book has less than the amount. The accounts whose balances change must be locked, so that two transactions cannot
/// deadlock on them.
pub async fn try_post(
    conn: &mut Connection,
    posting: &Posting,
    details: &Details<'_>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let [(from, taken), (to, given)] = posting.entries();
    let (from, to) = (from.to_string(), to.to_string());
    let is_deferred = posting.is_deferred();
    let spender = posting.spender().map(|book| book.to_string());
    let changed: BTreeSet<_> =
        [Some(&from), Some(&to).filter(|_| !is_deferred), spender.as_ref()].into_iter().flatten().collect();
    // All values on the right are those before the update.
    let moved = sqlx::query(
        "UPDATE balances SET amount = amount + CASE ledger WHEN $1 THEN CAST($2 AS BIGINT) WHEN $3 THEN CAST($4 AS BIGINT) ELSE 0 END, \
         spent = CASE WHEN ledger <> $6 THEN 0 WHEN granted < $4 THEN granted ELSE $4 END, \
         granted = granted + CASE WHEN ledger = $7 THEN $4 WHEN ledger <> $6 THEN 0 WHEN granted < $4 THEN -granted ELSE $2 END \
         WHERE ledger IN ($1, $3, $6) AND EXISTS (SELECT 1 FROM balances AS source \
          WHERE source.ledger = $1 AND (source.amount >= $4 OR source.ledger = $5)) RETURNING spent",
    )
    .bind(&from)
    .bind(taken.0)
    .bind(if is_deferred { &from } else { &to })
    .bind(given.0)
    .bind(Book::Issue.to_string())
    .bind(spender.as_deref().unwrap_or_default())
    .bind(if posting.is_granted() { to.as_str() } else { "" })
    .fetch_all(&mut *conn)
    .await
    .context("update balances")?;
    match moved.len() {
        0 => return Ok(false),
        rows if rows == changed.len() => {}
        // All are opened together with their accounts.
        _ => return Err(StoreError::Corrupt { what: "balance" }),
    }
    let mut granted = 0;
    for row in &moved {
        granted += integer(row, "spent")?;
    }
    sqlx::query(
        "INSERT INTO ledger_entries \
         (id, ledger, kind, job_id, amount, created_at, part, deferred, host_id, device, granted) \
         VALUES ($1, $2, $3, $4, $5, $6, $10, 0, NULL, NULL, 0), ($7, $8, $3, $4, $9, $6, $10, $11, $12, $13, $14)",
    )
    .bind(Uuid::now_v7().to_string())
    .bind(&from)
    .bind(posting.kind.as_str())
    .bind(details.job.map(|job| job.to_string()))
    .bind(taken.0)
    .bind(now.unix_ms())
    .bind(Uuid::now_v7().to_string())
    .bind(&to)
    .bind(given.0)
    .bind(i64::from(posting.part))
    .bind(i64::from(is_deferred))
    .bind(posting.host.map(|host| host.to_string()))
    .bind(details.device.map(to_text))
    .bind(if is_deferred { granted } else { 0 })
    .execute(conn)
    .await
    .context("write two ledger entries")?;
    Ok(true)
}

/// Adds the uncounted entries of an account to its balance. Returns `false` if it has no such entries. The account must be
/// locked.
pub async fn count(conn: &mut Connection, account: AccountId) -> Result<bool, StoreError> {
    let book = Book::Balance(account).to_string();
    let mut has_counted = false;
    loop {
        let rows = sqlx::query(
            "DELETE FROM uncounted_entries WHERE id IN \
             (SELECT id FROM uncounted_entries WHERE ledger = $1 LIMIT $2) RETURNING amount, granted",
        )
        .bind(&book)
        .bind(COUNTED)
        .fetch_all(&mut *conn)
        .await
        .context("take uncounted entries")?;
        if rows.is_empty() {
            return Ok(has_counted);
        }
        let (mut sum, mut granted) = (0, 0);
        for row in &rows {
            sum += integer(row, "amount")?;
            granted += integer(row, "granted")?;
        }
        let done = sqlx::query(
            "UPDATE balances SET amount = amount + $2, entries = entries + $3, granted = granted + $4 WHERE ledger = $1",
        )
        .bind(&book)
        .bind(sum)
        .bind(rows.len() as i64)
        .bind(granted)
        .execute(&mut *conn)
        .await
        .context("count entries")?;
        if done.rows_affected() != 1 {
            return Err(StoreError::Corrupt { what: "balance" });
        }
        has_counted = true;
    }
}

/// Counts every entry and all karma that were committed before.
pub async fn count_all(store: &Store) -> Result<(), StoreError> {
    loop {
        let accounts = uncounted(store.reader()).await?;
        for account in &accounts {
            let mut tx = store.begin_locked([*account]).await?;
            count(&mut tx, *account).await?;
            commit(tx).await?;
        }
        if accounts.is_empty() {
            break;
        }
    }
    while host::has_uncounted_karma(store.reader()).await? {
        let mut tx = store.begin().await?;
        host::count_karma(&mut tx).await?;
        commit(tx).await?;
    }
    Ok(())
}

/// Accounts with uncounted entries, not necessarily all.
pub async fn uncounted(pool: &Pool) -> Result<Vec<AccountId>, StoreError> {
    let rows = sqlx::query("SELECT DISTINCT ledger FROM uncounted_entries LIMIT $1")
        .bind(COUNTED)
        .fetch_all(pool)
        .await
        .context("list accounts with uncounted entries")?;
    rows.iter()
        .map(|row| {
            let ledger: String = row.try_get("ledger").context("read a column")?;
            Book::account_of_balance(&ledger).ok_or(StoreError::Corrupt { what: "ledger" })
        })
        .collect()
}

/// Opens the books of a new account.
pub async fn open(conn: &mut Connection, account: AccountId) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO balances (ledger, amount) VALUES ($1, 0), ($2, 0)")
        .bind(Book::Balance(account).to_string())
        .bind(Book::Holds(account).to_string())
        .execute(conn)
        .await
        .context("open the books of an account")?;
    Ok(())
}

/// The spendable balance of an account, as this transaction sees it.
pub async fn balance_in(conn: &mut Connection, account: AccountId) -> Result<MicroCredits, StoreError> {
    let row = sqlx::query(
        "SELECT CAST((SELECT COALESCE(SUM(amount), 0) FROM balances WHERE ledger = $1) + \
         (SELECT COALESCE(SUM(amount), 0) FROM uncounted_entries WHERE ledger = $1) AS BIGINT) AS amount",
    )
    .bind(Book::Balance(account).to_string())
    .fetch_one(conn)
    .await
    .context("read a balance")?;
    integer(&row, "amount").map(MicroCredits)
}

/// The spendable balance of an account.
pub async fn balance(pool: &Pool, account: AccountId) -> Result<MicroCredits, StoreError> {
    let mut conn = pool.acquire().await.context("acquire a connection")?;
    balance_in(&mut conn, account).await
}

/// What a job was charged, and whether that was refunded.
pub async fn charged(
    conn: &mut Connection,
    account: AccountId,
    job: JobId,
) -> Result<(MicroCredits, bool), StoreError> {
    let row = sqlx::query(
        "SELECT CAST((SELECT COALESCE(SUM(amount), 0) FROM ledger_entries \
         WHERE job_id = $1 AND kind = 'settle' AND ledger = $2) AS BIGINT) AS settled, \
         (SELECT COUNT(*) FROM ledger_entries WHERE job_id = $1 AND kind = 'refund' AND ledger = $3) AS refunds",
    )
    .bind(job.to_string())
    .bind(Book::Holds(account).to_string())
    .bind(Book::Balance(account).to_string())
    .fetch_one(conn)
    .await
    .context("read what a job was charged")?;
    Ok((-MicroCredits(integer(&row, "settled")?), integer(&row, "refunds")? > 0))
}

/// What an audit of the ledger found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audit {
    /// Sum of all entries.
    pub sum: MicroCredits,
    /// Balances that, with what is uncounted, differ from the sum of their entries.
    pub wrong_balances: i64,
    /// Accounts whose holds differ from the prices of their open jobs.
    pub wrong_holds: i64,
}

impl Audit {
    /// The books are consistent.
    pub const SOUND: Self = Self { sum: MicroCredits::ZERO, wrong_balances: 0, wrong_holds: 0 };
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sum, wrong_balances, wrong_holds } = self;
        write!(f, "sum of all entries: {sum}; balances that differ from their entries: {wrong_balances}; ")?;
        write!(f, "accounts whose holds differ from the prices of their open jobs: {wrong_holds}")
    }
}

/// Audits the ledger.
pub async fn audit(pool: &Pool) -> Result<Audit, StoreError> {
    // One statement sees one moment.
    let row = sqlx::query(
        "SELECT (SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM ledger_entries) AS total, \
         (SELECT COUNT(*) FROM balances b WHERE b.amount + \
          (SELECT COALESCE(SUM(u.amount), 0) FROM uncounted_entries u WHERE u.ledger = b.ledger) <> \
          (SELECT COALESCE(SUM(e.amount), 0) FROM ledger_entries e WHERE e.ledger = b.ledger)) AS wrong, \
         (SELECT COUNT(*) FROM accounts a WHERE \
          (SELECT COALESCE(SUM(h.amount), 0) FROM balances h WHERE h.ledger = 'holds:' || a.id) <> \
          (SELECT COALESCE(SUM(j.price), 0) FROM jobs j WHERE j.account_id = a.id \
           AND j.status IN ('submitted', 'pending', 'queued', 'running'))) AS wrong_holds",
    )
    .fetch_one(pool)
    .await
    .context("audit the ledger")?;
    Ok(Audit {
        sum: MicroCredits(integer(&row, "total")?),
        wrong_balances: integer(&row, "wrong")?,
        wrong_holds: integer(&row, "wrong_holds")?,
    })
}

/// A page of an account's entries in both of its books, newest first, and their total number: those behind the entry
/// `after`, none if that is not one of them, without the first `offset`. Each book is read in the order of its index, as
/// far as the page reaches.
pub async fn page(
    pool: &Pool,
    account: AccountId,
    after: Option<Uuid>,
    limit: u64,
    offset: u64,
) -> Result<(Vec<LedgerEntry>, u64), StoreError> {
    let (balance, holds) = (Book::Balance(account).to_string(), Book::Holds(account).to_string());
    let total = sqlx::query(
        "SELECT CAST((SELECT COALESCE(SUM(entries), 0) FROM balances WHERE ledger IN ($1, $2)) + \
         (SELECT COUNT(*) FROM uncounted_entries WHERE ledger IN ($1, $2)) AS BIGINT) AS n",
    )
    .bind(&balance)
    .bind(&holds)
    .fetch_one(pool)
    .await
    .and_then(|row| row.try_get::<i64, _>("n"))
    .context("count ledger entries")?
    .max(0) as u64;
    if offset >= total {
        return Ok((Vec::new(), total));
    }
    let reach = i64::try_from(limit.saturating_add(offset)).unwrap_or(i64::MAX);
    let behind = if after.is_some() {
        "AND (created_at, id) < \
         (SELECT a.created_at, a.id FROM ledger_entries a WHERE a.id = $6 AND a.ledger IN ($1, $2))"
    } else {
        ""
    };
    let book = |parameter| {
        format!(
            "SELECT * FROM (SELECT id, ledger, kind, job_id, amount, created_at, host_id, device FROM ledger_entries \
             WHERE ledger = {parameter} {behind} ORDER BY created_at DESC, id DESC LIMIT $3) AS book"
        )
    };
    let statement = format!(
        "{} UNION ALL {} ORDER BY created_at DESC, id DESC LIMIT $4 OFFSET $5",
        book("$1"),
        book("$2")
    );
    let query = sqlx::query(AssertSqlSafe(statement))
        .bind(&balance)
        .bind(&holds)
        .bind(reach)
        .bind(limit as i64)
        .bind(offset as i64);
    let query = if let Some(after) = after { query.bind(after.to_string()) } else { query };
    let rows = query.fetch_all(pool).await.context("list ledger entries")?;
    let entries = rows.iter().map(|row| entry(row, &holds)).collect::<Result<_, _>>()?;
    Ok((entries, total))
}

fn entry(row: &Row, holds: &str) -> Result<LedgerEntry, StoreError> {
    let ledger: String = row.try_get("ledger").context("read a column")?;
    Ok(LedgerEntry {
        id: row.try_get("id").context("read a column")?,
        kind: row.try_get("kind").context("read a column")?,
        book: if ledger == holds { "holds" } else { "balance" }.to_owned(),
        amount: MicroCredits(row.try_get("amount").context("read a column")?),
        job_id: optional(row, "job_id")?,
        host_id: optional(row, "host_id")?,
        device: row.try_get("device").context("read a column")?,
        created_at: Timestamp::from_unix_ms(row.try_get("created_at").context("read a column")?),
    })
}
