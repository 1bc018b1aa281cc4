//! Sign-ins at an OpenID Connect provider, and the people to whom accounts belong.

use island_protocol::{ids::AccountId, time::Timestamp};
use sqlx::Row as _;

use super::{Connection, Pool, QueryContext as _, StoreError, integer, optional, parsed, to_text};

/// Time for a sign-in.
const LIFE_MS: i64 = 10 * 60_000;
/// Maximum sign-ins that have begun and are not finished.
const MAX_OPEN: i64 = 1_000;

/// A sign-in that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// Hash of the state that the provider returns.
    pub state_hash: String,
    pub nonce: String,
    /// Proves to the provider that who began the sign-in also ends it.
    pub verifier: String,
    /// Port of this machine at which the program of the person waits.
    pub port: u16,
    /// Hash of what that program proves itself with.
    pub challenge: String,
}

/// Stores a sign-in. Returns `false` if too many have begun.
pub async fn begin(conn: &mut Connection, login: &Login, now: Timestamp) -> Result<bool, StoreError> {
    sqlx::query("DELETE FROM logins WHERE created_at <= $1")
        .bind(now.plus_ms(-LIFE_MS).unix_ms())
        .execute(&mut *conn)
        .await
        .context("remove old sign-ins")?;
    let done = sqlx::query(
        "INSERT INTO logins (id, nonce, verifier, port, challenge, created_at) SELECT $1, $2, $3, $4, $5, $6 \
         WHERE $7 > (SELECT COUNT(*) FROM logins)",
    )
    .bind(&login.state_hash)
    .bind(&login.nonce)
    .bind(&login.verifier)
    .bind(i64::from(login.port))
    .bind(to_text(&login.challenge))
    .bind(now.unix_ms())
    .bind(MAX_OPEN)
    .execute(conn)
    .await
    .context("begin a sign-in")?;
    Ok(done.rows_affected() == 1)
}

/// The sign-in that has begun with this state and was not confirmed yet.
pub async fn begun(pool: &Pool, state_hash: &str, now: Timestamp) -> Result<Option<Login>, StoreError> {
    let row = sqlx::query(
        "SELECT id, nonce, verifier, port, challenge FROM logins \
         WHERE id = $1 AND created_at > $2 AND code_hash IS NULL",
    )
    .bind(state_hash)
    .bind(now.plus_ms(-LIFE_MS).unix_ms())
    .fetch_optional(pool)
    .await
    .context("read a sign-in")?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Login {
        state_hash: row.try_get("id").context("read a column")?,
        nonce: row.try_get("nonce").context("read a column")?,
        verifier: row.try_get("verifier").context("read a column")?,
        port: u16::try_from(integer(&row, "port")?).map_err(|_| StoreError::Corrupt { what: "port" })?,
        challenge: row.try_get("challenge").context("read a column")?,
    }))
}

/// Records whom the provider confirmed, and the code for the program that waits. Returns `false` if it was confirmed
/// before.
pub async fn confirm(
    conn: &mut Connection,
    login: &Login,
    account: AccountId,
    code_hash: &str,
) -> Result<bool, StoreError> {
    let done =
        sqlx::query("UPDATE logins SET code_hash = $2, account_id = $3 WHERE id = $1 AND code_hash IS NULL")
            .bind(&login.state_hash)
            .bind(code_hash)
            .bind(account.to_string())
            .execute(conn)
            .await
            .context("confirm a sign-in")?;
    Ok(done.rows_affected() == 1)
}

/// Ends the sign-in of a code, once, for the program that began it. Returns its account.
pub async fn finish(
    conn: &mut Connection,
    code_hash: &str,
    challenge: &str,
    now: Timestamp,
) -> Result<Option<AccountId>, StoreError> {
    let row = sqlx::query(
        "DELETE FROM logins WHERE code_hash = $1 AND challenge = $2 AND created_at > $3 RETURNING account_id",
    )
    .bind(code_hash)
    .bind(challenge)
    .bind(now.plus_ms(-LIFE_MS).unix_ms())
    .fetch_optional(conn)
    .await
    .context("finish a sign-in")?;
    row.as_ref().map_or(Ok(None), |row| optional(row, "account_id"))
}

/// The account of a person.
pub async fn account_of(
    conn: &mut Connection,
    issuer: &str,
    subject: &str,
) -> Result<Option<AccountId>, StoreError> {
    let row = sqlx::query("SELECT account_id FROM identities WHERE issuer = $1 AND subject = $2")
        .bind(to_text(issuer))
        .bind(to_text(subject))
        .fetch_optional(conn)
        .await
        .context("find the account of a person")?;
    row.as_ref().map(|row| parsed(row, "account_id")).transpose()
}

/// Records whom an account belongs to.
pub async fn insert_identity(
    conn: &mut Connection,
    issuer: &str,
    subject: &str,
    account: AccountId,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO identities (issuer, subject, account_id, created_at) VALUES ($1, $2, $3, $4)")
        .bind(to_text(issuer))
        .bind(to_text(subject))
        .bind(account.to_string())
        .bind(now.unix_ms())
        .execute(conn)
        .await
        .context("record whom an account belongs to")?;
    Ok(())
}

/// Removes whom an account belongs to: at the next sign-in, the person gets another one.
pub(super) async fn delete_identities_of(
    conn: &mut Connection,
    account: AccountId,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM identities WHERE account_id = $1")
        .bind(account.to_string())
        .execute(conn)
        .await
        .context("remove whom an account belongs to")?;
    Ok(())
}
