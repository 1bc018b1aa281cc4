//! Parses the address of a request. Pure.

use hyper::{Method, Uri, http::uri::Scheme};
use island_protocol::egress::Place;

use crate::refusal::Refusal;

/// Port of plain HTTP if an address has none.
const HTTP: u16 = 80;

/// How a program's bytes are transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Any bytes in both directions.
    Tunnel,
    /// One request of plain HTTP.
    Request,
}

/// The destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The host and port.
    pub place: Place,
    /// The way of transfer.
    pub how: How,
}

impl Target {
    /// Reads method and address of a request in the form that HTTP clients send to a proxy.
    pub fn of(method: &Method, uri: &Uri) -> Result<Self, Refusal> {
        let how = if *method == Method::CONNECT { How::Tunnel } else { How::Request };
        let authority = uri.authority().ok_or(Refusal::NoProxyRequest)?;
        let as_it_should = match how {
            How::Tunnel => uri.scheme().is_none() && uri.path_and_query().is_none(),
            How::Request => uri.scheme() == Some(&Scheme::HTTP),
        };
        if !as_it_should {
            return Err(Refusal::NoProxyRequest);
        }
        // Parsed again from the text, by the rules for declared addresses: without a name or port, or with user information, it is not an
        // address.
        let text = authority.as_str();
        let named = if how == How::Request && authority.port().is_none() && !text.ends_with(':') {
            format!("{text}:{HTTP}").parse()
        } else {
            text.parse()
        };
        Ok(Self { place: named.map_err(Refusal::NoPlace)?, how })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(method: &Method, uri: &str) -> Option<String> {
        Some(Target::of(method, &uri.parse().ok()?).ok()?.place.to_string())
    }

    #[test]
    fn requests_to_proxies_are_parsed() {
        for (method, uri, place) in [
            (Method::CONNECT, "a.org:443", Some("a.org:443")),
            (Method::CONNECT, "A.ORG:443", Some("a.org:443")),
            (Method::CONNECT, "a.org", None),
            (Method::CONNECT, "a.org:", None),
            (Method::CONNECT, "http://a.org:443/", None),
            (Method::CONNECT, "/", None),
            (Method::CONNECT, "user@a.org:443", None),
            (Method::CONNECT, "127.0.0.1:443", None),
            (Method::CONNECT, "[::1]:443", None),
            (Method::CONNECT, "0x7f.1:443", None),
            (Method::CONNECT, "2130706433:443", None),
            (Method::GET, "http://a.org/x?y", Some("a.org:80")),
            (Method::GET, "http://a.org", Some("a.org:80")),
            (Method::GET, "http://a.org:8080/", Some("a.org:8080")),
            (Method::GET, "http://a.org:/", None),
            (Method::GET, "https://a.org/", None),
            (Method::GET, "ftp://a.org/", None),
            (Method::GET, "/x", None),
            (Method::OPTIONS, "*", None),
            (Method::GET, "http://user:pass@a.org/", None),
            (Method::GET, "http://b.org@a.org/", None),
            (Method::GET, "http://0.a/@", Some("0.a:80")),
            (Method::GET, "http://127.1/", None),
            (Method::GET, "http://[::ffff:127.0.0.1]/", None),
        ] {
            assert_eq!(target(&method, uri).as_deref(), place, "{method} {uri}");
        }
    }

    proptest! {
        #[test]
        fn a_parsed_address_is_spelled_in_the_request(uri in "(http://)?[a-z0-9.:@\\[\\]/%-]{0,30}", connect: bool) {
            let method = if connect { Method::CONNECT } else { Method::GET };
            if let Some(place) = target(&method, &uri) {
                let (host, _) = place.rsplit_once(':').expect("a port");
                prop_assert!(uri.to_lowercase().contains(host));
                // A path may contain anything.
                let authority = uri.strip_prefix("http://").unwrap_or(&uri).split('/').next().unwrap_or_default();
                prop_assert!(!authority.contains('@') && host.parse::<std::net::IpAddr>().is_err());
            }
        }
    }
}
