//! Ports for servers whose address must be known before they start.

use std::{
    hash::{BuildHasher as _, RandomState},
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

/// Below the ports that Linux (from 32768) and macOS (from 49152) give to outgoing connections and to listeners on port 0. Of a port
/// among those, another connection may take possession before the server of a test listens.
const PORTS: Range<u16> = 10_240..32_768;

/// Returns a port of 127.0.0.1 that nothing listens on, chosen at random so that tests at one time choose different ones.
///
/// # Panics
/// If every port is in use.
pub fn free_port() -> u16 {
    let count = usize::from(PORTS.end - PORTS.start);
    let start = RandomState::new().hash_one(()) as usize % count;
    let mut ports = PORTS.cycle().skip(start).take(count);
    ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).expect("a port that is free")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_free_and_none_that_connections_get() {
        let port = free_port();
        assert!(PORTS.contains(&port), "{port}");
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("it is free");
    }
}
