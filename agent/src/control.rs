//! How the owner sees and steers the running agent: a socket in its state folder, and a page on this machine for who wants one.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`status`] | what there is to see |
//! | [`history`] | the last hour, for plots |
//! | [`server`] | the socket, and the page on 127.0.0.1 |
//! | [`check`] | a job of the Island's own, through the whole network |
//! | [`client`] | the other end of the socket: `status`, `pause`, `resume`, `drain`, `doctor` |
//! | [`metrics`] | the same as numbers, for Prometheus and OpenTelemetry |
//! | [`screen`] | the same for a terminal |
//!
//! Whoever may open the socket may steer: its folder belongs to the owner. The page only shows.

pub mod check;
pub mod client;
pub mod history;
pub mod metrics;
pub mod screen;
pub mod server;
pub mod status;
