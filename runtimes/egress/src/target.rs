//! What a request asks for. Pure.

use hyper::{Method, Uri, http::uri::Scheme};
use island_protocol::egress::Place;

use crate::refusal::Refusal;

/// Port of plain HTTP where an address names none.
const HTTP: u16 = 80;

/// How a program is carried to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Bytes both ways, whatever they are.
    Tunnel,
    /// One request of plain HTTP.
    Request,
}

/// Where a request wants to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Which place.
    pub place: Place,
    /// In which way.
    pub how: How,
}

impl Target {
    /// Reads the method and the address of a request, as HTTP clients send them to a proxy.
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
        // Read anew from the text, and by the rules by which declared places are read: no name, no port or somebody's password
        // in front of it is then no place.
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
    fn what_proxies_are_asked() {
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
            (Method::GET, "http://127.1/", None),
            (Method::GET, "http://[::ffff:127.0.0.1]/", None),
        ] {
            assert_eq!(target(&method, uri).as_deref(), place, "{method} {uri}");
        }
    }

    proptest! {
        #[test]
        fn noise_is_no_place_that_it_does_not_spell(uri in "(http://)?[a-z0-9.:@\\[\\]/%-]{0,30}", connect: bool) {
            let method = if connect { Method::CONNECT } else { Method::GET };
            if let Some(place) = target(&method, &uri) {
                let (host, _) = place.rsplit_once(':').expect("a port");
                prop_assert!(uri.to_lowercase().contains(host));
                prop_assert!(!uri.contains('@') && host.parse::<std::net::IpAddr>().is_err());
            }
        }
    }
}
