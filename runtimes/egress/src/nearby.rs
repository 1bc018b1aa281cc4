//! Networks of the owner that have addresses of the public internet: what is on this machine's links, its routers, and translated
//! addresses. Pure, except for reading routes and addresses.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use sysinfo::Networks;

use crate::address::Forbidden;

/// Shorter prefixes are not a network at home, but a tunnel through which a large part of the internet is reached.
const SHORTEST_V4: u32 = 8;
/// The same for IPv6.
const SHORTEST_V6: u32 = 32;
/// Providers assign this much of IPv6 to a household, which has several networks of 64 bits.
const HOUSEHOLD: u32 = 56;
/// Lengths of the prefixes by which a network translates addresses (RFC 6052).
const TRANSLATED: [u32; 6] = [32, 40, 48, 56, 64, 96];
/// The name that has only these addresses, and IPv6 addresses only where a network translates (RFC 7050).
pub(crate) const IPV4_ONLY: &str = "ipv4only.arpa.";
const IPV4_ONLY_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

/// A network: its address, and the length of its prefix.
type Network = (IpAddr, u32);

/// The networks around this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Nearby(Vec<Network>);

impl Nearby {
    /// Reads the routes of this machine; where the system has no files with them, its addresses.
    pub(crate) fn here() -> io::Result<Self> {
        if cfg!(target_os = "linux") { Self::of_routes() } else { Self::of_addresses() }
    }

    /// Reads the addresses of this machine, each of which belongs to a network, in which its router is as a rule.
    fn of_addresses() -> io::Result<Self> {
        let interfaces = Networks::new_with_refreshed_list().map_err(io::Error::other)?;
        let mut networks = Vec::new();
        for (_, interface) in &interfaces {
            let own = interface.ip_networks().iter();
            networks.extend(own.filter_map(|network| on_link(network.addr, network.prefix.into())));
        }
        Ok(Self(networks))
    }

    fn of_routes() -> io::Result<Self> {
        let v6 = match fs::read_to_string("/proc/net/ipv6_route") {
            Ok(text) => text,
            // The kernel has no IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let v4 = fs::read_to_string("/proc/net/route")?;
        Ok(Self(routes_v4(&v4).chain(routes_v6(&v6)).collect()))
    }

    /// Returns an error for an address in one of the networks.
    pub(crate) fn check(&self, address: IpAddr) -> Result<(), Forbidden> {
        if self.0.iter().any(|network| contains(*network, address)) {
            Err(Forbidden("a network of this machine"))
        } else {
            Ok(())
        }
    }
}

/// Whether an address belongs to the household that has the address `own` on the internet.
pub(crate) fn is_household(own: IpAddr, address: IpAddr) -> bool {
    let length = if own.is_ipv4() { 32 } else { HOUSEHOLD };
    contains((own, length), address)
}

/// The prefix by which a network translates addresses, from an address of [`IPV4_ONLY`].
pub(crate) fn translation(address: Ipv6Addr) -> Option<(Ipv6Addr, u32)> {
    let bits = address.to_bits();
    let embeds = |length: &u32| IPV4_ONLY_ADDRESSES.contains(&embedded(bits, *length));
    let length = TRANSLATED.into_iter().rev().find(embeds)?;
    Some((Ipv6Addr::from_bits(bits & mask(length)), length))
}

/// Whether an address is a translated one.
pub(crate) fn is_translated(address: Ipv6Addr, prefixes: &[(Ipv6Addr, u32)]) -> bool {
    prefixes.iter().any(|(prefix, length)| contains((IpAddr::V6(*prefix), *length), IpAddr::V6(address)))
}

/// The IPv4 address in an IPv6 address with a prefix of this length. Bits 64 to 71 are not used.
fn embedded(bits: u128, length: u32) -> Ipv4Addr {
    let bytes = bits.to_be_bytes();
    let start = length as usize / 8;
    let mut found = [0; 4];
    let places = (start..16).filter(|&place| place != 8);
    for (to, place) in found.iter_mut().zip(places) {
        *to = bytes[place];
    }
    Ipv4Addr::from(found)
}

/// A network whose hosts are reached without a router, with the whole household if its addresses are public; `None` for a tunnel.
fn on_link(network: IpAddr, length: u32) -> Option<Network> {
    let is_public = matches!(network, IpAddr::V6(network) if network.segments()[0] >> 13 == 1);
    let length = if is_public { length.min(HOUSEHOLD) } else { length };
    let shortest = if network.is_ipv4() { SHORTEST_V4 } else { SHORTEST_V6 };
    (length >= shortest).then_some((network, length))
}

/// On-link networks and gateways in `/proc/net/route`, in hexadecimal and the byte order of the machine.
fn routes_v4(text: &str) -> impl Iterator<Item = Network> + '_ {
    text.lines()
        .skip(1)
        .flat_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| {
                let bits = u32::from_str_radix(fields.get(at)?, 16).ok()?;
                Some(Ipv4Addr::from(bits.to_ne_bytes()))
            };
            let (Some(network), Some(gateway), Some(netmask)) = (number(1), number(2), number(7)) else {
                return [None, None];
            };
            if gateway.is_unspecified() {
                [on_link(IpAddr::V4(network), netmask.to_bits().leading_ones()), None]
            } else {
                [None, Some((IpAddr::V4(gateway), 32))]
            }
        })
        .flatten()
}

