//! Lists of an account's jobs.

use island_protocol::{
    ids::{AccountId, ApiKeyId, JobId, Slug},
    job::JobStatus,
    time::Timestamp,
};
use island_protocol_api::JobSummary;
use sqlx::{AssertSqlSafe, Row as _};

use super::read::status;
use crate::{Pool, QueryContext as _, Row, StoreError, integer, moment, parsed};
use island_coordinator_domain::job::duration_ms;

/// Restricts the jobs of a list. It has no condition by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Only jobs in this state.
    pub status: Option<JobStatus>,
    /// Only jobs of this Cargo.
    pub cargo: Option<Slug>,
    /// Only jobs that were submitted with this key.
    pub key: Option<ApiKeyId>,
    /// Only jobs that were created at this time or later.
    pub from: Option<Timestamp>,
    /// Only jobs that were created before this time.
    pub until: Option<Timestamp>,
}

/// A page of an account's jobs.
#[derive(Debug)]
pub struct JobPage {
    pub jobs: Vec<JobSummary>,
    pub total: u64,
}

/// Which jobs of a list a page has.
#[derive(Debug, Clone, Copy)]
pub struct Position {
    /// Only jobs behind this one; none if it is not a job of the account.
    pub after: Option<JobId>,
    pub limit: u64,
    pub offset: u64,
}

/// Maximum number that a filtered list reports as its total: more are not counted.
const MAX_COUNT: u64 = 10_000;

/// All jobs of an account, but for its Islands' checks of themselves.
const ANY: &str = "only_host IS NULL";
/// Those that have not ended, of which an account has few: read by the index `jobs_open_of_account`.
const OPEN: &str = "COALESCE(only_host, '') = '' AND status IN ('submitted', 'pending', 'queued', 'running')";
/// Those that have ended: the condition of the index `jobs_ended_of_account`, in which every column of a filter is. An entry is written once, at
/// the end of the job, since a state that changes would be written again with each change. Neither set has a condition by which the database
/// could choose the index of all jobs.
const ENDED: &str =
    "COALESCE(only_host, '') = '' AND status IN ('completed', 'failed', 'cancelled', 'timeout')";

