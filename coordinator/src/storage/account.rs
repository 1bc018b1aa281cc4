//! Accounts.

use std::collections::BTreeSet;

use island_protocol::{ids::AccountId, time::Timestamp};
use sqlx::Row as _;

use super::{Connection, Pool, QueryContext as _, Row, StoreError, ledger, parsed, to_text};

/// An account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub id: AccountId,
    pub email: String,
    pub operator: bool,
    pub created_at: Timestamp,
}

impl Account {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: parsed(row, "id")?,
            email: row.try_get("email").context("read a column")?,
            operator: row.try_get::<i64, _>("operator").context("read a column")? != 0,
            created_at: Timestamp::from_unix_ms(row.try_get("created_at").context("read a column")?),
        })
    }
}

/// Adds an account and its books.
pub(crate) async fn insert(conn: &mut Connection, account: &Account) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO accounts (id, email, operator, created_at) VALUES ($1, $2, $3, $4)")
        .bind(account.id.to_string())
        .bind(to_text(&account.email))
        .bind(i64::from(account.operator))
        .bind(account.created_at.unix_ms())
        .execute(&mut *conn)
        .await
        .context("insert an account")?;
    ledger::open(conn, account.id).await
}

/// Locks the rows of accounts until the transaction ends, in one order, so that transactions cannot deadlock.
pub(super) async fn lock(conn: &mut Connection, accounts: &BTreeSet<AccountId>) -> Result<(), StoreError> {
    for id in accounts {
        sqlx::query("SELECT id FROM accounts WHERE id = $1 FOR NO KEY UPDATE")
            .bind(id.to_string())
            .execute(&mut *conn)
            .await
            .context("lock an account")?;
    }
    Ok(())
}

/// One account.
pub(crate) async fn get(pool: &Pool, id: AccountId) -> Result<Option<Account>, StoreError> {
    let row = sqlx::query("SELECT id, email, operator, created_at FROM accounts WHERE id = $1")
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .context("read an account")?;
    row.as_ref().map(Account::read).transpose()
}

/// All accounts, oldest first.
pub(crate) async fn list(pool: &Pool) -> Result<Vec<Account>, StoreError> {
    let rows = sqlx::query("SELECT id, email, operator, created_at FROM accounts ORDER BY created_at, id")
        .fetch_all(pool)
        .await
        .context("list accounts")?;
    rows.iter().map(Account::read).collect()
}
