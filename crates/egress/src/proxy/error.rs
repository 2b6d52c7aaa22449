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
    #[error("this is a proxy; ask it with CONNECT, or with the whole URL")]
    NotAProxyRequest,
    #[error("only http is asked for by its URL; use CONNECT for anything else")]
    UnsupportedScheme,
    #[error("a user name in a URL is not sent")]
    Userinfo,
    #[error("CONNECT needs a host and a port")]
    MissingPort,
    #[error("{0}")]
    Destination(#[from] DestinationError),
    #[error("a request has one Host")]
    HostCount,
    #[error("Host is another than the one that was asked for")]
    HostMismatch,
    #[error("the head of the request cannot be read as HTTP/1.1")]
    InvalidHead,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum EgressError {
    #[error("{0}")]
    Malformed(#[from] MalformedRequest),
    #[error("this session has {0} connections, which is the most at once")]
    SandboxBusy(usize),
    #[error(
        "all sandboxes of this server have {0} connections, which is the most at once; try later"
    )]
    ProxyBusy(usize),
    #[error(
        "the sandboxes of this workspace have {0} connections, which is the most at once; try later"
    )]
    WorkspaceBusy(usize),
    #[error(
        "{to} would be sent one of {count} secrets of {bytes} bytes in total; at most {count_max} of \
         {bytes_max} bytes can be for one host"
    )]
    TooManySecrets {
        to: Destination,
        count: usize,
        bytes: usize,
        count_max: usize,
        bytes_max: usize,
    },
    #[error("{0} cannot be asked now: too many different secrets are in use; try later")]
    RedactionBusy(Destination),
    /// The cause is for the log only.
    #[error("what is open to this session cannot be told now")]
    PolicyUnavailable { why: String },

    #[error(
        "{to} is not opened by any integration of this session; list one that has it under {named_in}"
    )]
    NotAllowed { to: Destination, named_in: IntegrationsField },
    #[error("{to} is not opened: the integration {integration} is switched off")]
    IntegrationDisabled { to: Destination, integration: String },
    #[error("{0} is opened by a secret, for https and nothing else")]
    HttpsRequired(Destination),
    #[error(
        "{to} has an address that is not public ({reason}); a network rule has to name that address \
         as well, as ADDRESS:{}",
        .to.port()
    )]
    PrivateAddressNotListed { to: Destination, reason: NonPublicAddress },
    #[error("{to} has an address that is never opened ({reason})")]
    AddressForbidden { to: Destination, reason: NonPublicAddress },
    #[error("{0} is public, and gets no secret over plain http")]
    SecretOverPlainHttp(Destination),
    #[error("the client says another name in its TLS greeting than {0}, or none")]
    SniMismatch(Destination),
    #[error("the client did not speak TLS with the proxy, which stands in for {0}")]
    TlsRequired(Destination),
    #[error("{0}")]
    LimitReached(TrafficLimit),

    #[error("the secret `{0}` has characters that no header can have")]
    InvalidSecretValue(String),
    #[error("{0} cannot be resolved")]
    Unresolved(Destination),
    #[error("{0} cannot be resolved now: too many names are being asked for; try later")]
    LookupsBusy(Destination),
    #[error("{to} cannot be reached: {}", connect_error_text(.source))]
    Unreachable { to: Destination, source: io::Error },
    #[error("{0} did not answer in time")]
    ConnectTimeout(Destination),
    #[error("{to} is not trusted: its certificate {}", certificate_error_text(.reason))]
    Certificate { to: Destination, reason: CertificateError },
    #[error("{to} does not speak TLS as it should")]
    Tls { to: Destination, source: io::Error },
    #[error("{to} gave no answer that can be read")]
    InvalidResponse { to: Destination, source: hyper::Error },
    #[error("{0} changed the protocol without being asked")]
    UnexpectedUpgrade(Destination),
    #[error(
        "{0} answered with an encoding that it was not asked for, in which the secret that it \
         got cannot be looked for"
    )]
    UnexpectedEncoding(Destination),
    #[error(
        "{to} said over a WebSocket what {why}, in which the secret that it got cannot be looked for"
    )]
    InvalidFrame { to: Destination, why: FrameError },
    #[error("{to} gave no answer: {bound}")]
    IdleTimeout { to: Destination, bound: TrafficLimit },
    #[error("the body of a request to {0} cannot be read to its end")]
    RequestBody(Destination),
    /// The client has disconnected.
    #[error("the client or its sandbox ended before {0} had answered a request")]
    Aborted(Destination),
    #[error("the proxy cannot stand in for this host")]
    Interception(#[from] CaError),
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
            Self::NotAllowed { .. }
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
            | Self::Interception(_) => StatusCode::BAD_GATEWAY,
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
        let mut response = Response::new(text_body(format!("{text}\n")));
        *response.status_mut() = status;
        if let Ok(phrase) = ReasonPhrase::try_from(text) {
            response.extensions_mut().insert(phrase);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
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
        io::ErrorKind::ConnectionRefused => "the connection is refused",
        io::ErrorKind::ConnectionReset => "the connection is reset",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "there is no route",
        _ => "the connection fails",
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
        CertificateError::UnknownIssuer => "is signed by nobody who is trusted",
        CertificateError::Revoked => "is revoked",
        _ => "is not valid",
    }
}
