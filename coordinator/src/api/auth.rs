//! Who calls: `Authorization: Bearer ak_…`, looked up by prefix and hash, remembered for a few seconds.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    extract::FromRequestParts,
    http::{header, request::Parts},
};
use island_protocol::{ids::AccountId, problem::Code};
use tokio::time::Instant;

use super::{Api, ApiError, MAX_BODY};
use crate::{
    secret,
    storage::key::{self, KeyOwner},
};

/// How long a key that was good may be taken for good.
const REMEMBERED: Duration = Duration::from_secs(5);
/// Keys remembered at once.
const CAPACITY: usize = 10_000;

/// Keys that were good a moment ago, by hash.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<HashMap<String, (KeyOwner, Instant)>>);

impl Cache {
    fn get(&self, hash: &str, now: Instant) -> Option<KeyOwner> {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (owner, seen) = cache.get(hash)?;
        (now.saturating_duration_since(*seen) < REMEMBERED).then_some(*owner)
    }

    fn put(&self, hash: String, owner: KeyOwner, now: Instant) {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CAPACITY {
            cache.clear();
        }
        cache.insert(hash, (owner, now));
    }
}

/// The account behind a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub account: AccountId,
    pub operator: bool,
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
        Ok(Self { account: owner.account, operator: owner.operator })
    }
}

async fn identify(api: &Api, secret: &str) -> Result<KeyOwner, ApiError> {
    let invalid = || ApiError::new(Code::InvalidApiKey, "this API key is unknown or revoked");
    let prefix = secret::prefix(secret).ok_or_else(invalid)?;
    let hash = secret::hash(secret);
    let now = Instant::now();
    if let Some(owner) = api.auth.get(&hash, now) {
        return Ok(owner);
    }
    let found = key::find(api.owner.context().store.reader(), prefix, &hash).await?;
    let owner = found.ok_or_else(invalid)?;
    api.auth.put(hash, owner, now);
    Ok(owner)
}
