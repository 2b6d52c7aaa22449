//! Decides which URLs the server fetches for a user, and which addresses it may connect to for
//! them.
//!
//! A URL is parsed once, as browsers do, and every decision uses the parsed value: other notations
//! of an address have become the address by then. Text gives a [`FetchTarget`], a target and the
//! addresses of its name give a [`FetchRoute`], and nothing may connect without one.

use crate::address::{NonPublicAddress, check_public};
use crate::destination::is_valid_host;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use url::{Host, Url};

/// RFC 9110 recommends 8,000, and signed links of object stores come near to it.
pub const URL_BYTES_MAX: usize = 8_192;

/// Why a URL is refused because of its text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("URL has {0} bytes; at most {URL_BYTES_MAX} are allowed")]
    TooLong(usize),
    #[error("invalid URL ({0}); use one such as https://example.com/data.csv")]
    Parse(#[from] url::ParseError),
    #[error("URL scheme `{0}` is not supported; use https or http")]
    Scheme(String),
    #[error("URL must not contain a user name or a password")]
    Userinfo,
    #[error("`{0}` is not a valid host name")]
    Host(String),
    #[error("port {0} is not allowed; use 80 or 443, or ask the operator for an exception")]
    Port(u16),
}

/// Why no connection is made for a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    #[error("host name has no address")]
    NoAddress,
    #[error("host resolves to an address that is not public ({0})")]
    Address(NonPublicAddress),
}

/// A host and a port inside the operator's own network that may be fetched from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchException {
    host: Host,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a host and a port; use the form docs.internal:8080")]
pub struct FetchExceptionParseError(String);

impl FromStr for FetchException {
    type Err = FetchExceptionParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || FetchExceptionParseError(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let host = Host::parse(host).map_err(|_| invalid())?;
        let port = port.parse().map_err(|_| invalid())?;
        if is_valid_host(&host) && port != 0 { Ok(Self { host, port }) } else { Err(invalid()) }
    }
}

impl fmt::Display for FetchException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A URL that may be fetched if its host resolves to allowed addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchTarget {
    url: Url,
    host: Host,
    port: u16,
    is_exception: bool,
}

impl FetchTarget {
    /// Checks a URL that a user wrote.
    pub fn new(text: &str, exceptions: &[FetchException]) -> Result<Self, UrlError> {
        check_length(text)?;
        Self::check(Url::parse(text)?, exceptions)
    }

    /// Checks the redirect of this target's server. That the target itself was allowed does not
    /// matter.
    pub fn follow_redirect(
        &self,
        location: &str,
        exceptions: &[FetchException],
    ) -> Result<Self, UrlError> {
        check_length(location)?;
        Self::check(self.url.join(location)?, exceptions)
    }

    fn check(mut url: Url, exceptions: &[FetchException]) -> Result<Self, UrlError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(UrlError::Scheme(url.scheme().to_owned()));
        }
        check_length(url.as_str())?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlError::Userinfo);
        }
        let host = url.host().ok_or(url::ParseError::EmptyHost)?.to_owned();
        if !is_valid_host(&host) {
            return Err(UrlError::Host(host.to_string()));
        }
        let port = url.port_or_known_default().unwrap_or_default();
        let excepted = exceptions.iter().any(|it| it.host == host && it.port == port);
        if !excepted && !matches!(port, 80 | 443) {
            return Err(UrlError::Port(port));
        }
        url.set_fragment(None);
        Ok(Self { url, host, port, is_exception: excepted })
    }

    /// The host. A name has to be looked up; an address is its own result.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Checks every address of the host. A single refused address refuses all: an honest name has
    /// no reason to mix them.
    pub fn resolve_with(self, answers: &[IpAddr]) -> Result<FetchRoute, RouteError> {
        if answers.is_empty() {
            return Err(RouteError::NoAddress);
        }
        for answer in answers {
            match check_public(*answer) {
                Err(reason) if !(self.is_exception && reason.is_internal()) => {
                    return Err(RouteError::Address(reason));
                }
                _ => {}
            }
        }
        let addresses = answers.iter().map(|answer| SocketAddr::new(*answer, self.port)).collect();
        Ok(FetchRoute { target: self, addresses })
    }
}

