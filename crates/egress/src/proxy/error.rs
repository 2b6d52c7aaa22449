//! Why a request is rejected or fails, for the client in the sandbox and for the log.
//!
//! The text is also the reason phrase, since most clients show that and not the body of a response
//! to CONNECT. It is ASCII and bounded, because host names are, and never contains a secret.

use super::meter::TrafficLimit;
use super::websocket_redact::FrameError;
use crate::ca::CaError;
use crate::policy_source::IntegrationsField;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::ext::ReasonPhrase;
use policy::{Destination, DestinationError, NonPublicAddress};
use std::error::Error;
use std::io;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError};

/// The body of a response: our own text, or the stream of a host.
pub(super) type ProxyBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// Why a request is ambiguous or malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum MalformedRequest {
    #[error("this is a proxy; use CONNECT or an absolute URL")]
    NotAProxyRequest,
    #[error("absolute URLs must be http; use CONNECT for all other schemes")]
    UnsupportedScheme,
    #[error("the URL must not contain a user name")]
    Userinfo,
    #[error("CONNECT needs a host and a port")]
    MissingPort,
    #[error("{0}")]
    Destination(#[from] DestinationError),
    #[error("a request must have exactly one Host header")]
    HostCount,
    #[error("the Host header does not match the requested host")]
    HostMismatch,
    #[error("the request head is not valid HTTP/1.1")]
    InvalidHead,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum EgressError {
    #[error("{0}")]
    Malformed(#[from] MalformedRequest),
    #[error("limit of {0} connections of this session reached; close some")]
    SandboxBusy(usize),
    #[error("limit of {0} connections of all sandboxes of this server reached; try later")]
    ProxyBusy(usize),
    #[error("limit of {0} connections of all sandboxes of this workspace reached; try later")]
    WorkspaceBusy(usize),
    #[error(
        "{to} has {count} secrets with {bytes} bytes in total; the maximum for one host is \
         {count_max} secrets with {bytes_max} bytes"
    )]
    TooManySecrets {
        to: Destination,
        count: usize,
        bytes: usize,
        count_max: usize,
        bytes_max: usize,
    },
    #[error("{0} is temporarily unavailable: too many different secrets are in use; try later")]
    RedactionBusy(Destination),
    /// The cause is for the log only.
    #[error("network policy is temporarily unavailable")]
    PolicyUnavailable { why: String },

    #[error(
        "{to} is not allowed by any integration of this session; list one that allows this host \
         in {named_in}"
    )]
    NotAllowed { to: Destination, named_in: IntegrationsField },
    #[error("{to} is not allowed: integration {integration} is disabled")]
    IntegrationDisabled { to: Destination, integration: String },
    #[error("{0} is allowed by a secret, and only over https")]
    HttpsRequired(Destination),
    #[error(
        "{to} resolves to an address that is not public ({reason}); add the address to a network \
         rule, as ADDRESS:{}",
        .to.port()
    )]
    PrivateAddressNotListed { to: Destination, reason: NonPublicAddress },
    #[error("{to} resolves to an address that is never allowed ({reason})")]
    AddressForbidden { to: Destination, reason: NonPublicAddress },
    #[error("{0} is public; secrets are not sent to it over plain http")]
    SecretOverPlainHttp(Destination),
    #[error("TLS server name (SNI) is missing or is not {0}")]
    SniMismatch(Destination),
    #[error("the client sent no valid TLS to the proxy, which terminates TLS for {0}")]
    TlsRequired(Destination),
    #[error("{0}")]
    LimitReached(TrafficLimit),

    #[error("the request to {to} was not sent: {why}")]
    CredentialUnavailable { to: Destination, why: String },
    #[error("the secret `{0}` has characters that are invalid in a header")]
    InvalidSecretValue(String),
    #[error("{0} cannot be resolved")]
    Unresolved(Destination),
    #[error("{0} cannot be resolved: too many concurrent name lookups; try later")]
    LookupsBusy(Destination),
    #[error("cannot connect to {to}: {}", connect_error_text(.source))]
    Unreachable { to: Destination, source: io::Error },
    #[error("{0} did not respond in time")]
    ConnectTimeout(Destination),
    #[error("{to} is not trusted: its certificate {}", certificate_error_text(.reason))]
    Certificate { to: Destination, reason: CertificateError },
    #[error("TLS handshake with {to} failed")]
    Tls { to: Destination, source: io::Error },
    #[error("{to} sent an invalid response")]
    InvalidResponse { to: Destination, source: hyper::Error },
    #[error("{0} switched protocols without a request to do so")]
    UnexpectedUpgrade(Destination),
    #[error(
        "{0} sent a response with an encoding that was not requested, in which its secret cannot \
         be redacted"
    )]
    UnexpectedEncoding(Destination),
    #[error("{to} sent a WebSocket frame that {why}, in which its secret cannot be redacted")]
    InvalidFrame { to: Destination, why: FrameError },
    #[error("no response from {to}: {bound}")]
    IdleTimeout { to: Destination, bound: TrafficLimit },
    #[error("the body of a request to {0} is incomplete")]
    RequestBody(Destination),
    /// The client has disconnected.
    #[error("the client disconnected or its sandbox ended before {0} responded")]
    Aborted(Destination),
    #[error(
        "the proxy cannot create a certificate for {to}; ask the operator to check the log of the \
         server"
    )]
    Interception { to: Destination, source: CaError },
}

