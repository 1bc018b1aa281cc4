//! Statements: sums and entries of an account in a span of time. Holds and their release are left out: they move credits
//! within the account.

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, HostId, JobId, Slug},
    time::Timestamp,
};
use island_protocol_api::statement::{CargoSpending, IslandEarnings, Statement, StatementTotal};
use sqlx::Row as _;

use super::{Pool, QueryContext as _, Row, StoreError, integer, optional, parsed};
use island_coordinator_domain::ledger::Book;

/// Entries of one page.
const PAGE: i64 = 1_000;

/// An account and a span of time, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub account: AccountId,
    pub from: Timestamp,
    pub until: Timestamp,
}

/// One change of an account's credits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: String,
    pub at: Timestamp,
    pub kind: String,
    pub amount: MicroCredits,
    pub job: Option<JobId>,
    pub cargo: Option<Slug>,
    pub host: Option<HostId>,
    pub device: Option<String>,
}

/// The name of a change: `settle` is either paid by the account or to it.
fn kind(stored: String, is_of_balance: bool) -> String {
    match (stored.as_str(), is_of_balance) {
        ("settle", true) => "earned".to_owned(),
        ("settle", false) => "spent".to_owned(),
        _ => stored,
    }
}

/// The sums of a span.
pub async fn sums(pool: &Pool, span: &Span) -> Result<Statement, StoreError> {
    let Span { account, from, until } = *span;
    let (balance, holds) = (Book::Balance(account).to_string(), Book::Holds(account).to_string());
    let row = sqlx::query(
        "SELECT CAST((SELECT COALESCE(SUM(amount), 0) FROM balances WHERE ledger IN ($1, $2)) + \
         (SELECT COALESCE(SUM(amount), 0) FROM uncounted_entries WHERE ledger = $1) - \
         (SELECT COALESCE(SUM(amount), 0) FROM ledger_entries WHERE ledger IN ($1, $2) AND created_at >= $3) \
         AS BIGINT) AS opening",
    )
    .bind(&balance)
    .bind(&holds)
    .bind(from.unix_ms())
    .fetch_one(pool)
    .await
    .context("read the credits at the begin of a span")?;
    let opening = MicroCredits(integer(&row, "opening")?);
    let rows = sqlx::query(
        "SELECT ledger, kind, CAST(SUM(amount) AS BIGINT) AS amount, COUNT(*) AS entries FROM ledger_entries \
         WHERE ledger IN ($1, $2) AND created_at >= $3 AND created_at < $4 AND kind NOT IN ('hold', 'release') \
         GROUP BY ledger, kind ORDER BY kind, ledger",
    )
    .bind(&balance)
    .bind(&holds)
    .bind(from.unix_ms())
    .bind(until.unix_ms())
    .fetch_all(pool)
    .await
    .context("sum the changes of a span")?;
    let total = |row: &Row| {
        let ledger: String = row.try_get("ledger").context("read a column")?;
        Ok(StatementTotal {
            kind: kind(row.try_get("kind").context("read a column")?, ledger == balance),
            amount: MicroCredits(integer(row, "amount")?),
            entries: integer(row, "entries")?.unsigned_abs(),
        })
    };
    let totals: Vec<StatementTotal> = rows.iter().map(total).collect::<Result<_, StoreError>>()?;
    let closing = opening + totals.iter().map(|total| total.amount).sum();
    let (earned, spent) = (earned(pool, span).await?, spent(pool, span).await?);
    Ok(Statement { account, from, until, opening, closing, totals, earned, spent })
}

async fn earned(pool: &Pool, span: &Span) -> Result<Vec<IslandEarnings>, StoreError> {
    let rows = sqlx::query(
        "SELECT e.host_id, h.name, e.device, COUNT(*) AS jobs, CAST(SUM(e.amount) AS BIGINT) AS amount \
         FROM ledger_entries e LEFT JOIN hosts h ON h.id = e.host_id AND h.account_id = $4 \
         WHERE e.ledger = $1 AND e.kind = 'settle' AND e.created_at >= $2 AND e.created_at < $3 \
         GROUP BY e.host_id, h.name, e.device ORDER BY amount DESC, e.host_id, e.device",
    )
    .bind(Book::Balance(span.account).to_string())
    .bind(span.from.unix_ms())
    .bind(span.until.unix_ms())
    .bind(span.account.to_string())
    .fetch_all(pool)
    .await
    .context("sum what Islands earned")?;
    let earnings = |row: &Row| {
        Ok(IslandEarnings {
            host_id: optional(row, "host_id")?,
            name: row.try_get("name").context("read a column")?,
            device: row.try_get("device").context("read a column")?,
            jobs: integer(row, "jobs")?.unsigned_abs(),
            amount: MicroCredits(integer(row, "amount")?),
        })
    };
    rows.iter().map(earnings).collect()
}