/// A target and the only addresses that may be connected to for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRoute {
    target: FetchTarget,
    addresses: Vec<SocketAddr>,
}

impl FetchRoute {
    pub fn target(&self) -> &FetchTarget {
        &self.target
    }

    pub fn url(&self) -> &Url {
        &self.target.url
    }

    /// At least one.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

fn check_length(text: &str) -> Result<(), UrlError> {
    if text.len() <= URL_BYTES_MAX { Ok(()) } else { Err(UrlError::TooLong(text.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Result<FetchTarget, UrlError> {
        FetchTarget::new(text, &["docs.internal:8080".parse().unwrap()])
    }

    fn addresses(answers: &[&str]) -> Vec<IpAddr> {
        answers.iter().map(|answer| answer.parse().unwrap()).collect()
    }

    #[test]
    fn only_the_two_schemes_of_the_web_are_fetched() {
        for url in ["http://example.com/", "HTTPS://example.com/a?b#c", "https:example.com"] {
            assert!(target(url).is_ok(), "{url}");
        }
        for scheme in ["file", "ftp", "gopher", "data", "javascript", "ws", "blob", "jar", "dict"] {
            let expected = Err(UrlError::Scheme(scheme.into()));
            assert_eq!(target(&format!("{scheme}://example.com/")), expected);
        }
        assert!(matches!(target("/etc/passwd"), Err(UrlError::Parse(_))));
        assert!(matches!(target(""), Err(UrlError::Parse(_))));
    }

    #[test]
    fn a_password_in_a_url_is_refused_and_an_at_sign_in_its_path_is_not() {
        for url in
            ["http://me@example.com/", "http://me:pw@example.com/", "http://:pw@example.com/"]
        {
            assert_eq!(target(url), Err(UrlError::Userinfo), "{url}");
        }
        assert!(target("http://example.com/@me").is_ok());
    }

    #[test]
    fn ports_of_the_web_are_asked_and_others_only_by_exception() {
        for url in ["http://a.example:80/", "http://a.example:443/", "http://docs.internal:8080/"] {
            assert!(target(url).is_ok(), "{url}");
        }
        let others = [
            ("http://a.example:22/", 22),
            ("https://a.example:8080/", 8080),
            ("http://docs.internal:8081/", 8081),
            ("http://x.docs.internal:8080/", 8080),
            ("http://docs.internal.:8080/", 8080),
            ("http://a.example:0/", 0),
        ];
        for (url, port) in others {
            assert_eq!(target(url), Err(UrlError::Port(port)), "{url}");
        }
    }

    #[test]
    fn every_spelling_of_an_address_is_that_address() {
        let forms = [
            "127.0.0.1",
            "127.1",
            "127.0.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "017700000001",
            "0177.0.0.1",
            "0x7F.0.0.0x1",
            "127.0.0.1.",
            "1２7.0.0.1",
            "①27.0.0.1",
            "127。0。0。1",
            "%31%32%37.0.0.1",
        ];
        let loopback: Host = Host::parse("127.0.0.1").unwrap();
        for form in forms {
            let target = target(&format!("http://{form}/")).unwrap();
            assert_eq!(target.host(), &loopback, "{form}");
        }
        let mapped = target("http://[::ffff:7f00:1]/").unwrap();
        let Host::Ipv6(address) = *mapped.host() else { panic!("{mapped:?}") };
        assert_eq!(
            mapped.resolve_with(&[address.into()]),
            Err(RouteError::Address(NonPublicAddress::Loopback))
        );
    }

    #[test]
    fn a_host_is_a_name_that_can_be_looked_up() {
        let label = "a".repeat(63);
        let long = [label.as_str(); 3].join(".");
        for host in ["example.com", "example.com.", "a_b.example", "münchen.example", &long] {
            assert!(target(&format!("http://{host}/")).is_ok(), "{host}");
        }
        let longer = [label.as_str(); 4].join(".");
        for host in ["a..b", "a$b", "a'b", "a,b", "..", &format!("{label}a"), &longer] {
            let result = target(&format!("http://{host}/"));
            assert!(matches!(result, Err(UrlError::Host(_))), "{host}: {result:?}");
        }
        for host in ["", "a b", "a%00b", "1.2.3.4.5", "256.1.1.1", "[::1", "[fe80::1%25eth0]"] {
            let result = target(&format!("http://{host}/"));
            assert!(matches!(result, Err(UrlError::Parse(_))), "{host}: {result:?}");
        }
    }

    #[test]
    fn a_url_is_bounded_before_and_after_it_is_read() {
        let fits = format!("http://example.com/{}", "a".repeat(URL_BYTES_MAX - 19));
        assert!(target(&fits).is_ok());
        assert!(matches!(target(&format!("{fits}a")), Err(UrlError::TooLong(_))));
        let grows = format!("http://example.com/{}", "é".repeat(3_000));
        assert!(matches!(target(&grows), Err(UrlError::TooLong(18_019))));
    }

    #[test]
    fn a_route_has_the_checked_addresses_and_one_bad_answer_refuses_all() {
        let public = target("https://example.com/").unwrap();
        let route =
            public.clone().resolve_with(&addresses(&["8.8.8.8", "2606:4700::1111"])).unwrap();
        assert_eq!(route.addresses()[0], "8.8.8.8:443".parse().unwrap());
        assert_eq!(route.addresses().len(), 2);
        let mixed = public.clone().resolve_with(&addresses(&["8.8.8.8", "10.0.0.1"]));
        assert_eq!(mixed, Err(RouteError::Address(NonPublicAddress::Private)));
        assert_eq!(public.resolve_with(&[]), Err(RouteError::NoAddress));
    }

    #[test]
    fn an_exception_opens_its_own_host_and_port_and_no_metadata() {
        let excepted = target("http://docs.internal:8080/").unwrap();
        assert!(excepted.clone().resolve_with(&addresses(&["10.0.0.1", "127.0.0.1"])).is_ok());
        for (answer, reason) in [
            ("169.254.169.254", NonPublicAddress::Metadata),
            ("0.0.0.0", NonPublicAddress::Unspecified),
            ("fe80::1", NonPublicAddress::LinkLocal),
        ] {
            let result = excepted.clone().resolve_with(&addresses(&[answer]));
            assert_eq!(result, Err(RouteError::Address(reason)));
        }
        let other = target("http://docs.internal/").unwrap();
        let result = other.resolve_with(&addresses(&["10.0.0.1"]));
        assert_eq!(result, Err(RouteError::Address(NonPublicAddress::Private)));
    }

    #[test]
    fn an_exception_names_one_host_and_one_port() {
        for text in ["docs.internal:8080", "10.0.0.5:80", "[fd00::1]:443", "localhost:1"] {
            let exception: FetchException = text.parse().unwrap();
            assert_eq!(exception.to_string(), text);
        }
        for text in
            ["docs.internal", "*.internal:80", "a:0", "a:65536", ":80", "a:b", "http://a:80"]
        {
            assert!(text.parse::<FetchException>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_redirect_is_judged_like_any_other_url() {
        let from = target("http://docs.internal:8080/a/b").unwrap();
        let next = |location| from.follow_redirect(location, &[]);
        assert_eq!(next("https://example.com/c").unwrap().url.path(), "/c");
        assert_eq!(next("//example.com/c").unwrap().url.as_str(), "http://example.com/c");
        assert_eq!(next("file:///etc/passwd"), Err(UrlError::Scheme("file".into())));
        assert_eq!(next("/c"), Err(UrlError::Port(8080)));
    }
}
