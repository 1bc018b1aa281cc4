//! The coordinator of an Island network: accepts jobs over HTTP, assigns them to Islands over NATS, and records them in SQL.
//!
//! | module | content |
//! | --- | --- |
//! | [`commands`], [`config`], [`app`] | the program: command line, settings, and how the parts are put together |
//! | `api` | HTTP: one module for each noun, one file for each verb |
//! | `openapi` | the document that describes the API, generated from the table of routes |
//! | `catalogue` | the Cargos, checked when they are loaded; the choice of a chat model by name |
//! | `job::state` | the transition table of jobs, pure |
//! | `placement` | which Islands can run a job, and which runs it best, pure |
//! | `batch` | states and lines of batches, pure |
//! | `lease` | leases and stalls, pure |
//! | `peers` | which other coordinators are alive, pure |
//! | `publication` | states of Cargos that accounts publish, pure |
//! | `ledger` | double-entry accounting, pure |
//! | `quota` | how much an account or a key may use in a period, pure |
//! | `sliding_window` | the rate limit, pure |
//! | `fleet` | the Islands, in memory |
//! | `network` | what operators have set for the whole network: published Cargos, maintenance, disabled Cargos, notices |
//! | `execution` | the tasks that execute jobs, with their event logs and retries |
//! | `deferred_writes` | writes that no answer waits for |
//! | `oidc` | sign-in with an OpenID Connect provider |
//! | `webhooks` | sends events to addresses of accounts, signed and until they are accepted |
//! | `metrics` | what is counted and measured, for Prometheus |
//! | `maintenance` | sums of the market, deletion of old data, revocation of fabric credentials |
//! | [`fabric`] | NATS: keys, user JWTs, permissions, the connection |
//! | `storage` | SQL |
//! | `server` | HTTP connections, with limits on their number and on time |
//! | `sse` | Server-Sent Event frames |
//! | `clock_gap` | detects that this process did not run for some time |
//!
//! SQL is the only truth. A job and its hold commit before the request is answered; its end, its output and its settlement commit
//! before `done` is sent. Every write about an attempt is a compare-and-set on (job, attempt, epoch), so messages that the fabric
//! loses, repeats or delays change nothing about a job that has ended.
//!
//! Tasks: [`app::App::run`] runs the HTTP server; `execution::Execution` runs one runner and one publisher for each job, the placer,
//! the deferred writes, the maintenance, the batches, the webhooks and one reader for each fabric subject, and waits for them at the end.

// A guard in a scrutinee lives to the end of the block, and the block may wait for what needs the guard.
#![warn(clippy::significant_drop_in_scrutinee)]

pub(crate) mod api;
pub mod app;
pub(crate) mod batch;
pub(crate) mod catalogue;
pub mod clock;
pub(crate) mod clock_gap;
mod clock_trust;
pub mod commands;
pub mod config;
pub(crate) mod deferred_writes;
pub(crate) mod execution;
pub mod fabric;
pub(crate) mod fleet;
pub(crate) mod job;
pub(crate) mod lease;
pub(crate) mod ledger;
pub(crate) mod maintenance;
pub(crate) mod metrics;
pub(crate) mod network;
pub(crate) mod oidc;
pub(crate) mod openapi;
pub(crate) mod peers;
pub(crate) mod placement;
pub(crate) mod publication;
pub(crate) mod quota;
pub(crate) mod secret;
pub mod server;
pub(crate) mod sliding_window;
pub(crate) mod sse;
pub mod storage;
pub(crate) mod webhooks;
