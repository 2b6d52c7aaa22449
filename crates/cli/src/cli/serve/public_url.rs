//! The URL by which clients reach the server. It never comes from a request: a `Host` header is
//! chosen by the client that sends it.

use serde::Deserialize;
use service::FileUrlConfig;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;
use url::{Position, Url};

/// `--public-url`: scheme, host, and a path if a proxy serves Belljar below one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct PublicUrl(Url);

impl PublicUrl {
    /// The `Host` header of requests to it.
    pub(super) fn host(&self) -> String {
        self.0[Position::BeforeHost..Position::AfterPort].to_owned()
    }

    /// The URL without a slash at its end.
    pub(super) fn as_str(&self) -> &str {
        self.0.as_str().trim_end_matches('/')
    }
}

impl FromStr for PublicUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or("must be an http or https URL, such as https://belljar.example.org")?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        if is_plain && url.query().is_none() && url.fragment().is_none() {
            return Ok(Self(url));
        }
        Err("must have no user name, password, query or fragment")
    }
}

impl TryFrom<String> for PublicUrl {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// The addresses of the server in URLs of files: `--public-url`, or else the address that it listens
/// on. An unspecified address is reached by loopback, on this machine only.
pub(super) fn file_url_config(
    listen: SocketAddr,
    public: Option<&PublicUrl>,
    lifetime: Duration,
) -> FileUrlConfig {
    let (ip, port) = (reachable_ip(listen.ip()), listen.port());
    let mut aliases: Vec<Url> = [format!("http://{}", SocketAddr::new(ip, port))]
        .into_iter()
        .chain(ip.is_loopback().then(|| format!("http://localhost:{port}")))
        .filter_map(|text| Url::parse(&text).ok())
        .collect();
    let base = match public {
        Some(PublicUrl(url)) => Some(url.clone()),
        None if aliases.is_empty() => None,
        None => Some(aliases.remove(0)),
    };
    FileUrlConfig { base, aliases, lifetime }
}

fn reachable_ip(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(listen: &str, public: Option<&str>) -> (String, Vec<String>) {
        let public = public.map(|text| text.parse::<PublicUrl>().unwrap());
        let config = file_url_config(listen.parse().unwrap(), public.as_ref(), Duration::ZERO);
        let text = |url: &Url| url.as_str().trim_end_matches('/').to_owned();
        (text(config.base.as_ref().unwrap()), config.aliases.iter().map(text).collect())
    }

    #[test]
    fn files_are_at_the_public_url_or_where_the_server_listens() {
        let here = || vec!["http://localhost:7117".to_owned()];
        assert_eq!(base("127.0.0.1:7117", None), ("http://127.0.0.1:7117".to_owned(), here()));
        assert_eq!(base("0.0.0.0:7117", None), ("http://127.0.0.1:7117".to_owned(), here()));
        assert_eq!(base("[::]:7117", None), ("http://[::1]:7117".to_owned(), here()));
        assert_eq!(base("192.0.2.7:80", None), ("http://192.0.2.7".to_owned(), Vec::new()));
        let (public, aliases) = base("127.0.0.1:7117", Some("https://a.example/belljar/"));
        assert_eq!(public, "https://a.example/belljar");
        assert_eq!(aliases, ["http://127.0.0.1:7117", "http://localhost:7117"]);
    }

    #[test]
    fn a_public_url_names_a_host_and_nothing_secret() {
        let host = |text: &str| text.parse::<PublicUrl>().map(|url| url.host());
        assert_eq!(host("https://A.example/"), Ok("a.example".to_owned()));
        assert_eq!(host("http://a.example:8080/x"), Ok("a.example:8080".to_owned()));
        for wrong in [
            "a.example",
            "ftp://a.example",
            "",
            "https://",
            "https://me:x@a.example",
            "https://a.example/?x=1",
            "https://a.example/#x",
            "file:///etc",
        ] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }
}
