//! Where models are downloaded from: the public internet, and the origins that the owner chose.

use std::{net::SocketAddr, sync::Arc};

use island_cache::{Destinations, Learning};
use island_runtimes_egress::{Internet, Outside as _};
use reqwest::Url;

/// Permits public addresses, encrypted, and the model hub and coordinator of this Island wherever they are.
#[derive(Debug)]
pub struct PublicHosts {
    internet: Arc<Internet>,
    trusted: Vec<Url>,
}

impl PublicHosts {
    /// Trusts the origins of these addresses, which are in the owner's settings. Other ports of their hosts are not trusted.
    pub fn trusting<'a>(internet: Arc<Internet>, trusted: impl IntoIterator<Item = &'a str>) -> Self {
        Self { internet, trusted: trusted.into_iter().filter_map(|url| Url::parse(url).ok()).collect() }
    }
}

impl Destinations for PublicHosts {
    fn is_trusted(&self, url: &Url) -> bool {
        self.trusted.iter().any(|trusted| trusted.origin() == url.origin())
    }

    fn learn(&self) -> Learning<'_> {
        Box::pin(self.internet.learn_translations())
    }

    fn check_address(&self, address: SocketAddr) -> Result<(), String> {
        self.internet.check(address).map_err(|kind| format!("its address is that of {kind}"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use island_cache::{Cache, CacheConfig, GetError, WebError};
    use island_daemon::chain::Chain;
    use island_protocol::artifact::Artifact;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::testing;

    #[test]
    fn only_the_origins_of_the_settings_are_trusted() {
        let hosts = PublicHosts::trusting(
            Arc::default(),
            ["https://hub.example/path", "http://127.0.0.1:8080", "not an address"],
        );
        let is_trusted = |url: &str| hosts.is_trusted(&Url::parse(url).expect("an address"));
        for own in
            ["https://hub.example/a", "https://HUB.example:443/", "http://127.0.0.1:8080/api/v1/artifacts/a"]
        {
            assert!(is_trusted(own), "{own}");
        }
        for other in [
            "http://hub.example/a",
            "https://hub.example:8443/",
            "https://hub.example@files.example/",
            "http://127.0.0.1:22/",
            "https://127.0.0.1:8080/",
        ] {
            assert!(!is_trusted(other), "{other}");
        }
    }

    #[test]
    fn addresses_of_the_owners_network_are_refused() {
        let hosts = PublicHosts::trusting(Arc::default(), []);
        let at =
            |address: &str| hosts.check_address(SocketAddr::new(address.parse().expect("an address"), 0));
        assert_eq!(at("1.1.1.1"), Ok(()));
        for near in ["192.168.1.1", "10.0.0.1", "127.0.0.2", "169.254.169.254", "::1", "fd00::1", "fe80::1"] {
            assert!(at(near).is_err(), "{near}");
        }
    }

    #[test]
    fn a_translated_address_is_refused_for_files_as_well() {
        let internet = Arc::new(Internet::default());
        let hosts = PublicHosts::trusting(Arc::clone(&internet), []);
        let at =
            |address: &str| hosts.check_address(SocketAddr::new(address.parse().expect("an address"), 0));
        // Without a network that has IPv6, it is refused for another reason.
        let is_translated =
            || at("2a00:1098:2c::c0a8:101").is_err_and(|reason| reason.contains("translated"));
        assert!(!is_translated(), "a network without translation");
        internet.set_translations(["2a00:1098:2c::c000:aa".parse().expect("an address of ipv4only.arpa")]);
        assert!(is_translated(), "192.168.1.1");
    }

    /// How downloading a file from an address fails.
    async fn refusal(cache: &Cache, url: &str) -> GetError {
        let digest = Some(island_cache::digest_of(b"x"));
        let artifact =
            Artifact { name: "model".into(), url: url.into(), sha256: digest, size_bytes: Some(1) };
        let got = cache.get(&artifact, Arc::new(|_| ()), &CancellationToken::new()).await;
        got.expect_err(url)
    }

    /// Addresses that lead into the owner's network, however they are written.
    #[tokio::test]
    async fn no_spelling_of_an_address_leads_into_the_owners_network() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let config = CacheConfig { offline: false, ..testing::cache(folder.path()) };
        let hosts = PublicHosts::trusting(Arc::default(), ["http://127.0.0.1:9"]);
        let cache = Cache::open_for(config, Arc::new(hosts)).expect("a cache");
        // A connection to this shows that a check is missing.
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let port = listener.local_addr().expect("an address").port();
        let spellings = [
            // 127.0.0.1 and other addresses of this machine, as the parser of addresses reads them.
            "127.0.0.1",
            "127.1",
            "127.0.1",
            "127.0.0.1.",
            "2130706433",
            "017700000001",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.01",
            "%31%32%37.0.0.1",
            "\u{ff11}27.0.0.1",
            "127\u{3002}0.0.1",
            "127.255.255.254",
            "0",
            "0.0.0.0",
            // Private, shared and link-local networks, and the metadata of clouds.
            "10.0.0.1",
            "0xa000001",
            "172.16.0.1",
            "192.168.0.1",
            "3232235521",
            "100.64.0.1",
            "169.254.169.254",
            "2852039166",
            "0xa9fea9fe",
            "168.63.129.16",
            "224.0.0.1",
            "255.255.255.255",
            // IPv6: loopback, mapped, compatible, translated, link-local, unique local, 6to4, Teredo, multicast.
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b:1::7f00:1]",
            "[fe80::1]",
            "[fd00::1]",
            "[fd00:ec2::254]",
            "[2002:7f00:1::]",
            "[2001::1]",
            "[ff02::1]",
            // Names of this machine, and what stands before a host.
            "localhost",
            "LOCALHOST",
            "example.org@127.0.0.1",
            "example.org:443@127.0.0.1",
            "example.org%23@127.0.0.1",
        ];
        assert!(spellings.len() >= 40);
        for host in spellings {
            for scheme in ["http", "https"] {
                let error = refusal(&cache, &format!("{scheme}://{host}:{port}/model")).await;
                let GetError::Fetch { source, .. } = &error else { panic!("{scheme}://{host}: {error:?}") };
                // Also for a name, which is resolved for the connection only: this is final, and no outage that is waited for.
                let is_refused = matches!(source, WebError::Forbidden { .. });
                assert!(is_refused, "{scheme}://{host}: {}", Chain(&error));
            }
        }
        for url in ["ftp://127.0.0.1/a", "gopher://127.0.0.1/a", "data:,a", "https://", "//127.0.0.1/a"] {
            refusal(&cache, url).await;
        }
        listener.set_nonblocking(true).expect("nonblocking");
        assert!(listener.accept().is_err(), "nothing connected");
    }
}
