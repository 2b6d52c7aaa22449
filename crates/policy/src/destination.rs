//! The destination of a connection: one host and one port.
//!
//! A host has many spellings and exactly one canonical form, which is compared, looked up and
//! logged. No decision may use another form.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use url::Host;

/// The maximum of the domain name system (RFC 1035).
pub(crate) const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
/// A name that is not yet in ASCII takes more bytes than its canonical form, but never that many.
const TEXT_BYTES_MAX: usize = 4 * NAME_BYTES_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    #[error("invalid host: expected a host name or an IP address")]
    Host,
    #[error("port 0 cannot be connected to; use 1 to 65535")]
    Port,
}

/// A canonical host and a port. The host is a name in lower-case ASCII without a trailing dot, or
/// an address, where an IPv4 address embedded in an IPv6 one is extracted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    host: Host,
    port: u16,
}

impl Destination {
    /// Parses a host of a request or a URL, with or without the brackets of an IPv6 address.
    pub fn new(host: &str, port: u16) -> Result<Self, DestinationError> {
        let host = parse_host(host).ok_or(DestinationError::Host)?;
        if address(&host).is_some_and(|address| address.is_unspecified()) {
            return Err(DestinationError::Host);
        }
        if port == 0 { Err(DestinationError::Port) } else { Ok(Self { host, port }) }
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of a host that is one, and has no name to look up.
    pub fn address(&self) -> Option<IpAddr> {
        address(&self.host)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

fn address(host: &Host) -> Option<IpAddr> {
    match *host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
    }
}

/// The canonical form of a host, if it is valid.
pub(crate) fn parse_host(text: &str) -> Option<Host> {
    // The parser would decode percent escapes; no request and no rule needs them.
    if text.len() > TEXT_BYTES_MAX || text.contains('%') {
        return None;
    }
    let host = match text.parse::<Ipv6Addr>() {
        Ok(address) => Host::Ipv6(address),
        Err(_) => Host::parse(text).ok()?,
    };
    if !is_valid_host(&host) {
        return None;
    }
    Some(match host {
        Host::Ipv6(address) => address.to_ipv4_mapped().map_or(Host::Ipv6(address), Host::Ipv4),
        Host::Domain(name) => Host::Domain(name.strip_suffix('.').unwrap_or(&name).to_owned()),
        Host::Ipv4(address) => Host::Ipv4(address),
    })
}

/// Browsers accept names that no domain name system knows, with quotes, dollars or labels of any
/// length; a resolver gets only valid names.
pub(crate) fn is_valid_host(host: &Host) -> bool {
    let Host::Domain(name) = host else { return true };
    let name = name.strip_suffix('.').unwrap_or(name);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    name.len() <= NAME_BYTES_MAX
        && name.split('.').all(|label| {
            !label.is_empty() && label.len() <= LABEL_BYTES_MAX && label.bytes().all(fits)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelt(host: &str) -> Result<String, DestinationError> {
        Destination::new(host, 443).map(|to| to.to_string())
    }

    #[test]
    fn every_spelling_of_a_host_becomes_the_one_that_is_decided_on() {
        for (host, one) in [
            ("example.com", "example.com:443"),
            ("EXAMPLE.Com", "example.com:443"),
            ("example.com.", "example.com:443"),
            ("ｅｘａｍｐｌｅ．ｃｏｍ", "example.com:443"),
            ("exam\u{ad}ple.com", "example.com:443"),
            ("bücher.example", "xn--bcher-kva.example:443"),
            ("XN--BCHER-KVA.example", "xn--bcher-kva.example:443"),
            ("127.0.0.1", "127.0.0.1:443"),
            ("127.0.0.1.", "127.0.0.1:443"),
            ("127.1", "127.0.0.1:443"),
            ("2130706433", "127.0.0.1:443"),
            ("0x7f000001", "127.0.0.1:443"),
            ("0177.0.0.1", "127.0.0.1:443"),
            ("１２７.0.0.1", "127.0.0.1:443"),
            ("::1", "[::1]:443"),
            ("[0:0::1]", "[::1]:443"),
            ("[::ffff:127.0.0.1]", "127.0.0.1:443"),
            ("::ffff:a00:1", "10.0.0.1:443"),
            ("_service.example", "_service.example:443"),
        ] {
            assert_eq!(spelt(host).as_deref(), Ok(one), "{host}");
        }
    }

    #[test]
    fn what_is_not_a_host_is_no_destination() {
        let long = format!("{}.example", "a".repeat(64));
        let endless = "a.".repeat(200);
        for host in [
            "",
            ".",
            "..",
            "a..b",
            ".example.com",
            "example.com..",
            "exa mple.com",
            "example.com/",
            "user@example.com",
            "example.com:80",
            "example.com#x",
            "example.com?x",
            "exa%6dple.com",
            "exa\0mple.com",
            "example.com\\x",
            "exa\r\nmple.com",
            "*.example.com",
            "1.2.3.4.5",
            "256.1.1.1",
            "0x",
            "0",
            "0.0.0.0",
            "[::]",
            "[::1",
            "::1]",
            "[::1%lo]",
            "[1.2.3.4]",
            "exa$mple.com",
            "xn--\u{301}.example",
            long.as_str(),
            endless.as_str(),
        ] {
            assert_eq!(spelt(host), Err(DestinationError::Host), "{host:?}");
        }
        assert_eq!(Destination::new("example.com", 0), Err(DestinationError::Port));
    }
}
