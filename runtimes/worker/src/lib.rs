//! A worker is one sandboxed process that runs one engine with one loaded model. It outlives the agent that started it.
//!
//! | module | side | what it holds |
//! | --- | --- | --- |
//! | [`launch`] | both | what a worker is launched with: `launch.json` in its directory |
//! | [`frame`] | both | the messages on its Unix socket: length-prefixed JSON |
//! | [`event_limits`] | both | limits of the events in them: kept by the worker, checked by the agent |
//! | [`codec`] | both | reading and writing those frames |
//! | [`host`] | agent | starts a worker, attaches to a running one, transfers jobs and events |
//! | [`inside`] | engine | sandbox, server loop, event numbering and replay |
//! | [`lockdown`] | engine | landlock, seccomp, no network, memory watchdog; reports the level it reached |
//!
//! The life of a worker: the agent creates a directory with `launch.json` and a listening socket, and starts the binary with the directory
//! as argument and the socket as standard input. The worker opens what it needs, applies its sandbox while still single-threaded, and only
//! then reads the first untrusted byte: the model. It numbers the events of each attempt and keeps them until the agent has spooled them,
//! so that an agent that was killed misses none. It sends [`frame::FromWorker::Hello`] on every connection and exits after a minute without
//! one.

pub mod codec;
pub mod event_limits;
pub mod frame;
pub mod host;
pub mod inside;
pub mod launch;
pub mod lockdown;
