//! Free ports.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result};

/// The port given, after a check that it is free, or a free one. Another program can still take it before it is used;
/// the program that then fails to bind reports it.
pub(super) fn choose(given: Option<u16>, what: &str) -> Result<u16> {
    let port = given.unwrap_or(0);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("take port {port} of this machine for {what}"))?;
    Ok(listener.local_addr().context("read the port that was taken")?.port())
}
