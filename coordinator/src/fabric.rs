//! The coordinator's side of the message fabric: keys, user JWTs, configuration of the server, and the connection.

mod event_stream;
pub mod init;
pub(crate) mod jwt;
pub(crate) mod keys;
pub(crate) mod link;
mod nats_conf;
pub(crate) mod permissions;
pub(crate) mod revocation;
pub(crate) mod signature;
