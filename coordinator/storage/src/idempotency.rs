//! Requests with an `Idempotency-Key`, and the job or key that each created.

use island_protocol::{ids::AccountId, time::Timestamp};
use sqlx::{AssertSqlSafe, Row as _};

use super::{Connection, Pool, QueryContext as _, StoreError, batch::OPEN};
use island_coordinator_domain::batch::line::KEY_BEGIN;

/// Name of `POST /jobs` in records.
pub const JOBS: &str = "jobs";
/// `POST /chat/completions`.
pub const CHAT: &str = "chat";
/// `POST /messages`.
pub const MESSAGES: &str = "messages";
/// `POST /responses`.
pub const RESPONSES: &str = "responses";
/// `POST /completions`.
pub const COMPLETIONS: &str = "completions";
/// `POST /images/generations`.
pub const IMAGES: &str = "images";
/// `POST /embeddings`.
pub const EMBEDDINGS: &str = "embeddings";
/// `POST /batches`.
pub const BATCHES: &str = "batches";
/// `POST /api-keys`.
pub const KEYS: &str = "api-keys";
/// `POST /publications`.
pub const PUBLICATIONS: &str = "publications";

/// `POST /admin/accounts`.
pub const ADMIN_ACCOUNTS: &str = "admin/accounts";
/// `POST /admin/accounts/:id/grants`.
pub const GRANTS: &str = "admin/grants";
/// `POST /admin/accounts/:id/deductions`.
pub const DEDUCTIONS: &str = "admin/deductions";

/// `POST /admin/invitations`.
pub const INVITATIONS: &str = "admin/invitations";
/// `POST /admin/payouts`.
pub const PAYOUTS: &str = "admin/payouts";
/// Requests that wait for their job: if it is cancelled before any output, because the client disconnected, the key may be used again.
pub(crate) const OF_UNREAD_JOBS: [&str; 6] = [CHAT, MESSAGES, RESPONSES, COMPLETIONS, EMBEDDINGS, IMAGES];

/// A request with an idempotency key.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    pub account: AccountId,
    /// The endpoint. The same key at another endpoint is a separate request.
    pub route: &'static str,
    pub key: &'a str,
    /// Fingerprint of the body.
    pub fingerprint: &'a str,
    /// Life of a record, milliseconds.
    pub life_ms: i64,
}

/// Result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// The request is the first one; its record is written.
    New,
    /// The request was made before and created this.
    Existing(String),
    /// The key was used before with another body.
    Reused,
}

/// Records that a request creates `made`, unless it was made before.
pub async fn claim(
    conn: &mut Connection,
    claim: &Claim<'_>,
    made: &str,
    now: Timestamp,
) -> Result<Claimed, StoreError> {
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
    .bind(now.plus_ms(-claim.life_ms).unix_ms())
    .execute(&mut *conn)
    .await
    .context("record an idempotency key")?;
    if done.rows_affected() == 1 {
        return Ok(Claimed::New);
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
    .context("read an idempotency key")?;
    let fingerprint: String = row.try_get("fingerprint").context("read a column")?;
    if fingerprint != claim.fingerprint {
        return Ok(Claimed::Reused);
    }
    row.try_get("made").map(Claimed::Existing).context("read a column")
}

/// Whether a request with this key was made before. The record may have expired since.
pub async fn exists(pool: &Pool, claim: &Claim<'_>) -> Result<bool, StoreError> {
    let row = sqlx::query(
        "SELECT made FROM idempotency WHERE account_id = $1 AND route = $2 AND idempotency_key = $3",
    )
    .bind(claim.account.to_string())
    .bind(claim.route)
    .bind(claim.key)
    .fetch_optional(pool)
    .await
    .context("find an idempotency key")?;
    Ok(row.is_some())
}

/// Removes the records of requests to `route` that created `made`.
pub async fn remove(conn: &mut Connection, route: &str, made: &str) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM idempotency WHERE made = $1 AND route = $2")
        .bind(made)
        .bind(route)
        .execute(conn)
        .await
        .context("remove an idempotency key")?;
    Ok(())
}

/// Removes records that were made until `expired`. Those of the lines of a batch stay until it has ended: whatever time that
/// takes, no line is run and paid again.
pub async fn purge(conn: &mut Connection, expired: Timestamp) -> Result<(), StoreError> {
    // Where the id of the batch begins in the key; it is a UUID.
    let begin = KEY_BEGIN.len() + 1;
    let statement = format!(
        "DELETE FROM idempotency WHERE created_at <= $1 AND (idempotency_key NOT LIKE '{KEY_BEGIN}%' \
         OR NOT EXISTS (SELECT 1 FROM batches b WHERE b.id = SUBSTR(idempotency.idempotency_key, {begin}, 36) \
         AND b.account_id = idempotency.account_id AND {OPEN}))"
    );
    sqlx::query(AssertSqlSafe(statement))
        .bind(expired.unix_ms())
        .execute(conn)
        .await
        .context("purge idempotency keys")?;
    Ok(())
}
