//! Authentication: `Authorization: Bearer ak_…`, found by prefix and hash. Nothing is cached between requests, so that
//! a committed revocation takes effect at once.
//!
//! Requests that the console makes in this process act for the key of a session instead (0120).

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, Method, header, request::Parts},
};
use island_console::OnBehalf;
use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, ApiKeyId, BatchId},
    time::Timestamp,
};
use island_protocol_api::{key::Scope, problem::Code};

use crate::{
    Api, ApiError, MAX_BODY,
    http::{body, client::Client, limits},
};
use island_coordinator_domain::secret;
use island_coordinator_execution::deferred_writes::DeferredWrite;
use island_coordinator_storage::{
    account,
    key::{self, KeyHolder, Scopes},
};

/// The last use of a key is rounded to this.
const MINUTE_MS: i64 = 60_000;

/// The account behind a request, and the key it came with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub account: AccountId,
    pub operator: bool,
    pub key: ApiKeyId,
    pub scopes: Scopes,
    pub expires_at: Option<Timestamp>,
    pub spend_cap: Option<MicroCredits>,
    /// Whether the account or the key has quotas.
    pub has_quotas: bool,
    /// The batch on behalf of which the request is made, in this process.
    pub batch: Option<BatchId>,
}

impl Caller {
    /// The holder of a key, for a request of a batch.
    pub(crate) fn of_batch(holder: &KeyHolder, batch: BatchId) -> Self {
        Self { batch: Some(batch), ..Self::of(holder) }
    }

    fn of(holder: &KeyHolder) -> Self {
        Self {
            account: holder.account,
            operator: holder.operator,
            key: holder.key,
            scopes: holder.scopes,
            expires_at: holder.expires_at,
            spend_cap: holder.spend_cap,
            has_quotas: holder.has_quotas,
            batch: None,
        }
    }

    /// The caller of a request whose body may have `max_body` bytes.
    pub(crate) async fn read(parts: &mut Parts, api: &Arc<Api>, max_body: u64) -> Result<Self, ApiError> {
        if body::content_length(&parts.headers).is_some_and(|length| length > max_body) {
            return Err(ApiError::new(Code::PayloadTooLarge, format!("a body may have {max_body} bytes")));
        }
        let missing =
            || ApiError::new(Code::MissingApiKey, "send the header Authorization: Bearer <API key>");
        let credential = Credential::of(parts).ok_or_else(missing)?;
        let client = parts.extensions.get().copied().unwrap_or(Client(None));
        api.invalid_keys.check(client)?;
        let holder = match authenticate(api, credential).await {
            Err(error) if error.code() == Code::InvalidApiKey => {
                api.invalid_keys.record(client);
                return Err(error);
            }
            result => result?,
        };
        tracing::Span::current().record("account", tracing::field::display(holder.account));
        // A page counts as one request, however many it is made of.
        if parts.extensions.get::<OnBehalf>().is_none_or(OnBehalf::is_first) {
            limits::count(api, holder.account, &parts.extensions).await?;
        }
        if holder.suspended {
            return Err(suspended(api, holder.account).await?);
        }
        let scope = required_scope(&parts.method);
        if !holder.scopes.allow(scope) {
            let message = format!("this API key lacks the scope {}", scope.as_str());
            return Err(ApiError::new(Code::Forbidden, message));
        }
        Ok(Self::of(&holder))
    }
}

impl FromRequestParts<Arc<Api>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        Self::read(parts, api, MAX_BODY as u64).await
    }
}

/// What a request proves its account with.
#[derive(Debug, Clone, Copy)]
enum Credential<'a> {
    Key(&'a str),
    /// The token of a session, which only the console can add to a request.
    Session(&'a str),
}

impl<'a> Credential<'a> {
    fn of(parts: &'a Parts) -> Option<Self> {
        if let Some(token) = parts.extensions.get::<OnBehalf>().and_then(OnBehalf::token) {
            return Some(Self::Session(token));
        }
        secret_of(&parts.headers).map(|secret| Self::Key(secret.trim()))
    }
}

/// The key of a request: in `Authorization`, or in the header of Anthropic's clients.
fn secret_of(headers: &HeaderMap) -> Option<&str> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return headers.get("x-api-key")?.to_str().ok();
    };
    let (scheme, secret) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(secret)
}

/// Permission to read what everybody may read in the console, and with a key over HTTP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader;

impl FromRequestParts<Arc<Api>> for Reader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        if parts.extensions.get::<OnBehalf>().is_some_and(|of| of.token().is_none()) {
            return Ok(Self);
        }
        Caller::from_request_parts(parts, api).await.map(|_| Self)
    }
}

/// The account behind a request, which is an operator's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operator(pub Caller);

impl FromRequestParts<Arc<Api>> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, api).await?;
        if caller.operator {
            Ok(Self(caller))
        } else {
            Err(ApiError::new(Code::Forbidden, "this is for keys of an operator of the network"))
        }
    }
}

/// The error for requests of a suspended account.
async fn suspended(api: &Api, account: AccountId) -> Result<ApiError, ApiError> {
    let suspension = account::suspended(api.store.reader(), account).await?;
    let reason = suspension.map(|suspension| suspension.reason).unwrap_or_default();
    Ok(ApiError::new(Code::AccountSuspended, format!("this account is suspended: {reason}")))
}

/// The scope that a method requires.
fn required_scope(method: &Method) -> Scope {
    if method.is_safe() { Scope::Read } else { Scope::Write }
}

async fn authenticate(api: &Api, credential: Credential<'_>) -> Result<KeyHolder, ApiError> {
    let invalid = |why: &str| ApiError::new(Code::InvalidApiKey, format!("this API key {why}"));
    let unknown = || invalid("is unknown or revoked");
    let now = api.clock.now();
    let found = match credential {
        Credential::Key(secret) => {
            let prefix = secret::prefix(secret).ok_or_else(unknown)?;
            key::find(api.store.reader(), prefix, &secret::hash(secret)).await?
        }
        Credential::Session(token) => key::of_session(api.store.reader(), &secret::hash(token), now).await?,
    };
    let holder = found.ok_or_else(unknown)?;
    if holder.expires_at.is_some_and(|end| end <= api.clock.latest()) {
        return Err(invalid("has expired"));
    }
    let minute = Timestamp::from_unix_ms(now.unix_ms() - now.unix_ms().rem_euclid(MINUTE_MS));
    if holder.last_used_at.is_none_or(|last| last < minute) {
        // If the task has ended, the coordinator is stopping.
        let _ = api.deferred.send(DeferredWrite::KeyUsed(holder.key, minute));
    }
    Ok(holder)
}
