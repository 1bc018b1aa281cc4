//! Free ports.

use std::{
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

use anyhow::{Context, Result};

/// Below the ports that Linux (from 32768) and macOS (from 49152) give to outgoing connections: one of those might get a port among them
/// before the program that it was chosen for.
const PORTS: Range<u16> = 10_240..32_768;
/// Number of ports that are tried before the system chooses.
const TRIES: u32 = 100;

/// The port given, after a check that it is free, or a free one. Another program can still take it before it is used;
/// the program that then fails to bind reports it.
pub(super) fn choose(given: Option<u16>, what: &str) -> Result<u16> {
    let take = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let free = || (0..TRIES).map(|_| rand::random_range(PORTS)).find(|port| take(*port).is_ok());
    let port = given.or_else(free).unwrap_or(0);
    let listener = take(port).with_context(|| format!("take port {port} of this machine for {what}"))?;
    Ok(listener.local_addr().context("read the port that was taken")?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_port_is_free_and_none_that_connections_get() {
        let port = choose(None, "a test").expect("a port");
        assert!(PORTS.contains(&port), "{port}");
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("it is free");
        let taken = choose(Some(port), "a test").expect_err("it is taken");
        assert_eq!(taken.to_string(), format!("take port {port} of this machine for a test"));
    }
}
