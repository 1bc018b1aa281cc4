//! Name resolution and the network. Only this decides what a program may reach; tests use a replacement, which no setting can select.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use futures::future::BoxFuture;
use island_protocol::egress::HostName;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    address::{Forbidden, may_connect},
    nearby::{IPV4_ONLY, Nearby, is_household, is_translated, translation},
};

/// Resolves names, and decides which addresses may be connected to.
pub trait Outside: Send + Sync + 'static {
    /// The addresses of a host, resolved once for each connection.
    fn resolve<'a>(&'a self, host: &'a HostName, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;

    /// Whether one of them may be connected to.
    fn check(&self, address: SocketAddr) -> Result<(), Forbidden>;
}

/// The public internet, without the networks around this machine.
#[derive(Debug, Default)]
pub struct Internet {
    translations: Mutex<Option<Translations>>,
    /// The address under which a server saw this machine.
    external: Mutex<Option<IpAddr>>,
}

/// Prefixes by which this network translates addresses to IPv4, with their lengths.
#[derive(Debug)]
struct Translations {
    found: Instant,
    prefixes: Vec<(Ipv6Addr, u32)>,
}

/// Time for which the prefixes are used.
const PREFIXES_KEPT: Duration = Duration::from_mins(10);

impl Internet {
    /// Refuses the address under which a server on the internet saw this machine from now on: a router that translates addresses may answer
    /// there from inside.
    pub fn set_external(&self, address: IpAddr) {
        *self.external.lock() = Some(address.to_canonical());
    }

    /// Finds out how this network translates addresses, unless it was found out a moment ago. Awaited before an address of IPv6 is checked.
    pub async fn learn_translations(&self) {
        let is_known = |known: &Translations| known.found.elapsed() < PREFIXES_KEPT;
        if self.translations.lock().as_ref().is_some_and(is_known) {
            return;
        }
        // A network that does not translate has no such addresses.
        let place = (IPV4_ONLY, 0);
        let found = tokio::net::lookup_host(place).await;
        self.set_translations(found.into_iter().flatten().map(|address| address.ip()));
    }

    /// Replaces what is known about translated addresses by the addresses of `ipv4only.arpa` in this network.
    pub fn set_translations(&self, found: impl IntoIterator<Item = IpAddr>) {
        let prefixes = found.into_iter().filter_map(|address| match address {
            IpAddr::V6(address) => translation(address),
            IpAddr::V4(_) => None,
        });
        let prefixes = prefixes.collect();
        *self.translations.lock() = Some(Translations { found: Instant::now(), prefixes });
    }
}

impl Outside for Internet {
    fn resolve<'a>(&'a self, host: &'a HostName, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            // With a trailing dot a name is absolute: no search list of this machine is applied to it.
            let found = tokio::net::lookup_host((format!("{}.", host.as_str()), port)).await?;
            let found: Vec<_> = found.collect();
            if found.iter().any(SocketAddr::is_ipv6) {
                self.learn_translations().await;
            }
            Ok(found)
        })
    }

    fn check(&self, address: SocketAddr) -> Result<(), Forbidden> {
        let ip = address.ip();
        may_connect(ip)?;
        if let (IpAddr::V6(ip), Some(known)) = (ip, &*self.translations.lock())
            && is_translated(ip, &known.prefixes)
        {
            return Err(Forbidden("an IPv4 address, translated by this network"));
        }
        if self.external.lock().is_some_and(|external| is_household(external, ip)) {
            return Err(Forbidden("this machine, as the internet sees it"));
        }
        Nearby::here().map_err(|_| Forbidden("unknown, because the routes cannot be read"))?.check(ip)?;
        elsewhere(UdpSocket::bind((ip, 0)).map(drop))
    }
}

/// Services that a firewall hides from the internet may listen on this machine's public address. Only an address of this machine can be
/// bound; an error for another reason, such as too many open files, does not show whose the address is.
fn elsewhere(bound: io::Result<()>) -> Result<(), Forbidden> {
    match bound {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(()),
        Ok(()) => Err(Forbidden("this host")),
        Err(_) => Err(Forbidden("perhaps this host")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_external_address_is_refused() {
        let internet = Internet::default();
        let at = |ip: &str| internet.check(SocketAddr::new(ip.parse().expect("an address"), 443));
        assert_eq!(at("9.9.9.9"), Ok(()));
        internet.set_external("9.9.9.9".parse().expect("an address"));
        assert!(at("9.9.9.9").is_err());
        assert_eq!(at("9.9.9.8"), Ok(()), "a neighbor of the provider");
        internet.set_external("::ffff:9.9.9.8".parse().expect("an address"));
        assert!(at("9.9.9.8").is_err(), "a mapped address is the same");
        // Without a network that has IPv6, another one is refused for another reason.
        internet.set_external("2620:fe:0:100::fe".parse().expect("an address"));
        let is_own = |ip: &str| at(ip).is_err_and(|Forbidden(kind)| kind.contains("as the internet sees it"));
        assert!(is_own("2620:fe:0:1ff::9"), "another network of the household");
        assert!(!is_own("2620:fe:0:200::9"));
    }

    #[test]
    fn an_address_is_elsewhere_only_if_the_system_says_so() {
        let of = |kind: io::ErrorKind| elsewhere(Err(kind.into()));
        assert_eq!(of(io::ErrorKind::AddrNotAvailable), Ok(()));
        assert!(elsewhere(Ok(())).is_err());
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::Other, io::ErrorKind::OutOfMemory] {
            assert!(of(kind).is_err(), "{kind:?}");
        }
        let too_many = io::Error::from_raw_os_error(24);
        assert!(elsewhere(Err(too_many)).is_err(), "too many open files");
    }
}
