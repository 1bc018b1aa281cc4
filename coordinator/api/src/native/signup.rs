//! `POST /signup`: an account by invitation.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use island_protocol::{ids::AccountId, time::Timestamp};
use island_protocol_api::{
    AccountView,
    problem::Code,
    signup::{SignUp, SignedUp},
};
use uuid::Uuid;

use crate::{
    Api, ApiError,
    http::{body, client::Client},
};
use island_coordinator_domain::secret::{self, NewKey};
use island_coordinator_storage::{
    Connection, StoreError,
    account::{self, Account},
    commit, invitation,
    key::{self, StoredKey},
    ledger,
};

/// Creates an account with its first key. Needs no key. Invalid codes count as invalid keys.
pub(crate) async fn sign_up(
    State(api): State<Arc<Api>>,
    client: Client,
    body::Json(fields): body::Json,
) -> Result<(StatusCode, Json<SignedUp>), ApiError> {
    api.invalid_keys.check(client)?;
    let SignUp { email, code } = fields.parse()?;
    let hash = secret::hash(&code);
    let now = api.clock.now();
    let mut tx = api.store.begin().await?;
    let new = secret::new_key();
    let made = if let Some(account) = invitation::unused_signup(&mut tx, &hash, &email, now).await? {
        replace_keys(&mut tx, account, &new, now).await?;
        account
    } else {
        let Some(invitation) = invitation::take(&mut tx, &hash, now).await? else {
            api.invalid_keys.record(client);
            let message = "this invitation is unknown, used up, expired or revoked";
            return Err(ApiError::new(Code::InvalidInvitation, message));
        };
        let account =
            Account { id: AccountId(Uuid::now_v7()), email: email.clone(), operator: false, created_at: now };
        let inserted = account::insert_with_credits(&mut tx, &account, invitation.credits).await;
        inserted.map_err(|error| taken(error, &email))?;
        invitation::record(&mut tx, account.id, invitation.id).await?;
        key::insert(&mut tx, &StoredKey::unlimited(account.id, "first", &new, now)).await?;
        account.id
    };
    let credits = ledger::balance_in(&mut tx, made).await?;
    commit(tx).await?;
    let about = account::get(api.store.reader(), made).await?;
    let about = about.ok_or(StoreError::Corrupt { what: "account_id" })?;
    let data = AccountView { id: made, email: about.email, credits, created_at: about.created_at };
    Ok((StatusCode::CREATED, Json(SignedUp { data, key: new.secret })))
}

/// Replaces keys that nobody has: the answer that contained them was lost.
async fn replace_keys(
    conn: &mut Connection,
    account: AccountId,
    new: &NewKey,
    now: Timestamp,
) -> Result<(), StoreError> {
    key::revoke_all(conn, account, now).await?;
    key::insert(conn, &StoredKey::unlimited(account, "first", new, now)).await
}

/// Only who has a valid code learns that an address is taken: the code is checked first.
fn taken(error: StoreError, email: &str) -> ApiError {
    if error.is_duplicate() {
        ApiError::field(Code::ValidationError, "email", format!("{email} has an account already"))
    } else {
        error.into()
    }
}
