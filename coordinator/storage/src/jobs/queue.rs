//! Waiting jobs, for operators.

use std::collections::BTreeMap;

use island_protocol::{
    ids::{AccountId, Slug},
    time::Timestamp,
};
use island_protocol_api::admin::WaitingJob;
use sqlx::AssertSqlSafe;

use crate::{Pool, QueryContext as _, Row, StoreError, integer, parsed};

/// Jobs of consumers that no Island has accepted yet.
const WAITING: &str = "only_host IS NULL AND status IN ('submitted', 'pending')";

/// The same for one account. It has the condition of the index of an account's open jobs, and none that would let the database choose the
/// index of all jobs of the account.
const WAITING_OF_ACCOUNT: &str = "COALESCE(only_host, '') = '' AND status IN ('submitted', 'pending', 'queued', 'running') \
     AND status IN ('submitted', 'pending')";

/// Restricts the jobs of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitingFilter {
    /// Only jobs of this account.
    pub account: Option<AccountId>,
    /// Only jobs of this Cargo.
    pub cargo: Option<Slug>,
}

/// A page of the waiting jobs of all coordinators in the order in which they are placed, without the reasons.
pub async fn waiting(
    pool: &Pool,
    filter: &WaitingFilter,
    limit: u64,
    offset: u64,
) -> Result<Vec<WaitingJob>, StoreError> {
    let columns = [("account_id", filter.account.is_some()), ("workload_slug", filter.cargo.is_some())];
    let set = columns.iter().filter(|(_, is_set)| *is_set);
    let conditions: Vec<String> =
        (3..).zip(set).map(|(number, (column, _))| format!(" AND {column} = ${number}")).collect();
    let conditions = conditions.concat();
    let waiting = if filter.account.is_some() { WAITING_OF_ACCOUNT } else { WAITING };
    let statement = format!(
        "SELECT id, account_id, workload_slug, priority, created_at FROM jobs WHERE {waiting}{conditions} \
         ORDER BY priority DESC, created_at, id LIMIT $1 OFFSET $2"
    );
    let mut query = sqlx::query(AssertSqlSafe(statement))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .bind(i64::try_from(offset).unwrap_or(i64::MAX));
    if let Some(account) = filter.account {
        query = query.bind(account.to_string());
    }
    if let Some(cargo) = &filter.cargo {
        query = query.bind(cargo.to_string());
    }
    let rows = query.fetch_all(pool).await.context("list waiting jobs")?;
    rows.iter().map(job).collect()
}

fn job(row: &Row) -> Result<WaitingJob, StoreError> {
    let priority = u8::try_from(integer(row, "priority")?);
    Ok(WaitingJob {
        id: parsed(row, "id")?,
        account: parsed(row, "account_id")?,
        workload_slug: parsed(row, "workload_slug")?,
        priority: priority.map_err(|_| StoreError::Corrupt { what: "priority" })?,
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        waiting: None,
        waiting_reason: None,
    })
}

/// Number of waiting jobs of each Cargo, of one account or of all.
pub async fn waiting_by_cargo(
    pool: &Pool,
    account: Option<AccountId>,
) -> Result<BTreeMap<Slug, u64>, StoreError> {
    let (waiting, of) =
        if account.is_some() { (WAITING_OF_ACCOUNT, " AND account_id = $1") } else { (WAITING, "") };
    let statement =
        format!("SELECT workload_slug, COUNT(*) AS n FROM jobs WHERE {waiting}{of} GROUP BY workload_slug");
    let query = sqlx::query(AssertSqlSafe(statement));
    let query = if let Some(account) = account { query.bind(account.to_string()) } else { query };
    let rows = query.fetch_all(pool).await.context("count waiting jobs")?;
    rows.iter().map(|row| Ok((parsed(row, "workload_slug")?, integer(row, "n")?.unsigned_abs()))).collect()
}

#[cfg(test)]
mod tests {
    use island_protocol::credits::MicroCredits;
    use sqlx::Row as _;

