//! The client of a request: its address, and how often it did in a minute what is limited for each client.

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
use island_protocol_api::problem::Code;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ApiError;
use crate::server::Peer;
use island_coordinator_domain::config::client_address;

/// Codes for an Island without an account that a client gets in a minute: an owner sets up some machines at a time.
pub(crate) const PAIRINGS_PER_MINUTE: u32 = 30;
/// Sign-ins that a client begins in a minute: an office has one address.
pub(crate) const SIGN_INS_PER_MINUTE: u32 = 30;
/// Length of a window, in which requests are counted.
const WINDOW: Duration = Duration::from_mins(1);
/// Maximum clients whose requests are counted at one time; those of further ones are not.
const MAX_CLIENTS: usize = 1 << 16;
/// Clients with IPv6 usually have a network of this length.
const IPV6_PREFIX: u32 = 64;

/// Address of the client of a request; `None` if it is unknown because a proxy that is not listed is in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client(pub Option<IpAddr>);

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
pub(crate) async fn identify(
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

/// Counted requests in this minute, by client: those with an invalid key, or those of a route that needs none. Beyond the
/// limit a client is refused before the database is asked. Each coordinator counts for itself.
#[derive(Debug)]
pub struct ClientLimit {
    /// 0 means unlimited.
    limit: u32,
    /// What is counted, in the plural.
    counted: &'static str,
    window: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    counts: HashMap<IpAddr, u32>,
}

impl ClientLimit {
    /// Allows `limit` requests in a minute. `counted` names them, for the error.
    pub(crate) fn new(limit: u32, counted: &'static str) -> Self {
        let window = Window { since: Instant::now(), counts: HashMap::new() };
        Self { limit, counted, window: Mutex::new(window) }
    }

    /// Counts a request, or returns an error if there were too many.
    pub(crate) fn admit(&self, client: Client) -> Result<(), ApiError> {
        self.check(client)?;
        self.record(client);
        Ok(())
    }

    /// An error if the client has made too many.
    pub(crate) fn check(&self, client: Client) -> Result<(), ApiError> {
        let Some(network) = self.network(client) else { return Ok(()) };
        let window = self.window.lock();
        let age = window.since.elapsed();
        let count = window.counts.get(&network).copied().unwrap_or(0);
        if age >= WINDOW || count < self.limit {
            return Ok(());
        }
        let seconds = WINDOW.saturating_sub(age).as_secs() + 1;
        let message = format!("too many {}: try again in {seconds} s", self.counted);
        Err(ApiError::new(Code::RateLimited, message).after(seconds))
    }

    /// Counts a request.
    pub(crate) fn record(&self, client: Client) {
        let Some(network) = self.network(client) else { return };
        let mut window = self.window.lock();
        if window.since.elapsed() >= WINDOW {
            window.since = Instant::now();
            window.counts.clear();
        }
        if window.counts.len() < MAX_CLIENTS || window.counts.contains_key(&network) {
            *window.counts.entry(network).or_default() += 1;
        }
    }

    /// The network that requests are counted for; `None` if they are not.
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
        let keys = ClientLimit::new(2, "requests with invalid keys");
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

    #[tokio::test(start_paused = true)]
    async fn requests_without_a_key_are_counted_by_network_and_not_together() {
        let limit = ClientLimit::new(2, "codes");
        for host in 1..=2 {
            limit.admit(client(&format!("2001:db8::{host}"))).expect("admitted");
        }
        limit.admit(client("2001:db8::3")).expect_err("too many of one network");
        limit.admit(client("192.0.2.1")).expect("another network");
        tokio::time::advance(WINDOW).await;
        limit.admit(client("2001:db8::3")).expect("another minute");
    }

    #[tokio::test]
    async fn unknown_clients_are_not_limited() {
        let keys = ClientLimit::new(1, "requests with invalid keys");
        for _ in 0..3 {
            keys.record(Client(None));
            keys.check(Client(None)).expect("admitted");
        }
        let unlimited = ClientLimit::new(0, "requests with invalid keys");
        unlimited.record(client("192.0.2.1"));
        unlimited.check(client("192.0.2.1")).expect("admitted");
    }
}
