//! The session with the fabric.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`fabric`] | publishing, signed requests, and whether we are connected |
//! | [`credentials`] | enrolment, and short-lived credentials renewed in time |
//! | [`session`] | connecting, registering, connecting again |
//! | [`dispatch`] | what coordinators send: assignments, cancellations, hints, probes |
//! | [`heartbeat`], [`lease`] | what is sent every few seconds, each by a task of its own |

pub mod credentials;
pub mod dispatch;
pub mod fabric;
pub mod heartbeat;
pub mod lease;
pub mod session;
