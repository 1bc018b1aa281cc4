//! `/login`: sign-in with an OpenID Connect provider, for a program that waits on the person's machine.
//!
//! The program begins with the hash of a verifier and the port at which it waits, and opens the provider's page in a
//! browser. The provider returns the person to `/login/callback`, which sends the browser to that port with a code. The
//! program exchanges code and verifier for a key, so neither of them alone is of use to others.
//!
//! The console begins with the hash of a verifier that a cookie holds, and the browser returns to it instead, also when the sign-in fails:
//! then with a code of the reason, for which the console has a text.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode, response::Redirect};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use island_daemon::chain::Chain;
use island_protocol::{credits::MicroCredits, ids::AccountId, time::Timestamp};
use island_protocol_api::{
    AccountView,
    problem::Code,
    signup::{FinishLogin, SignedUp},
};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::oidc::{Person, Provider, ProviderError};
use crate::{
    Api, ApiError,
    http::{body, client::Client, query::Query},
};
use island_coordinator_domain::secret;
use island_coordinator_storage::{
    Connection, StoreError,
    account::{self, Account},
    commit,
    key::{self, SIGN_IN, StoredKey},
    ledger,
    login::{self, Login},
};

const DAY_MS: i64 = 24 * 3_600_000;
/// In place of a port: the console began the sign-in.
pub(crate) const CONSOLE: u16 = 0;
/// Begins the state of a sign-in that the console began. No random part has such a dot.
const CONSOLE_MARK: &str = "console.";
/// The page of the console that shows why a sign-in failed.
const SIGN_IN_PAGE: &str = "/console/sign-in";
/// Length of a SHA-256 in base 64.
const CHALLENGE: usize = 43;

fn provider(api: &Api) -> Result<&Provider, ApiError> {
    let missing =
        || ApiError::new(Code::NotFound, "this network has no sign-in: use a key, or an invitation");
    api.provider.as_ref().ok_or_else(missing)
}

fn unreachable(error: &ProviderError) -> ApiError {
    tracing::warn!(error = %Chain(error), "the OpenID Connect provider cannot be used");
    ApiError::new(Code::ServiceUnavailable, "the sign-in provider cannot be reached").after(30)
}

/// Why a sign-in ended without a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum Reason {
    /// It is unknown, has expired, or was finished.
    Expired,
    /// The provider did not confirm it.
    NotConfirmed,
    /// The provider has not verified the person's address.
    NotVerified,
    /// The address is of another domain.
    NotAllowed,
    /// The address has an account that was created otherwise.
    HasAccount,
    /// The provider cannot be reached.
    Unavailable,
    /// Another error.
    Other,
}

/// A sign-in that ended without a code.
#[derive(Debug)]
struct Failure {
    reason: Reason,
    error: Box<ApiError>,
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self { reason: Reason::Other, error: Box::new(error) }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        ApiError::from(error).into()
    }
}

fn failed(reason: Reason, message: impl Into<String>) -> Failure {
    Failure { reason, error: Box::new(ApiError::new(Code::LoginFailed, message)) }
}

