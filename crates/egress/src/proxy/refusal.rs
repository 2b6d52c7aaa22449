//! Why a request goes no further, as the client inside is told and as the log keeps it.
//!
//! The text goes into the reason phrase too, since most clients show that and not the body of an
//! answer to CONNECT. It is ASCII and bounded, because hosts are, and never has a secret in it.

use super::frames::NoFrame;
use super::meter::Bound;
use crate::authority::NamedIn;
use crate::ca::CaError;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::ext::ReasonPhrase;
use policy::{Destination, DestinationRefused, NotPublic};
use std::error::Error;
use std::io;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError};

/// What is answered to a client: our own words, or a host's as they arrive.
pub(super) type Body = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// Why a request cannot be understood in exactly one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("this is a proxy; ask it with CONNECT, or with the whole URL")]
    Form,
    #[error("only http is asked for by its URL; use CONNECT for anything else")]
    Scheme,
    #[error("a user name in a URL is not sent")]
    Userinfo,
    #[error("CONNECT needs a host and a port")]
    NoPort,
    #[error("{0}")]
    Destination(#[from] DestinationRefused),
    #[error("a request has one Host")]
    Hosts,
    #[error("Host is another than the one that was asked for")]
    OtherHost,
    #[error("the head of the request cannot be read as HTTP/1.1")]
    Head,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{0}")]
    Malformed(#[from] Malformed),
    #[error("this session has {0} connections, which is the most at once")]
    Busy(usize),
    #[error(
        "all sandboxes of this server have {0} connections, which is the most at once; try later"
    )]
    AllBusy(usize),
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
    /// Why is for the log.
    #[error("what is open to this session cannot be told now")]
    Undecided { why: String },

    #[error(
        "{to} is not opened by any integration of this session; list one that has it under {named_in}"
    )]
    NotOpened { to: Destination, named_in: NamedIn },
    #[error("{to} is not opened: the integration {integration} is switched off")]
    SwitchedOff { to: Destination, integration: String },
    #[error("{0} is opened by a secret, for https and nothing else")]
    OnlyHttps(Destination),
    #[error(
        "{to} has an address that is not public ({reason}); a network rule has to name that address \
         as well, as ADDRESS:{}",
        .to.port()
    )]
    NotNamed { to: Destination, reason: NotPublic },
    #[error("{to} has an address that is never opened ({reason})")]
    NeverOpened { to: Destination, reason: NotPublic },
    #[error("{0} is public, and gets no secret over plain http")]
    PlainSecret(Destination),
    #[error("the client says another name in its TLS greeting than {0}, or none")]
    OtherName(Destination),
    #[error("the client did not speak TLS with the proxy, which stands in for {0}")]
    NoTls(Destination),
    #[error("{0}")]
    Spent(Bound),

    #[error("the secret `{0}` has characters that no header can have")]
    SecretUnfit(String),
    #[error("{0} cannot be resolved")]
    Unresolved(Destination),
    #[error("{0} cannot be resolved now: too many names are being asked for; try later")]
    LookupsBusy(Destination),
    #[error("{to} cannot be reached: {}", unreachable(.source))]
    Unreachable { to: Destination, source: io::Error },
    #[error("{0} did not answer in time")]
    ConnectTime(Destination),
    #[error("{to} is not trusted: its certificate {}", distrust(.reason))]
    Certificate { to: Destination, reason: CertificateError },
    #[error("{to} does not speak TLS as it should")]
    Tls { to: Destination, source: io::Error },
    #[error("{to} gave no answer that can be read")]
    Answer { to: Destination, source: hyper::Error },
    #[error("{0} changed the protocol without being asked")]
    Switched(Destination),
    #[error(
        "{0} answered with an encoding that it was not asked for, in which the secret that it \
         got cannot be looked for"
    )]
    Encoded(Destination),
    #[error(
        "{to} said over a WebSocket what {why}, in which the secret that it got cannot be looked for"
    )]
    NoFrame { to: Destination, why: NoFrame },
    #[error("{to} gave no answer: {bound}")]
    Silent { to: Destination, bound: Bound },
    #[error("the body of a request to {0} cannot be read to its end")]
    Body(Destination),
    /// Nobody is there to be told.
    #[error("the client or its sandbox ended before {0} had answered a request")]
    Unfinished(Destination),
    #[error("the proxy cannot stand in for this host")]
    StandIn(#[from] CaError),
}

