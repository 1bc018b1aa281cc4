//! Islands that wait for their owner to confirm a pairing code.

use island_protocol::{ids::HostId, time::Timestamp};
use sqlx::Row as _;

use super::{Connection, QueryContext as _, StoreError, parsed, to_text};

/// An Island that waits for confirmation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub host: HostId,
    pub public_key: String,
    pub name: String,
}

/// Removes expired codes, and of the others those that expire first, until fewer than `max` remain: made-up Islands do
/// not keep an honest one from getting a code.
pub async fn make_room(conn: &mut Connection, max: i64, now: Timestamp) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM pairings WHERE expires_at <= $1")
        .bind(now.unix_ms())
        .execute(&mut *conn)
        .await
        .context("remove expired pairings")?;
    let row = sqlx::query("SELECT COUNT(*) AS waiting FROM pairings").fetch_one(&mut *conn).await;
    let waiting: i64 = row.context("count pairings")?.try_get("waiting").context("read a column")?;
    if waiting < max {
        return Ok(());
    }
    sqlx::query(
        "DELETE FROM pairings WHERE code IN (SELECT code FROM pairings ORDER BY expires_at, code LIMIT $1)",
    )
    .bind(waiting - max + 1)
    .execute(conn)
    .await
    .context("remove the oldest pairings")?;
    Ok(())
}

/// Stores an Island under a code and replaces its earlier one. Returns `false` if the code is in use.
pub async fn insert(
    conn: &mut Connection,
    code: &str,
    waiting: &Waiting,
    expires_at: Timestamp,
) -> Result<bool, StoreError> {
    sqlx::query("DELETE FROM pairings WHERE host_id = $1")
        .bind(waiting.host.to_string())
        .execute(&mut *conn)
        .await
        .context("remove an earlier pairing")?;
    let done = sqlx::query(
        "INSERT INTO pairings (code, host_id, public_key, name, expires_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (code) DO NOTHING",
    )
    .bind(code)
    .bind(waiting.host.to_string())
    .bind(&waiting.public_key)
    .bind(to_text(&waiting.name))
    .bind(expires_at.unix_ms())
    .execute(conn)
    .await
    .context("store a pairing")?;
    Ok(done.rows_affected() == 1)
}

/// Removes and returns the Island of a code, which is valid once.
pub async fn take(conn: &mut Connection, code: &str, now: Timestamp) -> Result<Option<Waiting>, StoreError> {
    let row = sqlx::query(
        "DELETE FROM pairings WHERE code = $1 AND expires_at > $2 RETURNING host_id, public_key, name",
    )
    .bind(code)
    .bind(now.unix_ms())
    .fetch_optional(conn)
    .await
    .context("take a pairing")?;
    let read = |row: super::Row| {
        Ok(Waiting {
            host: parsed(&row, "host_id")?,
            public_key: row.try_get("public_key").context("read a column")?,
            name: row.try_get("name").context("read a column")?,
        })
    };
    row.map(read).transpose()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{Store, commit};
    use island_coordinator_domain::config::Database;

    #[tokio::test]
    async fn the_oldest_code_makes_room_for_a_new_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let settings = Database { path: dir.path().join("island.db"), ..Database::default() };
        let store = Store::open(&settings).await.expect("database");
        let now = Timestamp::from_unix_ms(1_000_000);
        let mut tx = store.begin().await.expect("begun");
        for (code, expires) in [("OLD", 600), ("EXPIRED", 0), ("NEW", 700)] {
            let waiting =
                Waiting { host: HostId(Uuid::new_v4()), public_key: String::new(), name: String::new() };
            assert!(insert(&mut tx, code, &waiting, now.plus_ms(expires)).await.expect("inserted"));
        }
        make_room(&mut tx, 3, now).await.expect("room");
        make_room(&mut tx, 2, now).await.expect("room");
        assert!(take(&mut tx, "OLD", now).await.expect("taken").is_none());
        assert!(take(&mut tx, "NEW", now).await.expect("taken").is_some());
        commit(tx).await.expect("committed");
        store.close().await;
    }
}
