//! The agent: the daemon that makes a machine an Island.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`config`] | settings |
//! | [`agent`] | building the agent, starting its tasks, and the order in which they stop |
//! | [`identity`] | the Island's id and key |
//! | [`enrollment`] | the commands `enroll` and `leave` |
//! | [`fabric`] | publishing and signed requests over NATS, and whether the Island is connected |
//! | [`link`] | the session with the fabric: credentials, registration, heartbeats, leases, dispatch |
//! | [`inventory`] | the hardware and engines of this machine, and its load |
//! | [`benchmark`] | the speed of this machine, measured at its first start |
//! | [`policy`] | the owner's rules and orders, and what follows from them; pure |
//! | [`governor`] | evaluates [`policy`] and makes the supervisor enforce the result |
//! | [`admission`], [`eviction`], [`worker_placement`], [`vram_enforcement`], [`model_demand`] | does a job fit, which GPU does its worker get, which worker stops for it, which one exceeds its GPU memory; all pure |
//! | [`supervisor`] | owns the attempts |
//! | [`attempt`] | the shared handle of an attempt, and its states |
//! | [`job`] | the task of one attempt: prepare, run, report |
//! | [`pool`] | owns the workers: one per loaded model |
//! | [`worker`] | the task of one worker: frames, commands, stalls, its end |
//! | [`egress`] | network access of containers |
//! | [`destinations`] | where files may be downloaded from |
//! | [`artifacts`], [`derived`] | from a Cargo's files to pinned paths, and files compiled from them |
//! | [`control`] | the socket and page with which the owner observes and controls the running agent |
//! | [`earnings`] | what this Island earned, day by day |
//! | [`preload`] | models downloaded before jobs need them |
//! | [`spool`], [`journal`] | what survives a killed agent: events, and accepted attempts |
//! | [`state_lock`] | one agent per state folder |
//! | [`report`] | reports events to the coordinator |
//! | [`job_logs`] | debug logs of jobs |
//! | [`doctor`] | checks what works here, and why the rest does not |
//! | [`clock`] | wall-clock time, and a clock that counts suspended time |
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
pub mod destinations;
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
pub mod notices;
pub mod policy;
pub mod pool;
pub mod preload;
pub mod report;
pub mod scrub;
pub mod spool;
pub mod state_lock;
pub mod supervisor;
pub mod vram_enforcement;
pub mod warm_containers;
pub mod withholding;
pub mod worker;
pub mod worker_placement;

#[cfg(test)]
mod testing;
