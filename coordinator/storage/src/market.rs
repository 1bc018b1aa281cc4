//! Prices of and demand for Cargos, read from the ledger and the jobs.
//!
//! Hours that are over are summed once ([`sum_hour`]), and so are the later minutes in memory ([`Market`]). A request
//! reads the jobs of the last minutes only, so that its cost does not grow with the jobs that have ended. A job whose end
//! is committed more than [`LAG_MS`] after its hour is missing in these numbers, never in the ledger.

mod sums;

use std::collections::HashMap;

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, Slug},
    time::Timestamp,
};
use island_protocol_api::preferences::Preferences;
use sqlx::{AssertSqlSafe, Row as _};

pub use sums::Market;

use super::{
    Pool, QueryContext as _, Store, StoreError, commit, integer, parsed,
    progress::{self, Task},
};
use island_coordinator_domain::job::Agreement;

/// Milliseconds of an hour.
pub const HOUR_MS: i64 = 3_600_000;
/// Time from the end of an hour until it is summed: ends of jobs may be committed late.
const LAG_MS: i64 = 10 * 60_000;
/// How long the sums of hours are kept. The history of prices shows a week.
const HOURS_KEPT: i64 = 8 * 24;
/// Completed jobs since `$1` that consumers submitted, each with the settled price, 0 if none.
const COMPLETED: &str = "SELECT j.workload_slug, j.completed_at / 3600000 AS hour, j.host_id, \
     (SELECT CAST(COALESCE(SUM(e.amount), 0) AS BIGINT) FROM ledger_entries e \
      WHERE e.job_id = j.id AND e.kind = 'settle' AND e.amount > 0) AS price \
     FROM jobs j WHERE j.only_host IS NULL AND j.status = 'completed' AND j.completed_at >= $1";

/// Prices of completed jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    pub avg: MicroCredits,
    pub min: MicroCredits,
    pub max: MicroCredits,
    pub jobs: u64,
}

fn hour_of(time: Timestamp) -> i64 {
    time.unix_ms().div_euclid(HOUR_MS)
}

/// Settled prices of one Cargo in one hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hour {
    pub begins: Timestamp,
    pub prices: Prices,
    /// Islands that completed a job of it.
    pub hosts: u64,
}

/// Sums the next hour that is over and in which jobs completed. Returns `false` if no such hour remains.
pub async fn sum_hour(store: &Store, now: Timestamp) -> Result<bool, StoreError> {
    let summed = progress::get(store.reader(), Task::Market).await?;
    let over = hour_of(now.plus_ms(-LAG_MS)) * HOUR_MS;
    let row = sqlx::query(
        "SELECT MIN(completed_at) AS first FROM jobs \
         WHERE only_host IS NULL AND status = 'completed' AND completed_at >= $1 AND completed_at < $2",
    )
    .bind(summed)
    .bind(over)
    .fetch_one(store.reader())
    .await
    .context("find the next hour of completed jobs")?;
    let first: Option<i64> = sqlx::Row::try_get(&row, "first").context("read a column")?;
    let Some(hour) = first.map(|at| at.div_euclid(HOUR_MS)) else { return Ok(false) };
    let end = (hour + 1) * HOUR_MS;
    let mut tx = store.begin().await?;
    if !progress::advance(&mut tx, Task::Market, summed, end).await? {
        // Another coordinator sums this hour.
        return Ok(true);
    }
    sqlx::query(AssertSqlSafe(format!(
        "INSERT INTO market_hours (hour, workload_slug, completed, jobs, total, least, most, hosts) \
         SELECT c.hour, c.workload_slug, COUNT(*), \
         CAST(SUM(CASE WHEN c.price > 0 THEN 1 ELSE 0 END) AS BIGINT), CAST(SUM(c.price) AS BIGINT), \
         COALESCE(MIN(CASE WHEN c.price > 0 THEN c.price END), 0), MAX(c.price), \
         COUNT(DISTINCT CASE WHEN c.price > 0 THEN c.host_id END) \
         FROM ({COMPLETED} AND j.completed_at < $2) c GROUP BY c.hour, c.workload_slug"
    )))
    .bind(hour * HOUR_MS)
    .bind(end)
    .execute(&mut *tx)
    .await
    .context("sum an hour")?;
    sqlx::query(
        "INSERT INTO market_totals (workload_slug, completed) \
         SELECT workload_slug, completed FROM market_hours WHERE hour = $1 \
         ON CONFLICT (workload_slug) DO UPDATE SET completed = market_totals.completed + excluded.completed",
    )
    .bind(hour)
    .execute(&mut *tx)
    .await
    .context("add an hour to the totals")?;
    sqlx::query("DELETE FROM market_hours WHERE hour < $1")
        .bind(hour_of(now) - HOURS_KEPT)
        .execute(&mut *tx)
        .await
        .context("remove old hours")?;
    commit(tx).await?;
    Ok(true)
}

/// Demand for a Cargo.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Jobs that wait.
    pub queued: u64,
    /// Recently completed jobs.
    pub completed: u64,
}

impl Demand {
    /// The key by which recommendations are sorted.
    pub fn score(self) -> u64 {
        self.queued.saturating_mul(10).saturating_add(self.completed.saturating_mul(2))
    }
}

