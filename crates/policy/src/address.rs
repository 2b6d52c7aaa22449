//! Decides which addresses belong to the public internet.
//!
//! Special ranges of IPv4 are refused by name. Of IPv6 only global unicast is allowed, so that an
//! unknown range is refused. An IPv4 address embedded in an IPv6 one is judged as the IPv4 address;
//! it must never pass because of its notation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not public.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NonPublicAddress {
    #[error("unspecified")]
    Unspecified,
    #[error("loopback")]
    Loopback,
    #[error("private")]
    Private,
    #[error("carrier-grade NAT")]
    Shared,
    #[error("link-local")]
    LinkLocal,
    #[error("cloud metadata")]
    Metadata,
    #[error("documentation")]
    Documentation,
    #[error("benchmarking")]
    Benchmarking,
    #[error("multicast")]
    Multicast,
    #[error("broadcast")]
    Broadcast,
    #[error("protocol assignment")]
    Protocol,
    #[error("tunnel")]
    Tunnel,
    #[error("reserved")]
    Reserved,
}

impl NonPublicAddress {
    /// Whether organisations run internal servers at such addresses. An operator's exception can
    /// open only these.
    pub fn is_internal(self) -> bool {
        matches!(self, Self::Loopback | Self::Private | Self::Shared)
    }
}

/// The first match decides. The metadata services are listed although most of them are in a range
/// below: their reason must not be one that an exception opens.
const IPV4: &[([u8; 4], u32, NonPublicAddress)] = &[
    ([169, 254, 169, 254], 32, NonPublicAddress::Metadata), // AWS, Azure, Google and others
    ([169, 254, 170, 2], 32, NonPublicAddress::Metadata),   // AWS containers
    ([169, 254, 170, 23], 32, NonPublicAddress::Metadata),  // AWS Kubernetes
    ([100, 100, 100, 200], 32, NonPublicAddress::Metadata), // Alibaba
    ([168, 63, 129, 16], 32, NonPublicAddress::Metadata),   // Azure, in a public range
    ([192, 0, 0, 192], 32, NonPublicAddress::Metadata),     // Oracle
    ([0, 0, 0, 0], 8, NonPublicAddress::Unspecified),
    ([10, 0, 0, 0], 8, NonPublicAddress::Private),
    ([100, 64, 0, 0], 10, NonPublicAddress::Shared),
    ([127, 0, 0, 0], 8, NonPublicAddress::Loopback),
    ([169, 254, 0, 0], 16, NonPublicAddress::LinkLocal),
    ([172, 16, 0, 0], 12, NonPublicAddress::Private),
    ([192, 0, 0, 0], 24, NonPublicAddress::Protocol),
    ([192, 0, 2, 0], 24, NonPublicAddress::Documentation),
    ([192, 88, 99, 0], 24, NonPublicAddress::Tunnel), // the relays of 6to4
    ([192, 168, 0, 0], 16, NonPublicAddress::Private),
    ([198, 18, 0, 0], 15, NonPublicAddress::Benchmarking),
    ([198, 51, 100, 0], 24, NonPublicAddress::Documentation),
    ([203, 0, 113, 0], 24, NonPublicAddress::Documentation),
    ([224, 0, 0, 0], 4, NonPublicAddress::Multicast),
    ([255, 255, 255, 255], 32, NonPublicAddress::Broadcast),
    ([240, 0, 0, 0], 4, NonPublicAddress::Reserved),
];

