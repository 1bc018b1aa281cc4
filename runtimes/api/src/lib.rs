//! The seam between an engine and everything else: three methods to write, three with defaults.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`runtime`] | the [`Runtime`] trait and its contract |
//! | [`job`] | what a run is given: request, context, event sink, work counter |
//! | [`simulated`] | a scripted engine: tokens, delays, hangs, crashes, lies |
//! | `conformance` | the suite every engine passes (feature `conformance`) |
//!
//! An engine only runs. The agent owns the job's state, its limits, its journal and the clean-up.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod job;
pub mod runtime;
pub mod simulated;

pub use job::{EventSink, Phase, RunContext, RunRequest, WorkCounter};
pub use runtime::{Probe, Runtime, Unavailable};
