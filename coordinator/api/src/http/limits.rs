//! Limit on the requests that are answered at one time; rate limit of each account, and the headers that report it.

use std::sync::{Arc, OnceLock};

use axum::{
    extract::{Request, State},
    http::{Extensions, HeaderName, HeaderValue},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use island_protocol::ids::AccountId;
use island_protocol_api::problem::Code;

use tokio::sync::Semaphore;

use crate::{Api, ApiError};
use island_coordinator_domain::sliding_window::{self, SlidingWindow};

/// Room for requests. What waits for a slow database is bounded by it: further requests are refused at once.
#[derive(Debug, Clone)]
pub(crate) struct Admission(Arc<Semaphore>);

impl Admission {
    /// Room for `max` requests.
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Semaphore::new(max)))
    }
}

/// Refuses a request if there is no room. It has its room until its answer begins: streams are limited for each
/// account and as connections. The state of the service is reported also without room.
pub(crate) async fn admit(State(admission): State<Admission>, request: Request, next: Next) -> Response {
    if ["/health", "/ready"].iter().any(|path| request.uri().path().ends_with(path)) {
        return next.run(request).await;
    }
    let Ok(_room) = admission.0.try_acquire() else {
        let message = "too many requests are being answered; try again";
        return ApiError::new(Code::ServiceUnavailable, message).into_response();
    };
    next.run(request).await
}

/// A request's count, read by [`add_headers`].
#[derive(Debug, Clone, Default)]
struct Counted(Arc<OnceLock<(u32, sliding_window::Admission)>>);

/// Counts a request of this account, or refuses it.
pub(crate) async fn count(api: &Api, account: AccountId, extensions: &Extensions) -> Result<(), ApiError> {
    let limit = api.rules.requests_per_minute;
    if limit == 0 {
        return Ok(());
    }
    // Counted by the clock that does not step, and shown by the other.
    let (now, shown) = (api.clock.steady().unix_ms(), api.clock.now().unix_ms());
    let admission = api.store.counters().admit(&account.to_string(), SlidingWindow { limit }, now).await?;
    let frees_at = admission.frees_at - now + shown;
    let admission = sliding_window::Admission { frees_at, ..admission };
    if let Some(counted) = extensions.get::<Counted>() {
        // A request has only one caller.
        let _ = counted.0.set((limit, admission));
    }
    if admission.admitted {
        return Ok(());
    }
    let seconds = (admission.frees_at - shown).max(1).unsigned_abs().div_ceil(1000);
    let message = format!("{limit} requests a minute are allowed: try again in {seconds} s");
    Err(ApiError::new(Code::RateLimited, message).after(seconds))
}

/// Adds `X-RateLimit-*` to answers to counted requests.
pub(crate) async fn add_headers(mut request: Request, next: Next) -> Response {
    let counted = Counted::default();
    request.extensions_mut().insert(counted.clone());
    let mut response = next.run(request).await;
    if let Some((limit, admission)) = counted.0.get() {
        let mut header = |name: &'static str, value: u64| {
            response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from(value));
        };
        header("x-ratelimit-limit", u64::from(*limit));
        header("x-ratelimit-remaining", u64::from(admission.remaining));
        header("x-ratelimit-reset", admission.frees_at.max(0).unsigned_abs().div_ceil(1000));
    }
    response
}
