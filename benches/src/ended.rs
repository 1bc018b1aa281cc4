//! Lists, prices and statistics over a database with many ended jobs, against the same requests over an empty one.

use std::path::Path;

use anyhow::{Context as _, Result};
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::time::{Duration, Instant};

use crate::{
    report::{Better, Report},
    stats::median,
    systems::Network,
};

/// Requests of one kind in a round.
const REQUESTS: usize = 50;
/// Time over which the jobs ended.
const DAYS: i64 = 30;
/// Maximum time until the hours of all jobs are summed.
const PATIENCE: Duration = Duration::from_mins(15);

const PATHS: [(&str, &str); 7] = [
    ("first page of jobs", "/jobs?limit=20"),
    ("page of jobs at 1,000", "/jobs?limit=20&offset=1000"),
    ("first page of the ledger", "/account/ledger?limit=20"),
    ("rates of all Cargos", "/market/rates"),
    ("history of a Cargo", "/market/history/sim-chat"),
    ("network statistics", "/network/stats"),
    ("recommendations", "/island/recommendations?host_id="),
];

/// Measures with this number of ended jobs.
pub(crate) async fn run(rounds: usize, jobs: u64) -> Result<Report> {
    let (full, empty) = (Network::start().await?, Network::start().await?);
    let island = full.island().await?;
    let paths: Vec<String> = PATHS
        .iter()
        .map(|(_, path)| if path.ends_with('=') { format!("{path}{island}") } else { (*path).to_owned() })
        .collect();
    let theirs = empty.island().await?;
    fill(&full.database(), jobs).await.context("fill the database")?;
    let mut series = vec![(Vec::new(), Vec::new()); PATHS.len()];
    for round in 0..rounds {
        for (path, (ours, other)) in paths.iter().zip(&mut series) {
            let (with, without) =
                (time(&full, path).await?, time(&empty, &path.replace(&island, &theirs)).await?);
            // The first round warms up.
            if round > 0 {
                ours.push(with);
                other.push(without);
            }
        }
    }
    let setup =
        format!("{jobs} ended jobs of one account over {DAYS} days, SQLite, median of {REQUESTS} requests");
    let mut report = Report::new("lists and market over ended jobs", setup);
    for ((name, _), (ours, other)) in PATHS.iter().zip(&series) {
        report.compare(*name, ("ms", Better::Lower), ours, "an empty database", other);
    }
    Ok(report)
}

/// Median time of one request, milliseconds.
async fn time(network: &Network, path: &str) -> Result<f64> {
    let mut took = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let begun = Instant::now();
        network.get(path).await?;
        took.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(median(took))
}

/// Adds ended jobs with their ledger entries, as the coordinator would have, and waits until their hours are summed.
async fn fill(database: &Path, jobs: u64) -> Result<()> {
    let options = SqliteConnectOptions::new().filename(database).busy_timeout(Duration::from_mins(5));
    let mut conn = SqliteConnection::connect_with(&options).await?;
    let account = "SELECT account_id FROM api_keys ORDER BY created_at LIMIT 1";
    let account: String = sqlx::query_scalar(account).fetch_one(&mut conn).await?;
    let now: i64 =
        sqlx::query_scalar("SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)").fetch_one(&mut conn).await?;
    let step = DAYS * 86_400_000 / i64::try_from(jobs.max(1))?;
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)";
    let mut tx = conn.begin().await?;
    let statement = format!(
        "INSERT INTO jobs (id, account_id, workload_id, workload_slug, status, input, priority, price, attempt, epoch, \
         deadline, created_at, started_at, completed_at, output, usage) \
         {numbers} SELECT printf('%08x-0000-7000-8000-%012x', i, i), $2, 1, 'sim-chat', 'completed', \
         '{{\"prompt\":\"hello\"}}', 0, 1000000, 1, 1, $3 - i * $4, $3 - i * $4 - 2000, $3 - i * $4 - 1000, \
         $3 - i * $4, '\"hello\"', '{{}}' FROM n"
    );
    let query = sqlx::query(sqlx::AssertSqlSafe(statement));
    query.bind(i64::try_from(jobs)?).bind(&account).bind(now).bind(step).execute(&mut *tx).await?;
    for (sign, book) in [(-1, "holds:"), (1, "account:")] {
        let statement = format!(
            "INSERT INTO ledger_entries (id, ledger, kind, job_id, amount, created_at) \
             SELECT '{book}' || id, '{book}' || account_id, 'settle', id, {sign} * price, completed_at \
             FROM jobs WHERE id LIKE '%-0000-7000-8000-%'"
        );
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    let end = Instant::now() + PATIENCE;
    let summed = "SELECT until FROM progress WHERE task = 'market'";
    while sqlx::query_scalar::<_, i64>(summed).fetch_one(&mut conn).await? < now - 3 * 3_600_000 {
        anyhow::ensure!(Instant::now() < end, "the hours were not summed");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    conn.close().await?;
    Ok(())
}
