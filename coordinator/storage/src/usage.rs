//! What accounts used by day, Cargo and key (0124). Ended jobs are summed once, a while after their end ([`sum_next`]); a request reads the
//! sums, and the account's jobs that ended since.

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, ApiKeyId, Slug},
    time::Timestamp,
};
use island_protocol_api::usage::UsageRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::{
    Dialect, QueryContext as _, Row, Store, StoreError, commit, integer, optional, parsed,
    progress::{self, Task},
};

/// Maximum rows of an answer.
pub const MAX_ROWS: usize = 10_000;

const DAY_MS: i64 = 24 * 3_600_000;
/// Jobs are summed in spans of this length.
const SPAN_MS: i64 = 10 * 60_000;
/// Time from the end of a span until it is summed: ends of jobs may be committed late, by a coordinator whose clock is an
/// hour behind.
const LAG_MS: i64 = 70 * 60_000;
/// How long before the last sum a job that has ended since may have been accepted, to be read one by one. Jobs that waited
/// longer appear when their end is summed.
const MAX_WAIT_MS: i64 = 3_600_000;

/// The days of an account from `from` until before `until`, which are begins of days.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Days {
    pub account: AccountId,
    pub from: Timestamp,
    pub until: Timestamp,
    /// Only this Cargo.
    pub cargo: Option<Slug>,
    /// Only this key.
    pub key: Option<ApiKeyId>,
}

/// The columns of sums over ended jobs `j`. An ended job has its usage as JSON, also after its data was deleted.
fn sums(dialect: Dialect) -> String {
    let tokens = |field: &str| match dialect {
        Dialect::Sqlite => format!("COALESCE(json_extract(j.usage, '$.{field}'), 0)"),
        Dialect::Postgres => format!("COALESCE((CAST(j.usage AS json) ->> '{field}')::bigint, 0)"),
    };
    format!(
        "COUNT(*) AS jobs, CAST(SUM({}) AS BIGINT) AS prompt_tokens, CAST(SUM({}) AS BIGINT) AS completion_tokens, \
         CAST(SUM((SELECT COALESCE(SUM(-e.amount), 0) FROM ledger_entries e \
         WHERE e.job_id = j.id AND e.kind = 'settle' AND e.amount < 0)) AS BIGINT) AS amount",
        tokens("prompt_tokens"),
        tokens("completion_tokens"),
    )
}

/// Sums the next span that is over and in which jobs ended. Returns `false` if no such span remains.
pub async fn sum_next(store: &Store, now: Timestamp) -> Result<bool, StoreError> {
    let summed = progress::get(store.reader(), Task::Usage).await?;
    let over = now.plus_ms(-LAG_MS).unix_ms().div_euclid(SPAN_MS) * SPAN_MS;
    let row = sqlx::query(
        "SELECT MIN(completed_at) AS first FROM jobs WHERE completed_at >= $1 AND completed_at < $2",
    )
    .bind(summed)
    .bind(over)
    .fetch_one(store.reader())
    .await
    .context("find the next span of ended jobs")?;
    let first: Option<i64> = row.try_get("first").context("read a column")?;
    // Spans without jobs are passed at once, so that requests read few jobs one by one.
    let begin = first.map_or(over, |at| at.div_euclid(SPAN_MS) * SPAN_MS);
    let end = if first.is_some() { begin + SPAN_MS } else { over };
    if end <= summed {
        return Ok(false);
    }
    let mut tx = store.begin().await?;
    if !progress::advance(&mut tx, Task::Usage, summed, end).await? {
        // Another coordinator sums this span.
        return Ok(true);
    }
    if first.is_some() {
        sqlx::query(AssertSqlSafe(format!(
            "INSERT INTO usage_days (account_id, day, workload_slug, api_key_id, jobs, prompt_tokens, completion_tokens, amount) \
             SELECT j.account_id, j.completed_at / {DAY_MS}, j.workload_slug, COALESCE(j.api_key_id, ''), {} FROM jobs j \
             WHERE j.completed_at >= $1 AND j.completed_at < $2 AND j.only_host IS NULL \
             GROUP BY j.account_id, j.completed_at / {DAY_MS}, j.workload_slug, COALESCE(j.api_key_id, '') \
             ON CONFLICT (account_id, day, workload_slug, api_key_id) DO UPDATE SET \
             jobs = usage_days.jobs + excluded.jobs, amount = usage_days.amount + excluded.amount, \
             prompt_tokens = usage_days.prompt_tokens + excluded.prompt_tokens, \
             completion_tokens = usage_days.completion_tokens + excluded.completion_tokens",
            sums(store.dialect())
        )))
        // What ended before `summed` was summed, or is too late.
        .bind(begin.max(summed))
        .bind(end)
        .execute(&mut *tx)
        .await
        .context("sum ended jobs")?;
    }
    commit(tx).await?;
    Ok(first.is_some())
}

