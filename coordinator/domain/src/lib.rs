//! Rules and state of the coordinator that need neither SQL nor NATS nor HTTP: placement, leases, the ledger, the catalogue, settings.
//!
//! | module | content |
//! | --- | --- |
//! | [`config`] | the settings, with their sources and checks |
//! | [`catalogue`] | the Cargos, checked when they are loaded; the choice of a chat model by name |
//! | [`publication`] | states of Cargos that accounts publish, pure |
//! | [`job`] | a job, its transition table and its price, pure |
//! | [`batch`] | states and lines of batches, pure |
//! | [`placement`] | which Islands can run a job, and which runs it best, pure |
//! | [`fleet`] | the Islands, in memory |
//! | [`lease`] | leases and stalls, pure |
//! | [`peers`] | which other coordinators are alive, pure |
//! | [`ledger`] | double-entry accounting, pure |
//! | [`quota`] | how much an account or a key may use in a period, pure |
//! | [`sliding_window`] | the rate limit, pure |
//! | [`clock`], [`clock_trust`] | the clock, and whether old data may be deleted by it |
//! | [`secret`] | API keys and other secrets, and their hashes |
//! | `samples` | values for tests; absent from a release |
//! | [`metrics`] | counters and measurements for Prometheus |
//! | [`sse`] | Server-Sent Event frames |

// A guard in a scrutinee lives to the end of the block, and the block may wait for what needs the guard.
#![warn(clippy::significant_drop_in_scrutinee)]
#![expect(
    missing_docs,
    reason = "items are public for the coordinator's other crates; documented where names and types do not suffice"
)]

pub mod batch;
pub mod catalogue;
pub mod clock;
pub mod clock_trust;
pub mod config;
pub mod fleet;
pub mod job;
pub mod lease;
pub mod ledger;
pub mod metrics;
pub mod peers;
pub mod placement;
pub mod publication;
pub mod quota;
#[cfg(debug_assertions)]
pub mod samples;
pub mod secret;
pub mod sliding_window;
pub mod sse;
