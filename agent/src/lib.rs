//! The agent: the daemon that makes a machine an Island.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`config`] | settings |
//! | [`agent`] | build, spawn, and the order of stopping |
//! | [`identity`] | the Island's id and key |
//! | [`enrollment`] | the commands `enroll` and `leave` |
//! | [`fabric`] | publishing and signed requests over NATS, and whether the Island is connected |
//! | [`link`] | the session with the fabric: credentials, registration, heartbeats, leases, dispatch |
//! | [`inventory`] | what this host has and how loaded it is |
//! | [`benchmark`] | what this host does in a second, measured at its first start |
//! | [`policy`] | the owner's rules and orders, and what follows from them; pure |
//! | [`governor`] | evaluates [`policy`] and has the supervisor act on the result |
//! | [`admission`], [`eviction`], [`worker_placement`], [`vram_enforcement`], [`model_demand`] | does a job fit, where does its worker go, which worker makes room, which one exceeds its GPU memory; all pure |
//! | [`supervisor`] | owns the attempts |
//! | [`attempt`] | what is shared of an attempt, and its states |
//! | [`job`] | the task of one attempt: prepare, run, report |
//! | [`pool`] | owns the workers: one per loaded model |
//! | [`worker`] | the task of one worker: frames, commands, stalls, its end |
//! | [`egress`] | network access of containers |
//! | [`artifacts`], [`derived`] | from a Cargo's files to pinned paths, and files compiled from them |
//! | [`control`] | the socket and page with which the owner sees and steers the running agent |
//! | [`earnings`] | what this Island earned, day by day |
//! | [`preload`] | models fetched before jobs ask for them |
//! | [`spool`], [`journal`] | what survives a killed agent: events, and accepted attempts |
//! | [`report`] | events on their way to the coordinator |
//! | [`job_logs`] | debug logs of jobs |
//! | [`doctor`] | checks what works here, and why the rest does not |
//! | [`clock`] | the wall clock, and one that counts suspend |
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
pub mod attempt;
pub mod benchmark;
pub mod clock;
pub mod config;
pub mod control;
pub mod derived;
pub mod doctor;
pub mod earnings;
pub mod egress;
pub mod enrollment;
pub mod eviction;
pub mod fabric;
pub mod governor;
pub mod identity;
pub mod inventory;
pub mod job;
pub mod job_logs;
pub mod journal;
pub mod link;
pub mod model_demand;
pub mod policy;
pub mod pool;
pub mod preload;
pub mod report;
pub mod spool;
pub mod supervisor;
pub mod vram_enforcement;
pub mod worker;
pub mod worker_placement;

#[cfg(test)]
mod testing;
