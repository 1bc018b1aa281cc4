//! The sums of the books that must be zero, from cached balances: unlike an audit, it reads no entry and no ended job.

use island_protocol::credits::MicroCredits;

use super::{Pool, QueryContext as _, StoreError, integer};

/// What must be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    /// All balances, with what is uncounted.
    pub balances: MicroCredits,
    /// Holds of all accounts, without the prices of their open jobs.
    pub holds: MicroCredits,
}

/// Reads the sums, at one moment.
pub async fn sums(pool: &Pool) -> Result<Sums, StoreError> {
    let row = sqlx::query(
        "SELECT CAST((SELECT COALESCE(SUM(amount), 0) FROM balances) \
          + (SELECT COALESCE(SUM(amount), 0) FROM uncounted_entries) AS BIGINT) AS balances, \
         CAST((SELECT COALESCE(SUM(amount), 0) FROM balances WHERE ledger LIKE 'holds:%') \
          - (SELECT COALESCE(SUM(price), 0) FROM jobs \
           WHERE status IN ('submitted', 'pending', 'queued', 'running')) AS BIGINT) AS holds",
    )
    .fetch_one(pool)
    .await
    .context("sum the books")?;
    Ok(Sums {
        balances: MicroCredits(integer(&row, "balances")?),
        holds: MicroCredits(integer(&row, "holds")?),
    })
}
