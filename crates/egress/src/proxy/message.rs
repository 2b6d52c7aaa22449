//! Parses and cleans the head of a message.
//!
//! The destination of a request is read from one place, and every other place that has it must
//! agree. Hop-by-hop headers are never forwarded, in either direction.

use super::error::MalformedRequest;
use crate::policy_source::Scheme;
use http::header::{
    CONNECTION, CONTENT_ENCODING, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::Authority;
use http::{Method, Request, Version};
use policy::Destination;

/// Hop-by-hop headers (RFC 9110), in addition to those that `Connection` lists and all `Proxy-`
/// headers.
const HOP_BY_HOP_HEADERS: [HeaderName; 7] = [
    CONNECTION,
    UPGRADE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    EXPECT,
    HeaderName::from_static("keep-alive"),
];
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Maximum length of a host name.
const HOST_CHARS_MAX: usize = 253;

/// The host that a request names. For the log only.
pub(super) struct RequestedHost {
    pub(super) host: String,
    /// 0 if the request has none.
    pub(super) port: u16,
}

/// The parts of a destination in a request that could not be parsed.
pub(super) fn requested_host<B>(request: &Request<B>) -> RequestedHost {
    let host = request.headers().get(HOST);
    let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    match request.uri().authority().or(host.as_ref()) {
        Some(named) => RequestedHost {
            host: named.host().chars().take(HOST_CHARS_MAX).collect(),
            port: named.port_u16().unwrap_or_default(),
        },
        None => RequestedHost { host: String::new(), port: 0 },
    }
}

/// The destination of a CONNECT.
pub(super) fn tunnel_target<B>(request: &Request<B>) -> Result<Destination, MalformedRequest> {
    let authority = request.uri().authority().ok_or(MalformedRequest::MissingPort)?;
    let port = authority.port_u16().ok_or(MalformedRequest::MissingPort)?;
    let to = destination(authority, port)?;
    // Some clients omit the port here.
    check_host_header(request.headers(), &to, port)?;
    Ok(to)
}

/// The destination of a request with an absolute URL.
pub(super) fn url_target<B>(request: &Request<B>) -> Result<Destination, MalformedRequest> {
    let uri = request.uri();
    match uri.scheme_str() {
        Some("http") => {}
        Some(_) => return Err(MalformedRequest::UnsupportedScheme),
        None => return Err(MalformedRequest::NotAProxyRequest),
    }
    let authority = uri.authority().ok_or(MalformedRequest::NotAProxyRequest)?;
    let usual = default_port(Scheme::Http);
    let to = destination(authority, port_of(authority, usual)?)?;
    check_host_header(request.headers(), &to, usual)?;
    Ok(to)
}

/// Checks that a request inside a tunnel is for the target of the tunnel.
pub(super) fn check_tunnel_request<B>(
    request: &Request<B>,
    to: &Destination,
    scheme: Scheme,
) -> Result<(), MalformedRequest> {
    let uri = request.uri();
    if uri.authority().is_some() || !uri.path().starts_with('/') {
        return Err(MalformedRequest::HostMismatch);
    }
    if !request.headers().contains_key(HOST) {
        return Err(MalformedRequest::HostCount);
    }
    check_host_header(request.headers(), to, default_port(scheme))
}

pub(super) fn default_port(scheme: Scheme) -> u16 {
    match scheme {
        Scheme::Https => 443,
        Scheme::Http => 80,
    }
}

fn destination(authority: &Authority, port: u16) -> Result<Destination, MalformedRequest> {
    if authority.as_str().contains('@') {
        return Err(MalformedRequest::Userinfo);
    }
    Ok(Destination::new(authority.host(), port)?)
}

/// A port that is present but invalid is an error, not the default port.
fn port_of(authority: &Authority, usual: u16) -> Result<u16, MalformedRequest> {
    let has_port = authority.as_str().len() > authority.host().len();
    match authority.port_u16() {
        Some(port) => Ok(port),
        None if has_port => Err(MalformedRequest::MissingPort),
        None => Ok(usual),
    }
}

/// Checks that `Host`, if present, names the destination.
fn check_host_header(
    headers: &HeaderMap,
    to: &Destination,
    usual: u16,
) -> Result<(), MalformedRequest> {
    let mut hosts = headers.get_all(HOST).iter();
    let Some(host) = hosts.next() else { return Ok(()) };
    if hosts.next().is_some() {
        return Err(MalformedRequest::HostCount);
    }
    let named = Authority::try_from(host.as_bytes()).map_err(|_| MalformedRequest::HostMismatch)?;
    let port = port_of(&named, usual)?;
    match destination(&named, port) {
        Ok(named) if named == *to => Ok(()),
        _ => Err(MalformedRequest::HostMismatch),
    }
}

/// Whether the client requests an upgrade to WebSocket, the only one that is supported.
pub(super) fn is_websocket_upgrade<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let websocket = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
    request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && headers.get(UPGRADE).is_some_and(websocket)
        && connection_options(headers).any(|option| option.eq_ignore_ascii_case("upgrade"))
}

pub(super) fn set_websocket_upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

/// Whether a body has a content or transfer encoding, so that its bytes differ from its content.
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    let is_other = |header: HeaderName, plain: &str| {
        let lines = headers.get_all(header).into_iter();
        let mut codings = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        codings.any(|coding| !coding.trim_ascii().eq_ignore_ascii_case(plain.as_bytes()))
    };
    is_other(CONTENT_ENCODING, "identity") || is_other(TRANSFER_ENCODING, "chunked")
}

/// Removes the headers for this hop.
pub(super) fn strip_hop_by_hop_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        connection_options(headers).filter_map(|option| option.parse().ok()).collect();
    let of_proxies = headers.keys().filter(|name| name.as_str().starts_with("proxy-"));
    let of_proxies: Vec<HeaderName> = of_proxies.cloned().collect();
    for name in
        HOP_BY_HOP_HEADERS.into_iter().chain([HTTP2_SETTINGS]).chain(named).chain(of_proxies)
    {
        headers.remove(name);
    }
}

fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}
