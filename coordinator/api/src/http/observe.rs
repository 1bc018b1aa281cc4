//! What every request gets: an id, which its log lines have and its answer names, a span of a trace, and its place in the
//! metrics.

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};
use island_daemon::traces::{HEADER, Kind, Span, TraceContext, Traces};
use tracing::{Instrument as _, field::Empty};
use uuid::Uuid;

use island_coordinator_domain::metrics::Requests;

/// Names the request in the log.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The name under which Anthropic's clients read the same.
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Routes that load balancers call every few seconds; a trace of them shows nothing.
const PROBES: [&str; 2] = ["/health", "/ready"];

tokio::task_local! {
    static CURRENT: Current;
}

/// The request that a task answers.
#[derive(Debug, Clone, Copy)]
struct Current {
    id: Uuid,
    trace: Option<TraceContext>,
}

/// The id of the request that this task answers; a new one in any other task.
pub(crate) fn request_id() -> Uuid {
    CURRENT.try_with(|current| current.id).unwrap_or_else(|_| Uuid::now_v7())
}

/// The span of the request that this task answers.
pub(crate) fn trace() -> Option<TraceContext> {
    CURRENT.try_with(|current| current.trace).ok().flatten()
}

/// Where requests are recorded.
#[derive(Debug, Clone)]
pub(crate) struct Observer {
    pub requests: Requests,
    pub traces: Traces,
}

/// Answers a request and records it.
pub(crate) async fn observe(State(observer): State<Observer>, request: Request, next: Next) -> Response {
    let begun = observer.requests.begin();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map(MatchedPath::as_str);
    let (id, method) = (Uuid::now_v7(), request.method().clone());
    let mut span = observer.span(method.as_str(), route, request.headers());
    span.set("island.request.id", id);
    let current = Current { id, trace: span.context() };
    let log = tracing::info_span!("request", request = %id, %method, route, account = Empty);
    let mut response = CURRENT.scope(current, next.run(request)).instrument(log.clone()).await;
    let status = response.status().as_u16();
    log.in_scope(|| tracing::debug!(status, "answered"));
    span.set("http.response.status_code", status);
    if status >= 500 {
        span.fail(status);
    }
    begun.answered(route, method.as_str(), status);
    // A UUID is a valid value.
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        if route.is_some_and(|route| route.contains("/messages")) {
            response.headers_mut().insert(ANTHROPIC_REQUEST_ID, value.clone());
        }
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

impl Observer {
    fn span(&self, method: &str, route: Option<&str>, headers: &HeaderMap) -> Span {
        let route = route.unwrap_or("none");
        if PROBES.iter().any(|probe| route.ends_with(probe)) {
            return Span::default();
        }
        // What is not a place in a trace is ignored.
        let parent = headers.get(HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
        let mut span = self.traces.begin(format!("{method} {route}"), Kind::Server, parent);
        span.set("http.request.method", method);
        span.set("http.route", route);
        span
    }
}
