//! The agent: the daemon that makes a machine an Island.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`config`] | settings |
//! | [`agent`] | build, spawn, and the order of stopping |
//! | [`identity`] | the Island's id and key |
//! | [`enrolment`] | `enrol` and `leave` |
//! | [`link`] | the session with the fabric: credentials, registration, heartbeats, leases, dispatch |
//! | [`inventory`] | what this host has and how loaded it is |
//! | [`admission`], [`eviction`] | does a job fit, and which idle worker makes room; both pure |
//! | [`supervisor`] | owns the attempts and the workers they run in |
//! | [`job`] | one attempt: prepare, run, report |
//! | [`worker`] | one worker's task: frames, commands, stalls, its end |
//! | [`egress`] | ways out for containers |
//! | [`artifacts`] | from a Cargo's files to pinned paths |
//! | [`policy`] | when this machine works for others: the owner's rules and word |
//! | [`control`] | how the owner sees and steers the running agent |
//! | [`earnings`] | what this Island earned, day by day |
//! | [`preload`] | models fetched before jobs ask for them |
//! | [`spool`], [`journal`] | what survives a killed agent: events, and promises |
//! | [`report`] | events on their way to the coordinator |
//! | [`doctor`] | what works here, and why the rest does not |
//! | [`clock`] | the wall's, and one that counts suspend |
//!
//! Tasks: the lifecycle owns those of [`link`] and the meter; the supervisor's tracker owns one per attempt; the
//! pool's owns one per worker. An attempt's events go worker -> its sink -> the spool -> the fabric, and are kept in
//! the spool until the coordinator has committed the attempt's end.
//!
//! The one invariant: nothing is published that is not in the spool, and nothing at all while the lease is not
//! confirmed. The agent loads no engine: a crash in one ends a worker, never the agent.

pub mod admission;
pub mod agent;
pub mod artifacts;
pub mod clock;
pub mod config;
pub mod control;
pub mod derived;
pub mod doctor;
pub mod earnings;
pub mod egress;
pub mod enrolment;
pub mod eviction;
pub mod identity;
pub mod inventory;
pub mod job;
pub mod joblogs;
pub mod journal;
pub mod link;
pub mod overdraft;
pub mod policy;
pub mod popularity;
pub mod preload;
pub mod report;
pub mod room;
pub mod spool;
pub mod supervisor;
pub mod worker;

#[cfg(test)]
mod testing;
