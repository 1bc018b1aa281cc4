//! What the long-running programs share, so that starting, stopping and explaining themselves reads the same in each.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`lifecycle`] | owned tasks, signals, and the order of stopping |
//! | [`config`] | flags over environment over a TOML file over defaults; unknown keys are errors |
//! | [`telemetry`] | logs |
//! | [`traces`] | spans of traces, sent to an OpenTelemetry collector |
//! | [`notify`] | notices to systemd |
//! | [`progress`] | a watchdog for tasks that must not stop making progress |
//! | [`latest`] | watch channels read by value |
//! | [`chain`] | an error with its causes on one line |
//! | [`files`] | whole-or-not-at-all writes |
//! | [`wall_clock`] | the time of day, which tests can set wrong |
//!
//! A program is `config -> build -> spawn -> run`. Its [`lifecycle::Lifecycle`] owns every task that lives as long as
//! the process; nothing is detached. Two tokens end tasks: `soft` (take no new work, finish) and `hard` (stop
//! now), hard being the parent. The first signal trips soft; a second one, or the drain limit, trips hard.

pub mod chain;
pub mod config;
pub mod failpoint;
pub mod files;
pub mod latest;
pub mod lifecycle;
pub mod notify;
pub mod progress;
pub mod telemetry;
pub mod traces;
pub mod wall_clock;
