//! Islands and the accounts they belong to.

use std::{collections::BTreeMap, sync::Arc};

use island_protocol::{
    host::Capabilities,
    ids::{AccountId, HostId, JobId},
    time::Timestamp,
};
use island_protocol_api::admin::{AdminHost, Trust};
use sqlx::{AssertSqlSafe, Row as _};

use super::{
    Connection, Pool, QueryContext as _, Row, StoreError, account, integer, json, moment, parsed, revocation,
    to_json, to_text,
};
use island_coordinator_domain::fleet::Enrolled;

const COLUMNS: &str = "id, account_id, public_key, name, region, capabilities, last_seen_at, left_at, suspended_at, trust, \
     tokens_per_second, \
     CAST(karma_ms + (SELECT COALESCE(SUM(ms), 0) FROM uncounted_karma WHERE host_id = hosts.id) AS BIGINT) AS karma_ms";

/// Time without a registration after which an Island is no longer kept in memory.
const ABSENT_MS: i64 = 30 * 24 * 3_600_000;

fn read(row: &Row) -> Result<Enrolled, StoreError> {
    let last_seen: Option<i64> = row.try_get("last_seen_at").context("read a column")?;
    Ok(Enrolled {
        id: parsed(row, "id")?,
        account: parsed(row, "account_id")?,
        public_key: row.try_get("public_key").context("read a column")?,
        name: row.try_get("name").context("read a column")?,
        region: row.try_get("region").context("read a column")?,
        capabilities: json(row, "capabilities")?.map(Arc::new),
        karma_ms: row.try_get("karma_ms").context("read a column")?,
        tokens_per_second: row.try_get("tokens_per_second").context("read a column")?,
        last_seen: last_seen.map(Timestamp::from_unix_ms),
        has_left: row.try_get::<Option<i64>, _>("left_at").context("read a column")?.is_some(),
        suspended: row.try_get::<Option<i64>, _>("suspended_at").context("read a column")?.is_some(),
        trust: parsed(row, "trust")?,
    })
}

/// One Island that has not left.
pub async fn get(pool: &Pool, id: HostId) -> Result<Option<Enrolled>, StoreError> {
    let row =
        sqlx::query(AssertSqlSafe(format!("SELECT {COLUMNS} FROM hosts WHERE id = $1 AND left_at IS NULL")))
            .bind(id.to_string())
            .fetch_optional(pool)
            .await
            .context("read an Island")?;
    row.as_ref().map(read).transpose()
}

/// Islands that were enrolled, renamed, measured or left since a time; all of them since 1970. Those that have neither
/// registered nor changed for 30 days are left out; they are read when they register.
pub async fn changed(pool: &Pool, since: Timestamp, now: Timestamp) -> Result<Vec<Enrolled>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM hosts WHERE changed_at >= $1 AND (changed_at >= $2 OR last_seen_at >= $2)"
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(since.unix_ms())
        .bind(now.plus_ms(-ABSENT_MS).unix_ms())
        .fetch_all(pool)
        .await
        .context("list Islands")?;
    rows.iter().map(read).collect()
}

/// Result of an enrollment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enrollment {
    /// The Island belongs to the account now.
    Enrolled,
    /// The id belongs to another key or account.
    Foreign,
    /// The account has as many Islands as it may have.
    TooMany,
}

/// Adds an Island, or renames it if key and account are the same. An Island that left may return to any account. The
/// account, which must be locked, may have `limit` Islands, or any number if it is 0.
pub async fn enroll(
    conn: &mut Connection,
    host: &Enrolled,
    limit: u32,
    now: Timestamp,
) -> Result<Enrollment, StoreError> {
    if limit > 0 && others(conn, host).await? >= i64::from(limit) {
        return Ok(Enrollment::TooMany);
    }
    let done = sqlx::query(
        "INSERT INTO hosts (id, account_id, public_key, name, created_at, changed_at) \
         VALUES ($1, $2, $3, $4, $5, $5) \
         ON CONFLICT (id) DO UPDATE SET name = excluded.name, account_id = excluded.account_id, \
         changed_at = excluded.changed_at, left_at = NULL \
         WHERE (hosts.account_id = excluded.account_id OR hosts.left_at IS NOT NULL) \
         AND hosts.public_key = excluded.public_key",
    )
    .bind(host.id.to_string())
    .bind(host.account.to_string())
    .bind(&host.public_key)
    .bind(to_text(&host.name))
    .bind(now.unix_ms())
    .execute(&mut *conn)
    .await
    .context("enroll an Island")?;
    if done.rows_affected() == 0 {
        return Ok(Enrollment::Foreign);
    }
    revocation::allow(conn, &host.public_key).await?;
    Ok(Enrollment::Enrolled)
}

