//! Who calls: `Authorization: Bearer ak_…`, looked up by prefix and hash. Nothing is remembered between requests, so
//! a revoked key ends with the commit of its revocation.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{Method, header, request::Parts},
};
use island_protocol::{
    api::key::Scope,
    credits::MicroCredits,
    ids::{AccountId, ApiKeyId},
    problem::Code,
    time::Timestamp,
};

use super::{Api, ApiError, MAX_BODY, limits};
use crate::{
    secret,
    storage::key::{self, KeyOwner, Scopes},
    upkeep::Note,
};

/// To what the last use of a key is rounded.
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
}

impl FromRequestParts<Arc<Api>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let length =
            parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > MAX_BODY as u64) {
            return Err(ApiError::new(Code::PayloadTooLarge, format!("a body may have {MAX_BODY} bytes")));
        }
        let missing =
            || ApiError::new(Code::MissingApiKey, "send the header Authorization: Bearer <API key>");
        let value = parts.headers.get(header::AUTHORIZATION).ok_or_else(missing)?;
        let value = value.to_str().map_err(|_| missing())?;
        let (scheme, secret) = value.split_once(' ').ok_or_else(missing)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(missing());
        }
        let owner = identify(api, secret.trim()).await?;
        limits::count(api, owner.account, &parts.extensions).await?;
        let scope = needed(&parts.method);
        if !owner.scopes.allow(scope) {
            let message = format!("this API key lacks the scope {}", scope.as_str());
            return Err(ApiError::new(Code::Forbidden, message));
        }
        Ok(Self {
            account: owner.account,
            operator: owner.operator,
            key: owner.key,
            scopes: owner.scopes,
            expires_at: owner.expires_at,
            spend_cap: owner.spend_cap,
        })
    }
}

/// What a key must be allowed for a method.
fn needed(method: &Method) -> Scope {
    if method.is_safe() { Scope::Read } else { Scope::Write }
}

async fn identify(api: &Api, secret: &str) -> Result<KeyOwner, ApiError> {
    let invalid = |why: &str| ApiError::new(Code::InvalidApiKey, format!("this API key {why}"));
    let unknown = || invalid("is unknown or revoked");
    let prefix = secret::prefix(secret).ok_or_else(unknown)?;
    let context = api.owner.context();
    let found = key::find(context.store.reader(), prefix, &secret::hash(secret)).await?;
    let owner = found.ok_or_else(unknown)?;
    let now = context.clock.now();
    if owner.expires_at.is_some_and(|end| end <= now) {
        return Err(invalid("has expired"));
    }
    let minute = Timestamp::from_unix_ms(now.unix_ms() - now.unix_ms().rem_euclid(MINUTE_MS));
    if owner.last_used_at.is_none_or(|last| last < minute) {
        // Without the upkeep the coordinator is about to end.
        let _ = api.notes.send(Note::Used(owner.key, minute));
    }
    Ok(owner)
}
