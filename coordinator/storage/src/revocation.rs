//! Users of the fabric whose credentials are revoked before they expire.

use island_protocol::{ids::ApiKeyId, time::Timestamp};
use sqlx::Row as _;

use super::{Connection, Pool, QueryContext as _, StoreError, integer};

/// Maximum error of a coordinator's clock for which a revocation takes effect.
const CLOCK_ERROR_MS: i64 = 3_600_000;

/// A revoked user: credentials that were issued until then are not valid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revocation {
    pub public_key: String,
    /// Unix seconds.
    pub until: i64,
}

/// Revokes the credentials of a user.
pub async fn revoke(conn: &mut Connection, public_key: &str, now: Timestamp) -> Result<(), StoreError> {
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
pub async fn allow(conn: &mut Connection, public_key: &str) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM fabric_revocations WHERE public_key = $1")
        .bind(public_key)
        .execute(conn)
        .await
        .context("allow fabric credentials")?;
    Ok(())
}

/// Records the user of credentials that were issued to an API key.
pub async fn add_watcher(
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
        // Those that have expired by this clock may be valid by another one. They are removed later.
        "INSERT INTO fabric_revocations (public_key, revoked_at) \
         SELECT public_key, $2 FROM fabric_watchers WHERE api_key_id = $1 \
         ON CONFLICT (public_key) DO UPDATE SET revoked_at = excluded.revoked_at",
    )
    .bind(key.to_string())
    .bind(now.unix_ms())
    .execute(conn)
    .await
    .context("revoke fabric credentials of an API key")?;
    Ok(())
}

/// All revocations, by public key. They include credentials that a coordinator issued whose clock was ahead of the one
/// that revoked them. An Island that returns is removed from the list, and a watcher has a new key each time.
pub async fn list(pool: &Pool) -> Result<Vec<Revocation>, StoreError> {
    let rows = sqlx::query("SELECT public_key, revoked_at FROM fabric_revocations ORDER BY public_key")
        .fetch_all(pool)
        .await
        .context("list revoked fabric credentials")?;
    rows.iter()
        .map(|row| {
            let public_key = row.try_get("public_key").context("read a column")?;
            let until = integer(row, "revoked_at")?.saturating_add(CLOCK_ERROR_MS);
            Ok(Revocation { public_key, until: until.div_euclid(1000) })
        })
        .collect()
}

/// Forgets revocations of credentials that have expired, at the latest `life_ms` after they were issued: by the clocks
/// of this coordinator, of the one that issued them and of the one that revoked them.
pub async fn purge(conn: &mut Connection, now: Timestamp, life_ms: i64) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM fabric_revocations WHERE revoked_at <= $1")
        .bind(now.plus_ms(-life_ms - 3 * CLOCK_ERROR_MS).unix_ms())
        .execute(&mut *conn)
        .await
        .context("forget revocations")?;
    sqlx::query("DELETE FROM fabric_watchers WHERE expires_at <= $1")
        .bind(now.plus_ms(-2 * CLOCK_ERROR_MS).unix_ms())
        .execute(conn)
        .await
        .context("forget expired fabric credentials")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, commit};
    use island_coordinator_domain::config::Database;

    const LIFE_MS: i64 = 600_000;

    #[tokio::test]
    async fn a_revocation_includes_credentials_of_clocks_that_differ() {
        let dir = tempfile::tempdir().expect("folder");
        let settings = Database { path: dir.path().join("island.db"), ..Database::default() };
        let store = Store::open(&settings).await.expect("database");
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        let mut tx = store.begin().await.expect("begun");
        revoke(&mut tx, "U1", now).await.expect("revoked");
        commit(tx).await.expect("committed");
        // Credentials whose coordinator's clock was an hour ahead have the time of their issue in this.
        let until = 1_700_000_000 + CLOCK_ERROR_MS / 1000;
        let listed = list(store.reader()).await.expect("listed");
        assert_eq!(listed, [Revocation { public_key: "U1".into(), until }]);
        // They expire an hour late by a clock that is right, and this clock may be ahead.
        let expired = LIFE_MS + 3 * CLOCK_ERROR_MS;
        for (passed, left) in [(LIFE_MS, 1), (expired - 1, 1), (expired, 0)] {
            let mut tx = store.begin().await.expect("begun");
            purge(&mut tx, now.plus_ms(passed), LIFE_MS).await.expect("purged");
            commit(tx).await.expect("committed");
            assert_eq!(list(store.reader()).await.expect("listed").len(), left, "{passed} ms later");
        }
        store.close().await;
    }
}
