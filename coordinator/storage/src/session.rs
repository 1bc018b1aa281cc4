//! Sessions of browsers, and the links that begin them.

use island_protocol::{ids::ApiKeyId, time::Timestamp};

use super::{Connection, QueryContext as _, StoreError, optional};

/// Life of a session.
const SESSION_MS: i64 = 14 * 24 * 3_600_000;
/// Life of a link. It is used at once, or copied from one machine to another.
const LINK_MS: i64 = 10 * 60_000;

/// Begins a session that acts for a key. `hash` is that of its token.
pub async fn begin(
    conn: &mut Connection,
    hash: &str,
    key: ApiKeyId,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM sessions WHERE expires_at <= $1")
        .bind(now.unix_ms())
        .execute(&mut *conn)
        .await
        .context("remove old sessions")?;
    sqlx::query("INSERT INTO sessions (hash, api_key_id, created_at, expires_at) VALUES ($1, $2, $3, $4)")
        .bind(hash)
        .bind(key.to_string())
        .bind(now.unix_ms())
        .bind(now.plus_ms(SESSION_MS).unix_ms())
        .execute(conn)
        .await
        .context("begin a session")?;
    Ok(())
}

/// Ends a session.
pub async fn end(conn: &mut Connection, hash: &str) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM sessions WHERE hash = $1")
        .bind(hash)
        .execute(conn)
        .await
        .context("end a session")?;
    Ok(())
}

/// Records a link that signs a browser in for a key. `hash` is that of its code. Returns when it expires.
pub async fn offer_link(
    conn: &mut Connection,
    hash: &str,
    key: ApiKeyId,
    now: Timestamp,
) -> Result<Timestamp, StoreError> {
    sqlx::query("DELETE FROM sign_in_links WHERE expires_at <= $1")
        .bind(now.unix_ms())
        .execute(&mut *conn)
        .await
        .context("remove old links")?;
    let end = now.plus_ms(LINK_MS);
    sqlx::query("INSERT INTO sign_in_links (hash, api_key_id, expires_at) VALUES ($1, $2, $3)")
        .bind(hash)
        .bind(key.to_string())
        .bind(end.unix_ms())
        .execute(conn)
        .await
        .context("record a link")?;
    Ok(end)
}

/// Uses a link up. Returns its key, unless that is revoked.
pub async fn take_link(
    conn: &mut Connection,
    hash: &str,
    now: Timestamp,
) -> Result<Option<ApiKeyId>, StoreError> {
    let row = sqlx::query(
        "DELETE FROM sign_in_links WHERE hash = $1 AND expires_at > $2 \
         AND api_key_id IN (SELECT id FROM api_keys WHERE revoked_at IS NULL) RETURNING api_key_id",
    )
    .bind(hash)
    .bind(now.unix_ms())
    .fetch_optional(conn)
    .await
    .context("use a link")?;
    row.as_ref().map_or(Ok(None), |row| optional(row, "api_key_id"))
}