/// Sends the person to the provider.
pub(crate) async fn begin(
    State(api): State<Arc<Api>>,
    client: Client,
    query: Query,
) -> Result<Redirect, ApiError> {
    provider(&api)?;
    api.sign_ins.admit(client)?;
    let bad = |name: &str, must: &str| {
        ApiError::field(Code::InvalidRequest, name, format!("{name} must be {must}"))
    };
    let port: Option<u16> = query.get("port").and_then(|port| port.parse().ok()).filter(|port| *port > 0);
    let port = port.ok_or_else(|| bad("port", "the port at which the program waits"))?;
    let plain = |text: &&str| {
        text.len() == CHALLENGE
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let challenge = query.get("challenge").filter(plain);
    let challenge =
        challenge.ok_or_else(|| bad("challenge", "the SHA-256 of a verifier in base 64 for URLs"))?;
    Ok(Redirect::to(&start(&api, port, challenge).await?))
}

/// Records a sign-in that has begun. Returns the address of the provider to which the person goes.
pub(crate) async fn start(api: &Api, port: u16, challenge: &str) -> Result<String, ApiError> {
    let mark = if port == CONSOLE { CONSOLE_MARK } else { "" };
    let begun = provider(api)?.begin(mark).await.map_err(|error| unreachable(&error))?;
    let login = Login {
        state_hash: secret::hash(&begun.state),
        nonce: begun.nonce,
        verifier: begun.verifier,
        port,
        challenge: challenge.to_owned(),
    };
    let mut tx = api.store.begin().await?;
    if !login::begin(&mut tx, &login, api.clock.now()).await? {
        let message = "too many people sign in at this moment; try again";
        return Err(ApiError::new(Code::ServiceUnavailable, message).after(60));
    }
    commit(tx).await?;
    Ok(begun.address)
}

/// Takes what the provider confirms of the person, and sends the browser to the program that waits, or to the console.
pub(crate) async fn callback(
    State(api): State<Arc<Api>>,
    client: Client,
    query: Query,
) -> Result<Redirect, ApiError> {
    let is_console = query.get("state").is_some_and(|state| state.starts_with(CONSOLE_MARK));
    match confirm(&api, client, &query).await {
        Ok(address) => Ok(Redirect::to(&address)),
        Err(Failure { reason, error }) if is_console => {
            error.log();
            let reason: &'static str = reason.into();
            Ok(Redirect::to(&format!("{SIGN_IN_PAGE}?failed={reason}")))
        }
        Err(Failure { error, .. }) => Err(*error),
    }
}

/// Takes what the provider confirms of the person. Returns the address to which the browser goes.
async fn confirm(api: &Api, client: Client, query: &Query) -> Result<String, Failure> {
    api.invalid_keys.check(client)?;
    let provider = provider(api)?;
    let now = api.clock.now();
    let state = secret::hash(query.get("state").unwrap_or_default());
    let Some(login) = login::begun(api.store.reader(), &state, now).await? else {
        api.invalid_keys.record(client);
        let message = "this sign-in is unknown, has expired, or was finished: begin again";
        return Err(failed(Reason::Expired, message));
    };
    let not_confirmed = |message: &str| failed(Reason::NotConfirmed, message);
    if query.get("error").is_some() {
        return Err(not_confirmed("the provider did not confirm the sign-in"));
    }
    let code = query.get("code").ok_or_else(|| not_confirmed("the provider returned no code"))?;
    let person = match provider.confirm(code, &login.nonce, &login.verifier).await {
        Ok(person) => person,
        Err(error @ (ProviderError::Busy | ProviderError::Discovery(_))) => {
            return Err(Failure { reason: Reason::Unavailable, error: Box::new(unreachable(&error)) });
        }
        Err(error) => {
            tracing::info!(error = %Chain(&error), "sign-in refused");
            return Err(not_confirmed("the provider did not confirm the sign-in"));
        }
    };
    let code = secret::new_code();
    let mut tx = api.store.begin().await?;
    let account = account_of(api, provider, &mut tx, &person, now).await?;
    if !login::confirm(&mut tx, &login, account, &secret::hash(&code)).await? {
        return Err(failed(Reason::Expired, "this sign-in was finished: begin again"));
    }
    commit(tx).await?;
    Ok(match login.port {
        CONSOLE => format!("{}?code={code}", island_console::SIGNED_IN),
        port => format!("http://127.0.0.1:{port}/?code={code}"),
    })
}

/// The account of a person, which is created at the first sign-in.
async fn account_of(
    api: &Api,
    provider: &Provider,
    conn: &mut Connection,
    person: &Person,
    now: Timestamp,
) -> Result<AccountId, Failure> {
    // An address that the provider has not verified may be anybody's.
    let unverified = || failed(Reason::NotVerified, "the provider has not verified your e-mail address");
    let email = person.email.as_deref().ok_or_else(unverified)?;
    if !provider.admits(email) {
        return Err(failed(Reason::NotAllowed, format!("{email} may not sign in to this network")));
    }
    if let Some(known) = login::account_of(conn, provider.issuer(), &person.subject).await? {
        return Ok(known);
    }
    let id = AccountId(Uuid::now_v7());
    let account = Account { id, email: email.to_owned(), operator: false, created_at: now };
    let credits = MicroCredits::from_credits(api.rules.signup_credits.into());
    let inserted = account::insert_with_credits(conn, &account, credits).await;
    inserted.map_err(|error| taken(error, email))?;
    login::insert_identity(conn, provider.issuer(), &person.subject, id, now).await?;
    Ok(id)
}

/// An account that was created otherwise may belong to somebody who only named this address.
fn taken(error: StoreError, email: &str) -> Failure {
    if error.is_duplicate() {
        let why = "has an account already that was not created by this sign-in: use its key";
        failed(Reason::HasAccount, format!("{email} {why}"))
    } else {
        error.into()
    }
}

/// Returns a key to the program that began the sign-in.
pub(crate) async fn finish(
    State(api): State<Arc<Api>>,
    client: Client,
    body::Json(fields): body::Json,
) -> Result<(StatusCode, Json<SignedUp>), ApiError> {
    api.invalid_keys.check(client)?;
    let FinishLogin { code, verifier } = fields.parse()?;
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
    let now = api.clock.now();
    let mut tx = api.store.begin().await?;
    let Some(account) = login::finish(&mut tx, &secret::hash(&code), &challenge, now).await? else {
        api.invalid_keys.record(client);
        let message = "this code is unknown, has expired, or was used: begin again";
        return Err(ApiError::new(Code::LoginFailed, message));
    };
    let new = secret::new_key();
    let days = i64::from(api.rules.login_key_days);
    let expires_at = (days > 0).then(|| now.plus_ms(days * DAY_MS));
    let stored = StoredKey { expires_at, ..StoredKey::unlimited(account, SIGN_IN, &new, now) };
    key::retire_sign_ins(&mut tx, account, now).await?;
    key::insert(&mut tx, &stored).await?;
    let credits = ledger::balance_in(&mut tx, account).await?;
    commit(tx).await?;
    let about = account::get(api.store.reader(), account).await?;
    let about = about.ok_or(StoreError::Corrupt { what: "account_id" })?;
    let data = AccountView { id: account, email: about.email, credits, created_at: about.created_at };
    Ok((StatusCode::CREATED, Json(SignedUp { data, key: new.secret })))
}
