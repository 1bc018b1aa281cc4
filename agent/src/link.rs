//! The session with the fabric.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`credentials`] | enrollment, and short-lived credentials renewed in time |
//! | [`session`] | connecting, registering, connecting again |
//! | [`dispatch`] | what coordinators send: assignments, cancellations, hints, probes |
//! | [`heartbeat`], [`lease`] | what is sent every few seconds, each by a task of its own |
//! | [`hub`] | whether the model hub answers |

pub mod credentials;
pub mod dispatch;
pub mod heartbeat;
pub mod hub;
pub mod lease;
pub mod session;
