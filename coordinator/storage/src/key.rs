//! API keys: their hashes, scopes, limits and spending.

use std::{cmp::Reverse, collections::HashMap};

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, ApiKeyId, JobId},
    time::Timestamp,
};
use island_protocol_api::key::{KeyView, Scope};
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

use super::{
    Connection, Pool, QueryContext as _, Row, StoreError, batch::OPEN, integer, moment, parsed, revocation,
    to_text,
};
use island_coordinator_domain::secret::NewKey;

/// Name of the keys that sign-ins create.
pub const SIGN_IN: &str = "sign-in";
/// Keys of earlier sign-ins that an account keeps, and that one sign-in revokes at most.
const SIGN_INS: usize = 20;
const RETIRED: usize = 100;
/// Maximum keys of a list.
const LISTED: i64 = 1_000;

/// The scopes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scopes {
    read: bool,
    write: bool,
}

impl Scopes {
    /// All scopes.
    pub const ALL: Self = Self { read: true, write: true };

    /// Whether `scope` is included.
    pub fn allow(self, scope: Scope) -> bool {
        match scope {
            Scope::Read => self.read,
            Scope::Write => self.write,
        }
    }

    /// The scopes in their usual order.
    pub fn list(self) -> Vec<Scope> {
        Scope::ALL.iter().copied().filter(|scope| self.allow(*scope)).collect()
    }

    /// Parses `read,write` or a part of it. Returns `None` for other text, including the empty one.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut scopes = Self { read: false, write: false };
        for name in names {
            match name.trim().parse().ok()? {
                Scope::Read => scopes.read = true,
                Scope::Write => scopes.write = true,
            }
        }
        (scopes.read || scopes.write).then_some(scopes)
    }

    fn to_text(self) -> String {
        self.list().into_iter().map(Scope::as_str).collect::<Vec<_>>().join(",")
    }

    fn read(row: &Row) -> Result<Self, StoreError> {
        let text: String = row.try_get("scopes").context("read a column")?;
        Self::from_names(text.split(',')).ok_or(StoreError::Corrupt { what: "scopes" })
    }
}

/// A key as it is stored.
#[derive(Debug, Clone)]
pub struct StoredKey<'a> {
    pub id: ApiKeyId,
    pub account: AccountId,
    pub name: &'a str,
    pub prefix: &'a str,
    pub hash: &'a str,
    pub scopes: Scopes,
    pub expires_at: Option<Timestamp>,
    pub spend_cap: Option<MicroCredits>,
    /// The capped key whose cap contains this key's cap.
    pub parent: Option<ApiKeyId>,
    pub created_at: Timestamp,
}

impl<'a> StoredKey<'a> {
    /// A new key with all scopes and no limits.
    pub fn unlimited(account: AccountId, name: &'a str, new: &'a NewKey, now: Timestamp) -> Self {
        Self {
            id: ApiKeyId(Uuid::now_v7()),
            account,
            name,
            prefix: &new.prefix,
            hash: &new.hash,
            scopes: Scopes::ALL,
            expires_at: None,
            spend_cap: None,
            parent: None,
            created_at: now,
        }
    }
}

/// The account of a key and the key's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHolder {
    pub key: ApiKeyId,
    pub account: AccountId,
    pub operator: bool,
    /// Whether an operator has suspended the account.
    pub suspended: bool,
    pub scopes: Scopes,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    pub spend_cap: Option<MicroCredits>,
    /// Whether the account or the key has quotas.
    pub has_quotas: bool,
}

fn credits(row: &Row, column: &'static str) -> Result<Option<MicroCredits>, StoreError> {
    let amount: Option<i64> = row.try_get(column).context("read a column")?;
    Ok(amount.map(MicroCredits))
}

