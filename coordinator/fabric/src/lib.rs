//! The coordinator's side of the message fabric: keys, user JWTs, configuration of the server, and the connection.

// A guard in a scrutinee lives to the end of the block, and the block may wait for what needs the guard.
#![warn(clippy::significant_drop_in_scrutinee)]
#![expect(
    missing_docs,
    reason = "items are public for the coordinator's other crates; documented where names and types do not suffice"
)]

mod event_stream;
pub mod init;
pub(crate) mod jwt;
pub mod keys;
pub mod link;
mod nats_conf;
pub mod permissions;
pub mod revocation;
pub mod signature;
