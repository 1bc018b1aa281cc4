//! Typed client of the coordinator: what the command line and the agent use, and what others may.
//!
//! A [`Client`] has one method per endpoint. Each gives a [`Request`]: await it for the typed answer, or call
//! [`answer`](Request::answer) to have the body as it came too.
//!
//! ```no_run
//! # async fn example() -> Result<(), island_coordinator_client::ClientError> {
//! use island_coordinator_client::{Client, protocol::event::JobEvent};
//!
//! let client = Client::new("http://127.0.0.1:8080", Some("ak_…".into()))?;
//! let job = client.submit_job("llm-chat", serde_json::json!({"prompt": "Hello", "max_tokens": 32}), 0).await?;
//! let mut events = client.job_events(job.id, None);
//! while let Some(event) = events.next().await {
//!     if let JobEvent::Token { content } = event?.event {
//!         eprint!("{content}");
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! # Trying again
//!
//! A request that failed for a passing reason (no connection, 429, 502, 503, 504) is sent again a few times, with
//! jitter, and not before `Retry-After` is over. That is safe: reading and deleting repeat without harm, and a `POST`
//! that acts carries an `Idempotency-Key` made for it, the same on every try. Nothing is repeated once a streamed reply
//! has begun. A job's events are different: [`stream::EventStream`] takes a broken stream up after the last event it
//! received, also on another coordinator.
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
//! A [`ClientError`] says what was attempted. What the coordinator refused is apart from what did not reach it, and
//! carries the stable code; [`ClientError::advice`] says what to do.
//!
//! ```no_run
//! # async fn example(client: island_coordinator_client::Client) {
//! use island_coordinator_client::{ClientError, protocol::problem::Code};
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
//! | module | what it holds |
//! | --- | --- |
//! | [`client`] | the client: address, key, rules |
//! | [`request`] | a request to be awaited, and its answer |
//! | [`catalogue`] | which Cargos to list |
//! | [`stream`] | a job's events, resumed after a dropped connection without a gap or a repeat |
//! | [`chat`] | a streamed chat reply |
//! | [`fabric`] | reading the message fabric with credentials from the coordinator |
//! | [`backoff`] | waiting between tries |
//! | [`error`] | what can go wrong, whether trying again can help, and what to do |

mod account;
pub mod backoff;
mod call;
pub mod catalogue;
pub mod chat;
pub mod client;
pub mod error;
pub mod fabric;
mod island;
mod jobs;
mod network;
pub mod request;
mod sse;
pub mod stream;

pub use backoff::RetryPolicy;
pub use client::Client;
pub use error::ClientError;
pub use island_protocol as protocol;
pub use request::{Answer, Request};