impl Refusal {
    /// What a failed greeting means.
    pub(super) fn greeting(to: &Destination, source: io::Error) -> Self {
        let to = to.clone();
        let inner = source.get_ref().and_then(|inner| inner.downcast_ref());
        match inner {
            Some(rustls::Error::InvalidCertificate(reason)) => {
                Self::Certificate { to, reason: reason.clone() }
            }
            _ => Self::Tls { to, source },
        }
    }

    /// Whether the host has said that it does not speak what it was asked to speak over TLS.
    pub(super) fn is_of_protocol(&self) -> bool {
        let Self::Tls { source, .. } = self else { return false };
        let inner = source.get_ref().and_then(|inner| inner.downcast_ref());
        let alert = AlertDescription::NoApplicationProtocol;
        inner.is_some_and(|error: &rustls::Error| *error == rustls::Error::AlertReceived(alert))
    }

    pub(super) fn answer(to: &Destination, source: hyper::Error) -> Self {
        Self::Answer { to: to.clone(), source }
    }

    pub(super) fn bound(to: &Destination, bound: Bound) -> Self {
        match bound {
            Bound::Idle(_) => Self::Silent { to: to.clone(), bound },
            Bound::Up(_) | Bound::Down(_) => Self::Spent(bound),
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) | Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::Busy(_)
            | Self::WorkspaceBusy(_)
            | Self::AllBusy(_)
            | Self::RedactionBusy(_)
            | Self::Undecided { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotOpened { .. }
            | Self::SwitchedOff { .. }
            | Self::OnlyHttps(_)
            | Self::NotNamed { .. }
            | Self::NeverOpened { .. }
            | Self::PlainSecret(_)
            | Self::OtherName(_)
            | Self::NoTls(_)
            | Self::TooManySecrets { .. }
            | Self::Spent(_) => StatusCode::FORBIDDEN,
            Self::SecretUnfit(_)
            | Self::Unresolved(_)
            | Self::Unreachable { .. }
            | Self::Certificate { .. }
            | Self::Tls { .. }
            | Self::Answer { .. }
            | Self::Switched(_)
            | Self::Encoded(_)
            | Self::NoFrame { .. }
            | Self::Unfinished(_)
            | Self::StandIn(_) => StatusCode::BAD_GATEWAY,
            Self::LookupsBusy(_) | Self::ConnectTime(_) | Self::Silent { .. } => {
                StatusCode::GATEWAY_TIMEOUT
            }
        }
    }

    /// Whether the rules did not allow it, or it asks for something that they cannot be asked about.
    /// Otherwise they did, and it did not succeed.
    pub(super) fn is_denial(&self) -> bool {
        matches!(self, Self::Malformed(_))
            || matches!(self.status(), StatusCode::FORBIDDEN | StatusCode::SERVICE_UNAVAILABLE)
    }

    /// For the log.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Undecided { why } => format!("{self}: {why}"),
            _ => self.to_string(),
        }
    }

    /// For the client inside.
    pub(super) fn response(&self) -> Response<Body> {
        let status = self.status();
        let text = match status {
            StatusCode::FORBIDDEN => format!("network.denied: {self}"),
            _ => self.to_string(),
        };
        let mut response = Response::new(said(format!("{text}\n")));
        *response.status_mut() = status;
        if let Ok(phrase) = ReasonPhrase::try_from(text) {
            response.extensions_mut().insert(phrase);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        let closes = matches!(
            self,
            Self::Malformed(_) | Self::Busy(_) | Self::WorkspaceBusy(_) | Self::AllBusy(_)
        );
        if closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

pub(super) fn said(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

fn unreachable(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "the connection is refused",
        io::ErrorKind::ConnectionReset => "the connection is reset",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "there is no route",
        _ => "the connection fails",
    }
}

fn distrust(error: &CertificateError) -> &'static str {
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
