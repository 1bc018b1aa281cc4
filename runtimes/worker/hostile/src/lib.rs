//! A worker that was taken over: the attempts that its sandbox must refuse, an engine that makes them, and the agent's side. For tests of
//! the sandbox and of the profiles of engines.

#![expect(unsafe_code, reason = "an attacker does not go through the standard library")]

mod acts;
mod engine;
mod scene;

pub use acts::{HOSTILE, unsandboxed};
pub use engine::{ABI, Attempts, TakenOver};
pub use scene::{Scene, block_on, holds, within};