impl JobFilter {
    /// The sets of jobs to search, whose union has every job that the filter accepts.
    fn sets(&self) -> &'static [&'static str] {
        match self.status {
            None if *self == Self::default() => &[ANY],
            None => &[OPEN, ENDED],
            Some(status) if status.is_final() => &[ENDED],
            Some(_) => &[OPEN],
        }
    }

    /// The conditions and their parameters, the first of which has the number `first`.
    fn conditions(&self, first: usize) -> (String, Vec<Parameter>) {
        let text = |value: String| Parameter::Text(value);
        // The index of all open jobs has the state alone, and must not be chosen for it.
        let is_open = self.status.is_some_and(|status| !status.is_final());
        let status = if is_open { "COALESCE(status, '') =" } else { "status =" };
        let set = [
            (status, self.status.map(|status| text(status.as_str().to_owned()))),
            ("workload_slug =", self.cargo.as_ref().map(|cargo| text(cargo.to_string()))),
            ("api_key_id =", self.key.map(|key| text(key.to_string()))),
            ("created_at >=", self.from.map(|from| Parameter::Integer(from.unix_ms()))),
            ("created_at <", self.until.map(|until| Parameter::Integer(until.unix_ms()))),
        ];
        let (mut sql, mut parameters) = (String::new(), Vec::new());
        for (condition, parameter) in set.into_iter().filter_map(|(sql, value)| Some((sql, value?))) {
            sql = format!("{sql} AND {condition} ${}", first + parameters.len());
            parameters.push(parameter);
        }
        (sql, parameters)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Parameter {
    Text(String),
    Integer(i64),
}

/// A statement with its parameters.
#[derive(Debug)]
struct Statement {
    sql: String,
    parameters: Vec<Parameter>,
}

impl Statement {
    /// Rows of the result.
    async fn rows(self, pool: &Pool, what: &'static str) -> Result<Vec<Row>, StoreError> {
        let mut query = sqlx::query(AssertSqlSafe(self.sql));
        for parameter in self.parameters {
            query = match parameter {
                Parameter::Text(text) => query.bind(text),
                Parameter::Integer(number) => query.bind(number),
            };
        }
        query.fetch_all(pool).await.context(what)
    }
}

/// The rows of a page, newest first. Skipped jobs are read in the index only.
fn rows(account: AccountId, filter: &JobFilter, position: Position) -> Statement {
    let integer = |number: u64| Parameter::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let mut parameters = vec![
        Parameter::Text(account.to_string()),
        integer(position.limit),
        integer(position.offset),
        integer(position.offset.saturating_add(position.limit)),
    ];
    let mut conditions = String::new();
    if let Some(after) = position.after {
        conditions.push_str(
            " AND (created_at, id) < (SELECT a.created_at, a.id FROM jobs a WHERE a.id = $5 AND a.account_id = $1)",
        );
        parameters.push(Parameter::Text(after.to_string()));
    }
    let (filtered, more) = filter.conditions(parameters.len() + 1);
    conditions.push_str(&filtered);
    parameters.extend(more);
    let first = |(set, name): (&&str, &str)| {
        format!(
            "SELECT id, created_at FROM (SELECT id, created_at FROM jobs WHERE account_id = $1 AND {set}{conditions} \
             ORDER BY created_at DESC, id DESC LIMIT $4) AS {name}"
        )
    };
    let sets: Vec<String> = filter.sets().iter().zip(["some_jobs", "other_jobs"]).map(first).collect();
    let sets = sets.join(" UNION ALL ");
    let sql = format!(
        "SELECT id, workload_slug, status, created_at, started_at, completed_at FROM jobs WHERE id IN \
         (SELECT id FROM ({sets}) AS found ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3) \
         ORDER BY created_at DESC, id DESC"
    );
    Statement { sql, parameters }
}

/// The number of jobs, of at most [`MAX_COUNT`] of each set.
fn count(account: AccountId, filter: &JobFilter) -> Statement {
    let (conditions, more) = filter.conditions(2);
    let one = |(set, name): (&&str, &str)| {
        format!(
            "(SELECT COUNT(*) FROM (SELECT id FROM jobs WHERE account_id = $1 AND {set}{conditions} \
             LIMIT {MAX_COUNT}) AS {name})"
        )
    };
    let sets: Vec<String> = filter.sets().iter().zip(["some_jobs", "other_jobs"]).map(one).collect();
    let parameters = std::iter::once(Parameter::Text(account.to_string())).chain(more).collect();
    Statement { sql: format!("SELECT {} AS n", sets.join(" + ")), parameters }
}

/// An account's jobs that the filter accepts, newest first, without its Islands' checks of themselves.
pub async fn page(
    pool: &Pool,
    account: AccountId,
    filter: &JobFilter,
    position: Position,
) -> Result<JobPage, StoreError> {
    let total = if *filter == JobFilter::default() {
        let total = all(pool, account).await?;
        if position.offset >= total {
            return Ok(JobPage { jobs: Vec::new(), total });
        }
        total
    } else {
        let rows = count(account, filter).rows(pool, "count jobs").await?;
        let total = rows.first().map(|row| integer(row, "n")).transpose()?.unwrap_or_default();
        total.unsigned_abs().min(MAX_COUNT)
    };
    let rows = rows(account, filter, position).rows(pool, "list jobs").await?;
    let jobs = rows.iter().map(summary).collect::<Result<_, _>>()?;
    Ok(JobPage { jobs, total })
}

/// The number of all jobs of an account.
async fn all(pool: &Pool, account: AccountId) -> Result<u64, StoreError> {
    let row = sqlx::query("SELECT jobs FROM accounts WHERE id = $1")
        .bind(account.to_string())
        .fetch_one(pool)
        .await
        .and_then(|row| row.try_get::<i64, _>("jobs"))
        .context("count jobs")?;
    Ok(row.max(0).unsigned_abs())
}

fn summary(row: &Row) -> Result<JobSummary, StoreError> {
    let completed_at = moment(row, "completed_at")?;
    Ok(JobSummary {
        id: parsed(row, "id")?,
        workload_slug: parsed(row, "workload_slug")?,
        status: status(row)?,
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        completed_at,
        duration_ms: duration_ms(moment(row, "started_at")?, completed_at),
    })
}

#[cfg(test)]
mod tests {
    use island_protocol::credits::MicroCredits;
    use proptest::{prelude::*, test_runner::TestRunner};
    use uuid::Uuid;

    use super::*;
    use crate::setup::create_account;
    use crate::{Store, commit};
    use island_coordinator_domain::{clock::Clock, config::Database};

    const JOBS: i64 = 100_000;
    const KEYS: [ApiKeyId; 2] = [ApiKeyId(Uuid::from_u128(1)), ApiKeyId(Uuid::from_u128(2))];
    /// The states of the stored jobs, in turn. One in eight is open.
    const STATES: [JobStatus; 8] = [
        JobStatus::Completed,
        JobStatus::Completed,
        JobStatus::Failed,
        JobStatus::Completed,
        JobStatus::Cancelled,
        JobStatus::Completed,
        JobStatus::Timeout,
        JobStatus::Pending,
    ];

    /// One of the stored jobs, which are numbered from 1.
    #[derive(Debug, Clone, Copy)]
    struct Stored(i64);

    impl Stored {
        fn status(self) -> JobStatus {
            STATES[usize::try_from(self.0 % 8).expect("small")]
        }

        fn cargo(self) -> &'static str {
            if self.0 % 5 == 0 { "story" } else { "echo" }
        }

        fn key(self) -> ApiKeyId {
            KEYS[usize::from(self.0 % 7 == 0)]
        }

        /// Four jobs are created in each millisecond.
        fn created_at(self) -> Timestamp {
            Timestamp::from_unix_ms(self.0 / 4)
        }

        fn id(self) -> JobId {
            JobId(Uuid::from_u128(u128::try_from(self.0).expect("positive")))
        }

        fn is_accepted(self, filter: &JobFilter) -> bool {
            filter.status.is_none_or(|status| status == self.status())
                && filter.cargo.as_ref().is_none_or(|cargo| cargo.as_str() == self.cargo())
                && filter.key.is_none_or(|key| key == self.key())
                && filter.from.is_none_or(|from| self.created_at() >= from)
                && filter.until.is_none_or(|until| self.created_at() < until)
        }
    }

    async fn filled(store: &Store) -> AccountId {
        let now = Clock::System.now();
        let account = create_account(store, "a@example.org", false, MicroCredits::ZERO, now).await;
        let account = account.expect("account");
        let states = STATES.iter().enumerate().map(|(n, status)| format!("WHEN {n} THEN '{status}'"));
        let states = states.collect::<Vec<_>>().join(" ");
        let statement = format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) \
             INSERT INTO jobs (id, account_id, workload_id, workload_slug, status, input, priority, price, deadline, created_at, \
             api_key_id) \
             SELECT printf('00000000-0000-0000-0000-%012x', i), $2, 1, CASE i % 5 WHEN 0 THEN 'story' ELSE 'echo' END, \
             CASE i % 8 {states} END, '{{}}', 0, 0, 0, i / 4, CASE i % 7 WHEN 0 THEN $4 ELSE $3 END FROM n"
        );
        let mut tx = store.begin().await.expect("begun");
        sqlx::query(AssertSqlSafe(statement))
            .bind(JOBS)
            .bind(account.to_string())
            .bind(KEYS[0].to_string())
            .bind(KEYS[1].to_string())
            .execute(&mut *tx)
            .await
            .expect("jobs");
        commit(tx).await.expect("committed");
        account
    }

    fn filters() -> impl Strategy<Value = JobFilter> {
        let time = || prop::option::of((0..JOBS / 4 + 2).prop_map(Timestamp::from_unix_ms));
        let status = prop::option::of(prop::sample::select(JobStatus::ALL));
        let cargo = prop::option::of(prop::sample::select(vec!["echo", "story", "other"]));
        let key = prop::option::of(prop::sample::select(KEYS.to_vec()));
        (status, cargo, key, time(), time()).prop_map(|(status, cargo, key, from, until)| JobFilter {
            status,
            cargo: cargo.map(|cargo| cargo.parse().expect("a slug")),
            key,
            from,
            until,
        })
    }

    /// The plan of a statement.
    async fn plan(store: &Store, statement: Statement) -> String {
        let statement = Statement { sql: format!("EXPLAIN QUERY PLAN {}", statement.sql), ..statement };
        let rows = statement.rows(store.reader(), "explain").await.expect("a plan");
        rows.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("\n")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn pages_of_a_hundred_thousand_jobs_are_those_of_the_filter() {
        let dir = tempfile::tempdir().expect("folder");
        let settings = Database { path: dir.path().join("island.db"), ..Database::default() };
        let store = Store::open(&settings).await.expect("database");
        let account = filled(&store).await;
        let mut runner = TestRunner::new(ProptestConfig { cases: 48, ..ProptestConfig::default() });
        let inputs = (filters(), 1_u64..30, 0_u64..60);
        let checked = runner.run(&inputs, |(filter, limit, offset)| {
            let expected: Vec<JobId> =
                (1..=JOBS).rev().map(Stored).filter(|job| job.is_accepted(&filter)).map(Stored::id).collect();
            let read = |after, offset| {
                let position = Position { after, limit, offset };
                let page = page(store.reader(), account, &filter, position);
                tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(page))
            };
            let page = read(None, offset).expect("a page");
            let ids = |page: &JobPage| page.jobs.iter().map(|job| job.id).collect::<Vec<_>>();
            let (offset, limit) =
                (usize::try_from(offset).expect("small"), usize::try_from(limit).expect("small"));
            let slice = |first: usize| expected.iter().skip(first).take(limit).copied().collect::<Vec<_>>();
            prop_assert_eq!(ids(&page), slice(offset));
            let most = if filter == JobFilter::default() { u64::MAX } else { MAX_COUNT };
            prop_assert_eq!(page.total, (expected.len() as u64).min(most));
            // The page behind the middle of the list, wherever it is.
            let middle = expected.len() / 2;
            if let Some(after) = expected.get(middle) {
                let behind = read(Some(*after), 0).expect("a page");
                prop_assert_eq!(ids(&behind), slice(middle + 1));
            }
            Ok(())
        });
        checked.unwrap_or_else(|error| panic!("{error}"));
        let stranger = AccountId(Uuid::nil());
        let other = Position { after: Some(Stored(7).id()), limit: 5, offset: 0 };
        for status in [None, Some(JobStatus::Completed), Some(JobStatus::Pending)] {
            let filter = JobFilter { status, key: Some(KEYS[0]), ..JobFilter::default() };
            let none = page(store.reader(), stranger, &filter, other).await.expect("a page");
            assert!(none.jobs.is_empty() && none.total == 0, "{none:?}");
        }
        store.close().await;
    }

    #[tokio::test]
    async fn every_filter_reads_an_index_and_no_other_job() {
        let dir = tempfile::tempdir().expect("folder");
        let settings = Database { path: dir.path().join("island.db"), ..Database::default() };
        let store = Store::open(&settings).await.expect("database");
        let account = AccountId(Uuid::nil());
        let position = Position { after: Some(Stored(1).id()), limit: 25, offset: 50 };
        let time = Some(Timestamp::from_unix_ms(7));
        let (cargo, key) = (Some("echo".parse().expect("a slug")), Some(KEYS[0]));
        let parts = JobFilter { status: None, cargo, key, from: time, until: time };
        let statuses = [None, Some(JobStatus::Running), Some(JobStatus::Failed)];
        for (status, mask) in statuses.into_iter().flat_map(|status| (0..16).map(move |mask| (status, mask)))
        {
            let has = |bit: u32| mask & (1 << bit) != 0;
            let filter = JobFilter {
                status,
                cargo: parts.cargo.clone().filter(|_| has(0)),
                key: parts.key.filter(|_| has(1)),
                from: parts.from.filter(|_| has(2)),
                until: parts.until.filter(|_| has(3)),
            };
            let mut plans = vec![plan(&store, rows(account, &filter, position)).await];
            if filter != JobFilter::default() {
                plans.push(plan(&store, count(account, &filter)).await);
            }
            for plan in plans {
                assert!(!plan.contains("SCAN jobs") && !plan.contains("SCAN a"), "{filter:?}: {plan}");
                let uses = |index: &str| plan.contains(&format!("INDEX {index} (account_id=?"));
                let sets = filter.sets();
                assert_eq!(uses("jobs_open_of_account"), sets.contains(&OPEN), "{filter:?}: {plan}");
                assert_eq!(uses("jobs_ended_of_account"), sets.contains(&ENDED), "{filter:?}: {plan}");
                assert_eq!(uses("jobs_listed"), sets.contains(&ANY), "{filter:?}: {plan}");
            }
        }
        store.close().await;
    }
}
