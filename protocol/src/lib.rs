//! What travels between the programs of Island, and nothing else: no I/O, no clock, no randomness.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`ids`] | newtypes for every identifier |
//! | [`time`] | the one timestamp type, ISO 8601 UTC with milliseconds |
//! | [`credits`] | money as integer micro-credits |
//! | [`digest`], [`artifact`] | content hashes, and the files a Cargo needs |
//! | [`cargo`] | catalogue entries and what an Island is told about one |
//! | [`egress`] | where a container's program may connect to |
//! | [`job`] | job states and their only transitions, usage, outcomes |
//! | [`event`] | numbered job events, as consumers see them and as Islands send them |
//! | [`host`] | what an Island has and how loaded it is |
//! | [`fabric`] | the messages on NATS |
//! | [`subjects`] | building and parsing subject names; nobody formats one by hand |
//! | [`api`], [`chat`] | HTTP bodies |
//! | [`problem`] | the error body and its stable codes |
//!
//! With the feature `openapi`, what travels over HTTP tells its JSON Schema.
//!
//! Within one version messages only gain optional fields; committed snapshots prove that old ones still parse.

pub mod address;
pub mod api;
pub mod artifact;
pub mod asking;
pub mod cargo;
pub mod chat;
pub mod credits;
pub mod digest;
pub mod egress;
pub mod event;
pub mod fabric;
pub mod host;
pub mod ids;
pub mod images;
pub mod job;
pub mod problem;
#[cfg(feature = "openapi")]
mod schema;
pub mod subjects;
pub mod time;

/// Version of the fabric messages in this crate; each carries it as `v`.
pub const FABRIC_VERSION: u32 = 1;
/// Bytes that one message of the fabric must be able to carry: a whole input or output with what goes around it.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Bytes of events that one job may make, whatever its Cargo says.
pub const MAX_OUTPUT_BYTES: u64 = 12 << 20;
