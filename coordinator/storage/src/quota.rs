//! Quotas in SQL. Their rows are changed by the transactions that accept and end jobs, which have locked the account.

use std::collections::HashMap;

use futures::TryStreamExt as _;
use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, ApiKeyId, JobId},
    job::Usage,
    time::Timestamp,
};
use island_protocol_api::quota::{QuotaPeriod, Quotas};
use sqlx::{AssertSqlSafe, Row as _};

use super::{Connection, Pool, QueryContext as _, Row, StoreError, integer, json, parsed};
use island_coordinator_domain::quota::{self, Exceeded, Quota, Settlement, Unit};

/// Whose quota it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Account(AccountId),
    Key(AccountId, ApiKeyId),
}

impl Holder {
    fn id(self) -> String {
        match self {
            Self::Account(id) => id.to_string(),
            Self::Key(_, id) => id.to_string(),
        }
    }
}

/// A quota that has no room for a job, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {} quota of this {} for the {} is used up",
    .exceeded.quota.unit.as_str().trim_end_matches('s'),
    if *.is_of_key { "API key" } else { "account" },
    .exceeded.quota.period.as_str()
)]
pub struct Refused {
    pub exceeded: Exceeded,
    pub is_of_key: bool,
}

fn read(row: &Row) -> Result<Quota, StoreError> {
    Ok(Quota {
        period: parsed(row, "period")?,
        unit: parsed(row, "unit")?,
        max: integer(row, "most")?,
        used: integer(row, "used")?,
        since: Timestamp::from_unix_ms(integer(row, "since")?),
    })
}

/// The quotas of a holder.
pub async fn list(pool: &Pool, holder: Holder) -> Result<Vec<Quota>, StoreError> {
    let mut conn = pool.acquire().await.context("acquire a connection")?;
    list_in(&mut conn, &holder.id()).await
}

async fn list_in(conn: &mut Connection, holder: &str) -> Result<Vec<Quota>, StoreError> {
    let rows = sqlx::query("SELECT period, unit, most, used, since FROM quotas WHERE holder = $1")
        .bind(holder)
        .fetch_all(conn)
        .await
        .context("read quotas")?;
    rows.iter().map(read).collect()
}

async fn store(conn: &mut Connection, holder: &str, quota: &Quota) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO quotas (holder, period, unit, most, used, since) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (holder, period, unit) DO UPDATE \
         SET most = excluded.most, used = excluded.used, since = excluded.since",
    )
    .bind(holder)
    .bind(quota.period.as_str())
    .bind(quota.unit.as_str())
    .bind(quota.max)
    .bind(quota.used)
    .bind(quota.since.unix_ms())
    .execute(conn)
    .await
    .context("store a quota")?;
    Ok(())
}

/// Adds a new job to the quotas of its account and its key, or returns the one that has no room. Then the transaction
/// must be rolled back. Jobs of one account are accepted one after another.
pub(super) async fn accept(
    conn: &mut Connection,
    account: AccountId,
    key: ApiKeyId,
    price: MicroCredits,
    now: Timestamp,
) -> Result<Result<(), Refused>, StoreError> {
    for (holder, is_of_key) in [(account.to_string(), false), (key.to_string(), true)] {
        for quota in list_in(conn, &holder).await? {
            match quota.accept(price, now) {
                Ok(changed) if changed == quota => {}
                Ok(changed) => store(conn, &holder, &changed).await?,
                Err(exceeded) => return Ok(Err(Refused { exceeded, is_of_key })),
            }
        }
    }
    Ok(Ok(()))
}

/// Applies the end of a job to the quotas of its account and its key.
pub(super) async fn settle(
    conn: &mut Connection,
    account: AccountId,
    key: Option<String>,
    settlement: &Settlement,
    now: Timestamp,
) -> Result<(), StoreError> {
    for holder in [Some(account.to_string()), key].into_iter().flatten() {
        for quota in list_in(conn, &holder).await? {
            let changed = quota.settle(settlement, now);
            if changed != quota {
                store(conn, &holder, &changed).await?;
            }
        }
    }
    Ok(())
}

