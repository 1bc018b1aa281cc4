//! Support for the tests of whole coordinators.

pub(crate) mod admin;
pub(crate) mod database;
pub(crate) mod island;
pub(crate) mod nats;
pub(crate) mod network;
pub(crate) use island_testing::postgres;
mod process;

use std::time::Duration;

/// Maximum wait for an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum wait for a coordinator that stops in order: a write may wait for a lock of PostgreSQL for 20 s.
pub(crate) const STOPPING: Duration = Duration::from_mins(1);

/// Waits for an expected event.
pub(crate) fn soon<T>(what: &str, event: impl Future<Output = T>) -> impl Future<Output = T> {
    within(PATIENCE, what, event)
}

/// Waits for an expected event for at most this time.
pub(crate) async fn within<T>(limit: Duration, what: &str, event: impl Future<Output = T>) -> T {
    let happened = tokio::time::timeout(limit, event).await;
    happened.unwrap_or_else(|_| panic!("{what} did not happen in {limit:?}"))
}

/// The status and the error of an answer.
pub(crate) async fn problem(request: reqwest::RequestBuilder) -> (u16, serde_json::Value) {
    let (status, body) = answer(request).await;
    (status, body["error"].clone())
}

/// Status and body of an answer.
pub(crate) async fn answer(request: reqwest::RequestBuilder) -> (u16, serde_json::Value) {
    let response = request.send().await.expect("answer");
    (response.status().as_u16(), response.json().await.expect("json"))
}
