//! Which addresses events may be sent to: accounts choose them, and this machine reaches what accounts do not.

use std::net::{IpAddr, SocketAddr};

use island_protocol::{address::is_loopback, public_address::may_connect};
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// Why no events are sent to an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is not an address.
    #[error("the address is not a URL with a host")]
    Malformed,
    /// It is not encrypted.
    #[error("the address must begin with https://")]
    Plain,
    /// It contains a user or a password, which would be in logs.
    #[error("the address must not contain a user or a password")]
    Credentials,
    /// It is not of the public internet.
    #[error("the address is {0}, not one of the public internet")]
    Private(&'static str),
}

/// Checks what the address itself shows; names are checked when they are resolved.
pub fn check(text: &str, is_private_allowed: bool) -> Result<Url, Refused> {
    let url = Url::parse(text).map_err(|_| Refused::Malformed)?;
    let host = url.host_str().ok_or(Refused::Malformed)?;
    match url.scheme() {
        "https" => {}
        "http" if is_private_allowed && is_loopback(host) => {}
        _ => return Err(Refused::Plain),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refused::Credentials);
    }
    if is_private_allowed {
        return Ok(url);
    }
    if is_loopback(host) {
        return Err(Refused::Private("this host"));
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        may_connect(address).map_err(|forbidden| Refused::Private(forbidden.0))?;
    }
    Ok(url)
}

/// Resolves names to permitted addresses. The connection is made to one of these, so the name is not resolved again after
/// the check.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resolver {
    pub(super) is_private_allowed: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let is_private_allowed = self.is_private_allowed;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let permitted = permitted(found, is_private_allowed)?;
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

/// The addresses that may be connected to; an error if there are others only.
fn permitted(found: Vec<SocketAddr>, is_private_allowed: bool) -> Result<Vec<SocketAddr>, Refused> {
    let mut refused = None;
    let check = |address: &SocketAddr| {
        let checked = may_connect(address.ip().to_canonical());
        refused = checked.err().or(refused);
        is_private_allowed || checked.is_ok()
    };
    let permitted: Vec<SocketAddr> = found.into_iter().filter(check).collect();
    match refused {
        Some(forbidden) if permitted.is_empty() => Err(Refused::Private(forbidden.0)),
        _ => Ok(permitted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_encrypted_public_addresses_are_accepted() {
        for good in ["https://example.org/hook", "https://example.org:8443/?a=b", "https://8.8.8.8/"] {
            assert!(check(good, false).is_ok(), "{good}");
        }
        for bad in [
            "",
            "example.org",
            "http://example.org/",
            "http://127.0.0.1/",
            "https://127.0.0.1/",
            "https://localhost/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://10.0.0.1/",
            "https://169.254.169.254/latest",
            "https://user@example.org/",
            "https://user:secret@example.org/",
            "ftp://example.org/",
            "file:///etc/passwd",
        ] {
            assert!(check(bad, false).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_operator_may_allow_private_addresses() {
        for good in
            ["http://127.0.0.1:8080/hook", "http://localhost/", "https://10.0.0.1/", "https://example.org/"]
        {
            assert!(check(good, true).is_ok(), "{good}");
        }
        for bad in ["http://10.0.0.1/", "http://example.org/", "https://user@10.0.0.1/"] {
            assert!(check(bad, true).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_lead_to_public_addresses_only() {
        let of =
            |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect::<Vec<_>>();
        let mixed = of(&["10.0.0.1:0", "8.8.8.8:0", "[::1]:0"]);
        assert_eq!(permitted(mixed.clone(), false), Ok(of(&["8.8.8.8:0"])));
        assert_eq!(permitted(mixed.clone(), true), Ok(mixed));
        assert!(permitted(of(&["127.0.0.1:0", "[fd00::1]:0"]), false).is_err());
        assert_eq!(permitted(Vec::new(), false), Ok(Vec::new()));
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_not_resolved() {
        let resolver = Resolver { is_private_allowed: false };
        let name = "localhost".parse().expect("a name");
        assert!(resolver.resolve(name).await.is_err());
    }
}
