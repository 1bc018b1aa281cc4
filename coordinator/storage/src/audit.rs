//! The audit log: what operators did, and what owners ordered their Islands remotely. An entry is written by the transaction of its action, and never changed.

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, ApiKeyId, HostId, JobId, Slug},
    time::Timestamp,
};
use island_protocol_api::admin::{AdminAction, AuditEntry};
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

use super::{Connection, Pool, QueryContext as _, Row, StoreError, integer, optional, parsed, to_text};

/// An action, before it has an id and a time.
#[derive(Debug, Clone, Copy)]
pub struct Action<'a> {
    /// The operator; `None` for a command on the coordinator's machine.
    pub actor: Option<AccountId>,
    pub kind: AdminAction,
    pub account: AccountId,
    pub subject: Subject<'a>,
    pub amount: Option<MicroCredits>,
    pub reason: &'a str,
}

impl<'a> Action<'a> {
    /// What an operator did about an account as a whole.
    pub fn on_account(operator: AccountId, kind: AdminAction, account: AccountId, reason: &'a str) -> Self {
        Self { actor: Some(operator), kind, account, subject: Subject::Account, amount: None, reason }
    }
}

/// What an action was about, beside the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    /// The account as a whole.
    Account,
    Key(ApiKeyId),
    Host(HostId),
    Job(JobId),
    /// A Cargo that the account published.
    Cargo(&'a Slug),
    /// The whole network, or a Cargo, an invitation, a notice or a payout by its name. The account is the operator's.
    Network(&'a str),
}

impl Subject<'_> {
    fn text(self) -> Option<String> {
        match self {
            Self::Cargo(slug) => Some(slug.to_string()),
            Self::Network(name) if !name.is_empty() => Some(name.to_owned()),
            _ => None,
        }
    }

    /// The columns `api_key_id`, `host_id` and `job_id`.
    fn columns(self) -> [Option<String>; 3] {
        match self {
            Self::Account | Self::Cargo(_) | Self::Network(_) => [None, None, None],
            Self::Key(id) => [Some(id.to_string()), None, None],
            Self::Host(id) => [None, Some(id.to_string()), None],
            Self::Job(id) => [None, None, Some(id.to_string())],
        }
    }
}

/// Adds an entry.
pub async fn insert(conn: &mut Connection, action: &Action<'_>, now: Timestamp) -> Result<(), StoreError> {
    let [api_key, host, job] = action.subject.columns();
    sqlx::query(
        "INSERT INTO audit_log \
         (id, created_at, actor, action, account_id, api_key_id, host_id, job_id, amount, reason, subject) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(Uuid::now_v7().to_string())
    .bind(now.unix_ms())
    .bind(action.actor.map(|actor| actor.to_string()))
    .bind(action.kind.as_str())
    .bind(action.account.to_string())
    .bind(api_key)
    .bind(host)
    .bind(job)
    .bind(action.amount.map(|amount| amount.0))
    .bind(to_text(action.reason))
    .bind(action.subject.text())
    .execute(conn)
    .await
    .context("write the audit log")?;
    Ok(())
}

/// A page of the entries about one account, or about all, newest first, and their total number.
pub async fn page(
    pool: &Pool,
    account: Option<AccountId>,
    limit: u64,
    offset: u64,
) -> Result<(Vec<AuditEntry>, u64), StoreError> {
    let of = if account.is_some() { "WHERE account_id = $3" } else { "" };
    let statement = format!(
        "SELECT id, created_at, actor, action, account_id, api_key_id, host_id, job_id, amount, reason, subject \
         FROM audit_log {of} ORDER BY created_at DESC, id DESC LIMIT $1 OFFSET $2"
    );
    let query = sqlx::query(AssertSqlSafe(statement)).bind(limit as i64).bind(offset as i64);
    let query = if let Some(account) = account { query.bind(account.to_string()) } else { query };
    let rows = query.fetch_all(pool).await.context("read the audit log")?;
    let total = match account {
        Some(account) => {
            sqlx::query("SELECT COUNT(*) AS n FROM audit_log WHERE account_id = $1").bind(account.to_string())
        }
        None => sqlx::query("SELECT COUNT(*) AS n FROM audit_log"),
    };
    let total = integer(&total.fetch_one(pool).await.context("count the audit log")?, "n")?;
    let entries = rows.iter().map(entry).collect::<Result<_, _>>()?;
    Ok((entries, total.unsigned_abs()))
}

fn entry(row: &Row) -> Result<AuditEntry, StoreError> {
    let amount: Option<i64> = row.try_get("amount").context("read a column")?;
    Ok(AuditEntry {
        id: parsed(row, "id")?,
        created_at: Timestamp::from_unix_ms(integer(row, "created_at")?),
        actor: optional(row, "actor")?,
        action: row.try_get("action").context("read a column")?,
        account: parsed(row, "account_id")?,
        api_key: optional(row, "api_key_id")?,
        host: optional(row, "host_id")?,
        job: optional(row, "job_id")?,
        subject: row.try_get("subject").context("read a column")?,
        amount: amount.map(MicroCredits),
        reason: row.try_get("reason").context("read a column")?,
    })
}