/// Jobs that wait for an Island, of one Cargo and one kind of request.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingJobs {
    pub slug: Slug,
    pub jobs: u64,
    /// Account and preferences, if these exclude or order Islands.
    pub selection: Option<(AccountId, Preferences)>,
}

/// The waiting jobs of consumers; of those whose requests prefer Islands the `most` most frequent kinds.
pub async fn waiting(pool: &Pool, most: u32) -> Result<Vec<WaitingJobs>, StoreError> {
    let rows = sqlx::query(
        "SELECT slug, account, agreement, COUNT(*) AS n FROM (SELECT workload_slug AS slug, \
          CASE WHEN agreement LIKE '%\"preferences\"%' THEN account_id END AS account, \
          CASE WHEN agreement LIKE '%\"preferences\"%' THEN agreement END AS agreement FROM jobs \
          WHERE only_host IS NULL AND status IN ('submitted', 'pending', 'queued')) AS waiting \
         GROUP BY slug, account, agreement ORDER BY CASE WHEN agreement IS NULL THEN 0 ELSE 1 END, n DESC \
         LIMIT $1 + (SELECT COUNT(*) FROM workloads)",
    )
    .bind(i64::from(most))
    .fetch_all(pool)
    .await
    .context("count waiting jobs")?;
    rows.iter()
        .map(|row| {
            let agreement: Option<String> = row.try_get("agreement").context("read a column")?;
            let selection = agreement.map(|agreement| {
                let agreement: Agreement = serde_json::from_str(&agreement)
                    .map_err(|_| StoreError::Corrupt { what: "agreement" })?;
                Ok::<_, StoreError>((parsed(row, "account")?, agreement.preferences))
            });
            Ok(WaitingJobs {
                slug: parsed(row, "slug")?,
                jobs: integer(row, "n")?.max(0).unsigned_abs(),
                selection: selection.transpose()?,
            })
        })
        .collect()
}

/// Jobs of each Cargo that completed since a time.
pub async fn completed_since(pool: &Pool, since: Timestamp) -> Result<HashMap<Slug, u64>, StoreError> {
    let rows = sqlx::query(
        "SELECT workload_slug AS slug, COUNT(*) AS n FROM jobs \
         WHERE only_host IS NULL AND status = 'completed' AND completed_at >= $1 GROUP BY workload_slug",
    )
    .bind(since.unix_ms())
    .fetch_all(pool)
    .await
    .context("count completed jobs")?;
    rows.iter().map(|row| Ok((parsed(row, "slug")?, integer(row, "n")?.max(0).unsigned_abs()))).collect()
}

/// What the jobs of a Cargo were in a span of whole hours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DayDemand {
    /// Jobs that were paid for, and what their Islands earned.
    pub jobs: u64,
    pub earned: MicroCredits,
    /// The most Islands that ran them in one hour.
    pub hosts: u64,
    /// Jobs that ended because no Island took them.
    pub unmet: u64,
}

/// The jobs of each Cargo from `from` until before `until`, which are begins of hours that are kept.
pub async fn of_day(
    pool: &Pool,
    from: Timestamp,
    until: Timestamp,
) -> Result<HashMap<Slug, DayDemand>, StoreError> {
    let count = |row, column| Ok::<_, StoreError>(integer(row, column)?.max(0).unsigned_abs());
    let mut days: HashMap<Slug, DayDemand> = HashMap::new();
    let paid = sqlx::query(
        "SELECT workload_slug AS slug, CAST(SUM(jobs) AS BIGINT) AS jobs, CAST(SUM(total) AS BIGINT) AS total, \
         MAX(hosts) AS hosts FROM market_hours WHERE hour >= $1 AND hour < $2 GROUP BY workload_slug",
    )
    .bind(hour_of(from))
    .bind(hour_of(until))
    .fetch_all(pool)
    .await
    .context("sum the paid jobs of a day")?;
    for row in &paid {
        let day = days.entry(parsed(row, "slug")?).or_default();
        (day.jobs, day.hosts) = (count(row, "jobs")?, count(row, "hosts")?);
        day.earned = MicroCredits(integer(row, "total")?);
    }
    let unmet = sqlx::query(
        "SELECT workload_slug AS slug, COUNT(*) AS n FROM jobs WHERE only_host IS NULL \
         AND error_code = 'no_island_available' AND completed_at >= $1 AND completed_at < $2 GROUP BY workload_slug",
    )
    .bind(from.unix_ms())
    .bind(until.unix_ms())
    .fetch_all(pool)
    .await
    .context("count the jobs of a day that no Island took")?;
    for row in &unmet {
        days.entry(parsed(row, "slug")?).or_default().unmet = count(row, "n")?;
    }
    Ok(days)
}

/// Number of completed jobs.
pub async fn completed(pool: &Pool) -> Result<u64, StoreError> {
    let unsummed = progress::get(pool, Task::Market).await?;
    let row = sqlx::query(
        "SELECT CAST((SELECT COALESCE(SUM(completed), 0) FROM market_totals) + \
         (SELECT COUNT(*) FROM jobs WHERE only_host IS NULL AND status = 'completed' AND completed_at >= $1) \
         AS BIGINT) AS n",
    )
    .bind(unsummed)
    .fetch_one(pool)
    .await
    .context("count completed jobs")?;
    Ok(integer(&row, "n")?.max(0) as u64)
}
