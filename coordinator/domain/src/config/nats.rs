//! Settings of nats-server, which `init` writes into `nats.conf`. The coordinator itself uses `replicas` alone,
//! and from `tls` and `websocket` derives the address for Islands.

use std::{
    collections::BTreeMap,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::Tls;

/// What `init` writes into `nats.conf`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NatsSettings {
    /// Folder for `nats.conf` and the server's own files; `fabric.dir` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Address for coordinators and Islands. Others than loopback need `nats.tls` to keep messages private.
    pub listen: SocketAddr,
    /// Address for Islands that connect by WebSocket, usually through the reverse proxy that ends TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub websocket: Option<SocketAddr>,
    /// Certificate of both addresses and of the routes between nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Folder of JetStream's files; `jetstream` in `nats.dir` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_dir: Option<PathBuf>,
    /// Maximum MiB of JetStream's files on each node.
    pub max_store_mb: u32,
    /// Maximum connections to each node.
    pub max_connections: u32,
    /// MiB that a connection may leave unread before it is closed.
    pub max_pending_mb: u32,
    /// Seconds that a connection may take to read what it is sent.
    pub write_deadline_s: u32,
    /// Nodes that keep the events of a job: 1, 3 or 5, at most the number of nodes.
    pub replicas: u8,
    /// Nodes of the cluster: the address at which the others reach each, `host:port`, by name; empty for a single server.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<NodeName, RouteAddress>,
}

impl Default for NatsSettings {
    fn default() -> Self {
        Self {
            dir: None,
            listen: (Ipv4Addr::LOCALHOST, 4222).into(),
            websocket: None,
            tls: None,
            store_dir: None,
            max_store_mb: 4096,
            max_connections: 16_384,
            max_pending_mb: 64,
            write_deadline_s: 10,
            replicas: 1,
            nodes: BTreeMap::new(),
        }
    }
}

impl NatsSettings {
    /// Rules, each with the message for the case that it does not hold.
    pub(super) fn rules(&self) -> [(bool, &'static str); 6] {
        let nodes = self.nodes.len().max(1);
        [
            (self.max_store_mb > 0, "nats.max_store_mb must be above 0"),
            (self.max_connections > 0, "nats.max_connections must be above 0"),
            // The largest message is 16 MiB.
            (self.max_pending_mb >= 17, "nats.max_pending_mb must be at least 17"),
            (self.write_deadline_s > 0, "nats.write_deadline_s must be above 0"),
            (
                matches!(self.replicas, 1 | 3 | 5) && usize::from(self.replicas) <= nodes,
                "nats.replicas must be 1, 3 or 5, and at most the number of nats.nodes",
            ),
            (nodes != 2, "nats.nodes must be three or more: two cannot elect a leader after the loss of one"),
        ]
    }
}

/// Name of a node: lower-case letters, digits and hyphens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NodeName(String);

/// Text that is not the name of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name of a node has 1 to 63 lower-case letters, digits and hyphens")]
pub struct InvalidNodeName;

impl FromStr for NodeName {
    type Err = InvalidNodeName;

    fn from_str(text: &str) -> Result<Self, InvalidNodeName> {
        let is_valid = (1..=63).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if is_valid { Ok(Self(text.to_owned())) } else { Err(InvalidNodeName) }
    }
}

impl TryFrom<String> for NodeName {
    type Error = InvalidNodeName;

    fn try_from(text: String) -> Result<Self, InvalidNodeName> {
        text.parse()
    }
}

impl From<NodeName> for String {
    fn from(value: NodeName) -> Self {
        value.to_string()
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `host:port` at which other nodes reach a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RouteAddress {
    /// Name or address; IPv6 in brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Text that is not the address of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the address of a node is host:port")]
pub struct InvalidRouteAddress;

impl FromStr for RouteAddress {
    type Err = InvalidRouteAddress;

    fn from_str(text: &str) -> Result<Self, InvalidRouteAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(InvalidRouteAddress)?;
        let port = port.parse().map_err(|_| InvalidRouteAddress)?;
        let is_host = !host.is_empty()
            && host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'[' | b']' | b':'));
        // Without brackets, the end of an IPv6 address could be a port.
        let is_clear = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        if is_host && is_clear { Ok(Self { host: host.to_owned(), port }) } else { Err(InvalidRouteAddress) }
    }
}

impl TryFrom<String> for RouteAddress {
    type Error = InvalidRouteAddress;

    fn try_from(text: String) -> Result<Self, InvalidRouteAddress> {
        text.parse()
    }
}

impl From<RouteAddress> for String {
    fn from(value: RouteAddress) -> Self {
        value.to_string()
    }
}

impl fmt::Display for RouteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_nodes() {
        assert!("n1".parse::<NodeName>().is_ok());
        for bad in ["", "N1", "a.b", "a b", &"n".repeat(64)] {
            assert!(bad.parse::<NodeName>().is_err(), "{bad}");
        }
        for good in ["nats-1:6222", "10.0.0.1:6222", "[fd00::1]:6222"] {
            assert_eq!(good.parse::<RouteAddress>().expect(good).to_string(), good);
        }
        for bad in ["", "nats-1", ":6222", "nats-1:port", "fd00::1:6222", "a b:1", "a\"b:1"] {
            assert!(bad.parse::<RouteAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn replicas_need_nodes() {
        let holds = |settings: &NatsSettings| settings.rules().iter().all(|(holds, _)| *holds);
        let mut settings = NatsSettings::default();
        assert!(holds(&settings));
        settings.replicas = 3;
        assert!(!holds(&settings));
        for number in 1..=3 {
            let name = format!("n{number}").parse().expect("a name");
            settings.nodes.insert(name, "host:6222".parse().expect("an address"));
        }
        assert!(holds(&settings));
        settings.nodes.pop_first();
        settings.replicas = 1;
        assert!(!holds(&settings), "two nodes");
    }
}