    use super::*;
    use crate::setup::create_account;
    use crate::{Store, commit};
    use island_coordinator_domain::{clock::Clock, config::Database};

    const JOBS: i64 = 100_000;

    /// Fills a database with waiting jobs, three in four of the Cargo `echo`.
    async fn filled(store: &Store) -> AccountId {
        let now = Clock::System.now();
        let account = create_account(store, "a@example.org", false, MicroCredits::ZERO, now).await;
        let account = account.expect("account");
        let mut tx = store.begin().await.expect("begun");
        sqlx::query(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) \
             INSERT INTO jobs (id, account_id, workload_id, workload_slug, status, input, priority, price, deadline, created_at) \
             SELECT printf('%08x-0000-7000-8000-000000000000', i), $2, 1, CASE i % 4 WHEN 0 THEN 'story' ELSE 'echo' END, \
             'pending', '{}', i % 3, 0, 0, i FROM n",
        )
        .bind(JOBS)
        .bind(account.to_string())
        .execute(&mut *tx)
        .await
        .expect("jobs");
        commit(tx).await.expect("committed");
        account
    }

    /// The plan of the statement of a page.
    async fn plan(store: &Store, condition: &str) -> String {
        let statement = format!(
            "EXPLAIN QUERY PLAN SELECT id, account_id, workload_slug, priority, created_at FROM jobs \
             WHERE {WAITING}{condition} ORDER BY priority DESC, created_at, id LIMIT $1 OFFSET $2"
        );
        let rows = sqlx::query(AssertSqlSafe(statement)).fetch_all(store.reader()).await.expect("a plan");
        rows.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("; ")
    }

    #[tokio::test]
    async fn a_page_of_a_hundred_thousand_waiting_jobs_reads_its_rows_in_order() {
        let dir = tempfile::tempdir().expect("folder");
        let settings = Database { path: dir.path().join("island.db"), ..Database::default() };
        let store = Store::open(&settings).await.expect("database");
        let account = filled(&store).await;
        let reader = store.reader();

        let counts = waiting_by_cargo(reader, Some(account)).await.expect("counts");
        assert_eq!(counts, waiting_by_cargo(reader, None).await.expect("counts"));
        let counts: Vec<(&str, u64)> = counts.iter().map(|(slug, n)| (slug.as_str(), *n)).collect();
        assert_eq!(counts, [("echo", 75_000), ("story", 25_000)]);

        let all = WaitingFilter::default();
        let story = WaitingFilter { cargo: Some("story".parse().expect("a slug")), ..all.clone() };
        let other = AccountId(uuid::Uuid::nil());
        let order = |job: &WaitingJob| (std::cmp::Reverse(job.priority), job.created_at, job.id);
        for (filter, offset, expected) in [
            (&all, 0, 25),
            (&all, 33_330, 25),
            (&all, 99_990, 10),
            (&story, 24_990, 10),
            (&story, 25_000, 0),
            (&WaitingFilter { account: Some(account), ..story.clone() }, 0, 25),
            (&WaitingFilter { account: Some(other), ..all.clone() }, 0, 0),
        ] {
            let page = waiting(reader, filter, 25, offset).await.expect("a page");
            assert_eq!(page.len(), expected, "{filter:?} {offset}");
            assert!(page.windows(2).all(|pair| order(&pair[0]) < order(&pair[1])), "{filter:?} {offset}");
            assert!(filter.cargo.is_none() || page.iter().all(|job| job.workload_slug.as_str() == "story"));
        }
        let first = waiting(reader, &all, 1, 0).await.expect("a page");
        assert_eq!((first[0].priority, first[0].created_at.unix_ms()), (2, 2));

        // Rows are read as far as the page reaches, not sorted.
        let plans =
            [("", "jobs_queue"), (" AND workload_slug = 'story'", "jobs_queue_of_cargo (workload_slug=?)")];
        for (condition, index) in plans {
            let plan = plan(&store, condition).await;
            assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{plan}");
        }
        store.close().await;
    }
}
