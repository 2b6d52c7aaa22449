//! One value of a network rule: hosts and ports.
//!
//! The form is `host[:port]`. The host is a name with at most one `*` in it, an address, or
//! `0.0.0.0` for all hosts; the port is a number, a range, or 0 for all, and 443 by default. A `*`
//! matches a part of one label, so that no value opens more than its text shows.

use crate::address::{NonPublicAddress, check_public};
use crate::destination::{Destination, NAME_BYTES_MAX, parse_host};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use url::Host;

const PORT_OF_HTTP: u16 = 80;
const PORT_OF_HTTPS: u16 = 443;
/// A name and the longest range of ports.
const VALUE_BYTES_MAX: usize = NAME_BYTES_MAX + ":65534-65535".len();

/// Why a text is not a value of a network rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPortError {
    #[error(
        "empty value; use a host such as example.com, or a host and a port such as example.com:8080"
    )]
    Empty,
    #[error("value has {0} bytes; at most {VALUE_BYTES_MAX} are allowed")]
    TooLong(usize),
    #[error("{0:?} contains a space or a control character; use one host per value")]
    Space(String),
    #[error("`{0}` has a scheme; use only host and port, such as example.com:443")]
    Scheme(String),
    #[error("`{0}` is a range of addresses; list each address, such as 10.0.0.5:8000")]
    Range(String),
    #[error("`{0}` has a path or a query; a rule applies to a whole host, such as example.com:443")]
    Path(String),
    #[error("`{0}` has a user name; use only host and port, such as example.com:443")]
    Userinfo(String),
    #[error("`{0}` has more than one `*`; use at most one")]
    TooManyWildcards(String),
    #[error(
        "`{0}` has a `*` in its last label; use a domain such as *.example.com, or 0.0.0.0 for all \
         hosts on ports 80 and 443"
    )]
    WildcardAtTheEnd(String),
    #[error(
        "`{value}` has the invalid port `{port}`; use 1 to 65535, a range such as 8000-8100, or 0 \
         for all ports"
    )]
    Port { value: String, port: String },
    #[error(
        "`{0}` means all hosts, which is possible only for ports 80 and 443; use 0.0.0.0, \
         0.0.0.0:80 or 0.0.0.0:443"
    )]
    PortOfAllHosts(String),
    #[error("`{0}` is an IPv6 address without brackets; use the form [2001:db8::1]:443")]
    Brackets(String),
    #[error("`{value}` is not the canonical form of {address}; use that")]
    NotCanonical { value: String, address: IpAddr },
    #[error("`{value}` is an address that is always blocked ({reason})")]
    ForbiddenAddress { value: String, reason: NonPublicAddress },
    #[error("`{0}` is not a valid host name or IP address")]
    Host(String),
}

