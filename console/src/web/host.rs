//! By which address a browser reaches the coordinator, and whether it has TLS.

use axum::http::{header, request::Parts, uri::Authority};

/// The host and port of a request.
fn host(parts: &Parts) -> Option<&str> {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    host.or_else(|| parts.uri.authority().map(Authority::as_str))
}

/// Whether a browser has no TLS, as far as it can be known behind a proxy: by the proxy's header, or because the browser has another
/// address than the one with TLS. On this machine browsers need none.
pub(super) fn is_unencrypted(parts: &Parts, public_url: &str) -> bool {
    if let Some(scheme) = parts.headers.get("x-forwarded-proto") {
        return scheme == "http";
    }
    let public = public_url.split_once("://").map(|(_, host)| host.trim_end_matches('/'));
    host(parts).is_some_and(|host| Some(host) != public && !is_this_machine(host))
}

/// Whether a host, with or without a port, is this machine.
fn is_this_machine(host: &str) -> bool {
    let is_port = |text: &str| text.is_empty() || text.starts_with(':');
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|own| host.strip_prefix(own).is_some_and(is_port))
}

/// The address of this network as the browser has it, without a path.
pub(super) fn origin(parts: &Parts, is_encrypted: bool) -> String {
    let host = host(parts);
    format!("{}://{}", if is_encrypted { "https" } else { "http" }, host.unwrap_or("localhost"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn parts(pairs: &[(&'static str, &'static str)]) -> Parts {
        let (mut parts, ()) = axum::http::Request::new(()).into_parts();
        for (name, value) in pairs {
            parts.headers.insert(*name, HeaderValue::from_static(value));
        }
        parts
    }

    #[test]
    fn another_address_than_the_one_with_tls_has_none() {
        let is_plain = |pairs: &[(&'static str, &'static str)]| {
            is_unencrypted(&parts(pairs), "https://island.example.org/")
        };
        assert!(!is_plain(&[("host", "island.example.org")]));
        assert!(is_plain(&[("host", "192.168.1.5:8080")]) && is_plain(&[("host", "localhost.example.org")]));
        assert!(!is_plain(&[("host", "127.0.0.1:8080")]) && !is_plain(&[("host", "localhost")]));
        assert!(is_plain(&[("host", "island.example.org"), ("x-forwarded-proto", "http")]));
        assert!(!is_plain(&[("host", "other.example.org"), ("x-forwarded-proto", "https")]));
    }
}
