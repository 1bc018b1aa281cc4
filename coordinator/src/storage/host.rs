//! Islands and the accounts they belong to.

use island_protocol::{host::Capabilities, ids::HostId, time::Timestamp};
use sqlx::{AssertSqlSafe, Row as _};

use super::{Attempt as _, Connection, Pool, Row, StoreError, json, parsed, to_json, to_text};
use crate::fleet::Enrolled;

const COLUMNS: &str = "id, account_id, public_key, name, region, capabilities, karma_ms, last_seen_at, left_at, tokens_per_second";

fn read(row: &Row) -> Result<Enrolled, StoreError> {
    let last_seen: Option<i64> = row.try_get("last_seen_at").attempt("read a column")?;
    Ok(Enrolled {
        id: parsed(row, "id")?,
        account: parsed(row, "account_id")?,
        public_key: row.try_get("public_key").attempt("read a column")?,
        name: row.try_get("name").attempt("read a column")?,
        region: row.try_get("region").attempt("read a column")?,
        capabilities: json(row, "capabilities")?,
        karma_ms: row.try_get("karma_ms").attempt("read a column")?,
        tokens_per_second: row.try_get("tokens_per_second").attempt("read a column")?,
        last_seen: last_seen.map(Timestamp::from_unix_ms),
        has_left: row.try_get::<Option<i64>, _>("left_at").attempt("read a column")?.is_some(),
    })
}

/// One Island that has not left.
pub(crate) async fn get(pool: &Pool, id: HostId) -> Result<Option<Enrolled>, StoreError> {
    let row =
        sqlx::query(AssertSqlSafe(format!("SELECT {COLUMNS} FROM hosts WHERE id = $1 AND left_at IS NULL")))
            .bind(id.to_string())
            .fetch_optional(pool)
            .await
            .attempt("read an Island")?;
    row.as_ref().map(read).transpose()
}

/// The Islands that were enrolled, renamed, credited or left since; all of them since the beginning.
pub(crate) async fn changed(pool: &Pool, since: Timestamp) -> Result<Vec<Enrolled>, StoreError> {
    let rows = sqlx::query(AssertSqlSafe(format!("SELECT {COLUMNS} FROM hosts WHERE changed_at >= $1")))
        .bind(since.unix_ms())
        .fetch_all(pool)
        .await
        .attempt("list Islands")?;
    rows.iter().map(read).collect()
}

/// Adds an Island, or renames it if it is the same key of the same account; one that left may come back to any. False: the id is somebody
/// else's.
pub(crate) async fn enrol(
    conn: &mut Connection,
    host: &Enrolled,
    now: Timestamp,
) -> Result<bool, StoreError> {
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
    .execute(conn)
    .await
    .attempt("enrol an Island")?;
    Ok(done.rows_affected() == 1)
}

/// Notes that an Island left. What it earned stays its account's.
pub(crate) async fn leave(conn: &mut Connection, id: HostId, now: Timestamp) -> Result<(), StoreError> {
    sqlx::query("UPDATE hosts SET left_at = $2, changed_at = $2 WHERE id = $1")
        .bind(id.to_string())
        .bind(now.unix_ms())
        .execute(conn)
        .await
        .attempt("let an Island leave")?;
    Ok(())
}

/// Keeps what an Island said at registration.
pub(crate) async fn registered(
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
    .attempt("store a registration")?;
    Ok(())
}

/// Keeps how fast an Island was in a check.
pub(crate) async fn measured(
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
        .attempt("store an Island's speed")?;
    Ok(())
}

/// Adds to an Island's karma.
pub(crate) async fn credit_karma(
    conn: &mut Connection,
    id: HostId,
    ms: i64,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE hosts SET karma_ms = karma_ms + $2, changed_at = $3 WHERE id = $1")
        .bind(id.to_string())
        .bind(ms)
        .bind(now.unix_ms())
        .execute(conn)
        .await
        .attempt("credit karma")?;
    Ok(())
}
