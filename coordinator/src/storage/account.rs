//! Accounts.

use island_protocol::{ids::AccountId, time::Timestamp};
use sqlx::Row as _;

use super::{Attempt as _, Connection, Pool, Row, StoreError, parsed};

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
            email: row.try_get("email").attempt("read a column")?,
            operator: row.try_get::<i64, _>("operator").attempt("read a column")? != 0,
            created_at: Timestamp::from_unix_ms(row.try_get("created_at").attempt("read a column")?),
        })
    }
}

/// Adds an account.
pub(crate) async fn insert(conn: &mut Connection, account: &Account) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO accounts (id, email, operator, created_at) VALUES ($1, $2, $3, $4)")
        .bind(account.id.to_string())
        .bind(&account.email)
        .bind(i64::from(account.operator))
        .bind(account.created_at.unix_ms())
        .execute(conn)
        .await
        .attempt("insert an account")?;
    Ok(())
}

/// One account.
pub(crate) async fn get(pool: &Pool, id: AccountId) -> Result<Option<Account>, StoreError> {
    let row = sqlx::query("SELECT id, email, operator, created_at FROM accounts WHERE id = $1")
        .bind(id.to_string())
        .fetch_optional(pool)
        .await
        .attempt("read an account")?;
    row.as_ref().map(Account::read).transpose()
}

/// All accounts, oldest first.
pub(crate) async fn list(pool: &Pool) -> Result<Vec<Account>, StoreError> {
    let rows = sqlx::query("SELECT id, email, operator, created_at FROM accounts ORDER BY created_at, id")
        .fetch_all(pool)
        .await
        .attempt("list accounts")?;
    rows.iter().map(Account::read).collect()
}
