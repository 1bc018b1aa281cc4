//! Support for the tests of whole coordinators.

pub(crate) mod admin;
pub(crate) mod database;
pub(crate) mod island;
pub(crate) mod nats;
pub(crate) mod network;
pub(crate) mod postgres;
mod process;

use std::time::Duration;

/// Maximum wait for an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for an expected event.
pub(crate) async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    let happened = tokio::time::timeout(PATIENCE, event).await;
    happened.unwrap_or_else(|_| panic!("{what} did not happen in {PATIENCE:?}"))
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