async fn spent(pool: &Pool, span: &Span) -> Result<Vec<CargoSpending>, StoreError> {
    let rows = sqlx::query(
        "SELECT j.workload_slug, COUNT(DISTINCT e.job_id) AS jobs, CAST(-SUM(e.amount) AS BIGINT) AS amount \
         FROM ledger_entries e JOIN jobs j ON j.id = e.job_id \
         WHERE e.ledger = $1 AND e.kind = 'settle' AND e.created_at >= $2 AND e.created_at < $3 \
         GROUP BY j.workload_slug ORDER BY amount DESC, j.workload_slug",
    )
    .bind(Book::Holds(span.account).to_string())
    .bind(span.from.unix_ms())
    .bind(span.until.unix_ms())
    .fetch_all(pool)
    .await
    .context("sum what Cargos cost")?;
    let spending = |row: &Row| {
        Ok(CargoSpending {
            workload_slug: parsed(row, "workload_slug")?,
            jobs: integer(row, "jobs")?.unsigned_abs(),
            amount: MicroCredits(integer(row, "amount")?),
        })
    };
    rows.iter().map(spending).collect()
}

/// The first entries of a span after an entry, oldest first; empty after the last.
pub async fn entries(pool: &Pool, span: &Span, after: Option<&Entry>) -> Result<Vec<Entry>, StoreError> {
    let balance = Book::Balance(span.account).to_string();
    // Each book is read in the order of its index, as far as the page reaches.
    let rows = sqlx::query(
        "SELECT e.id, e.ledger, e.kind, e.amount, e.created_at, e.job_id, e.host_id, e.device, j.workload_slug FROM (\
         SELECT * FROM (SELECT * FROM ledger_entries WHERE ledger = $1 AND created_at >= $3 AND created_at < $4 \
          AND kind NOT IN ('hold', 'release') AND (created_at > $5 OR (created_at = $5 AND id > $6)) \
          ORDER BY created_at, id LIMIT $7) AS balance UNION ALL \
         SELECT * FROM (SELECT * FROM ledger_entries WHERE ledger = $2 AND created_at >= $3 AND created_at < $4 \
          AND kind = 'settle' AND (created_at > $5 OR (created_at = $5 AND id > $6)) \
          ORDER BY created_at, id LIMIT $7) AS holds) AS e \
         LEFT JOIN jobs j ON j.id = e.job_id ORDER BY e.created_at, e.id LIMIT $7",
    )
    .bind(&balance)
    .bind(Book::Holds(span.account).to_string())
    .bind(after.map_or(span.from, |entry| entry.at).unix_ms())
    .bind(span.until.unix_ms())
    .bind(after.map_or(i64::MIN, |entry| entry.at.unix_ms()))
    .bind(after.map_or("", |entry| entry.id.as_str()))
    .bind(PAGE)
    .fetch_all(pool)
    .await
    .context("list the entries of a span")?;
    let entry = |row: &Row| {
        let ledger: String = row.try_get("ledger").context("read a column")?;
        Ok(Entry {
            id: row.try_get("id").context("read a column")?,
            at: Timestamp::from_unix_ms(integer(row, "created_at")?),
            kind: kind(row.try_get("kind").context("read a column")?, ledger == balance),
            amount: MicroCredits(integer(row, "amount")?),
            job: optional(row, "job_id")?,
            cargo: optional(row, "workload_slug")?,
            host: optional(row, "host_id")?,
            device: row.try_get("device").context("read a column")?,
        })
    };
    rows.iter().map(entry).collect()
}
