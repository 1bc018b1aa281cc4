//! The types that programs of Island exchange. No I/O, no clock, no randomness.
//!
//! | module | content |
//! | --- | --- |
//! | [`ids`] | newtypes for every identifier |
//! | [`time`] | the only timestamp type, ISO 8601 UTC with milliseconds |
//! | [`credits`] | money as integer micro-credits |
//! | [`digest`], [`artifact`] | content hashes, and the files a Cargo needs |
//! | [`cargo`] | catalogue entries, and what Islands receive of them |
//! | [`demand`] | the memory that a Cargo needs on an Island |
//! | [`egress`] | addresses that a container may connect to |
//! | [`public_address`] | which addresses are of the public internet |
//! | [`job`] | job states and their transitions, usage, outcomes |
//! | [`event`] | numbered job events, as consumers see them and as Islands send them |
//! | [`host`] | hardware and load of an Island |
//! | [`fabric`] | the messages on NATS |
//! | [`version`] | the versions of those messages, and how two programs agree on one |
//! | [`subjects`] | building and parsing subject names, in one place |
//! | [`preferences`] | which Islands and models may serve a request |
//! | [`api`], [`chat`], [`completions`], [`images`], [`audio`], [`rerank`], [`messages`], [`responses`] | HTTP bodies |
//! | [`problem`] | the error body and its stable codes |
//!
//! With the feature `openapi`, the types of HTTP bodies implement `schemars::JsonSchema`.
//!
//! Within one version messages only gain optional fields; committed snapshots prove that old ones still parse.

pub mod address;
pub mod api;
pub mod artifact;
pub mod asking;
pub mod audio;
pub mod cargo;
pub mod chat;
pub mod completions;
pub mod credits;
pub mod demand;
pub mod digest;
pub mod egress;
pub mod event;
pub mod fabric;
pub mod host;
pub mod ids;
pub mod images;
pub mod job;
pub mod messages;
pub mod moderations;
pub mod preferences;
pub mod problem;
pub mod public_address;
pub mod rerank;
pub mod responses;
#[cfg(feature = "openapi")]
mod schema;
pub mod speech;
pub mod subjects;
pub mod time;
pub mod version;

/// Version of the fabric messages in this crate; each message contains it as `v`.
pub const FABRIC_VERSION: u32 = 1;
/// Minimum of the fabric's message limit in bytes: a whole input or output with its envelope.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Maximum size of all events of a job in bytes, for every Cargo.
pub const MAX_OUTPUT_BYTES: u64 = 12 << 20;
