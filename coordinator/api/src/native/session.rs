//! What the console needs beyond the API: sessions, the links that begin them, and sign-in with a provider. These routes
//! are reached in this process only.

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::State,
    routing::{get, post},
};
use island_console::{
    OnBehalf,
    session::{Attention, Begun, Offer, OwnIsland, Provider, SignIn, Who, paths},
};
use island_protocol_api::problem::Code;
use tokio::time::Instant;

use crate::{
    Api, ApiError,
    http::{auth::Caller, body, client::Client, query::Query},
    native::{health, hosts, login},
};
use island_coordinator_domain::{fleet::OwnedIsland, secret};
use island_coordinator_storage::{StoreError, account, commit, ledger, session};

/// The routes.
pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route(paths::WHO, get(who))
        // Keys without the scope `write` may sign in as well, so this is a method that needs none.
        .route(paths::BEGIN, get(begin))
        .route(paths::OFFER, get(offer))
        .route(paths::TAKE, post(take))
        .route(paths::END, post(end))
        .route(paths::ISLANDS, get(islands))
        .route(paths::SIGN_IN, get(sign_in))
        .route(paths::PROVIDER, get(provider))
}

/// The account of a session.
async fn who(State(api): State<Arc<Api>>, caller: Caller) -> Result<Json<Who>, ApiError> {
    let reader = api.store.reader();
    let about = account::get(reader, caller.account).await?;
    let about = about.ok_or(StoreError::Corrupt { what: "account_id" })?;
    let credits = ledger::balance(reader, caller.account).await?;
    let own = api.fleet.of_account(caller.account, Instant::now());
    let attention = Attention {
        islands: own.iter().flat_map(hosts::alerts::of_island).count(),
        network: if caller.operator { health::problems(&api) } else { 0 },
    };
    Ok(Json(Who {
        account: caller.account,
        email: about.email,
        credits,
        operator: caller.operator,
        key: caller.key,
        scopes: caller.scopes.list(),
        attention,
    }))
}

/// Begins a session for the key of the request.
async fn begin(State(api): State<Arc<Api>>, caller: Caller) -> Result<Json<Begun>, ApiError> {
    let token = secret::new_token();
    let mut tx = api.store.begin().await?;
    session::begin(&mut tx, &secret::hash(&token), caller.key, api.clock.now()).await?;
    commit(tx).await?;
    Ok(Json(Begun { token }))
}

/// Makes a link that signs a browser in for the key of the request.
async fn offer(State(api): State<Arc<Api>>, caller: Caller) -> Result<Json<Offer>, ApiError> {
    let code = secret::new_token();
    let mut tx = api.store.begin().await?;
    let hash = secret::hash(&code);
    let expires_at = session::offer_link(&mut tx, &hash, caller.key, api.clock.now()).await?;
    commit(tx).await?;
    Ok(Json(Offer { code, expires_at }))
}

/// Begins a session with the code of a link. Invalid codes count as invalid keys.
async fn take(
    State(api): State<Arc<Api>>,
    client: Client,
    body::Json(fields): body::Json,
) -> Result<Json<Begun>, ApiError> {
    api.invalid_keys.check(client)?;
    let invalid = || ApiError::new(Code::LoginFailed, "this link is unknown, has expired, or was used");
    let code = fields.values().find(|(name, _)| *name == "code").and_then(|(_, code)| code.as_str());
    let code = code.ok_or_else(invalid)?;
    let now = api.clock.now();
    let mut tx = api.store.begin().await?;
    let Some(key) = session::take_link(&mut tx, &secret::hash(code), now).await? else {
        api.invalid_keys.record(client);
        return Err(invalid());
    };
    let token = secret::new_token();
    session::begin(&mut tx, &secret::hash(&token), key, now).await?;
    commit(tx).await?;
    Ok(Json(Begun { token }))
}

/// Ends the session of the request, if there is one.
async fn end(State(api): State<Arc<Api>>, Extension(of): Extension<OnBehalf>) -> Result<Json<()>, ApiError> {
    if let Some(token) = of.token() {
        let mut tx = api.store.begin().await?;
        session::end(&mut tx, &secret::hash(token)).await?;
        commit(tx).await?;
    }
    Ok(Json(()))
}

/// The Islands of the account, with what they sent last.
async fn islands(State(api): State<Arc<Api>>, caller: Caller) -> Json<Vec<OwnIsland>> {
    let islands = api.fleet.of_account(caller.account, Instant::now());
    let own =
        |OwnedIsland { id, heartbeat, .. }| OwnIsland { id, heartbeat: heartbeat.map(Arc::unwrap_or_clone) };
    Json(islands.into_iter().map(own).collect())
}

/// In which ways people can sign in.
async fn sign_in(State(api): State<Arc<Api>>) -> Json<SignIn> {
    Json(SignIn { provider: api.provider.is_some() })
}

/// Begins a sign-in with the provider, which returns the browser to the console. It counts as one that a program begins: it needs no
/// key, and those that have begun are limited for all clients together.
async fn provider(
    State(api): State<Arc<Api>>,
    client: Client,
    query: Query,
) -> Result<Json<Provider>, ApiError> {
    api.sign_ins.admit(client)?;
    let challenge = query.get("challenge").unwrap_or_default();
    Ok(Json(Provider { address: login::start(&api, login::CONSOLE, challenge).await? }))
}
