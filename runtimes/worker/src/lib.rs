//! A worker is one process that runs one engine with one loaded model, walled in, and outlives the agent that started it.
//!
//! | module | side | what it holds |
//! | --- | --- | --- |
//! | [`launch`] | both | what a worker is told before it locks itself in: `launch.json` in its directory |
//! | [`frame`] | both | what travels on its Unix socket: length-prefixed JSON |
//! | [`codec`] | both | reading and writing those frames |
//! | [`host`] | agent | starts a worker, attaches to one that is running, relays jobs and events |
//! | [`inside`] | engine | lock-down, the server loop, event numbering and replay |
//! | [`lockdown`] | engine | landlock, seccomp, no network, memory watchdog; the level reached is reported |
//!
//! The life of a worker: the agent makes a directory with `launch.json` and a listening socket, and starts the binary
//! with the directory as argument and the socket as standard input. The worker opens what it needs, locks itself
//! in while still single-threaded, and only then reads the first untrusted byte: the model. It numbers the events of each
//! attempt and keeps them until the agent has spooled them, so an agent that is killed finds everything again. It says
//! [`frame::FromWorker::Hello`] on every connection and exits after a minute without one.

pub mod codec;
pub mod frame;
pub mod host;
pub mod inside;
pub mod launch;
pub mod lockdown;
