//! Users of the fabric whose credentials are revoked before they expire.

use island_protocol::{ids::ApiKeyId, time::Timestamp};
use sqlx::Row as _;

use super::{Connection, Pool, QueryContext as _, StoreError, integer};

/// A revoked user: credentials that were issued until then are not valid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Revocation {
    pub public_key: String,
    /// Unix seconds.
    pub until: i64,
}

/// Revokes the credentials of a user.
pub(crate) async fn revoke(
    conn: &mut Connection,
    public_key: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO fabric_revocations (public_key, revoked_at) VALUES ($1, $2) \
         ON CONFLICT (public_key) DO UPDATE SET revoked_at = excluded.revoked_at",
    )
    .bind(public_key)
    .bind(now.unix_ms())
    .execute(conn)
    .await
    .context("revoke fabric credentials")?;
    Ok(())
}

/// Lets a user return: credentials of an Island allow the same whatever its account is.
pub(crate) async fn allow(conn: &mut Connection, public_key: &str) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM fabric_revocations WHERE public_key = $1")
        .bind(public_key)
        .execute(conn)
        .await
        .context("allow fabric credentials")?;
    Ok(())
}

/// Records the user of credentials that were issued to an API key.
pub(crate) async fn add_watcher(
    conn: &mut Connection,
    public_key: &str,
    key: ApiKeyId,
    expires_at: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO fabric_watchers (public_key, api_key_id, expires_at) VALUES ($1, $2, $3)")
        .bind(public_key)
        .bind(key.to_string())
        .bind(expires_at.unix_ms())
        .execute(conn)
        .await
        .context("record fabric credentials")?;
    Ok(())
}

/// Revokes the credentials that were issued to an API key.
pub(super) async fn revoke_watchers(
    conn: &mut Connection,
    key: ApiKeyId,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO fabric_revocations (public_key, revoked_at) \
         SELECT public_key, $2 FROM fabric_watchers WHERE api_key_id = $1 AND expires_at > $2 \
         ON CONFLICT (public_key) DO UPDATE SET revoked_at = excluded.revoked_at",
    )
    .bind(key.to_string())
    .bind(now.unix_ms())
    .execute(conn)
    .await
    .context("revoke fabric credentials of an API key")?;
    Ok(())
}

/// All revocations, by public key.
pub(crate) async fn list(pool: &Pool) -> Result<Vec<Revocation>, StoreError> {
    let rows = sqlx::query("SELECT public_key, revoked_at FROM fabric_revocations ORDER BY public_key")
        .fetch_all(pool)
        .await
        .context("list revoked fabric credentials")?;
    rows.iter()
        .map(|row| {
            let public_key = row.try_get("public_key").context("read a column")?;
            Ok(Revocation { public_key, until: integer(row, "revoked_at")?.div_euclid(1000) })
        })
        .collect()
}

/// Forgets revocations of credentials that have expired, at the latest `life_ms` after they were issued.
pub(crate) async fn purge(conn: &mut Connection, now: Timestamp, life_ms: i64) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM fabric_revocations WHERE revoked_at <= $1")
        .bind(now.plus_ms(-life_ms).unix_ms())
        .execute(&mut *conn)
        .await
        .context("forget revocations")?;
    sqlx::query("DELETE FROM fabric_watchers WHERE expires_at <= $1")
        .bind(now.unix_ms())
        .execute(conn)
        .await
        .context("forget expired fabric credentials")?;
    Ok(())
}
