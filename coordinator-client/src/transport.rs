//! Where keys and tokens may be sent without encryption: to this machine, elsewhere only if the user allows it.

use async_nats::{ConnectOptions, ServerAddr};
use island_protocol::address::{fabric_servers, is_loopback};
use reqwest::Url;

/// An address to which keys and tokens would be sent in plain text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not encrypted and not on this machine")]
pub struct PlainText(pub String);

/// Refuses an `http:` address of another machine. Other errors of an address are not looked for.
pub fn check_http(url: &str) -> Result<(), PlainText> {
    let parsed = Url::parse(url).ok().filter(|url| url.scheme() == "http");
    let is_plain = parsed.is_some_and(|url| !url.host_str().is_some_and(is_loopback));
    if is_plain { Err(PlainText(url.to_owned())) } else { Ok(()) }
}

/// Options of a connection to the fabric at `url` that is encrypted, unless the server is on this machine.
///
/// The server cannot name further servers: it does so before the connection is encrypted, and one of them may be reached without.
/// An error for `ws:` on another machine, which is never encrypted; `wss:` always is. In a list with a WebSocket, the other addresses must state `tls:`.
pub fn fabric(
    options: ConnectOptions,
    url: &str,
    allow_plaintext: bool,
) -> Result<ConnectOptions, PlainText> {
    // Connecting reports an invalid address.
    let Some(servers) = parse(url).filter(|_| !allow_plaintext) else { return Ok(options) };
    let options = options.ignore_discovered_servers();
    if !servers.iter().any(ServerAddr::is_websocket) {
        return Ok(options.require_tls(is_encrypted(url, allow_plaintext)));
    }
    // The option holds for all servers, and those with a WebSocket do not have it.
    let is_plain =
        |server: &ServerAddr| !matches!(server.scheme(), "wss" | "tls") && !is_loopback(server.host());
    if servers.iter().any(is_plain) { Err(PlainText(url.to_owned())) } else { Ok(options) }
}

/// Whether [`fabric`] requires TLS of the servers at `url`.
pub fn is_encrypted(url: &str, allow_plaintext: bool) -> bool {
    let is_encrypted = |server: ServerAddr| match server.scheme() {
        "wss" => true,
        "ws" => false,
        _ => !allow_plaintext && !is_loopback(server.host()),
    };
    parse(url).is_some_and(|servers| servers.into_iter().any(is_encrypted))
}

/// Returns `None` if an address is invalid.
fn parse(url: &str) -> Option<Vec<ServerAddr>> {
    fabric_servers(url).into_iter().map(|server| server.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_needs_tls_off_this_machine() {
        for good in ["https://example.org", "http://127.0.0.1:8080/a", "http://[::1]:1", "http://localhost"] {
            assert_eq!(check_http(good), Ok(()), "{good}");
        }
        // The parser reads 2130706433 as 127.0.0.1, as the client does.
        assert_eq!(check_http("http://2130706433/"), Ok(()));
        for bad in ["http://example.org", "HTTP://10.0.0.1:8080", "http://127.0.0.1@example.org/"] {
            assert_eq!(check_http(bad), Err(PlainText(bad.to_owned())), "{bad}");
        }
    }

    #[test]
    fn no_server_of_a_list_is_used_in_plain_text() {
        let options = |url, allow| fabric(ConnectOptions::new(), url, allow).map(|_| ());
        for good in [
            "wss://island.example.org/nats",
            "wss://island.example.org/nats,tls://nats.example.org:4222",
            "ws://127.0.0.1:8080/nats,nats://localhost:4222",
            // TLS is required of them.
            "nats://nats.example.org:4222",
        ] {
            assert_eq!(options(good, false), Ok(()), "{good}");
        }
        for bad in [
            "ws://island.example.org/nats",
            "wss://island.example.org/nats,nats://nats.example.org:4222",
            "wss://island.example.org/nats,nats.example.org",
        ] {
            assert_eq!(options(bad, false), Err(PlainText(bad.to_owned())), "{bad}");
            assert_eq!(options(bad, true), Ok(()), "{bad}");
        }
    }
}
