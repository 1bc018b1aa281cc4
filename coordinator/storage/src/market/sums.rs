//! Sums of settled prices in memory: those of past hours as SQL has them, and those of the minutes since.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use island_protocol::{credits::MicroCredits, ids::Slug, time::Timestamp};
use sqlx::{AssertSqlSafe, Row as _};
use tokio::sync::Mutex;

use super::{COMPLETED, HOUR_MS, HOURS_KEPT, Hour, Prices, hour_of};
use crate::{
    Pool, QueryContext as _, StoreError, integer, parsed,
    progress::{self, Task},
};

const MINUTE_MS: i64 = 60_000;

/// Settled prices of one Cargo in one hour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Sum {
    jobs: i64,
    total: i64,
    least: i64,
    most: i64,
    /// Number of Islands, of an hour that SQL summed.
    hosts: u64,
    /// Islands, of an hour that it did not.
    island_ids: BTreeSet<String>,
}

impl Sum {
    fn add(&mut self, other: &Self) {
        self.least = if self.jobs == 0 { other.least } else { self.least.min(other.least) };
        self.most = self.most.max(other.most);
        self.jobs += other.jobs;
        self.total += other.total;
        self.hosts += other.hosts;
        self.island_ids.extend(other.island_ids.iter().cloned());
    }

    fn prices(&self) -> Prices {
        Prices {
            avg: MicroCredits(self.total / self.jobs.max(1)),
            min: MicroCredits(self.least),
            max: MicroCredits(self.most),
            jobs: self.jobs.max(0) as u64,
        }
    }
}

/// By Cargo and hour since 1970.
type Sums = HashMap<Slug, BTreeMap<i64, Sum>>;

fn add(sums: &mut Sums, slug: Slug, hour: i64, sum: &Sum) {
    sums.entry(slug).or_default().entry(hour).or_default().add(sum);
}

#[derive(Debug, Default)]
struct State {
    /// Up to here, `sums` has the hours that SQL summed. `None` before the first request.
    summed: Option<i64>,
    /// Up to here, it has the minutes since.
    until: i64,
    sums: Sums,
}

/// Prices of Cargos.
#[derive(Debug, Default)]
pub struct Market(Mutex<State>);

impl Market {
    /// Settled prices of completed jobs since the hour of a time, for each Cargo.
    pub async fn prices(
        &self,
        pool: &Pool,
        now: Timestamp,
        since: Timestamp,
    ) -> Result<HashMap<Slug, Prices>, StoreError> {
        let first = hour_of(since);
        let mut state = self.0.lock().await;
        state.advance(pool, now).await?;
        let mut all: HashMap<Slug, Sum> = HashMap::new();
        for sums in [&state.sums, &completed(pool, state.until, i64::MAX).await?] {
            for (slug, hours) in sums {
                for sum in hours.range(first..).map(|(_, sum)| sum) {
                    all.entry(slug.clone()).or_default().add(sum);
                }
            }
        }
        Ok(all.into_iter().map(|(slug, sum)| (slug, sum.prices())).collect())
    }

    /// Hours since the hour of a time in which jobs of a Cargo settled, oldest first.
    pub async fn hours(
        &self,
        pool: &Pool,
        slug: &Slug,
        now: Timestamp,
        since: Timestamp,
    ) -> Result<Vec<Hour>, StoreError> {
        let mut state = self.0.lock().await;
        state.advance(pool, now).await?;
        let latest = completed(pool, state.until, i64::MAX).await?;
        let mut hours: BTreeMap<i64, Sum> = BTreeMap::new();
        for sums in [state.sums.get(slug), latest.get(slug)].into_iter().flatten() {
            for (hour, sum) in sums.range(hour_of(since)..) {
                hours.entry(*hour).or_default().add(sum);
            }
        }
        drop(state);
        let hour = |(hour, sum): (i64, Sum)| Hour {
            begins: Timestamp::from_unix_ms(hour * HOUR_MS),
            prices: sum.prices(),
            hosts: sum.hosts + sum.island_ids.len() as u64,
        };
        Ok(hours.into_iter().map(hour).collect())
    }
}

impl State {
    /// Takes in what SQL has summed, and the minutes that are over. Ends that are committed a minute late count when
    /// their hour is summed.
    async fn advance(&mut self, pool: &Pool, now: Timestamp) -> Result<(), StoreError> {
        let summed = progress::get(pool, Task::Market).await?;
        if self.summed != Some(summed) {
            let oldest = hour_of(now) - HOURS_KEPT;
            let (sums, until) = (past(pool, oldest, summed).await?, summed.max(oldest * HOUR_MS));
            *self = Self { summed: Some(summed), until, sums };
        }
        let over = (now.unix_ms() - MINUTE_MS).div_euclid(MINUTE_MS) * MINUTE_MS;
        if over > self.until {
            for (slug, hours) in completed(pool, self.until, over).await? {
                for (hour, sum) in hours {
                    add(&mut self.sums, slug.clone(), hour, &sum);
                }
            }
            self.until = over;
        }
        Ok(())
    }
}

/// The hours that SQL summed, up to a time.
async fn past(pool: &Pool, oldest: i64, until: i64) -> Result<Sums, StoreError> {
    let rows = sqlx::query(
        "SELECT workload_slug AS slug, hour, jobs, total, least, most, hosts FROM market_hours \
         WHERE hour >= $1 AND hour < $2 AND jobs > 0",
    )
    .bind(oldest)
    .bind(until.div_euclid(HOUR_MS))
    .fetch_all(pool)
    .await
    .context("read the prices of past hours")?;
    let mut sums = Sums::new();
    for row in &rows {
        let sum = Sum {
            jobs: integer(row, "jobs")?,
            total: integer(row, "total")?,
            least: integer(row, "least")?,
            most: integer(row, "most")?,
            hosts: integer(row, "hosts")?.max(0) as u64,
            island_ids: BTreeSet::new(),
        };
        add(&mut sums, parsed(row, "slug")?, integer(row, "hour")?, &sum);
    }
    Ok(sums)
}