impl EgressError {
    /// Interprets a failed TLS handshake.
    pub(super) fn tls_handshake(to: &Destination, source: io::Error) -> Self {
        let to = to.clone();
        let inner = source.get_ref().and_then(|inner| inner.downcast_ref());
        match inner {
            Some(rustls::Error::InvalidCertificate(reason)) => {
                Self::Certificate { to, reason: reason.clone() }
            }
            _ => Self::Tls { to, source },
        }
    }

    /// Whether the host rejected the offered ALPN protocols.
    pub(super) fn is_alpn_mismatch(&self) -> bool {
        let Self::Tls { source, .. } = self else { return false };
        let inner = source.get_ref().and_then(|inner| inner.downcast_ref());
        let alert = AlertDescription::NoApplicationProtocol;
        inner.is_some_and(|error: &rustls::Error| *error == rustls::Error::AlertReceived(alert))
    }

    pub(super) fn invalid_response(to: &Destination, source: hyper::Error) -> Self {
        Self::InvalidResponse { to: to.clone(), source }
    }

    pub(super) fn limit_reached(to: &Destination, bound: TrafficLimit) -> Self {
        match bound {
            TrafficLimit::Idle(_) => Self::IdleTimeout { to: to.clone(), bound },
            TrafficLimit::Up(_) | TrafficLimit::Down(_) => Self::LimitReached(bound),
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) | Self::RequestBody(_) => StatusCode::BAD_REQUEST,
            Self::SandboxBusy(_)
            | Self::WorkspaceBusy(_)
            | Self::ProxyBusy(_)
            | Self::RedactionBusy(_)
            | Self::PolicyUnavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            // Not 401: clients then say that the token is invalid, and not why.
            Self::CredentialUnavailable { .. }
            | Self::NotAllowed { .. }
            | Self::IntegrationDisabled { .. }
            | Self::HttpsRequired(_)
            | Self::PrivateAddressNotListed { .. }
            | Self::AddressForbidden { .. }
            | Self::SecretOverPlainHttp(_)
            | Self::SniMismatch(_)
            | Self::TlsRequired(_)
            | Self::TooManySecrets { .. }
            | Self::LimitReached(_) => StatusCode::FORBIDDEN,
            Self::InvalidSecretValue(_)
            | Self::Unresolved(_)
            | Self::Unreachable { .. }
            | Self::Certificate { .. }
            | Self::Tls { .. }
            | Self::InvalidResponse { .. }
            | Self::UnexpectedUpgrade(_)
            | Self::UnexpectedEncoding(_)
            | Self::InvalidFrame { .. }
            | Self::Aborted(_)
            | Self::Interception { .. } => StatusCode::BAD_GATEWAY,
            Self::LookupsBusy(_) | Self::ConnectTimeout(_) | Self::IdleTimeout { .. } => {
                StatusCode::GATEWAY_TIMEOUT
            }
        }
    }

    /// Whether the policy denied it, or it asks for something that the policy cannot cover.
    /// Otherwise it was allowed and failed.
    pub(super) fn is_denial(&self) -> bool {
        matches!(self, Self::Malformed(_))
            || matches!(self.status(), StatusCode::FORBIDDEN | StatusCode::SERVICE_UNAVAILABLE)
    }

    /// For the log.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::PolicyUnavailable { why } => format!("{self}: {why}"),
            _ => self.to_string(),
        }
    }

    /// For the client in the sandbox.
    pub(super) fn response(&self) -> Response<ProxyBody> {
        let status = self.status();
        let text = match status {
            StatusCode::FORBIDDEN => format!("network.denied: {self}"),
            _ => self.to_string(),
        };
        let (body, content_type) = match self {
            // The form of an API's error, so that its client shows the reason and does not retry.
            Self::CredentialUnavailable { .. } => {
                // The text is printable ASCII, of which the debug form is a JSON string.
                let code = status.as_u16();
                let body = format!(r#"{{"error":{{"code":{code},"message":{text:?}}}}}"#);
                (body, "application/json")
            }
            _ => (format!("{text}\n"), "text/plain; charset=utf-8"),
        };
        let mut response = Response::new(text_body(body));
        *response.status_mut() = status;
        if let Ok(phrase) = ReasonPhrase::try_from(text) {
            response.extensions_mut().insert(phrase);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let closes = matches!(
            self,
            Self::Malformed(_) | Self::SandboxBusy(_) | Self::WorkspaceBusy(_) | Self::ProxyBusy(_)
        );
        if closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

pub(super) fn text_body(text: impl Into<Bytes>) -> ProxyBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

fn connect_error_text(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::ConnectionReset => "connection reset",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "no route to host",
        _ => "connection failed",
    }
}

fn certificate_error_text(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "is for another name"
        }
        CertificateError::UnknownIssuer => "has an unknown issuer",
        CertificateError::Revoked => "is revoked",
        _ => "is not valid",
    }
}
