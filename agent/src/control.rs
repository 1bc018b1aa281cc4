//! How the owner observes and controls the running agent: a socket in its state folder, and an optional page on this machine.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`status`] | the status |
//! | [`history`] | the last hour, for plots |
//! | [`server`] | the socket, and the page on 127.0.0.1 |
//! | `page` | the HTML of the page |
//! | [`check`] | a test job through the whole network |
//! | [`client`] | the client of the socket: `status`, `pause`, `resume`, `drain`, `doctor` |
//! | [`metrics`] | the status as metrics, for Prometheus and OpenTelemetry |
//! | [`screen`] | the status for a terminal |
//!
//! A process that can open the socket can control the agent: its folder belongs to the owner. The page is read-only.

pub mod check;
pub mod client;
pub mod history;
pub mod metrics;
mod page;
pub mod screen;
pub mod server;
pub mod status;