/// Number of Islands of the account besides this one.
async fn others(conn: &mut Connection, host: &Enrolled) -> Result<i64, StoreError> {
    let row =
        sqlx::query("SELECT COUNT(*) AS n FROM hosts WHERE account_id = $1 AND left_at IS NULL AND id <> $2")
            .bind(host.account.to_string())
            .bind(host.id.to_string())
            .fetch_one(conn)
            .await
            .context("count an account's Islands")?;
    integer(&row, "n")
}

/// Records that an Island left, and revokes its fabric credentials. Its earnings stay with its account.
pub async fn leave(conn: &mut Connection, id: HostId, now: Timestamp) -> Result<(), StoreError> {
    let row =
        sqlx::query("UPDATE hosts SET left_at = $2, changed_at = $2 WHERE id = $1 RETURNING public_key")
            .bind(id.to_string())
            .bind(now.unix_ms())
            .fetch_optional(&mut *conn)
            .await
            .context("record that an Island left")?;
    if let Some(row) = row {
        let public_key: String = row.try_get("public_key").context("read a column")?;
        revocation::revoke(conn, &public_key, now).await?;
    }
    Ok(())
}

const ADMIN_VIEW: &str = "SELECT id, account_id, name, region, agent_version, suspended_at, suspended_reason, trust, note, created_at, \
     last_seen_at FROM hosts WHERE left_at IS NULL";

fn admin_view(row: &Row) -> Result<AdminHost, StoreError> {
    Ok(AdminHost {
        id: parsed(row, "id")?,
        account: parsed(row, "account_id")?,
        name: row.try_get("name").context("read a column")?,
        agent_version: row.try_get("agent_version").context("read a column")?,
        region: row.try_get("region").context("read a column")?,
        status: None,
        fabric_version: None,
        incompatible: None,
        suspended: account::suspension(row)?,
        trust: parsed(row, "trust")?,
        note: row.try_get("note").context("read a column")?,
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        last_seen_at: moment(row, "last_seen_at")?,
    })
}

/// An Island that has not left, as operators see it.
pub async fn admin_get(pool: &Pool, id: HostId) -> Result<Option<AdminHost>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!("{ADMIN_VIEW} AND id = $1")))
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("read an Island")?;
    row.as_ref().map(admin_view).transpose()
}

/// The condition of a list of Islands, with its parameters: the account, if one is given, then a part of the id, the name or the region in
/// lower case, if it is not empty. The first parameter has the number `first`.
fn listed(account: Option<AccountId>, text: &str, first: usize) -> (String, Vec<String>) {
    let (mut conditions, mut values) = (Vec::new(), Vec::new());
    if let Some(account) = account {
        conditions.push(format!(" AND account_id = ${first}"));
        values.push(account.to_string());
    }
    if !text.is_empty() {
        let number = first + values.len();
        conditions.push(format!(
            " AND (id LIKE ${number} ESCAPE '\\' OR LOWER(name) LIKE ${number} ESCAPE '\\' \
             OR LOWER(COALESCE(region, '')) LIKE ${number} ESCAPE '\\')"
        ));
        // What people enter is not a pattern.
        let escaped = to_text(text).replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        values.push(format!("%{escaped}%"));
    }
    (conditions.concat(), values)
}

/// A page of the Islands that have not left, of one account or of all, with a text or any, oldest first, and their total number.
pub async fn admin_page(
    pool: &Pool,
    account: Option<AccountId>,
    text: &str,
    limit: u64,
    offset: u64,
) -> Result<(Vec<AdminHost>, u64), StoreError> {
    let (condition, values) = listed(account, text, 3);
    let statement = format!("{ADMIN_VIEW}{condition} ORDER BY created_at, id LIMIT $1 OFFSET $2");
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let query = sqlx::query(AssertSqlSafe(statement)).bind(number(limit)).bind(number(offset));
    let query = values.into_iter().fold(query, sqlx::query::Query::bind);
    let rows = query.fetch_all(pool).await.context("list Islands")?;
    let (condition, values) = listed(account, text, 1);
    let statement = format!("SELECT COUNT(*) AS n FROM hosts WHERE left_at IS NULL{condition}");
    let count = sqlx::query(AssertSqlSafe(statement));
    let count = values.into_iter().fold(count, sqlx::query::Query::bind);
    let total = integer(&count.fetch_one(pool).await.context("count Islands")?, "n")?;
    let hosts = rows.iter().map(admin_view).collect::<Result<_, _>>()?;
    Ok((hosts, total.unsigned_abs()))
}

