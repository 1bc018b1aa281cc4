//! Cross-origin requests: which web pages may use the API from a browser.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, header};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// Time for which a browser keeps the answer about a route.
const MAX_AGE: Duration = Duration::from_hours(1);

/// The layer for these origins; `*` allows all. Keys are sent in a header that a page sets itself, never as cookies, so
/// no request carries credentials that a page does not have.
pub(crate) fn layer(origins: &[String]) -> CorsLayer {
    let allowed = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()))
    };
    let read = [
        "idempotency-replayed",
        "island-served",
        "island-substitute",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "x-request-id",
        "request-id",
        // Clients in a browser repeat, and pay, what would recur if they cannot read it.
        "x-should-retry",
    ];
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        // Clients of other makers add headers of their own, which have no effect.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(
            [header::RETRY_AFTER].into_iter().chain(read.map(HeaderName::from_static)).collect::<Vec<_>>(),
        )
        .max_age(MAX_AGE)
}