/// The same in `/proc/net/ipv6_route`, which also contains the machine's own addresses.
fn routes_v6(text: &str) -> impl Iterator<Item = Network> + '_ {
    text.lines()
        .flat_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let number =
                |at: usize| Some(Ipv6Addr::from_bits(u128::from_str_radix(fields.get(at)?, 16).ok()?));
            let length = fields.get(1).and_then(|field| u32::from_str_radix(field, 16).ok());
            let (Some(network), Some(length), Some(gateway)) = (number(0), length, number(4)) else {
                return [None, None];
            };
            if gateway.is_unspecified() {
                [on_link(IpAddr::V6(network), length).filter(|(_, length)| *length <= 128), None]
            } else {
                [None, Some((IpAddr::V6(gateway), 128))]
            }
        })
        .flatten()
}

fn contains((network, length): Network, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            (network.to_bits() ^ address.to_bits()) & mask == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            (network.to_bits() ^ address.to_bits()) & mask(length) == 0
        }
        _ => false,
    }
}

fn mask(length: u32) -> u128 {
    u128::MAX.checked_shl(128 - length).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn v4(address: [u8; 4]) -> String {
        format!("{:08X}", u32::from_ne_bytes(address))
    }

    fn nearby() -> Nearby {
        let header = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";
        let route = |network, gateway, mask| {
            format!("eth0 {} {} 0003 0 0 0 {} 0 0 0\n", v4(network), v4(gateway), v4(mask))
        };
        let text = [
            header.to_owned(),
            route([0; 4], [81, 2, 3, 1], [0; 4]),
            route([81, 2, 3, 0], [0; 4], [255, 255, 255, 0]),
            // Half of the internet through a tunnel.
            route([128, 0, 0, 0], [0; 4], [128, 0, 0, 0]),
        ];
        let text6 = "20010db8aa00110100000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth0\n\
             2a01123456780101 0 0 0 0\n\
             2a011234567801010000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth0\n\
             00000000000000000000000000000000 00 00000000000000000000000000000000 00 2a0199990000000000000000000000ff 00000400 00000002 00000000 00000003 eth0\n\
             20000000000000000000000000000000 03 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 wg0\n";
        Nearby(routes_v4(&text.concat()).chain(routes_v6(text6)).collect())
    }

    #[test]
    fn public_addresses_on_the_owners_links_are_refused() {
        let nearby = nearby();
        for near in [
            "81.2.3.1",
            "81.2.3.254",
            // Also another network of the household, behind the same router.
            "2a01:1234:5678:101::1",
            "2a01:1234:5678:1ff::dead",
            "2a01:9999::ff",
        ] {
            assert!(nearby.check(near.parse().expect("an address")).is_err(), "{near}");
        }
        for far in ["81.2.4.1", "200.1.2.3", "2a01:1234:5678:201::1", "2a01:9999::fe", "2606:4700::1"] {
            assert_eq!(nearby.check(far.parse().expect("an address")), Ok(()), "{far}");
        }
    }

    #[test]
    fn networks_of_this_machines_addresses_are_refused() {
        let address = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let own = [("81.2.3.7", 24), ("2a01:1234:5678:101::7", 64), ("10.1.2.3", 1), ("2001::9", 3)];
        let networks = own.into_iter().filter_map(|(own, length)| on_link(address(own), length));
        let nearby = Nearby(networks.collect());
        for near in ["81.2.3.1", "81.2.3.7", "2a01:1234:5678:1ff::dead"] {
            assert!(nearby.check(address(near)).is_err(), "{near}");
        }
        for far in ["81.2.4.1", "2a01:1234:5678:201::1", "20.1.1.1", "2606:4700::1"] {
            assert_eq!(nearby.check(address(far)), Ok(()), "{far}");
        }
        let here = Nearby::of_addresses().expect("addresses");
        assert!(here.check(address("127.0.0.1")).is_err(), "every machine has it");
        assert_eq!(here.check(address("1.1.1.1")), Ok(()));
    }

    #[test]
    fn routes_of_this_machine_are_read() {
        let here = Nearby::here().expect("routes");
        assert_eq!(here.check("1.1.1.1".parse().expect("an address")), Ok(()));
    }

    proptest! {
        /// Whatever prefix a network uses, its translated addresses are recognized.
        #[test]
        fn a_translated_address_is_recognized(
            bits: u128, at in 0_usize..6, which in 0_usize..2, inside: u32, other: u128,
        ) {
            let length = TRANSLATED[at];
            let embed = |bits: u128, address: Ipv4Addr| {
                let mut bytes = (bits & mask(length)).to_be_bytes();
                let places: Vec<usize> = (length as usize / 8..16).filter(|&place| place != 8).take(4).collect();
                bytes[8] = 0;
                for (place, byte) in places.into_iter().zip(address.octets()) {
                    bytes[place] = byte;
                }
                Ipv6Addr::from(bytes)
            };
            // Bits 64 to 71 are zero in every prefix.
            let bits = bits & !(0xff << 56);
            let known = embed(bits, IPV4_ONLY_ADDRESSES[which]);
            let (prefix, found) = translation(known).expect("a translation");
            prop_assume!(found == length);
            prop_assert!(is_translated(embed(bits, Ipv4Addr::from_bits(inside)), &[(prefix, found)]));
            let other = Ipv6Addr::from_bits(other);
            prop_assert_eq!(is_translated(other, &[(prefix, found)]), (other.to_bits() ^ bits) & mask(length) == 0);
        }
    }
}
