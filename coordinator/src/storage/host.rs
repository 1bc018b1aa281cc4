//! Islands and the accounts they belong to.

use island_protocol::{host::Capabilities, ids::HostId, time::Timestamp};
use sqlx::{AssertSqlSafe, Row as _};

use super::{
    Connection, Pool, QueryContext as _, Row, StoreError, json, parsed, revocation, to_json, to_text,
};
use crate::fleet::Enrolled;

const COLUMNS: &str = "id, account_id, public_key, name, region, capabilities, karma_ms, last_seen_at, left_at, tokens_per_second";

fn read(row: &Row) -> Result<Enrolled, StoreError> {
    let last_seen: Option<i64> = row.try_get("last_seen_at").context("read a column")?;
    Ok(Enrolled {
        id: parsed(row, "id")?,
        account: parsed(row, "account_id")?,
        public_key: row.try_get("public_key").context("read a column")?,
        name: row.try_get("name").context("read a column")?,
        region: row.try_get("region").context("read a column")?,
        capabilities: json(row, "capabilities")?,
        karma_ms: row.try_get("karma_ms").context("read a column")?,
        tokens_per_second: row.try_get("tokens_per_second").context("read a column")?,
        last_seen: last_seen.map(Timestamp::from_unix_ms),
        has_left: row.try_get::<Option<i64>, _>("left_at").context("read a column")?.is_some(),
    })
}

/// One Island that has not left.
pub(crate) async fn get(pool: &Pool, id: HostId) -> Result<Option<Enrolled>, StoreError> {
    let row =
        sqlx::query(AssertSqlSafe(format!("SELECT {COLUMNS} FROM hosts WHERE id = $1 AND left_at IS NULL")))
            .bind(id.to_string())
            .fetch_optional(pool)
            .await
            .context("read an Island")?;
    row.as_ref().map(read).transpose()
}

/// Islands that were enrolled, renamed, credited or left since a time; all of them since 1970.
pub(crate) async fn changed(pool: &Pool, since: Timestamp) -> Result<Vec<Enrolled>, StoreError> {
    let rows = sqlx::query(AssertSqlSafe(format!("SELECT {COLUMNS} FROM hosts WHERE changed_at >= $1")))
        .bind(since.unix_ms())
        .fetch_all(pool)
        .await
        .context("list Islands")?;
    rows.iter().map(read).collect()
}

/// Adds an Island, or renames it if key and account are the same. An Island that left may return to any account.
/// Returns `false` if the id belongs to another key or account.
pub(crate) async fn enroll(
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
    .execute(&mut *conn)
    .await
    .context("enroll an Island")?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    revocation::allow(conn, &host.public_key).await?;
    Ok(true)
}

/// Records that an Island left, and revokes its fabric credentials. Its earnings stay with its account.
pub(crate) async fn leave(conn: &mut Connection, id: HostId, now: Timestamp) -> Result<(), StoreError> {
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

/// Stores an Island's registration.
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
    .context("store a registration")?;
    Ok(())
}

/// Stores the speed of an Island's last check.
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
        .context("store an Island's speed")?;
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
        .context("credit karma")?;
    Ok(())
}