/// One value of a network rule. It displays its original text, with the host in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPort {
    hosts: HostPattern,
    ports: PortPattern,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum HostPattern {
    /// All names, and all public addresses.
    All,
    Address(IpAddr),
    Name(String),
    /// The parts before and after the `*`.
    Wildcard {
        before: String,
        after: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PortPattern {
    /// The value has no port.
    Default,
    All,
    Range {
        first: u16,
        last: u16,
    },
}

/// Access that only an owner of the workspace may allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BroadAccess {
    /// The whole public internet, or all names below one label, such as `*.com`.
    ManyOwners,
    /// An address that is not public.
    InternalAddress,
}

impl HostPort {
    /// All hosts of the public internet, on the ports of the web.
    pub fn all_hosts() -> Self {
        Self { hosts: HostPattern::All, ports: PortPattern::Default }
    }

    pub fn covers(&self, to: &Destination) -> bool {
        let host = match (&self.hosts, to.host()) {
            (HostPattern::All, Host::Domain(_)) => true,
            (HostPattern::All, _) => {
                to.address().is_some_and(|address| check_public(address).is_ok())
            }
            (HostPattern::Address(address), _) => to.address() == Some(*address),
            (HostPattern::Name(name), Host::Domain(name_of_host)) => name == name_of_host,
            (HostPattern::Wildcard { before, after }, Host::Domain(name_of_host)) => {
                matches_wildcard(before, after, name_of_host)
            }
            (HostPattern::Name(_) | HostPattern::Wildcard { .. }, _) => false,
        };
        host && self.covers_port(to.port())
    }

    /// What it opens besides the public hosts of one owner.
    pub fn broad_access(&self) -> Option<BroadAccess> {
        match &self.hosts {
            HostPattern::All => Some(BroadAccess::ManyOwners),
            HostPattern::Wildcard { after, .. } if after.matches('.').count() < 2 => {
                Some(BroadAccess::ManyOwners)
            }
            HostPattern::Address(address) if check_public(*address).is_err() => {
                Some(BroadAccess::InternalAddress)
            }
            HostPattern::Address(_) | HostPattern::Wildcard { .. } | HostPattern::Name(_) => None,
        }
    }

    /// Whether the value is exactly this address. Only such a value opens an address that is not
    /// public.
    pub(crate) fn is_address(&self, address: IpAddr, port: u16) -> bool {
        self.hosts == HostPattern::Address(address) && self.covers_port(port)
    }

    fn covers_port(&self, port: u16) -> bool {
        match self.ports {
            PortPattern::Default if self.hosts == HostPattern::All => {
                matches!(port, PORT_OF_HTTP | PORT_OF_HTTPS)
            }
            PortPattern::Default => port == PORT_OF_HTTPS,
            PortPattern::All => true,
            PortPattern::Range { first, last } => (first..=last).contains(&port),
        }
    }
}

/// Whether a name is `before`, a part of one label, and `after`.
fn matches_wildcard(before: &str, after: &str, name: &str) -> bool {
    let part = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    part.is_some_and(|part| !part.is_empty() && part.bytes().all(fits))
}

/// Exactly this destination.
impl From<&Destination> for HostPort {
    fn from(to: &Destination) -> Self {
        let hosts = match to.host() {
            Host::Domain(name) => HostPattern::Name(name.clone()),
            Host::Ipv4(address) => HostPattern::Address((*address).into()),
            Host::Ipv6(address) => HostPattern::Address((*address).into()),
        };
        Self { hosts, ports: PortPattern::Range { first: to.port(), last: to.port() } }
    }
}

impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        reject_url_syntax(value)?;
        let (host, port) = split_host_port(value)?;
        let hosts = HostPattern::parse(host, value)?;
        let ports =
            port.map_or(Ok(PortPattern::Default), |port| PortPattern::parse(port, value))?;
        let of_the_web = |port| matches!(port, PORT_OF_HTTP | PORT_OF_HTTPS);
        match (&hosts, ports) {
            (HostPattern::All, PortPattern::Range { first, last })
                if first == last && of_the_web(first) => {}
            (HostPattern::All, PortPattern::Range { .. } | PortPattern::All) => {
                return Err(HostPortError::PortOfAllHosts(value.to_owned()));
            }
            _ => {}
        }
        Ok(Self { hosts, ports })
    }
}

/// Explains common mistakes of users who write a URL.
fn reject_url_syntax(value: &str) -> Result<(), HostPortError> {
    use HostPortError::{Empty, Path, Range, Scheme, Space, TooLong, Userinfo};
    let text = || value.to_owned();
    match value {
        "" => Err(Empty),
        _ if value.len() > VALUE_BYTES_MAX => Err(TooLong(value.len())),
        _ if value.contains(|it: char| it.is_whitespace() || it.is_control()) => Err(Space(text())),
        _ if value.contains("://") => Err(Scheme(text())),
        _ if value.contains('@') => Err(Userinfo(text())),
        _ if is_cidr(value) => Err(Range(text())),
        _ if value.contains(['/', '\\', '?', '#']) => Err(Path(text())),
        _ => Ok(()),
    }
}

/// For example `10.0.0.0/8`.
fn is_cidr(value: &str) -> bool {
    value.split_once('/').is_some_and(|(address, bits)| {
        address.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() && bits.parse::<u8>().is_ok()
    })
}

