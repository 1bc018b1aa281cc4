//! Islands that wait for their owner to confirm a code.

use island_protocol::{ids::HostId, time::Timestamp};
use sqlx::Row as _;

use super::{Attempt as _, Connection, StoreError, parsed, to_text};

/// An Island that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub host: HostId,
    pub public_key: String,
    pub name: String,
}

/// How many wait.
pub(crate) async fn count(conn: &mut Connection, now: Timestamp) -> Result<i64, StoreError> {
    sqlx::query("DELETE FROM pairings WHERE expires_at <= $1")
        .bind(now.unix_ms())
        .execute(&mut *conn)
        .await
        .attempt("forget old pairings")?;
    let row = sqlx::query("SELECT COUNT(*) AS waiting FROM pairings").fetch_one(conn).await;
    row.attempt("count pairings")?.try_get("waiting").attempt("read a column")
}

/// Notes one under a code, in place of an earlier one of the same Island. False: the code is somebody else's.
pub(crate) async fn insert(
    conn: &mut Connection,
    code: &str,
    waiting: &Waiting,
    expires_at: Timestamp,
) -> Result<bool, StoreError> {
    sqlx::query("DELETE FROM pairings WHERE host_id = $1")
        .bind(waiting.host.to_string())
        .execute(&mut *conn)
        .await
        .attempt("forget an earlier pairing")?;
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
    .attempt("note a pairing")?;
    Ok(done.rows_affected() == 1)
}

/// Takes the Island of a code; a code is good for once.
pub(crate) async fn take(
    conn: &mut Connection,
    code: &str,
    now: Timestamp,
) -> Result<Option<Waiting>, StoreError> {
    let row = sqlx::query(
        "DELETE FROM pairings WHERE code = $1 AND expires_at > $2 RETURNING host_id, public_key, name",
    )
    .bind(code)
    .bind(now.unix_ms())
    .fetch_optional(conn)
    .await
    .attempt("take a pairing")?;
    let read = |row: super::Row| {
        Ok(Waiting {
            host: parsed(&row, "host_id")?,
            public_key: row.try_get("public_key").attempt("read a column")?,
            name: row.try_get("name").attempt("read a column")?,
        })
    };
    row.map(read).transpose()
}