/// The rows of some days, oldest first, then by Cargo and key; `None` if there are more than [`MAX_ROWS`].
pub async fn rows(store: &Store, days: &Days) -> Result<Option<Vec<UsageRow>>, StoreError> {
    let columns = [("workload_slug", days.cargo.is_some()), ("api_key_id", days.key.is_some())];
    let filter = |table: &str| {
        let set = columns.iter().filter(|(_, is_set)| *is_set);
        let conditions =
            (6..).zip(set).map(|(number, (column, _))| format!(" AND {table}.{column} = ${number}"));
        conditions.collect::<Vec<_>>().concat()
    };
    // One statement, so that a span which is summed meanwhile is neither missing nor counted twice.
    let summed = "(SELECT until FROM progress WHERE task = 'usage')";
    let statement = format!(
        "SELECT c.day, c.workload_slug, k.id AS key_id, k.name AS key_name, CAST(SUM(c.jobs) AS BIGINT) AS jobs, \
         CAST(SUM(c.prompt_tokens) AS BIGINT) AS prompt_tokens, \
         CAST(SUM(c.completion_tokens) AS BIGINT) AS completion_tokens, CAST(SUM(c.amount) AS BIGINT) AS amount FROM (\
         SELECT u.day, u.workload_slug, u.api_key_id, u.jobs, u.prompt_tokens, u.completion_tokens, u.amount \
         FROM usage_days u WHERE u.account_id = $1 AND u.day >= $4 AND u.day < $5{} \
         UNION ALL \
         SELECT j.completed_at / {DAY_MS} AS day, j.workload_slug, COALESCE(j.api_key_id, '') AS api_key_id, {} FROM jobs j \
         WHERE j.account_id = $1 AND j.only_host IS NULL AND j.created_at >= {summed} - {MAX_WAIT_MS} \
         AND j.completed_at >= {summed} AND j.completed_at >= $2 AND j.completed_at < $3{} \
         GROUP BY j.completed_at / {DAY_MS}, j.workload_slug, COALESCE(j.api_key_id, '')) c \
         LEFT JOIN api_keys k ON k.id = c.api_key_id GROUP BY c.day, c.workload_slug, k.id, k.name \
         ORDER BY c.day, c.workload_slug, k.name, k.id LIMIT {}",
        filter("u"),
        sums(store.dialect()),
        filter("j"),
        MAX_ROWS + 1,
    );
    let mut query = sqlx::query(AssertSqlSafe(statement))
        .bind(days.account.to_string())
        .bind(days.from.unix_ms())
        .bind(days.until.unix_ms())
        .bind(days.from.unix_ms().div_euclid(DAY_MS))
        .bind(days.until.unix_ms().div_euclid(DAY_MS));
    if let Some(cargo) = &days.cargo {
        query = query.bind(cargo.to_string());
    }
    if let Some(key) = days.key {
        query = query.bind(key.to_string());
    }
    let rows = query.fetch_all(store.reader()).await.context("read the usage of days")?;
    if rows.len() > MAX_ROWS {
        return Ok(None);
    }
    rows.iter().map(row).collect::<Result<_, _>>().map(Some)
}