/// Adds a key.
pub async fn insert(conn: &mut Connection, key: &StoredKey<'_>) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO api_keys (id, account_id, name, prefix, hash, scopes, expires_at, spend_cap, parent_id, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(key.id.to_string())
    .bind(key.account.to_string())
    .bind(to_text(key.name))
    .bind(key.prefix)
    .bind(key.hash)
    .bind(key.scopes.to_text())
    .bind(key.expires_at.map(Timestamp::unix_ms))
    .bind(key.spend_cap.map(|cap| cap.0))
    .bind(key.parent.map(|parent| parent.to_string()))
    .bind(key.created_at.unix_ms())
    .execute(conn)
    .await
    .context("insert an API key")?;
    Ok(())
}

/// What [`holder`] reads, and where from.
const HOLDER: &str = "SELECT k.id, k.account_id, k.scopes, k.expires_at, k.last_used_at, k.spend_cap, a.operator, a.suspended_at, \
     (SELECT COUNT(*) FROM quotas q WHERE q.holder IN (k.id, a.id)) AS quotas \
     FROM api_keys k JOIN accounts a ON a.id = k.account_id ";

/// Finds the key of this prefix and hash that is not revoked. Called for every request: a committed revocation takes
/// effect everywhere at once.
pub async fn find(pool: &Pool, prefix: &str, hash: &str) -> Result<Option<KeyHolder>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!(
        "{HOLDER} WHERE k.hash = $1 AND k.prefix = $2 AND k.revoked_at IS NULL"
    )))
    .bind(hash)
    .bind(prefix)
    .fetch_optional(pool)
    .await
    .context("find an API key")?;
    row.as_ref().map(holder).transpose()
}

/// Reads the holder of a key that is not revoked.
pub async fn holder_of(pool: &Pool, id: ApiKeyId) -> Result<Option<KeyHolder>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!("{HOLDER} WHERE k.id = $1 AND k.revoked_at IS NULL")))
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("read the holder of an API key")?;
    row.as_ref().map(holder).transpose()
}

/// Finds the key for which a session acts, if neither has ended. `hash` is that of the session's token.
pub async fn of_session(pool: &Pool, hash: &str, now: Timestamp) -> Result<Option<KeyHolder>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!(
        "{HOLDER} JOIN sessions s ON s.api_key_id = k.id \
         WHERE s.hash = $1 AND s.expires_at > $2 AND k.revoked_at IS NULL"
    )))
    .bind(hash)
    .bind(now.unix_ms())
    .fetch_optional(pool)
    .await
    .context("find the key of a session")?;
    row.as_ref().map(holder).transpose()
}

fn holder(row: &Row) -> Result<KeyHolder, StoreError> {
    Ok(KeyHolder {
        key: parsed(row, "id")?,
        account: parsed(row, "account_id")?,
        operator: row.try_get::<i64, _>("operator").context("read a column")? != 0,
        suspended: moment(row, "suspended_at")?.is_some(),
        scopes: Scopes::read(row)?,
        expires_at: moment(row, "expires_at")?,
        last_used_at: moment(row, "last_used_at")?,
        spend_cap: credits(row, "spend_cap")?,
        has_quotas: integer(row, "quotas")? > 0,
    })
}

fn view(row: &Row) -> Result<KeyView, StoreError> {
    Ok(KeyView {
        id: parsed(row, "id")?,
        name: row.try_get("name").context("read a column")?,
        prefix: row.try_get("prefix").context("read a column")?,
        scopes: Scopes::read(row)?.list(),
        created_at: moment(row, "created_at")?.ok_or(StoreError::Corrupt { what: "created_at" })?,
        last_used_at: moment(row, "last_used_at")?,
        expires_at: moment(row, "expires_at")?,
        spend_cap: credits(row, "spend_cap")?,
        spent: credits(row, "spent")?.unwrap_or_default(),
    })
}

/// An account's keys that are not revoked, oldest first. Of more than [`LISTED`], the newest that have not expired are
/// preferred.
pub async fn list(pool: &Pool, account: AccountId, now: Timestamp) -> Result<Vec<KeyView>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, name, prefix, scopes, created_at, last_used_at, expires_at, spend_cap, spent FROM (\
         SELECT * FROM api_keys WHERE account_id = $1 AND revoked_at IS NULL \
         ORDER BY CASE WHEN expires_at <= $2 THEN 1 ELSE 0 END, created_at DESC, id DESC LIMIT $3) k \
         ORDER BY created_at, id",
    )
    .bind(account.to_string())
    .bind(now.unix_ms())
    .bind(LISTED)
    .fetch_all(pool)
    .await
    .context("list API keys")?;
    rows.iter().map(view).collect()
}

