//! Accounts and keys that the administrator of this machine creates directly in the database.

use island_coordinator_domain::secret;
use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, ApiKeyId},
    time::Timestamp,
};
use island_protocol_api::admin::AdminAction;
use uuid::Uuid;

use super::{
    Store, StoreError,
    account::{self, Account},
    audit::{self, Action, Subject},
    commit,
    key::{self, StoredKey},
};

/// Why no account or key was created.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The e-mail address has no `@` or is longer than 254 bytes.
    #[error("{0:?} is not an e-mail address")]
    NotAnAddress(String),
    /// Another account has the e-mail address.
    #[error("{0} has an account already")]
    Taken(String),
    /// The account of a key does not exist.
    #[error("there is no account {0}")]
    NoAccount(AccountId),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Creates an account with credits in one transaction.
pub async fn create_account(
    store: &Store,
    email: &str,
    operator: bool,
    credits: MicroCredits,
    now: Timestamp,
) -> Result<AccountId, SetupError> {
    if !email.contains('@') || email.len() > 254 {
        return Err(SetupError::NotAnAddress(email.to_owned()));
    }
    let id = AccountId(Uuid::now_v7());
    let account = Account { id, email: email.to_owned(), operator, created_at: now };
    let mut tx = store.begin().await?;
    let inserted = account::insert_with_credits(&mut tx, &account, credits).await;
    inserted.map_err(|error| taken(error, email))?;
    let amount = (credits > MicroCredits::ZERO).then_some(credits);
    audit::insert(&mut tx, &here(AdminAction::CreateAccount, id, None, amount), now).await?;
    commit(tx).await?;
    Ok(id)
}

fn taken(error: StoreError, email: &str) -> SetupError {
    if error.is_duplicate() { SetupError::Taken(email.to_owned()) } else { error.into() }
}

/// Creates a key and returns the secret, which is not stored.
pub async fn create_key(
    store: &Store,
    account: AccountId,
    name: &str,
    now: Timestamp,
) -> Result<String, SetupError> {
    if account::get(store.reader(), account).await?.is_none() {
        return Err(SetupError::NoAccount(account));
    }
    let new = secret::new_key();
    let stored = StoredKey::unlimited(account, name, &new, now);
    let mut tx = store.begin().await?;
    key::insert(&mut tx, &stored).await?;
    audit::insert(&mut tx, &here(AdminAction::CreateKey, account, Some(stored.id), None), now).await?;
    commit(tx).await?;
    Ok(new.secret)
}

/// An action of this machine's administrator, for the audit log.
fn here(
    action: AdminAction,
    account: AccountId,
    api_key: Option<ApiKeyId>,
    amount: Option<MicroCredits>,
) -> Action<'static> {
    let subject = api_key.map_or(Subject::Account, Subject::Key);
    Action { actor: None, kind: action, account, subject, amount, reason: "" }
}