/// The host, without brackets, and the text of the port.
fn split_host_port(value: &str) -> Result<(&str, Option<&str>), HostPortError> {
    let invalid = || HostPortError::Host(value.to_owned());
    if value.starts_with('[') {
        let end = value.find(']').ok_or_else(invalid)?;
        let (host, rest) = value.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(invalid()),
        };
    }
    match value.split_once(':') {
        Some((_, port)) if port.contains(':') => Err(HostPortError::Brackets(value.to_owned())),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((value, None)),
    }
}

impl HostPattern {
    fn parse(host: &str, value: &str) -> Result<Self, HostPortError> {
        if let Some((before, after)) = host.split_once('*') {
            return Self::parse_wildcard(before, after, value);
        }
        if host == "0.0.0.0" {
            return Ok(Self::All);
        }
        let invalid = || HostPortError::Host(value.to_owned());
        let address: IpAddr = match parse_host(host).ok_or_else(invalid)? {
            Host::Domain(name) => return Ok(Self::Name(name)),
            Host::Ipv4(address) => address.into(),
            Host::Ipv6(address) => address.into(),
        };
        let value = value.to_owned();
        match check_public(address) {
            // `0` would mean all hosts, which its author may not have intended.
            _ if address.is_ipv4() && host.parse() != Ok(address) => {
                Err(HostPortError::NotCanonical { value, address })
            }
            Err(reason) if !reason.is_internal() => {
                Err(HostPortError::ForbiddenAddress { value, reason })
            }
            _ => Ok(Self::Address(address)),
        }
    }

    fn parse_wildcard(before: &str, after: &str, value: &str) -> Result<Self, HostPortError> {
        let invalid = || HostPortError::Host(value.to_owned());
        if after.contains('*') {
            return Err(HostPortError::TooManyWildcards(value.to_owned()));
        }
        if !after.trim_end_matches('.').contains('.') {
            return Err(HostPortError::WildcardAtTheEnd(value.to_owned()));
        }
        // With a letter in place of the `*` the text is a name, which is normalized as all names
        // are. ASCII keeps its length.
        let name = match parse_host(&format!("{before}x{after}")) {
            Some(Host::Domain(name)) if before.is_ascii() && after.is_ascii() => name,
            _ => return Err(invalid()),
        };
        let (before, after) = name.split_at_checked(before.len()).ok_or_else(invalid)?;
        let after = after.strip_prefix('x').ok_or_else(invalid)?;
        Ok(Self::Wildcard { before: before.to_owned(), after: after.to_owned() })
    }
}

impl PortPattern {
    fn parse(port: &str, value: &str) -> Result<Self, HostPortError> {
        let invalid = || HostPortError::Port { value: value.to_owned(), port: port.to_owned() };
        let number = |digits: &str| match digits.parse::<u16>() {
            // No sign, and no leading zero.
            Ok(number) if number.to_string() == digits => Ok(number),
            _ => Err(invalid()),
        };
        let (first, last) = match port.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None if port == "0" => return Ok(Self::All),
            None => (number(port)?, number(port)?),
        };
        if 0 < first && first <= last { Ok(Self::Range { first, last }) } else { Err(invalid()) }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            HostPattern::All => write!(f, "{}", Ipv4Addr::UNSPECIFIED),
            HostPattern::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            HostPattern::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            HostPattern::Name(name) => f.write_str(name),
            HostPattern::Wildcard { before, after } => write!(f, "{before}*{after}"),
        }?;
        match self.ports {
            PortPattern::Default => Ok(()),
            PortPattern::All => f.write_str(":0"),
            PortPattern::Range { first, last } if first == last => write!(f, ":{first}"),
            PortPattern::Range { first, last } => write!(f, ":{first}-{last}"),
        }
    }
}

impl TryFrom<String> for HostPort {
    type Error = HostPortError;

    fn try_from(value: String) -> Result<Self, Self::Error> {
        value.parse()
    }
}

impl From<HostPort> for String {
    fn from(value: HostPort) -> Self {
        value.to_string()
    }
}
