//! The types that coordinator, agent and workers exchange. No I/O, no clock, no randomness. Bodies of HTTP requests and answers are in
//! `island-protocol-api`, so that a change of one does not rebuild workers.
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
//! | [`asking`] | the minimum price that an owner accepts |
//! | [`event`] | numbered job events, as consumers see them and as Islands send them |
//! | [`reply`] | calls of functions and probabilities of tokens in a language model's reply |
//! | [`transcript`] | words and segments with their times |
//! | [`host`] | hardware and load of an Island |
//! | [`fabric`] | the messages on NATS |
//! | [`version`] | the versions of those messages, and how two programs agree on one |
//! | [`subjects`] | building and parsing subject names, in one place |
//! | [`address`] | addresses of artifacts and services |
//!
//! With the feature `openapi`, the types that occur in HTTP bodies implement `schemars::JsonSchema`.
//!
//! Within one version messages only gain optional fields; committed snapshots prove that old ones still parse.

pub mod address;
pub mod artifact;
pub mod asking;
pub mod cargo;
pub mod credits;
pub mod demand;
pub mod digest;
pub mod egress;
pub mod event;
pub mod fabric;
pub mod host;
pub mod ids;
pub mod job;
pub mod public_address;
pub mod reply;
#[cfg(feature = "openapi")]
mod schema;
pub mod subjects;
pub mod time;
pub mod transcript;
pub mod version;

/// Version of the fabric messages in this crate; each message contains it as `v`.
pub const FABRIC_VERSION: u32 = 1;
/// Minimum of the fabric's message limit in bytes: a whole input or output with its envelope.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Maximum size of all events of a job in bytes, for every Cargo.
pub const MAX_OUTPUT_BYTES: u64 = 12 << 20;
