//! The trusted issuer of tokens and the required audience, as the operator configures them.

use egress::FetchException;
use url::{Host, Url};

/// An OAuth authorization server, whose keys verify tokens.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// The exact claim `iss` of its tokens.
    name: String,
    url: Url,
    audience: String,
    audience_url: Url,
    exception: FetchException,
}

#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    #[error("`{0}` is not a URL; use one such as https://login.example.org")]
    Unreadable(String),
    #[error("`{0}` must start with https; http is allowed only for this machine")]
    Insecure(String),
    #[error("`{0}` must not have a query, a fragment or a password")]
    Parts(String),
}

impl Issuer {
    /// `audience` is the URL by which clients know this server (RFC 8707).
    pub fn new(name: &str, audience: &str) -> Result<Self, IssuerError> {
        let url = parse_url(name)?;
        if !is_secure(&url) {
            return Err(IssuerError::Insecure(name.to_owned()));
        }
        let audience_url = parse_url(audience)?;
        let host_and_port = (url.host_str(), url.port_or_known_default());
        let exception = match host_and_port {
            (Some(host), Some(port)) => format!("{host}:{port}").parse().ok(),
            _ => None,
        };
        let exception = exception.ok_or_else(|| IssuerError::Unreadable(name.to_owned()))?;
        let (name, audience) = (name.to_owned(), audience.to_owned());
        Ok(Self { name, url, audience, audience_url, exception })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn audience(&self) -> &str {
        &self.audience
    }

    /// The URL of another path on the host of the audience.
    pub fn audience_url_with_path(&self, path: &str) -> String {
        let mut url = self.audience_url.clone();
        url.set_path(path);
        url.into()
    }

    /// The operator may use an issuer in an internal network; other internal hosts stay denied.
    pub(super) fn exception(&self) -> FetchException {
        self.exception.clone()
    }

    /// The URLs of its metadata: OpenID Connect Discovery and RFC 8414.
    pub(super) fn metadata_urls(&self) -> [Url; 2] {
        let path = self.url.path().trim_end_matches('/');
        let at = |path: String| {
            let mut url = self.url.clone();
            url.set_path(&path);
            url
        };
        [
            at(format!("{path}/.well-known/openid-configuration")),
            at(format!("/.well-known/oauth-authorization-server{path}")),
        ]
    }
}

fn parse_url(text: &str) -> Result<Url, IssuerError> {
    let unreadable = || IssuerError::Unreadable(text.to_owned());
    let url = Url::parse(text).map_err(|_| unreadable())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(unreadable());
    }
    let parts = url.query().is_some() || url.fragment().is_some();
    if parts || !url.username().is_empty() || url.password().is_some() {
        return Err(IssuerError::Parts(text.to_owned()));
    }
    Ok(url)
}

/// Whether responses cannot be modified on the network: HTTPS, or this machine.
pub(super) fn is_secure(url: &Url) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "https://belljar.example.org/mcp";

    #[test]
    fn an_issuer_is_asked_where_nobody_listens_or_not_at_all() {
        for name in ["https://login.example.org/", "http://127.0.0.1:8080", "http://localhost:1/a"]
        {
            assert!(Issuer::new(name, HERE).is_ok(), "{name}");
        }
        for name in ["http://login.example.org", "http://10.0.0.1", "http://localhost.example.org"]
        {
            let error = Issuer::new(name, HERE);
            assert!(matches!(error, Err(IssuerError::Insecure(_))), "{name}: {error:?}");
        }
        for name in ["login.example.org", "file:///etc/passwd", "https://me:pw@a.example", ""] {
            assert!(Issuer::new(name, HERE).is_err(), "{name}");
        }
        assert!(Issuer::new("https://login.example.org", "api").is_err());
    }

    #[test]
    fn an_issuer_tells_about_itself_in_two_places() {
        let places = |name| Issuer::new(name, HERE).unwrap().metadata_urls().map(String::from);
        let plain = [
            "https://a.example/.well-known/openid-configuration",
            "https://a.example/.well-known/oauth-authorization-server",
        ];
        assert_eq!(places("https://a.example"), plain);
        assert_eq!(places("https://a.example/"), plain);
        let tenant = [
            "https://a.example/t/1/.well-known/openid-configuration",
            "https://a.example/.well-known/oauth-authorization-server/t/1",
        ];
        assert_eq!(places("https://a.example/t/1"), tenant);
    }
}
