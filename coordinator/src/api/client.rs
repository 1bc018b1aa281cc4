//! The client of a request: its address, and how many invalid keys it sent.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use axum::{
    extract::{FromRequestParts, Request, State},
    http::request::Parts,
    middleware::Next,
    response::Response,
};
use ipnet::IpNet;
use island_protocol::problem::Code;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::ApiError;
use crate::{config::client_address, server::Peer};

/// Length of a window, in which failures are counted.
const WINDOW: Duration = Duration::from_mins(1);
/// Maximum clients whose failures are counted at one time; those of further ones are not.
const MAX_CLIENTS: usize = 1 << 16;
/// Clients with IPv6 usually have a network of this length.
const IPV6_PREFIX: u32 = 64;

/// Address of the client of a request; `None` if it is unknown because a proxy that is not listed is in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Client(pub Option<IpAddr>);

impl<S: Send + Sync> FromRequestParts<S> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or(Self(None)))
    }
}

/// How the addresses of clients are found.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    /// Networks of proxies whose header names the client.
    pub trusted: Arc<[IpNet]>,
    /// Whether clients connect without a proxy.
    pub is_direct: bool,
}

/// Adds the address of the client to a request.
pub(super) async fn identify(
    State(addresses): State<Addresses>,
    mut request: Request,
    next: Next,
) -> Response {
    let client = client(&addresses, &request);
    request.extensions_mut().insert(Client(client));
    next.run(request).await
}

fn client(addresses: &Addresses, request: &Request) -> Option<IpAddr> {
    let Peer(peer) = *request.extensions().get()?;
    if addresses.trusted.is_empty() {
        return addresses.is_direct.then(|| peer.to_canonical());
    }
    let forwarded: Vec<&str> =
        request.headers().get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok()).collect();
    Some(client_address(peer, &forwarded, &addresses.trusted))
}

/// Requests with an invalid key in this minute, by client. Beyond the limit a client is refused before the
/// database is asked.
#[derive(Debug)]
pub(crate) struct InvalidKeys {
    /// 0 means unlimited.
    limit: u32,
    window: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    failures: HashMap<IpAddr, u32>,
}

impl InvalidKeys {
    /// Allows `limit` failures in a minute.
    pub(super) fn new(limit: u32) -> Self {
        let window = Window { since: Instant::now(), failures: HashMap::new() };
        Self { limit, window: Mutex::new(window) }
    }

    /// An error if the client has failed too often.
    pub(super) fn check(&self, client: Client) -> Result<(), ApiError> {
        let Some(network) = self.network(client) else { return Ok(()) };
        let window = self.window.lock();
        let age = window.since.elapsed();
        let failures = window.failures.get(&network).copied().unwrap_or(0);
        if age >= WINDOW || failures < self.limit {
            return Ok(());
        }
        let seconds = WINDOW.saturating_sub(age).as_secs() + 1;
        let message = format!("too many requests with invalid keys: try again in {seconds} s");
        Err(ApiError::new(Code::RateLimited, message).after(seconds))
    }

    /// Counts a failure.
    pub(super) fn record(&self, client: Client) {
        let Some(network) = self.network(client) else { return };
        let mut window = self.window.lock();
        if window.since.elapsed() >= WINDOW {
            window.since = Instant::now();
            window.failures.clear();
        }
        if window.failures.len() < MAX_CLIENTS || window.failures.contains_key(&network) {
            *window.failures.entry(network).or_default() += 1;
        }
    }

    /// The network that failures are counted for; `None` if they are not.
    fn network(&self, client: Client) -> Option<IpAddr> {
        if self.limit == 0 {
            return None;
        }
        Some(match client.0? {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => {
                let prefix = address.to_bits() >> (128 - IPV6_PREFIX) << (128 - IPV6_PREFIX);
                Ipv6Addr::from_bits(prefix).into()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> Client {
        Client(Some(text.parse().expect("an address")))
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_one_network_are_limited_for_a_minute() {
        let keys = InvalidKeys::new(2);
        for _ in 0..2 {
            keys.check(client("2001:db8::1")).expect("admitted");
            keys.record(client("2001:db8::1"));
        }
        assert!(keys.check(client("2001:db8::ffff")).is_err(), "the same network");
        keys.check(client("2001:db8:0:1::1")).expect("another network");
        keys.check(client("192.0.2.1")).expect("another client");
        tokio::time::advance(WINDOW).await;
        keys.check(client("2001:db8::1")).expect("another minute");
        keys.record(client("2001:db8::1"));
        keys.check(client("2001:db8::1")).expect("one failure");
    }

    #[tokio::test]
    async fn unknown_clients_are_not_limited() {
        let keys = InvalidKeys::new(1);
        for _ in 0..3 {
            keys.record(Client(None));
            keys.check(Client(None)).expect("admitted");
        }
        let unlimited = InvalidKeys::new(0);
        unlimited.record(client("192.0.2.1"));
        unlimited.check(client("192.0.2.1")).expect("admitted");
    }
}
