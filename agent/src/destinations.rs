//! Where models are downloaded from: the public internet, and the hosts that the owner chose.

use std::net::{IpAddr, SocketAddr};

use island_cache::Destinations;
use island_runtimes_egress::{Internet, Outside as _};
use reqwest::Url;

/// Permits public addresses, encrypted, and the model hub and coordinator of this Island wherever they are.
#[derive(Debug)]
pub struct PublicHosts {
    internet: Internet,
    trusted: Vec<String>,
}

impl PublicHosts {
    /// Trusts the hosts of these addresses, which are in the owner's settings.
    pub fn trusting<'a>(trusted: impl IntoIterator<Item = &'a str>) -> Self {
        let host = |url: &str| Some(Url::parse(url).ok()?.host_str()?.to_owned());
        Self { internet: Internet::default(), trusted: trusted.into_iter().filter_map(host).collect() }
    }

    fn is_trusted(&self, host: &str) -> bool {
        self.trusted.iter().any(|trusted| trusted == host)
    }
}

impl Destinations for PublicHosts {
    fn check_plain(&self, host: &str) -> Result<(), String> {
        let is_here = host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        if self.is_trusted(host) || is_here {
            Ok(())
        } else {
            Err("its address does not begin with https".to_owned())
        }
    }

    fn check_address(&self, host: &str, address: SocketAddr) -> Result<(), String> {
        if self.is_trusted(host) {
            return Ok(());
        }
        self.internet.check(address).map_err(|kind| format!("its address is that of {kind}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_cannot_name_hosts_of_the_owners_network() {
        let hosts =
            PublicHosts::trusting(["https://hub.example/path", "http://127.0.0.1:8080", "not an address"]);
        let at = |host: &str, address: &str| {
            hosts.check_address(host, SocketAddr::new(address.parse().expect("an address"), 0))
        };
        assert_eq!(at("files.example", "1.1.1.1"), Ok(()));
        for near in ["192.168.1.1", "10.0.0.1", "127.0.0.2", "169.254.169.254", "::1", "fd00::1", "fe80::1"] {
            assert!(at("files.example", near).is_err(), "{near}");
        }
        assert_eq!(at("hub.example", "192.168.1.1"), Ok(()), "the owner's own mirror");
        assert_eq!(at("127.0.0.1", "127.0.0.1"), Ok(()), "the owner's own coordinator");
        assert!(hosts.check_plain("files.example").is_err());
        assert_eq!(hosts.check_plain("hub.example"), Ok(()));
    }
}
