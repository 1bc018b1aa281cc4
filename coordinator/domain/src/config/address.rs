//! Addresses under which a network is reached, and from which it is.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use island_protocol::address::is_loopback;
use reqwest::Url;
use serde::{Deserialize, Serialize};

/// Path at which a reverse proxy passes WebSockets on to nats-server.
const WEBSOCKET_PATH: &str = "nats";

/// Address of the API for consumers and Islands: `https:`, a host and possibly a port; `http:` on loopback only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PublicUrl(Url);

/// Text that is not a public address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a public address is https://HOST or https://HOST:PORT")]
pub struct InvalidPublicUrl;

impl PublicUrl {
    /// The host; IPv6 in brackets.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// The port, also if it is the usual one.
    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(443)
    }

    /// Whether only this machine can use it.
    pub fn is_loopback(&self) -> bool {
        is_loopback(self.host())
    }

    /// Address of NATS by WebSocket behind the same reverse proxy.
    pub fn websocket(&self) -> String {
        let mut url = self.0.clone();
        let scheme = if self.0.scheme() == "https" { "wss" } else { "ws" };
        url.set_scheme(scheme).expect("a web scheme can be replaced by another one");
        url.set_path(WEBSOCKET_PATH);
        url.into()
    }
}

/// Whether this is a web address of TLS, or of loopback.
pub(super) fn is_encrypted(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| {
        let is_local = url.host_str().is_some_and(is_loopback);
        url.scheme() == "https" || (url.scheme() == "http" && is_local)
    })
}

impl FromStr for PublicUrl {
    type Err = InvalidPublicUrl;

    fn from_str(text: &str) -> Result<Self, InvalidPublicUrl> {
        let url = Url::parse(text).map_err(|_| InvalidPublicUrl)?;
        let has_host = url.host_str().is_some_and(|host| !host.is_empty());
        let is_private =
            url.scheme() == "https" || (url.scheme() == "http" && url.host_str().is_some_and(is_loopback));
        let is_bare = url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        if has_host && is_private && is_bare { Ok(Self(url)) } else { Err(InvalidPublicUrl) }
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

impl TryFrom<String> for PublicUrl {
    type Error = InvalidPublicUrl;

    fn try_from(text: String) -> Result<Self, InvalidPublicUrl> {
        text.parse()
    }
}

impl From<PublicUrl> for String {
    fn from(url: PublicUrl) -> Self {
        url.to_string()
    }
}

/// Address of a client behind proxies, by their header `X-Forwarded-For`: the last address that is not a proxy's.
///
/// `peer` is the other end of the connection. The header counts only if `peer` is in `trusted`, and each address of it only if
/// the ones after it are.
pub fn client_address(peer: IpAddr, forwarded: &[&str], trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|net| net.contains(&address));
    let mut client = peer.to_canonical();
    let named = forwarded.iter().flat_map(|header| header.split(',')).map(str::trim).collect::<Vec<_>>();
    for text in named.into_iter().rev() {
        if !is_trusted(client) {
            break;
        }
        let Some(address) = parse(text) else { break };
        client = address.to_canonical();
    }
    client
}

/// An address with or without a port.
fn parse(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<std::net::SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_encrypted_and_bare() {
        for good in ["https://island.example.org", "https://10.0.0.1:8443", "http://127.0.0.1:8080"] {
            assert_eq!(good.parse::<PublicUrl>().expect(good).to_string(), good);
        }
        for bad in [
            "",
            "island.example.org",
            "http://island.example.org",
            "https://island.example.org/api",
            "https://user@island.example.org",
            "https://island.example.org?a",
            "ftp://island.example.org",
        ] {
            assert_eq!(bad.parse::<PublicUrl>(), Err(InvalidPublicUrl), "{bad}");
        }
    }

    #[test]
    fn nats_is_reached_through_the_proxy() {
        let websocket = |text: &str| text.parse::<PublicUrl>().expect("an address").websocket();
        assert_eq!(websocket("https://island.example.org"), "wss://island.example.org/nats");
        assert_eq!(websocket("https://island.example.org:8443"), "wss://island.example.org:8443/nats");
        assert_eq!(websocket("http://127.0.0.1:8080"), "ws://127.0.0.1:8080/nats");
    }

    #[test]
    fn only_trusted_proxies_name_their_clients() {
        let trusted: Vec<IpNet> =
            ["127.0.0.0/8", "10.1.0.0/16"].iter().map(|net| net.parse().expect("a net")).collect();
        let client = |peer: &str, forwarded: &[&str]| {
            client_address(peer.parse().expect("an address"), forwarded, &trusted).to_string()
        };
        assert_eq!(client("203.0.113.9", &["198.51.100.1"]), "203.0.113.9");
        assert_eq!(client("127.0.0.1", &[]), "127.0.0.1");
        assert_eq!(client("127.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("::ffff:127.0.0.1", &["198.51.100.1:4711"]), "198.51.100.1");
        // What the client itself sent comes first and does not count.
        assert_eq!(client("127.0.0.1", &["1.1.1.1, 198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("127.0.0.1", &["1.1.1.1", "198.51.100.1, 10.1.2.3"]), "198.51.100.1");
        assert_eq!(client("127.0.0.1", &["unknown"]), "127.0.0.1");
        assert_eq!(client("10.1.0.1", &["[2001:db8::1]:99"]), "2001:db8::1");
    }
}
