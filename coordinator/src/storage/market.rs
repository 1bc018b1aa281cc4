//! Prices of and demand for Cargos, read from the ledger and the jobs.

use std::collections::HashMap;

use island_protocol::{credits::MicroCredits, ids::Slug, time::Timestamp};

use super::{Pool, QueryContext as _, Row, StoreError, integer, parsed};

/// Milliseconds of an hour.
pub(crate) const HOUR_MS: i64 = 3_600_000;

/// Prices of completed jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prices {
    pub avg: MicroCredits,
    pub min: MicroCredits,
    pub max: MicroCredits,
    pub jobs: u64,
}

impl Prices {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let (total, jobs) = (integer(row, "total")?, integer(row, "jobs")?);
        Ok(Self {
            avg: MicroCredits(total / jobs.max(1)),
            min: MicroCredits(integer(row, "least")?),
            max: MicroCredits(integer(row, "most")?),
            jobs: jobs.max(0) as u64,
        })
    }
}

/// Settled prices of completed jobs since a time, for each Cargo.
pub(crate) async fn prices(pool: &Pool, since: Timestamp) -> Result<HashMap<Slug, Prices>, StoreError> {
    let rows = sqlx::query(
        "SELECT j.workload_slug AS slug, CAST(SUM(e.amount) AS BIGINT) AS total, MIN(e.amount) AS least, \
         MAX(e.amount) AS most, COUNT(*) AS jobs FROM ledger_entries e JOIN jobs j ON j.id = e.job_id \
         WHERE e.kind = 'settle' AND e.amount > 0 AND e.created_at >= $1 AND j.status = 'completed' \
         GROUP BY j.workload_slug",
    )
    .bind(since.unix_ms())
    .fetch_all(pool)
    .await
    .context("read settled prices")?;
    rows.iter().map(|row| Ok((parsed(row, "slug")?, Prices::read(row)?))).collect()
}

/// Settled prices of one Cargo in one hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hour {
    pub begins: Timestamp,
    pub prices: Prices,
    /// Islands that completed a job of it.
    pub hosts: u64,
}

/// Hours since a time in which jobs of a Cargo settled, oldest first.
pub(crate) async fn hours(pool: &Pool, slug: &Slug, since: Timestamp) -> Result<Vec<Hour>, StoreError> {
    let rows = sqlx::query(
        "SELECT e.created_at / 3600000 AS hour, CAST(SUM(e.amount) AS BIGINT) AS total, MIN(e.amount) AS least, \
         MAX(e.amount) AS most, COUNT(*) AS jobs, COUNT(DISTINCT j.host_id) AS hosts \
         FROM ledger_entries e JOIN jobs j ON j.id = e.job_id \
         WHERE e.kind = 'settle' AND e.amount > 0 AND e.created_at >= $1 AND j.status = 'completed' \
         AND j.workload_slug = $2 GROUP BY e.created_at / 3600000 ORDER BY hour",
    )
    .bind(since.unix_ms())
    .bind(slug.as_str())
    .fetch_all(pool)
    .await
    .context("read settled prices for each hour")?;
    rows.iter()
        .map(|row| {
            Ok(Hour {
                begins: Timestamp::from_unix_ms(integer(row, "hour")? * HOUR_MS),
                prices: Prices::read(row)?,
                hosts: integer(row, "hosts")?.max(0) as u64,
            })
        })
        .collect()
}

/// Demand for a Cargo.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Jobs that wait.
    pub queued: u64,
    /// Recently completed jobs.
    pub completed: u64,
}

impl Demand {
    /// The key by which recommendations are sorted.
    pub(crate) fn score(self) -> u64 {
        self.queued.saturating_mul(10).saturating_add(self.completed.saturating_mul(2))
    }
}

/// Demand for each Cargo; completions are counted since a time.
pub(crate) async fn demand(pool: &Pool, since: Timestamp) -> Result<HashMap<Slug, Demand>, StoreError> {
    let mut demand: HashMap<Slug, Demand> = HashMap::new();
    let waiting = sqlx::query(
        "SELECT workload_slug AS slug, COUNT(*) AS n FROM jobs \
         WHERE only_host IS NULL AND status IN ('submitted', 'pending', 'queued') GROUP BY workload_slug",
    )
    .fetch_all(pool)
    .await
    .context("count waiting jobs")?;
    for row in &waiting {
        demand.entry(parsed(row, "slug")?).or_default().queued = integer(row, "n")?.max(0) as u64;
    }
    let completed = sqlx::query(
        "SELECT workload_slug AS slug, COUNT(*) AS n FROM jobs \
         WHERE only_host IS NULL AND status = 'completed' AND completed_at >= $1 GROUP BY workload_slug",
    )
    .bind(since.unix_ms())
    .fetch_all(pool)
    .await
    .context("count completed jobs")?;
    for row in &completed {
        demand.entry(parsed(row, "slug")?).or_default().completed = integer(row, "n")?.max(0) as u64;
    }
    Ok(demand)
}

/// Number of completed jobs.
pub(crate) async fn completed(pool: &Pool) -> Result<u64, StoreError> {
    let row = sqlx::query("SELECT COUNT(*) AS n FROM jobs WHERE only_host IS NULL AND status = 'completed'")
        .fetch_one(pool)
        .await
        .context("count completed jobs")?;
    Ok(integer(&row, "n")?.max(0) as u64)
}