/// Revokes keys of an account's earlier sign-ins, since each leaves one: those that have expired, and of the others all but
/// those that were used last. A key with which a batch runs stays.
pub async fn retire_sign_ins(
    conn: &mut Connection,
    account: AccountId,
    now: Timestamp,
) -> Result<(), StoreError> {
    let rows = sqlx::query(AssertSqlSafe(format!(
        "SELECT k.id, k.expires_at FROM api_keys k WHERE k.account_id = $1 AND k.name = '{SIGN_IN}' \
         AND k.revoked_at IS NULL AND k.spend_cap IS NULL AND NOT EXISTS (SELECT 1 FROM batches b \
         WHERE b.account_id = k.account_id AND b.api_key_id = k.id AND {OPEN}) \
         ORDER BY COALESCE(k.last_used_at, k.created_at) DESC, k.created_at DESC, k.id DESC"
    )))
    .bind(account.to_string())
    .fetch_all(&mut *conn)
    .await
    .context("list the keys of sign-ins")?;
    let mut keys = Vec::new();
    for row in &rows {
        let id: ApiKeyId = parsed(row, "id")?;
        keys.push((id, moment(row, "expires_at")?));
    }
    for id in retired(&keys, now) {
        sqlx::query("UPDATE api_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL")
            .bind(id.to_string())
            .bind(now.unix_ms())
            .execute(&mut *conn)
            .await
            .context("revoke the key of a sign-in")?;
        revocation::revoke_watchers(conn, id, now).await?;
    }
    Ok(())
}

/// Which keys of sign-ins are revoked at the next one, of keys with the times at which they expire, the last used first.
/// Newer keys come before older ones, as in every transaction that writes several.
fn retired(keys: &[(ApiKeyId, Option<Timestamp>)], now: Timestamp) -> Vec<ApiKeyId> {
    let (accepted, expired): (Vec<_>, Vec<_>) =
        keys.iter().copied().partition(|(_, end)| end.is_none_or(|end| end > now));
    let mut retired: Vec<ApiKeyId> =
        expired.into_iter().chain(accepted.into_iter().skip(SIGN_INS)).map(|(id, _)| id).collect();
    // The others follow at the next sign-in, so that no transaction is long.
    retired.truncate(RETIRED);
    retired.sort_unstable_by_key(|id| Reverse(*id));
    retired
}

/// One key, revoked or not.
pub async fn get(pool: &Pool, id: ApiKeyId) -> Result<Option<KeyView>, StoreError> {
    let row = sqlx::query(
        "SELECT id, name, prefix, scopes, created_at, last_used_at, expires_at, spend_cap, spent FROM api_keys \
         WHERE id = $1",
    )
    .bind(id.to_string())
    .fetch_optional(pool)
    .await
    .context("read an API key")?;
    row.as_ref().map(view).transpose()
}

/// The account of a key that is not revoked.
pub async fn account_of(pool: &Pool, id: ApiKeyId) -> Result<Option<AccountId>, StoreError> {
    let row = sqlx::query("SELECT account_id FROM api_keys WHERE id = $1 AND revoked_at IS NULL")
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("find the account of an API key")?;
    row.as_ref().map(|row| parsed(row, "account_id")).transpose()
}

/// Result of spending with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spending {
    /// The amount is deducted.
    Taken,
    /// The cap leaves less than the amount.
    Capped { cap: MicroCredits, left: MicroCredits },
    /// The key was revoked meanwhile.
    Revoked,
}

