//! Typed client of the coordinator, for the command line, the agent and other programs.
//!
//! A [`Client`] has one method for each endpoint. Each returns a [`Request`]: await it for the typed answer, or call
//! [`answer`](Request::answer) for the body as well.
//!
//! ```no_run
//! # async fn example() -> Result<(), island_coordinator_client::ClientError> {
//! use island_coordinator_client::{Client, protocol::event::JobEvent};
//!
//! let client = Client::new("http://127.0.0.1:8080", Some("ak_…".into()))?;
//! let job = client.submit_job("llm-chat", serde_json::json!({"prompt": "Hello", "max_tokens": 32}), 0).await?;
//! let mut events = client.job_events(job.id, None);
//! while let Some(event) = events.next().await {
//!     if let JobEvent::Token { content, .. } = event?.event {
//!         eprint!("{content}");
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! # Retries
//!
//! A request that failed for a temporary reason (no connection, 429, 502, 503, 504) is sent again a few times, with
//! jitter, and not before `Retry-After` has passed; if that is long, a quota is used up or the network is in
//! maintenance, the error is returned at once. This is safe: reading and deleting are idempotent, and a `POST` that acts
//! carries a generated `Idempotency-Key`, the same on every try. Nothing is repeated after a streamed reply has begun.
//! A job's events can be resumed: [`stream::EventStream`] continues after the last event received, also on another
//! coordinator.
//!
//! ```
//! # fn main() -> Result<(), island_coordinator_client::ClientError> {
//! use std::time::Duration;
//! use island_coordinator_client::{Client, RetryPolicy};
//!
//! let client = Client::builder("https://islands.example.org")
//!     .key("ak_…".replace('…', "0123456789abcdef"))
//!     .user_agent("my-program/1.0")
//!     .timeout(Duration::from_secs(10))
//!     .retry(RetryPolicy { tries: 5, ..RetryPolicy::REQUESTS })
//!     .build()?;
//! assert_eq!(client.base_url(), "https://islands.example.org");
//! # Ok(()) }
//! ```
//!
//! # Errors
//!
//! A [`ClientError`] names what was attempted. An error that the coordinator returned is a separate variant with the
//! stable code; [`ClientError::advice`] names the next step.
//!
//! ```no_run
//! # async fn example(client: island_coordinator_client::Client) {
//! use island_coordinator_client::{ClientError, api::problem::Code};
//!
//! match client.account().await {
//!     Ok(account) => assert!(account.credits.0 >= 0),
//!     Err(ClientError::Refused(refusal)) if refusal.known_code() == Some(Code::InvalidApiKey) => { /* log in */ }
//!     Err(error) => eprintln!("{error}; {}", error.advice().unwrap_or_default()),
//! }
//! # }
//! ```
//!
//! # Modules
//!
//! | module | content |
//! | --- | --- |
//! | [`client`] | the client: address, key, timeouts, retries |
//! | [`request`] | a request and its answer |
//! | [`catalogue`] | a filter of Cargos |
//! | [`stream`] | a job's events, resumed after an interruption without a gap or a repeat |
//! | [`chat`] | a streamed chat reply |
//! | [`fabric`] | access to the message fabric with credentials from the coordinator |
//! | [`transport`] | where keys and tokens may be sent without encryption |
//! | [`backoff`] | delays between tries |
//! | [`error`] | errors, whether a retry may help, and the next step |

mod account;
mod admin;
pub mod backoff;
mod batches;
mod call;
pub mod catalogue;
pub mod chat;
pub mod client;
pub mod error;
pub mod fabric;
mod island;
mod jobs;
mod network;
mod publications;
pub mod request;
mod sse;
pub mod stream;
pub mod transport;

pub use account::SignInLink;
pub use admin::QueueFilter;
pub use backoff::RetryPolicy;
pub use client::Client;
pub use error::ClientError;
pub use island_protocol as protocol;
pub use island_protocol_api as api;
pub use jobs::JobFilter;
pub use request::{Answer, Request};
