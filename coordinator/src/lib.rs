//! The coordinator of an Island network as a program: accepts jobs over HTTP, assigns them to Islands over NATS, and records them in SQL.
//!
//! | module | content |
//! | --- | --- |
//! | [`commands`] | the command line |
//! | [`app`] | the parts put together, served and stopped in order |
//! | `clock_gap` | detects that this process did not run for some time |
//!
//! | crate below | content |
//! | --- | --- |
//! | `coordinator/domain` | rules and state without SQL, NATS or HTTP: placement, fleet, leases, ledger, catalogue, settings |
//! | `coordinator/storage` | SQL |
//! | `coordinator/fabric` | NATS: keys, user JWTs, permissions, the connection |
//! | `coordinator/execution` | the tasks that execute jobs, and those that maintain the database |
//! | `coordinator/api` | HTTP |
//!
//! SQL is the only truth. A job and its hold commit before the request is answered; its end, its output and its settlement commit
//! before `done` is sent. Every write about an attempt is a compare-and-set on (job, attempt, epoch), so messages that the fabric
//! loses, repeats or delays change nothing about a job that has ended.
//!
//! Tasks: [`app::App::run`] runs the HTTP server; `Execution` runs one runner and one publisher for each job, the placer,
//! the deferred writes, the maintenance, the batches, the webhooks and one reader for each fabric subject, and waits for them at the end.

// A guard in a scrutinee lives to the end of the block, and the block may wait for what needs the guard.
#![warn(clippy::significant_drop_in_scrutinee)]

pub mod app;
mod clock_gap;
pub mod commands;