/// These Islands, without those that have left, in the order of their ids.
pub async fn admin_among(pool: &Pool, ids: &[HostId]) -> Result<Vec<AdminHost>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let numbers: Vec<String> = (1..=ids.len()).map(|number| format!("${number}")).collect();
    let statement = format!("{ADMIN_VIEW} AND id IN ({}) ORDER BY id", numbers.join(", "));
    let query = sqlx::query(AssertSqlSafe(statement));
    let query = ids.iter().fold(query, |query, id| query.bind(id.to_string()));
    let rows = query.fetch_all(pool).await.context("list Islands by their ids")?;
    rows.iter().map(admin_view).collect()
}

/// Gives an Island no new jobs from now on. Returns `false` if it is suspended already.
pub async fn suspend(
    conn: &mut Connection,
    id: HostId,
    reason: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE hosts SET suspended_at = $2, suspended_reason = $3, changed_at = $2 \
         WHERE id = $1 AND suspended_at IS NULL",
    )
    .bind(id.to_string())
    .bind(now.unix_ms())
    .bind(to_text(reason))
    .execute(conn)
    .await
    .context("suspend an Island")?;
    Ok(done.rows_affected() == 1)
}

/// Gives an Island jobs again. Returns `false` if it is not suspended.
pub async fn resume(conn: &mut Connection, id: HostId, now: Timestamp) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE hosts SET suspended_at = NULL, suspended_reason = NULL, changed_at = $2 \
         WHERE id = $1 AND suspended_at IS NOT NULL",
    )
    .bind(id.to_string())
    .bind(now.unix_ms())
    .execute(conn)
    .await
    .context("resume an Island")?;
    Ok(done.rows_affected() == 1)
}

/// Sets the trust level and the note of an Island; what is `None` stays, an empty note is removed.
pub async fn annotate(
    conn: &mut Connection,
    id: HostId,
    trust: Option<Trust>,
    note: Option<&str>,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE hosts SET trust = COALESCE($2, trust), note = NULLIF(COALESCE($3, note), ''), changed_at = $4 \
         WHERE id = $1",
    )
    .bind(id.to_string())
    .bind(trust.map(Trust::as_str))
    .bind(note.map(to_text))
    .bind(now.unix_ms())
    .execute(conn)
    .await
    .context("annotate an Island")?;
    Ok(())
}

/// Stores an Island's registration.
pub async fn registered(
    conn: &mut Connection,
    id: HostId,
    name: &str,
    region: Option<&str>,
    agent_version: &str,
    capabilities: &Capabilities,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE hosts SET name = $2, region = $3, agent_version = $4, capabilities = $5, last_seen_at = $6 \
         WHERE id = $1",
    )
    .bind(id.to_string())
    .bind(to_text(name))
    .bind(region.map(to_text))
    .bind(to_text(agent_version))
    .bind(to_json(capabilities))
    .bind(now.unix_ms())
    .execute(conn)
    .await
    .context("store a registration")?;
    Ok(())
}

/// Stores the speed of an Island's last check.
pub async fn measured(
    conn: &mut Connection,
    id: HostId,
    tokens_per_second: f64,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE hosts SET tokens_per_second = $2, changed_at = $3 WHERE id = $1")
        .bind(id.to_string())
        .bind(tokens_per_second)
        .bind(now.unix_ms())
        .execute(conn)
        .await
        .context("store an Island's speed")?;
    Ok(())
}

/// Adds to the karma of the Island that completed a job; [`count_karma`] makes it part of the Island's row.
pub async fn credit_karma(conn: &mut Connection, job: JobId, id: HostId, ms: i64) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO uncounted_karma (id, host_id, ms) VALUES ($1, $2, $3)")
        .bind(job.to_string())
        .bind(id.to_string())
        .bind(ms)
        .execute(conn)
        .await
        .context("credit karma")?;
    Ok(())
}

