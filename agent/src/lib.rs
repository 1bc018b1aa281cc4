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
//! | [`owner`] | the owner's rules and orders, and what follows from them; earnings and notices |
//! | [`governor`] | evaluates [`owner::policy`] and makes the supervisor enforce the result |
//! | [`memory`] | does a job fit, which GPU does its worker get, which worker stops for it, which one exceeds its GPU memory; all pure |
//! | [`supervisor`] | owns the attempts |
//! | [`attempt`] | the shared handle of an attempt, and its states |
//! | [`job`] | the task of one attempt: prepare, run, report |
//! | [`pool`] | owns the workers: one per loaded model |
//! | [`worker`] | the task of one worker: frames, commands, stalls, its end |
//! | [`network`] | where containers may connect, and where files may be downloaded from |
//! | [`disk`] | what survives a killed agent: accepted attempts and events; a Cargo's files, debug logs, and the lock of the state folder |
//! | [`control`] | the socket and page with which the owner observes and controls the running agent |
//! | [`preload`] | models downloaded before jobs need them |
//! | [`report`] | reports events to the coordinator |
//! | [`doctor`] | checks what works here, and why the rest does not |
//! | [`clock`] | wall-clock time, and a clock that counts suspended time |
//!
//! Tasks: the lifecycle owns those of [`link`] and the meter; the supervisor's tracker owns one per attempt; the
//! pool's owns one per worker. An attempt's events go worker -> its sink -> the spool -> the fabric, and are kept in
//! the spool until the coordinator has committed the attempt's end.
//!
//! The one invariant: nothing is published that is not in the spool, and nothing at all while the lease is not
//! confirmed. The agent loads no engine: a crash in one ends a worker, never the agent.

pub mod agent;
pub mod attempt;
pub mod benchmark;
pub mod clock;
pub mod config;
pub mod control;
pub mod disk;
pub mod doctor;
pub mod enrollment;
pub mod fabric;
pub mod governor;
pub mod identity;
pub mod inventory;
pub mod job;
pub mod link;
pub mod memory;
pub mod network;
pub mod owner;
pub mod pool;
pub mod preload;
pub mod report;
pub mod scrub;
pub mod supervisor;
pub mod worker;

#[cfg(test)]
mod testing;