fn row(row: &Row) -> Result<UsageRow, StoreError> {
    let count = |column| Ok::<_, StoreError>(integer(row, column)?.max(0).unsigned_abs());
    Ok(UsageRow {
        day: Timestamp::from_unix_ms(integer(row, "day")? * DAY_MS),
        workload_slug: parsed(row, "workload_slug")?,
        key_id: optional(row, "key_id")?,
        key_name: row.try_get("key_name").context("read a column")?,
        jobs: count("jobs")?,
        prompt_tokens: count("prompt_tokens")?,
        completion_tokens: count("completion_tokens")?,
        amount: MicroCredits(integer(row, "amount")?),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::setup::{create_account, create_key};
    use island_coordinator_domain::{clock::Clock, config::Database};

    /// An ended job: when it ended, its Cargo, whether a key is recorded, what it cost, its tokens.
    type Ended = (i64, &'static str, bool, i64, u64);
    /// Jobs, tokens that were read and written, and credits.
    type Sums = (u64, u64, u64, i64);

    async fn add(store: &Store, account: AccountId, key: ApiKeyId, ended: &Ended) {
        let (at, cargo, has_key, price, tokens) = *ended;
        let id = uuid::Uuid::now_v7().to_string();
        let usage = format!("{{\"prompt_tokens\":{tokens},\"completion_tokens\":{}}}", tokens * 2);
        let mut tx = store.begin().await.expect("begun");
        sqlx::query(
            "INSERT INTO jobs (id, account_id, workload_id, workload_slug, status, input, priority, price, deadline, \
             created_at, completed_at, api_key_id, usage) \
             VALUES ($1, $2, 1, $3, $4, '{}', 0, $5, 0, $6, $6, $7, $8)",
        )
        .bind(&id)
        .bind(account.to_string())
        .bind(cargo)
        .bind(if price > 0 { "completed" } else { "failed" })
        .bind(price)
        .bind(at)
        .bind(has_key.then(|| key.to_string()))
        .bind((tokens > 0).then_some(usage))
        .execute(&mut *tx)
        .await
        .expect("a job");
        for (book, amount) in [("holds:", -price), ("account:", price)] {
            sqlx::query(
                "INSERT INTO ledger_entries (id, ledger, kind, job_id, amount, created_at) \
                 VALUES ($1, $2, 'settle', $3, $4, $5)",
            )
            .bind(uuid::Uuid::now_v7().to_string())
            .bind(format!("{book}{account}"))
            .bind(&id)
            .bind(amount)
            .bind(at)
            .execute(&mut *tx)
            .await
            .expect("an entry");
        }
        commit(tx).await.expect("committed");
    }

    fn expected(ended: &[Ended]) -> Vec<(i64, String, bool, u64, u64, u64, i64)> {
        let mut sums: BTreeMap<(i64, String, bool), Sums> = BTreeMap::new();
        for (at, cargo, has_key, price, tokens) in ended {
            let sum = sums.entry((at.div_euclid(DAY_MS), (*cargo).to_owned(), *has_key)).or_default();
            *sum = (sum.0 + 1, sum.1 + tokens, sum.2 + tokens * 2, sum.3 + price);
        }
        sums.into_iter().map(|((day, cargo, key), (a, b, c, d))| (day, cargo, key, a, b, c, d)).collect()
    }

    fn found(rows: &[UsageRow]) -> Vec<(i64, String, bool, u64, u64, u64, i64)> {
        let mut found: Vec<_> = rows
            .iter()
            .map(|row| {
                assert_eq!(row.key_id.is_some(), row.key_name.is_some());
                let day = row.day.unix_ms().div_euclid(DAY_MS);
                let cargo = row.workload_slug.to_string();
                let sums = (row.jobs, row.prompt_tokens, row.completion_tokens, row.amount.0);
                (day, cargo, row.key_id.is_some(), sums.0, sums.1, sums.2, sums.3)
            })
            .collect();
        found.sort();
        found
    }

    #[tokio::test]
    async fn what_is_summed_and_what_is_not_yet_are_what_the_jobs_have() {
        let dir = tempfile::tempdir().expect("folder");
        let settings = Database { path: dir.path().join("island.db"), ..Database::default() };
        let store = Store::open(&settings).await.expect("database");
        let begin = Clock::System.now();
        let new = |email: &'static str| create_account(&store, email, false, MicroCredits::ZERO, begin);
        let account = new("a@example.org").await.expect("account");
        let other = new("b@example.org").await.expect("account");
        create_key(&store, account, "laptop", begin).await.expect("a key");
        let key: String = sqlx::query_scalar("SELECT id FROM api_keys")
            .fetch_one(store.reader())
            .await
            .expect("the id of the key");
        let key: ApiKeyId = key.parse().expect("an id");
        let base = begin.day_begin().plus_ms(-2 * DAY_MS).unix_ms();
        let minutes = |minutes: i64| base + minutes * 60_000;
        let mut ended: Vec<Ended> = Vec::new();
        let days = Days {
            account,
            from: Timestamp::from_unix_ms(base),
            until: Timestamp::from_unix_ms(base + 3 * DAY_MS),
            cargo: None,
            key: None,
        };
        for (at, cargo, has_key, price, tokens) in [
            (1, "echo", true, 5, 3),
            (42, "echo", true, 7, 0),
            (83, "echo", false, 1, 1),
            (124, "story", true, 0, 0),
            (1_399, "echo", true, 2, 9),
            (1_440, "echo", true, 4, 9),
            (1_481, "story", true, 6, 2),
        ] {
            let one = (minutes(at), cargo, has_key, price, tokens);
            // Two in one span, and another account's.
            for owner in [account, account, other] {
                add(&store, owner, key, &one).await;
            }
            ended.extend([one, one]);
            for later in [0, 5, 15, 40] {
                let now = Timestamp::from_unix_ms(minutes(at + later));
                while sum_next(&store, now).await.expect("summed") {}
                let rows = rows(&store, &days).await.expect("read").expect("few rows");
                assert_eq!(found(&rows), expected(&ended), "{at} and {later} later");
            }
        }
        let now = Timestamp::from_unix_ms(minutes(1_500) + LAG_MS);
        while sum_next(&store, now).await.expect("summed") {}
        let rows_now = rows(&store, &days).await.expect("read").expect("few rows");
        assert_eq!(found(&rows_now), expected(&ended), "all are summed");
        let summed = progress::get(store.reader(), Task::Usage).await.expect("progress");
        assert!(summed >= minutes(1_490), "all of it is summed: {summed}");
        let first = Days { until: days.from.next_day(), ..days.clone() };
        let rows_of = async |days: &Days| found(&rows(&store, days).await.expect("read").expect("few rows"));
        let on_first: Vec<Ended> = ended.iter().copied().filter(|one| one.0 < minutes(1_440)).collect();
        assert_eq!(rows_of(&first).await, expected(&on_first));
        let story = Days { cargo: Some("story".parse().expect("a slug")), ..days.clone() };
        let of_story: Vec<Ended> = ended.iter().copied().filter(|one| one.1 == "story").collect();
        assert_eq!(rows_of(&story).await, expected(&of_story));
        let of_key = Days { key: Some(key), ..story.clone() };
        assert_eq!(rows_of(&of_key).await, expected(&of_story), "both filters");
        store.close().await;
    }
}
