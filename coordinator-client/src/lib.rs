//! Typed client of the coordinator: what the command line and the agent use, and what others may.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`http`] | one method per endpoint |
//! | [`stream`] | a job's events, resumed after a dropped connection without a gap or a repeat |
//! | [`chat`] | a streamed chat reply |
//! | [`fabric`] | reading the message fabric with credentials from the coordinator |
//! | [`backoff`] | waiting between tries |
//! | [`error`] | what can go wrong, and whether trying again can help |
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

pub mod backoff;
pub mod chat;
pub mod error;
pub mod fabric;
pub mod http;
pub mod stream;

pub use error::ClientError;
pub use http::Client;
pub use island_protocol as protocol;
