//! How the owner sees and steers the running agent: a socket in its state folder, and a page on this machine for who wants one.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`status`] | what there is to see |
//! | [`history`] | the last hour, for plots |
//! | [`server`] | the socket, and the page on 127.0.0.1 |
//! | [`client`] | the other end of the socket: `status`, `pause`, `resume`, `drain` |
//! | [`metrics`] | the same numbers for Prometheus |
//! | [`screen`] | the same for a terminal |
//!
//! Whoever may open the socket may steer: its folder belongs to the owner. The page only shows.

pub mod client;
pub mod history;
pub mod metrics;
pub mod screen;
pub mod server;
pub mod status;
