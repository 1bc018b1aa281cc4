//! Decides to which addresses a connection may be made on behalf of others, such as an untrusted program or an account with a webhook: only to
//! those of the public internet. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of an address that is not of the public internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Forbidden(pub &'static str);

/// Ranges of IPv4 outside the public internet, from IANA's registry of special-purpose addresses.
const FORBIDDEN_V4: [(Ipv4Addr, u32, &str); 18] = [
    (Ipv4Addr::UNSPECIFIED, 8, "this host"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private network"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "a provider's own network"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "this host"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "the local link, and a cloud's metadata"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private network"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "a protocol's own"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, "a multicast relay"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a relay to IPv6"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private network"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved, or broadcast"),
    // A public number, but answered by the cloud in which the host runs.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's own services"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "a sink of reverse lookups"),
];

/// Ranges of IPv6 outside the public internet, within 2000::/3.
const FORBIDDEN_V6: [(Ipv6Addr, u32, &str); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "a protocol's own, such as Teredo"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "6to4, which leads to an IPv4 address"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation"),
];

/// The public internet in IPv6. All other ranges are loopback, link-local, unique local or multicast addresses, or contain an IPv4 address:
/// mapped, compatible, NAT64.
const PUBLIC_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Returns `Ok` for an address of the public internet, otherwise its kind.
pub fn may_connect(address: IpAddr) -> Result<(), Forbidden> {
    match address {
        IpAddr::V4(address) => may_connect_v4(address),
        IpAddr::V6(address) => may_connect_v6(address),
    }
}

fn may_connect_v4(address: Ipv4Addr) -> Result<(), Forbidden> {
    let within = |(network, length, _): &&(Ipv4Addr, u32, &str)| {
        (address.to_bits() ^ network.to_bits()) >> (32 - length) == 0
    };
    FORBIDDEN_V4.iter().find(within).map_or(Ok(()), |(.., what)| Err(Forbidden(what)))
}

fn may_connect_v6(address: Ipv6Addr) -> Result<(), Forbidden> {
    let within =
        |network: Ipv6Addr, length: u32| (address.to_bits() ^ network.to_bits()) >> (128 - length) == 0;
    if !within(PUBLIC_V6.0, PUBLIC_V6.1) {
        return Err(Forbidden("not an address of the public internet"));
    }
    let found = FORBIDDEN_V6.iter().find(|(network, length, _)| within(*network, *length));
    found.map_or(Ok(()), |(.., what)| Err(Forbidden(what)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_public_internet_is_allowed() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "192.168.255.255",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:0:4136:e378::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "ff0e::1",
        ] {
            let address: IpAddr = address.parse().expect("an address");
            assert!(may_connect(address).is_err(), "{address}");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.1",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.1",
            "126.255.255.255",
            "128.0.0.1",
            "168.63.129.17",
            "169.253.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.1.0.1",
            "192.167.0.1",
            "192.169.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2606:4700:4700::1111",
            "2a00:1450:4001::1",
            "3ffe::1",
        ] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(may_connect(address), Ok(()), "{address}");
        }
    }

    proptest! {
        /// Addresses that the standard library classifies as special are rejected.
        #[test]
        fn no_special_address_of_the_standard_library_is_allowed(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let special = address.is_private() || address.is_loopback() || address.is_link_local() || address.is_broadcast()
                || address.is_documentation() || address.is_multicast() || address.is_unspecified();
            prop_assert!(!special || may_connect(address.into()).is_err());
        }

        /// An IPv4 address embedded in an IPv6 address is rejected, also if it is public.
        #[test]
        fn no_embedded_address_is_allowed(bits: u32, tail: u64) {
            let inside = u128::from(bits);
            for outer in [
                inside,
                0xffff_u128 << 32 | inside,
                0x0064_ff9b_u128 << 96 | inside,
                0x0064_ff9b_0001_u128 << 80 | inside,
                0x2002_u128 << 112 | inside << 80 | u128::from(tail),
                0x2001_0000_u128 << 96 | inside << 64 | u128::from(tail),
            ] {
                prop_assert!(may_connect(Ipv6Addr::from_bits(outer).into()).is_err());
            }
        }

        #[test]
        fn allowed_addresses_are_global_unicast(bits: u128) {
            let address = Ipv6Addr::from_bits(bits);
            if may_connect(address.into()).is_ok() {
                prop_assert_eq!(address.segments()[0] >> 13, 1);
                prop_assert!(!address.is_multicast() && !address.is_loopback() && address.to_ipv4().is_none());
            }
        }
    }
}
