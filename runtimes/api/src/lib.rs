//! The interface between engines and the rest: a trait with three required and three provided methods.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`runtime`] | the [`Runtime`] trait and its contract |
//! | [`job`] | what a run is given: request, context, event sink, work counter |
//! | [`lines`] | the output of the programs of wasm and container Cargos: JSON Lines |
//! | [`log`] | the debug log of a run |
//! | [`simulated`] | a scripted engine: tokens, delays, hangs, crashes, wrong counts |
//! | `conformance` | the suite that every engine passes (feature `conformance`) |
//!
//! An engine only runs jobs. The agent owns their state, limits, journal and cleanup.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod job;
pub mod lines;
pub mod log;
pub mod runtime;
pub mod simulated;

pub use job::{EventSink, MAX_STEPS, Phase, RunContext, RunRequest, Step, WorkCounter};
pub use log::JobLog;
pub use runtime::{Probe, Runtime, Unavailable};
