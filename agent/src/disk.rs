//! Files of the agent: in its state folder, and those that jobs read.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`journal`] | the accepted attempts |
//! | [`spool`] | the events of an attempt, until the coordinator has committed its end |
//! | [`artifacts`] | from a Cargo's files to pinned paths in the cache |
//! | [`derived`] | files compiled from those |
//! | [`job_logs`] | debug logs of jobs |
//! | [`state_lock`] | one agent per state folder |

pub mod artifacts;
pub mod derived;
pub mod job_logs;
pub mod journal;
pub mod spool;
pub mod state_lock;
