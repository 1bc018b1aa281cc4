//! The coordinator of an Island network: takes jobs over HTTP, gives them to Islands over NATS, keeps the books in SQL.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`commands`], [`config`], [`app`] | the program: what it can be told, and how it is put together |
//! | `api` | HTTP, one module per noun, one file per verb |
//! | `openapi` | the document that describes the API, from its table of routes |
//! | `catalogue` | the Cargos, checked on load; which one a chat model name means |
//! | `job::state` | the transition table of jobs, pure |
//! | `placement` | who can run a job and who runs it best, pure |
//! | `lease` | leases and stalls, pure |
//! | `peers` | which other coordinators are alive, pure |
//! | `ledger` | double-entry accounting, pure |
//! | `fleet` | the Islands, in memory |
//! | `owner` | the tasks that own running jobs, their event logs and their retries |
//! | [`fabric`] | NATS: keys, user JWTs, permissions, the link |
//! | `storage` | SQL |
//! | `sse` | Server-Sent Event frames |
//! | `window` | requests in any minute, pure |
//! | `upkeep` | what may be written late: use of keys, stream slots, sweeping |
//! | `sweep` | notices when this process was held up |
//!
//! SQL is the only truth. A job and its hold commit before anything is answered; its end, its output and its
//! settlement commit before `done` is sent. Every write about a run is a compare-and-set on (job, attempt, epoch), so
//! whatever the fabric loses, repeats or delays changes nothing that has ended.
//!
//! Tasks: [`app::App::run`] owns the HTTP server; `owner::Owner` owns one runner and one publisher per job, the
//! placer, the clerk and one reader per fabric subject, and waits for them at the end.

pub(crate) mod api;
pub mod app;
pub(crate) mod catalogue;
pub mod clock;
pub mod commands;
pub mod config;
pub mod fabric;
pub(crate) mod fleet;
pub(crate) mod job;
pub(crate) mod lease;
pub(crate) mod ledger;
pub(crate) mod openapi;
pub(crate) mod owner;
pub(crate) mod peers;
pub(crate) mod placement;
pub(crate) mod secret;
pub(crate) mod sse;
pub mod storage;
pub(crate) mod sweep;
pub(crate) mod upkeep;
pub(crate) mod window;
