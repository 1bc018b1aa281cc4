//! Rate limit of each account, and the headers that report it.

use std::sync::{Arc, OnceLock};

use axum::{
    extract::Request,
    http::{Extensions, HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};
use island_protocol::{ids::AccountId, problem::Code};

use super::{Api, ApiError};
use crate::sliding_window::{Admission, SlidingWindow};

/// A request's count, read by [`add_headers`].
#[derive(Debug, Clone, Default)]
struct Counted(Arc<OnceLock<(u32, Admission)>>);

/// Counts a request of this account, or refuses it.
pub(super) async fn count(api: &Api, account: AccountId, extensions: &Extensions) -> Result<(), ApiError> {
    let limit = api.rules.requests_per_minute;
    if limit == 0 {
        return Ok(());
    }
    let context = api.execution.context();
    let now = context.clock.now().unix_ms();
    let admission =
        context.store.counters().admit(&account.to_string(), SlidingWindow { limit }, now).await?;
    if let Some(counted) = extensions.get::<Counted>() {
        // A request has only one caller.
        let _ = counted.0.set((limit, admission));
    }
    if admission.admitted {
        return Ok(());
    }
    let seconds = (admission.frees_at - now).max(1).unsigned_abs().div_ceil(1000);
    let message = format!("{limit} requests a minute are allowed: try again in {seconds} s");
    Err(ApiError::new(Code::RateLimited, message).after(seconds))
}

/// Adds `X-RateLimit-*` to answers to counted requests.
pub(super) async fn add_headers(mut request: Request, next: Next) -> Response {
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