/// Like `IPV4`. An address outside of these ranges that is not global unicast is reserved.
const IPV6: &[([u16; 8], u32, NonPublicAddress)] = &[
    ([0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254], 128, NonPublicAddress::Metadata), // AWS
    ([0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254], 128, NonPublicAddress::Metadata), // Google
    ([0; 8], 128, NonPublicAddress::Unspecified),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, NonPublicAddress::Loopback),
    ([0x2001, 0x0000, 0, 0, 0, 0, 0, 0], 32, NonPublicAddress::Tunnel), // Teredo
    ([0x2001, 0x0002, 0, 0, 0, 0, 0, 0], 48, NonPublicAddress::Benchmarking),
    ([0x2001, 0x0000, 0, 0, 0, 0, 0, 0], 23, NonPublicAddress::Protocol),
    ([0x2001, 0x0db8, 0, 0, 0, 0, 0, 0], 32, NonPublicAddress::Documentation),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, NonPublicAddress::Tunnel), // 6to4
    ([0x3ffe, 0, 0, 0, 0, 0, 0, 0], 16, NonPublicAddress::Reserved), // the 6bone, given back
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, NonPublicAddress::Documentation),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, NonPublicAddress::Private),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, NonPublicAddress::LinkLocal),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, NonPublicAddress::Private), // site-local, deprecated
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, NonPublicAddress::Multicast),
];

const GLOBAL_UNICAST: ([u16; 8], u32) = ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// The prefix under which a NAT64 gateway maps public IPv4 addresses (RFC 6052).
const NAT64: [u16; 6] = [0x0064, 0xff9b, 0, 0, 0, 0];

/// Checks that an address is public and belongs to a single host.
pub fn check_public(address: IpAddr) -> Result<(), NonPublicAddress> {
    match address {
        IpAddr::V4(address) => check_public_v4(address),
        IpAddr::V6(address) => match embedded_ipv4(address) {
            Some(inner) => check_public_v4(inner),
            None => check_public_v6(address),
        },
    }
}

/// The IPv4 address that packets to this address would really reach. Teredo and 6to4 are refused
/// completely instead: they host no services, and their inner addresses are those of routers.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, high, low] = address.segments();
    let inner = Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    let in_gateway = [a, b, c, d, e, f] == NAT64;
    address.to_ipv4_mapped().or(in_gateway.then_some(inner))
}

fn check_public_v4(address: Ipv4Addr) -> Result<(), NonPublicAddress> {
    let within = |network: [u8; 4], prefix: u32| {
        (Ipv4Addr::from(network).to_bits() ^ address.to_bits()).leading_zeros() >= prefix
    };
    match IPV4.iter().find(|(network, prefix, _)| within(*network, *prefix)) {
        Some((_, _, reason)) => Err(*reason),
        None => Ok(()),
    }
}

