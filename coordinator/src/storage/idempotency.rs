//! Requests that carried an `Idempotency-Key`, and what they made.

use island_protocol::{ids::AccountId, time::Timestamp};
use sqlx::Row as _;

use super::{Attempt as _, Connection, StoreError};

/// How long a record holds, milliseconds.
const KEPT_MS: i64 = 24 * 3_600_000;

/// `POST /jobs`, as records name it.
pub(crate) const JOBS: &str = "jobs";
/// `POST /chat/completions`.
pub(crate) const CHAT: &str = "chat";
/// `POST /images/generations`.
pub(crate) const IMAGES: &str = "images";
/// `POST /api-keys`.
pub(crate) const KEYS: &str = "api-keys";

/// A request that wants to happen once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub account: AccountId,
    /// Which endpoint: the same key elsewhere is another request.
    pub route: &'static str,
    pub key: &'a str,
    /// Of the body.
    pub fingerprint: &'a str,
}

/// What is known of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Known {
    /// It is the first; the record is written.
    New,
    /// It came before, and made this.
    Before(String),
    /// The key came before with another body.
    Reused,
}

/// Records that a request makes `made`, unless it came before.
pub(crate) async fn claim(
    conn: &mut Connection,
    claim: &Claim<'_>,
    made: &str,
    now: Timestamp,
) -> Result<Known, StoreError> {
    let done = sqlx::query(
        "INSERT INTO idempotency (account_id, route, idempotency_key, fingerprint, made, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (account_id, route, idempotency_key) DO UPDATE \
         SET fingerprint = excluded.fingerprint, made = excluded.made, created_at = excluded.created_at \
         WHERE idempotency.created_at <= $7",
    )
    .bind(claim.account.to_string())
    .bind(claim.route)
    .bind(claim.key)
    .bind(claim.fingerprint)
    .bind(made)
    .bind(now.unix_ms())
    .bind(now.plus_ms(-KEPT_MS).unix_ms())
    .execute(&mut *conn)
    .await
    .attempt("record an idempotency key")?;
    if done.rows_affected() == 1 {
        return Ok(Known::New);
    }
    let row = sqlx::query(
        "SELECT fingerprint, made FROM idempotency \
         WHERE account_id = $1 AND route = $2 AND idempotency_key = $3",
    )
    .bind(claim.account.to_string())
    .bind(claim.route)
    .bind(claim.key)
    .fetch_one(conn)
    .await
    .attempt("read an idempotency key")?;
    let fingerprint: String = row.try_get("fingerprint").attempt("read a column")?;
    if fingerprint != claim.fingerprint {
        return Ok(Known::Reused);
    }
    row.try_get("made").map(Known::Before).attempt("read a column")
}

/// Forgets the requests to `route` that made this.
pub(crate) async fn forget(conn: &mut Connection, route: &str, made: &str) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM idempotency WHERE made = $1 AND route = $2")
        .bind(made)
        .bind(route)
        .execute(conn)
        .await
        .attempt("forget an idempotency key")?;
    Ok(())
}

/// Removes records that hold no more.
pub(crate) async fn sweep(conn: &mut Connection, now: Timestamp) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM idempotency WHERE created_at <= $1")
        .bind(now.plus_ms(-KEPT_MS).unix_ms())
        .execute(conn)
        .await
        .attempt("sweep idempotency keys")?;
    Ok(())
}