/// Whether karma is not yet part of its Islands' rows.
pub async fn has_uncounted_karma(pool: &Pool) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT id FROM uncounted_karma LIMIT 1").fetch_optional(pool).await;
    Ok(row.context("look for uncounted karma")?.is_some())
}

/// Adds uncounted karma, a part if there is much, to the rows of its Islands. Rows are written in the order of their
/// ids, so that two such transactions cannot deadlock.
pub async fn count_karma(conn: &mut Connection) -> Result<(), StoreError> {
    let rows = sqlx::query(
        "DELETE FROM uncounted_karma WHERE id IN (SELECT id FROM uncounted_karma ORDER BY id LIMIT 1000) \
         RETURNING host_id, ms",
    )
    .fetch_all(&mut *conn)
    .await
    .context("take uncounted karma")?;
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for row in &rows {
        *sums.entry(row.try_get("host_id").context("read a column")?).or_default() += integer(row, "ms")?;
    }
    for (id, ms) in sums {
        sqlx::query("UPDATE hosts SET karma_ms = karma_ms + $2 WHERE id = $1")
            .bind(id)
            .bind(ms)
            .execute(&mut *conn)
            .await
            .context("count karma")?;
    }
    Ok(())
}

/// The karma of all Islands that have not left, in milliseconds.
pub async fn karma(pool: &Pool) -> Result<Vec<(HostId, i64)>, StoreError> {
    let rows = sqlx::query("SELECT id, karma_ms FROM hosts WHERE left_at IS NULL")
        .fetch_all(pool)
        .await
        .context("list karma")?;
    rows.iter().map(|row| Ok((parsed(row, "id")?, integer(row, "karma_ms")?))).collect()
}

#[cfg(test)]
mod tests {
    use island_protocol::credits::MicroCredits;

    use super::*;
    use crate::setup::create_account;
    use crate::{Store, commit};
    use island_coordinator_domain::{clock::Clock, config::Database};

    const ISLANDS: i64 = 10_000;

    #[tokio::test]
    async fn a_page_of_ten_thousand_islands_reads_its_rows_in_order() {
        let dir = tempfile::tempdir().expect("folder");
        let settings = Database { path: dir.path().join("island.db"), ..Database::default() };
        let store = Store::open(&settings).await.expect("database");
        let account =
            create_account(&store, "a@example.org", false, MicroCredits::ZERO, Clock::System.now()).await;
        let account = account.expect("account");
        let mut tx = store.begin().await.expect("begun");
        // One in ten has left.
        sqlx::query(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) \
             INSERT INTO hosts (id, account_id, public_key, name, created_at, changed_at, left_at) \
             SELECT printf('00000000-0000-0000-0000-%012x', i), $2, 'key ' || i, 'island ' || i, i / 3, i, \
             CASE i % 10 WHEN 0 THEN i END FROM n",
        )
        .bind(ISLANDS)
        .bind(account.to_string())
        .execute(&mut *tx)
        .await
        .expect("Islands");
        commit(tx).await.expect("committed");
        let reader = store.reader();
        let left = ISLANDS / 10;
        let remaining = (ISLANDS - left).unsigned_abs();
        let mut names = Vec::new();
        for offset in [0, 4_500, remaining - 10, remaining] {
            let (page, total) = admin_page(reader, None, "", 25, offset).await.expect("a page");
            assert_eq!(total, remaining);
            assert_eq!(page.len() as u64, 25.min(remaining - offset), "{offset}");
            let order = |island: &AdminHost| (island.created_at, island.id);
            assert!(page.windows(2).all(|pair| order(&pair[0]) < order(&pair[1])), "{offset}");
            names.extend(page.into_iter().map(|island| island.name));
        }
        assert_eq!((names[0].as_str(), names[9].as_str()), ("island 1", "island 11"));
        assert_eq!(names.last().map(String::as_str), Some("island 9999"));
        let (found, total) = admin_page(reader, Some(account), "island 999", 25, 0).await.expect("a page");
        assert_eq!((found.len(), total), (10, 10), "999 and 9991 to 9999");

        let plan = format!("EXPLAIN QUERY PLAN {ADMIN_VIEW} ORDER BY created_at, id LIMIT 25 OFFSET 4500");
        let plan = sqlx::query(AssertSqlSafe(plan)).fetch_all(reader).await.expect("a plan");
        let plan = plan.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("; ");
        assert!(plan.contains("hosts_listed") && !plan.contains("TEMP B-TREE"), "{plan}");
        store.close().await;
    }
}
