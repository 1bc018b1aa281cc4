//! API keys: hashes only.

use island_protocol::{
    ids::{AccountId, ApiKeyId},
    time::Timestamp,
};
use sqlx::Row as _;

use super::{Attempt as _, Connection, Pool, StoreError, parsed, to_text};

/// A key as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct StoredKey<'a> {
    pub id: ApiKeyId,
    pub account: AccountId,
    pub name: &'a str,
    pub prefix: &'a str,
    pub hash: &'a str,
    pub created_at: Timestamp,
}

/// Who a key speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyOwner {
    pub key: ApiKeyId,
    pub account: AccountId,
    pub operator: bool,
}

/// Adds a key.
pub(crate) async fn insert(conn: &mut Connection, key: &StoredKey<'_>) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO api_keys (id, account_id, name, prefix, hash, created_at) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(key.id.to_string())
    .bind(key.account.to_string())
    .bind(to_text(key.name))
    .bind(key.prefix)
    .bind(key.hash)
    .bind(key.created_at.unix_ms())
    .execute(conn)
    .await
    .attempt("insert an API key")?;
    Ok(())
}

/// The owner of the unrevoked key of this prefix and hash.
pub(crate) async fn find(pool: &Pool, prefix: &str, hash: &str) -> Result<Option<KeyOwner>, StoreError> {
    let row = sqlx::query(
        "SELECT k.id, k.account_id, a.operator FROM api_keys k JOIN accounts a ON a.id = k.account_id \
         WHERE k.prefix = $1 AND k.hash = $2 AND k.revoked_at IS NULL",
    )
    .bind(prefix)
    .bind(hash)
    .fetch_optional(pool)
    .await
    .attempt("look an API key up")?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(KeyOwner {
        key: parsed(&row, "id")?,
        account: parsed(&row, "account_id")?,
        operator: row.try_get::<i64, _>("operator").attempt("read a column")? != 0,
    }))
}