fn check_public_v6(address: Ipv6Addr) -> Result<(), NonPublicAddress> {
    let within = |network: [u16; 8], prefix: u32| {
        (Ipv6Addr::from(network).to_bits() ^ address.to_bits()).leading_zeros() >= prefix
    };
    match IPV6.iter().find(|(network, prefix, _)| within(*network, *prefix)) {
        Some((_, _, reason)) => Err(*reason),
        None if within(GLOBAL_UNICAST.0, GLOBAL_UNICAST.1) => Ok(()),
        None => Err(NonPublicAddress::Reserved),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NonPublicAddress::*;

    /// The ends of each special range, and the nearest addresses outside of it.
    const REFUSED: &[(&str, NonPublicAddress)] = &[
        ("0.0.0.0", Unspecified),
        ("0.255.255.255", Unspecified),
        ("10.0.0.0", Private),
        ("10.255.255.255", Private),
        ("100.64.0.0", Shared),
        ("100.127.255.255", Shared),
        ("100.100.100.200", Metadata),
        ("127.0.0.1", Loopback),
        ("127.255.255.255", Loopback),
        ("168.63.129.16", Metadata),
        ("169.254.0.0", LinkLocal),
        ("169.254.169.253", LinkLocal),
        ("169.254.169.254", Metadata),
        ("169.254.170.2", Metadata),
        ("169.254.170.23", Metadata),
        ("169.254.255.255", LinkLocal),
        ("172.16.0.0", Private),
        ("172.31.255.255", Private),
        ("192.0.0.0", Protocol),
        ("192.0.0.192", Metadata),
        ("192.0.0.255", Protocol),
        ("192.0.2.0", Documentation),
        ("192.0.2.255", Documentation),
        ("192.88.99.1", Tunnel),
        ("192.168.0.0", Private),
        ("192.168.255.255", Private),
        ("198.18.0.0", Benchmarking),
        ("198.19.255.255", Benchmarking),
        ("198.51.100.0", Documentation),
        ("198.51.100.255", Documentation),
        ("203.0.113.0", Documentation),
        ("203.0.113.255", Documentation),
        ("224.0.0.0", Multicast),
        ("239.255.255.255", Multicast),
        ("240.0.0.0", Reserved),
        ("255.255.255.254", Reserved),
        ("255.255.255.255", Broadcast),
        ("::", Unspecified),
        ("::1", Loopback),
        ("::2", Reserved),
        ("::127.0.0.1", Reserved),
        ("::8.8.8.8", Reserved),
        ("::ffff:0.0.0.0", Unspecified),
        ("::ffff:127.0.0.1", Loopback),
        ("::ffff:10.1.2.3", Private),
        ("::ffff:169.254.169.254", Metadata),
        ("::ffff:255.255.255.255", Broadcast),
        ("::ffff:0:127.0.0.1", Reserved),
        ("64:ff9b::127.0.0.1", Loopback),
        ("64:ff9b::192.168.1.1", Private),
        ("64:ff9b::169.254.169.254", Metadata),
        ("64:ff9b:1::8.8.8.8", Reserved),
        ("64:ff9b::1:8.8.8.8", Reserved),
        ("100::1", Reserved),
        ("2001::1", Tunnel),
        ("2001:0:7f00:1::", Tunnel),
        ("2001:0:ffff:ffff:ffff:ffff:80ff:fffe", Tunnel),
        ("2001:2::1", Benchmarking),
        ("2001:10::1", Protocol),
        ("2001:20::1", Protocol),
        ("2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", Protocol),
        ("2001:db8::", Documentation),
        ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", Documentation),
        ("2002:7f00:1::", Tunnel),
        ("2002:a00:1::", Tunnel),
        ("2002:808:808::1", Tunnel),
        ("3ffe::1", Reserved),
        ("3fff::1", Documentation),
        ("3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", Documentation),
        ("1fff:ffff::1", Reserved),
        ("4000::1", Reserved),
        ("5f00::1", Reserved),
        ("fc00::1", Private),
        ("fd00::1", Private),
        ("fd00:ec2::254", Metadata),
        ("fd00:ec2::253", Private),
        ("fd20:ce::254", Metadata),
        ("fdff:ffff::1", Private),
        ("fe00::1", Reserved),
        ("fe80::1", LinkLocal),
        ("febf:ffff::1", LinkLocal),
        ("fec0::1", Private),
        ("feff::1", Private),
        ("ff02::1", Multicast),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Multicast),
    ];

    const ALLOWED: &[&str] = &[
        "1.0.0.0",
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15",
        "168.63.129.17",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.3.0",
        "192.88.98.255",
        "192.88.100.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "198.51.99.255",
        "198.51.101.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2000::1",
        "2001:200::1",
        "2001:db7:ffff::1",
        "2001:db9::1",
        "2001:4860:4860::8888",
        "2003::1",
        "2606:4700:4700::1111",
        "2a00:1450:4001::1",
        "3ffd:ffff::1",
        "3fff:1000::1",
    ];

    #[test]
    fn a_special_address_is_refused_by_name_and_its_neighbour_is_not() {
        for (text, reason) in REFUSED {
            assert_eq!(check_public(text.parse().unwrap()), Err(*reason), "{text}");
        }
        for text in ALLOWED {
            assert_eq!(check_public(text.parse().unwrap()), Ok(()), "{text}");
        }
    }

    #[test]
    fn an_exception_opens_internal_addresses_and_never_metadata() {
        let internal = |text: &str| {
            check_public(text.parse().unwrap()).is_err_and(NonPublicAddress::is_internal)
        };
        for text in ["127.0.0.1", "::1", "10.0.0.1", "192.168.0.1", "100.64.0.1", "fd00::1"] {
            assert!(internal(text), "{text}");
        }
        let never = ["169.254.169.254", "100.100.100.200", "fd00:ec2::254", "0.0.0.0", "fe80::1"];
        for text in never.into_iter().chain(["224.0.0.1", "255.255.255.255", "240.0.0.1"]) {
            assert!(!internal(text), "{text}");
        }
    }
}