/// The jobs that completed in a span of time and were paid for.
async fn completed(pool: &Pool, from: i64, until: i64) -> Result<Sums, StoreError> {
    let rows = sqlx::query(AssertSqlSafe(format!(
        "SELECT c.workload_slug AS slug, c.hour, c.host_id, COUNT(*) AS jobs, CAST(SUM(c.price) AS BIGINT) AS total, \
         MIN(c.price) AS least, MAX(c.price) AS most \
         FROM ({COMPLETED} AND j.completed_at < $2) c WHERE c.price > 0 GROUP BY c.workload_slug, c.hour, c.host_id"
    )))
    .bind(from)
    .bind(until)
    .fetch_all(pool)
    .await
    .context("read settled prices")?;
    let mut sums = Sums::new();
    for row in &rows {
        let island: Option<String> = row.try_get("host_id").context("read a column")?;
        let sum = Sum {
            jobs: integer(row, "jobs")?,
            total: integer(row, "total")?,
            least: integer(row, "least")?,
            most: integer(row, "most")?,
            hosts: 0,
            island_ids: island.into_iter().collect(),
        };
        add(&mut sums, parsed(row, "slug")?, integer(row, "hour")?, &sum);
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use crate::setup::create_account;
    use crate::{Store, market::sum_hour};
    use island_coordinator_domain::{clock::Clock, config::Database};

    use super::*;

    /// Adds a completed job of an Island with its payment.
    async fn complete(store: &Store, account: &str, at: i64, price: i64, island: u32) {
        let id = uuid::Uuid::now_v7().to_string();
        let mut tx = store.begin().await.expect("begun");
        sqlx::query(
            "INSERT INTO jobs (id, account_id, workload_id, workload_slug, status, input, priority, price, deadline, \
             created_at, completed_at, host_id) VALUES ($1, $2, 1, 'echo', 'completed', '{}', 0, $3, 0, $4, $4, $5)",
        )
        .bind(&id)
        .bind(account)
        .bind(price)
        .bind(at)
        .bind(island.to_string())
        .execute(&mut *tx)
        .await
        .expect("a job");
        sqlx::query(
            "INSERT INTO ledger_entries (id, ledger, kind, job_id, amount, created_at) \
             VALUES ($1, 'account:' || $2, 'settle', $1, $3, $4)",
        )
        .bind(&id)
        .bind(account)
        .bind(price)
        .bind(at)
        .execute(&mut *tx)
        .await
        .expect("an entry");
        crate::commit(tx).await.expect("committed");
    }

    #[tokio::test]
    async fn what_is_kept_in_memory_is_what_sql_has() {
        let dir = tempfile::tempdir().expect("folder");
        let settings = Database { path: dir.path().join("island.db"), ..Database::default() };
        let store = Store::open(&settings).await.expect("database");
        let begin = Clock::System.now();
        let account = create_account(&store, "a@example.org", false, MicroCredits::ZERO, begin).await;
        let account = account.expect("account").to_string();
        let slug: Slug = "echo".parse().expect("a slug");
        let base = (hour_of(begin) - 3) * HOUR_MS;
        let at = |minutes: i64| base + minutes * MINUTE_MS;
        // Before the first request.
        complete(&store, &account, at(10), 4, 1).await;
        complete(&store, &account, at(70), 5, 1).await;
        let market = Market::default();
        let mut expected = vec![(4, 1), (5, 1)];
        for (minutes, price, island) in [(75, 7, 2), (90, 1, 1), (105, 9, 3), (135, 3, 1), (160, 3, 1)] {
            // A moment ago, and a while ago.
            complete(&store, &account, at(minutes), price, island).await;
            expected.push((price, island));
            for now in [minutes, minutes + 5, minutes + 12] {
                let now = Timestamp::from_unix_ms(at(now));
                while sum_hour(&store, now).await.expect("summed") {}
                let since = Timestamp::from_unix_ms(base);
                let prices = market.prices(store.reader(), now, since).await.expect("prices")[&slug];
                let all = expected.iter().map(|(price, _)| *price);
                assert_eq!(prices.jobs, expected.len() as u64, "{minutes}");
                assert_eq!(prices.avg, MicroCredits(all.clone().sum::<i64>() / expected.len() as i64));
                assert_eq!(
                    (prices.min, prices.max),
                    (MicroCredits(all.clone().min().expect("one")), MicroCredits(all.max().expect("one")))
                );
                let hours = market.hours(store.reader(), &slug, now, since).await.expect("hours");
                let cold = Market::default().hours(store.reader(), &slug, now, since).await.expect("hours");
                assert_eq!(hours, cold, "{minutes}");
                let hosts: Vec<u64> = hours.iter().map(|hour| hour.hosts).collect();
                assert_eq!(hosts, [1, if minutes < 105 { 2 } else { 3 }, 1][..hosts.len()], "{minutes}");
            }
        }
        assert_eq!(
            market
                .hours(store.reader(), &slug, begin, Timestamp::from_unix_ms(base))
                .await
                .expect("hours")
                .len(),
            3
        );
        store.close().await;
    }
}
