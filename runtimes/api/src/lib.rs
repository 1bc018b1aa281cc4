//! The seam between an engine and everything else: three methods to write, three with defaults.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`runtime`] | the [`Runtime`] trait and its contract |
//! | [`job`] | what a run is given: request, context, event sink, work counter |
//! | [`lines`] | what the programs of wasm and container Cargos say: JSON Lines |
//! | [`log`] | the debug log of a run |
//! | [`simulated`] | a scripted engine: tokens, delays, hangs, crashes, lies |
//! | `conformance` | the suite every engine passes (feature `conformance`) |
//!
//! An engine only runs. The agent owns the job's state, its limits, its journal and the clean-up.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod job;
pub mod lines;
pub mod log;
pub mod runtime;
pub mod simulated;

pub use job::{EventSink, Phase, RunContext, RunRequest, WorkCounter};
pub use log::JobLog;
pub use runtime::{Probe, Runtime, Unavailable};
