//! Invitations, and the accounts that were created with them.

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, InvitationId},
    time::Timestamp,
};
use island_protocol_api::signup::Invitation;
use sqlx::{AssertSqlSafe, Row as _};

use super::{Connection, Pool, QueryContext as _, Row, StoreError, integer, moment, parsed, to_text};

const COLUMNS: &str = "id, credits, uses, used, reason, created_at, expires_at, revoked_at";

fn read(row: &Row) -> Result<Invitation, StoreError> {
    let count =
        |column| u32::try_from(integer(row, column)?).map_err(|_| StoreError::Corrupt { what: column });
    Ok(Invitation {
        id: parsed(row, "id")?,
        credits: MicroCredits(integer(row, "credits")?),
        uses: count("uses")?,
        used: count("used")?,
        reason: row.try_get("reason").context("read a column")?,
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        expires_at: moment(row, "expires_at")?,
        revoked_at: moment(row, "revoked_at")?,
    })
}

/// Adds an invitation, of whose code only the hash is stored.
pub async fn insert(
    conn: &mut Connection,
    invitation: &Invitation,
    code_hash: &str,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO invitations (id, code_hash, credits, uses, reason, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(invitation.id.to_string())
    .bind(code_hash)
    .bind(invitation.credits.0)
    .bind(i64::from(invitation.uses))
    .bind(to_text(&invitation.reason))
    .bind(invitation.created_at.unix_ms())
    .bind(invitation.expires_at.map(Timestamp::unix_ms))
    .execute(conn)
    .await
    .context("insert an invitation")?;
    Ok(())
}

/// One invitation.
pub async fn get(pool: &Pool, id: InvitationId) -> Result<Option<Invitation>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!("SELECT {COLUMNS} FROM invitations WHERE id = $1")))
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("read an invitation")?;
    row.as_ref().map(read).transpose()
}

/// A page of the invitations, newest first, and their total number.
pub async fn page(pool: &Pool, limit: u64, offset: u64) -> Result<(Vec<Invitation>, u64), StoreError> {
    let statement =
        format!("SELECT {COLUMNS} FROM invitations ORDER BY created_at DESC, id DESC LIMIT $1 OFFSET $2");
    let rows = sqlx::query(AssertSqlSafe(statement))
        .bind(limit as i64)
        .bind(offset as i64)
        .fetch_all(pool)
        .await
        .context("list invitations")?;
    let row = sqlx::query("SELECT COUNT(*) AS n FROM invitations").fetch_one(pool).await;
    let total = integer(&row.context("count invitations")?, "n")?;
    Ok((rows.iter().map(read).collect::<Result<_, _>>()?, total.unsigned_abs()))
}

/// Makes an invitation invalid. Returns `false` if it is unknown or was revoked before.
pub async fn revoke(conn: &mut Connection, id: InvitationId, now: Timestamp) -> Result<bool, StoreError> {
    let done = sqlx::query("UPDATE invitations SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL")
        .bind(id.to_string())
        .bind(now.unix_ms())
        .execute(conn)
        .await
        .context("revoke an invitation")?;
    Ok(done.rows_affected() == 1)
}

/// Uses an invitation once. Returns it as it is afterwards, or `None` if there is no valid one with this code.
pub async fn take(
    conn: &mut Connection,
    code_hash: &str,
    now: Timestamp,
) -> Result<Option<Invitation>, StoreError> {
    let row = sqlx::query(AssertSqlSafe(format!(
        "UPDATE invitations SET used = used + 1 WHERE code_hash = $1 AND revoked_at IS NULL AND used < uses \
         AND (expires_at IS NULL OR expires_at > $2) RETURNING {COLUMNS}"
    )))
    .bind(code_hash)
    .bind(now.unix_ms())
    .fetch_optional(conn)
    .await
    .context("use an invitation")?;
    row.as_ref().map(read).transpose()
}

/// Records that an account was created with an invitation.
pub async fn record(
    conn: &mut Connection,
    account: AccountId,
    invitation: InvitationId,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO signups (account_id, invitation_id) VALUES ($1, $2)")
        .bind(account.to_string())
        .bind(invitation.to_string())
        .execute(conn)
        .await
        .context("record a sign-up")?;
    Ok(())
}

/// The account with this e-mail address that was created with the invitation of this code, if none of its keys was ever
/// used. Only for an invitation that is for one account, since others may have the code of another one, and that is neither
/// revoked nor expired.
pub async fn unused_signup(
    conn: &mut Connection,
    code_hash: &str,
    email: &str,
    now: Timestamp,
) -> Result<Option<AccountId>, StoreError> {
    let row = sqlx::query(
        "SELECT a.id FROM accounts a JOIN signups s ON s.account_id = a.id JOIN invitations i ON i.id = s.invitation_id \
         WHERE a.email = $1 AND i.code_hash = $2 AND i.uses = 1 \
         AND i.revoked_at IS NULL AND (i.expires_at IS NULL OR i.expires_at > $3) \
         AND NOT EXISTS (SELECT 1 FROM api_keys k WHERE k.account_id = a.id AND k.last_used_at IS NOT NULL)",
    )
    .bind(to_text(email))
    .bind(code_hash)
    .bind(now.unix_ms())
    .fetch_optional(conn)
    .await
    .context("find a sign-up")?;
    row.as_ref().map(|row| parsed(row, "id")).transpose()
}