/// Deducts an amount from a key's cap.
pub async fn spend(
    conn: &mut Connection,
    id: ApiKeyId,
    amount: MicroCredits,
) -> Result<Spending, StoreError> {
    let done = sqlx::query(
        "UPDATE api_keys SET spent = spent + $2 \
         WHERE id = $1 AND revoked_at IS NULL AND (spend_cap IS NULL OR spent + $2 <= spend_cap)",
    )
    .bind(id.to_string())
    .bind(amount.0)
    .execute(&mut *conn)
    .await
    .context("spend with an API key")?;
    if done.rows_affected() == 1 {
        return Ok(Spending::Taken);
    }
    let row = sqlx::query("SELECT spend_cap, spent FROM api_keys WHERE id = $1 AND revoked_at IS NULL")
        .bind(id.to_string())
        .fetch_optional(conn)
        .await
        .context("read the cap of an API key")?;
    let Some(row) = row else { return Ok(Spending::Revoked) };
    let cap = credits(&row, "spend_cap")?.unwrap_or_default();
    let spent = credits(&row, "spent")?.unwrap_or_default();
    Ok(Spending::Capped { cap, left: MicroCredits((cap.0 - spent.0).max(0)) })
}

/// Returns an amount to a key's cap.
pub async fn refund(conn: &mut Connection, id: &str, amount: MicroCredits) -> Result<(), StoreError> {
    sqlx::query("UPDATE api_keys SET spent = spent - $2 WHERE id = $1")
        .bind(id)
        .bind(amount.0)
        .execute(conn)
        .await
        .context("refund the cap of an API key")?;
    Ok(())
}

/// Returns the part of a job's price that was not charged to the cap of its key, or of the key that took over the cap
/// when that key was revoked.
pub async fn refund_job(conn: &mut Connection, job: JobId, amount: MicroCredits) -> Result<(), StoreError> {
    if amount == MicroCredits::ZERO {
        return Ok(());
    }
    let row = sqlx::query("SELECT api_key_id FROM jobs WHERE id = $1")
        .bind(job.to_string())
        .fetch_one(&mut *conn)
        .await
        .context("read the API key of a job")?;
    let key: Option<String> = row.try_get("api_key_id").context("read a column")?;
    let Some(key) = key else { return Ok(()) };
    if let Some(holder) = holder_of_cap(conn, key).await? {
        refund(conn, &holder, amount).await?;
    }
    Ok(())
}

/// The first key among this one and those that made it, from child to parent, that is not revoked. The cap of a revoked
/// key is part of its parent's.
async fn holder_of_cap(conn: &mut Connection, key: String) -> Result<Option<String>, StoreError> {
    let mut next = Some(key);
    while let Some(id) = next {
        let row = sqlx::query("SELECT parent_id, revoked_at FROM api_keys WHERE id = $1")
            .bind(&id)
            .fetch_optional(&mut *conn)
            .await
            .context("find the holder of a cap")?;
        let Some(row) = row else { return Ok(None) };
        if moment(&row, "revoked_at")?.is_none() {
            return Ok(Some(id));
        }
        next = row.try_get("parent_id").context("read a column")?;
    }
    Ok(None)
}

/// Result of a revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoked {
    /// The key is revoked now.
    Yes,
    /// The account has no such key, or it is revoked already.
    Unknown,
    /// The caller's key has a cap and did not make this one.
    NotAllowed,
}

/// Revokes an account's key; the rest of its cap returns to the nearest key above it that is not revoked. A capped key
/// may revoke itself and keys below it. Fabric credentials that were made with the key are revoked as well.
pub async fn revoke(
    conn: &mut Connection,
    account: AccountId,
    caller: ApiKeyId,
    id: ApiKeyId,
    now: Timestamp,
) -> Result<Revoked, StoreError> {
    if !may_revoke(conn, caller, id).await? {
        return Ok(Revoked::NotAllowed);
    }
    let row = sqlx::query(
        "UPDATE api_keys SET revoked_at = $3 WHERE id = $1 AND account_id = $2 AND revoked_at IS NULL \
         RETURNING spend_cap, spent, parent_id",
    )
    .bind(id.to_string())
    .bind(account.to_string())
    .bind(now.unix_ms())
    .fetch_optional(&mut *conn)
    .await
    .context("revoke an API key")?;
    let Some(row) = row else { return Ok(Revoked::Unknown) };
    let parent: Option<String> = row.try_get("parent_id").context("read a column")?;
    let spent = credits(&row, "spent")?.unwrap_or_default();
    if let (Some(parent), Some(cap)) = (parent, credits(&row, "spend_cap")?)
        && let Some(holder) = holder_of_cap(conn, parent).await?
    {
        refund(conn, &holder, cap - spent).await?;
    }
    revocation::revoke_watchers(conn, id, now).await?;
    Ok(Revoked::Yes)
}