/// Returns what a job was charged to the quotas of its account and its key, if they are of the period in which the job
/// was accepted.
pub async fn refund(
    conn: &mut Connection,
    account: AccountId,
    job: JobId,
    amount: MicroCredits,
    now: Timestamp,
) -> Result<(), StoreError> {
    let row = sqlx::query("SELECT api_key_id, created_at FROM jobs WHERE id = $1")
        .bind(job.to_string())
        .fetch_one(&mut *conn)
        .await
        .context("read the API key of a job")?;
    let key: Option<String> = row.try_get("api_key_id").context("read a column")?;
    let accepted_at = Timestamp::from_unix_ms(integer(&row, "created_at")?);
    settle(conn, account, key, &Settlement { accepted_at, released: amount, tokens: 0 }, now).await
}

/// Replaces the quotas of a holder, whose account must be locked. What was used in the current period counts, also if it
/// was used before.
pub async fn replace(
    conn: &mut Connection,
    holder: Holder,
    quotas: &Quotas,
    now: Timestamp,
) -> Result<Vec<Quota>, StoreError> {
    let id = holder.id();
    let before = list_in(conn, &id).await?;
    sqlx::query("DELETE FROM quotas WHERE holder = $1")
        .bind(&id)
        .execute(&mut *conn)
        .await
        .context("remove quotas")?;
    let mut used: HashMap<QuotaPeriod, PastUse> = HashMap::new();
    let mut replaced = Vec::new();
    for (period, unit, max) in quota::limits(quotas) {
        let known = before.iter().find(|quota| quota.period == period && quota.unit == unit);
        let quota = if let Some(known) = known {
            Quota { max, ..known.at(now) }
        } else {
            let since = quota::begin(period, now);
            let past = match used.get(&period) {
                Some(past) => *past,
                None => past_use(conn, holder, since).await?,
            };
            used.insert(period, past);
            Quota { period, unit, max, used: past.of(unit), since }
        };
        store(conn, &id, &quota).await?;
        replaced.push(quota);
    }
    Ok(replaced)
}

/// What jobs have used.
#[derive(Debug, Clone, Copy, Default)]
struct PastUse {
    requests: i64,
    tokens: i64,
    credits: i64,
}

impl PastUse {
    fn of(self, unit: Unit) -> i64 {
        match unit {
            Unit::Requests => self.requests,
            Unit::Tokens => self.tokens,
            Unit::Credits => self.credits,
        }
    }
}

/// What the jobs of a holder that were accepted since a time have used. Reads all of them.
async fn past_use(conn: &mut Connection, holder: Holder, since: Timestamp) -> Result<PastUse, StoreError> {
    let (account, key, of) = match holder {
        Holder::Account(account) => (account, None, ""),
        Holder::Key(account, key) => (account, Some(key), "AND api_key_id = $3"),
    };
    let statement = format!(
        "SELECT price, usage, (SELECT CAST(COALESCE(SUM(e.amount), 0) AS BIGINT) FROM ledger_entries e \
         WHERE e.job_id = jobs.id AND e.kind = 'refund' AND e.amount > 0) AS refunded \
         FROM jobs WHERE account_id = $1 AND created_at >= $2 AND only_host IS NULL {of}"
    );
    let query = sqlx::query(AssertSqlSafe(statement)).bind(account.to_string()).bind(since.unix_ms());
    let query = if let Some(key) = key { query.bind(key.to_string()) } else { query };
    let mut rows = query.fetch(conn);
    let mut used = PastUse::default();
    while let Some(row) = rows.try_next().await.context("sum what was used")? {
        let usage: Option<Usage> = json(&row, "usage")?;
        let charged = usage.as_ref().map(|usage| usage.credits_used.unwrap_or_default().0);
        used.requests += 1;
        used.credits += charged.map_or_else(|| integer(&row, "price"), Ok)? - integer(&row, "refunded")?;
        let tokens = usage.map_or(0, |usage| usage.total_tokens);
        used.tokens = used.tokens.saturating_add(i64::try_from(tokens).unwrap_or(i64::MAX));
    }
    Ok(used)
}