/// Revokes all keys of an account.
pub async fn revoke_all(conn: &mut Connection, account: AccountId, now: Timestamp) -> Result<(), StoreError> {
    sqlx::query("UPDATE api_keys SET revoked_at = $2 WHERE account_id = $1 AND revoked_at IS NULL")
        .bind(account.to_string())
        .bind(now.unix_ms())
        .execute(conn)
        .await
        .context("revoke the keys of an account")?;
    Ok(())
}

/// Whether a key may revoke another: one without a cap may revoke all of its account, one with a cap itself and those
/// that it made, directly or not.
async fn may_revoke(conn: &mut Connection, caller: ApiKeyId, id: ApiKeyId) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT spend_cap FROM api_keys WHERE id = $1")
        .bind(caller.to_string())
        .fetch_optional(&mut *conn)
        .await
        .context("read the cap of an API key")?;
    if row.as_ref().map_or(Ok(None), |row| credits(row, "spend_cap"))?.is_none() {
        return Ok(true);
    }
    let caller = caller.to_string();
    let mut next = Some(id.to_string());
    while let Some(id) = next {
        if id == caller {
            return Ok(true);
        }
        let row = sqlx::query("SELECT parent_id FROM api_keys WHERE id = $1")
            .bind(&id)
            .fetch_optional(&mut *conn)
            .await
            .context("read what made an API key")?;
        next = match row {
            Some(row) => row.try_get("parent_id").context("read a column")?,
            None => None,
        };
    }
    Ok(false)
}

/// Records when keys were last used.
pub async fn used(conn: &mut Connection, uses: &HashMap<ApiKeyId, Timestamp>) -> Result<(), StoreError> {
    // Rows are written in one order everywhere, newer before older as in a revocation, so that transactions cannot
    // deadlock.
    let mut uses: Vec<_> = uses.iter().collect();
    uses.sort_unstable_by_key(|(id, _)| Reverse(**id));
    for (id, at) in uses {
        sqlx::query(
            "UPDATE api_keys SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)",
        )
        .bind(id.to_string())
        .bind(at.unix_ms())
        .execute(&mut *conn)
        .await
        .context("record the use of an API key")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_revokes_expired_keys_and_all_but_the_last_used_ones() {
        let now = Timestamp::from_unix_ms(1_000);
        let id = |number: usize| ApiKeyId(Uuid::from_u128(number as u128));
        let key = |number, end: Option<i64>| (id(number), end.map(Timestamp::from_unix_ms));
        let mut keys: Vec<_> = (0..SIGN_INS + 2).rev().map(|number| key(number, None)).collect();
        keys.insert(3, key(50, Some(1_000)));
        keys.insert(4, key(51, Some(1_001)));
        let gone = retired(&keys, now);
        assert_eq!(gone, [id(50), id(2), id(1), id(0)], "newer keys are written first");
        keys.retain(|(id, _)| !gone.contains(id));
        assert_eq!(keys.len(), SIGN_INS);
        assert!(retired(&keys, now).is_empty());
        let expired: Vec<_> = (0..=RETIRED).map(|number| key(number, Some(1))).collect();
        assert_eq!(retired(&expired, now).len(), RETIRED);
    }

    #[test]
    fn scopes_are_read_as_they_are_written() {
        for names in ["read", "write", "read,write"] {
            let scopes = Scopes::from_names(names.split(',')).expect("scopes");
            assert_eq!(scopes.to_text(), names);
        }
        assert_eq!(Scopes::from_names(["write", " read"]), Some(Scopes::ALL));
        for bad in ["", "admin", "read,", "READ"] {
            assert_eq!(Scopes::from_names(bad.split(',')), None, "{bad}");
        }
    }
}
