//! Checks the first bytes that a client sends into a tunnel.
//!
//! If they are a TLS ClientHello, its server name (SNI) must be the host of the tunnel, since a
//! server selects its site by that name. No byte of the ClientHello is forwarded before it was
//! parsed. Other protocols pass at once, and a host that sends first is not delayed.

use policy::Destination;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::rustls::server::Acceptor;
use url::Host;

/// First byte of a TLS connection: a handshake record.
pub(super) const TLS_HANDSHAKE_RECORD: u8 = 22;
/// One record.
const READ_BYTES: usize = 16 * 1024;

/// Whether the SNI is the requested host. An IP address has no SNI.
pub(super) fn sni_matches(server_name: Option<&str>, to: &Destination) -> bool {
    match to.host() {
        Host::Domain(name) => {
            server_name.is_some_and(|server_name| server_name.eq_ignore_ascii_case(name))
        }
        Host::Ipv4(_) | Host::Ipv6(_) => server_name.is_none(),
    }
}

/// The client's end of a tunnel.
pub(super) struct SniGuard<S> {
    stream: S,
    destination: Destination,
    client_hello: ClientHelloState,
}

enum ClientHelloState {
    Reading {
        acceptor: Box<Acceptor>,
        read: Vec<u8>,
    },
    /// The bytes that were read, and how many of them were forwarded.
    Forwarding {
        read: Vec<u8>,
        forwarded: usize,
    },
    Forwarded,
    Rejected,
}

#[derive(Debug, thiserror::Error)]
#[error("TLS server name (SNI) is not the host of the tunnel")]
struct SniMismatch;

impl<S: AsyncRead + Unpin> SniGuard<S> {
    pub(super) fn new(stream: S, to: Destination) -> Self {
        let client_hello = ClientHelloState::Reading { acceptor: Box::default(), read: Vec::new() };
        Self { stream, destination: to, client_hello }
    }

    /// Whether the SNI check ended the tunnel.
    pub(super) fn is_rejected(&self) -> bool {
        matches!(self.client_hello, ClientHelloState::Rejected)
    }

    fn poll_client_hello(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let ClientHelloState::Reading { acceptor, read } = &mut self.client_hello {
            let mut part = [0; READ_BYTES];
            let mut buffer = ReadBuf::new(&mut part);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            let part = buffer.filled();
            read.extend_from_slice(part);
            let status = match read.first() {
                Some(&TLS_HANDSHAKE_RECORD) if !part.is_empty() => read_server_name(acceptor, part),
                // Not TLS, or the end of the stream before a complete ClientHello.
                _ => Ok(ServerNameStatus::NotTls),
            };
            let is_allowed = match status {
                Ok(ServerNameStatus::Incomplete) => continue,
                Ok(ServerNameStatus::NotTls) => read.first() != Some(&TLS_HANDSHAKE_RECORD),
                Ok(ServerNameStatus::Name(name)) => sni_matches(name.as_deref(), &self.destination),
                Err(_) => false,
            };
            if !is_allowed {
                self.client_hello = ClientHelloState::Rejected;
                return Poll::Ready(Err(io::Error::other(SniMismatch)));
            }
            self.client_hello =
                ClientHelloState::Forwarding { read: std::mem::take(read), forwarded: 0 };
        }
        Poll::Ready(Ok(()))
    }
}

enum ServerNameStatus {
    Incomplete,
    NotTls,
    Name(Option<String>),
}

fn read_server_name(acceptor: &mut Acceptor, mut part: &[u8]) -> io::Result<ServerNameStatus> {
    while !part.is_empty() {
        acceptor.read_tls(&mut part)?;
        let accepted = acceptor.accept().map_err(|(error, _)| io::Error::other(error))?;
        if let Some(accepted) = accepted {
            return Ok(ServerNameStatus::Name(
                accepted.client_hello().server_name().map(str::to_owned),
            ));
        }
    }
    Ok(ServerNameStatus::Incomplete)
}

impl<S: AsyncRead + Unpin> AsyncRead for SniGuard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_client_hello(context))?;
        match &mut this.client_hello {
            ClientHelloState::Forwarding { read, forwarded } => {
                let left = read.get(*forwarded..).unwrap_or_default();
                let count = left.len().min(buffer.remaining());
                buffer.put_slice(left.get(..count).unwrap_or_default());
                *forwarded += count;
                if *forwarded == read.len() {
                    this.client_hello = ClientHelloState::Forwarded;
                }
                Poll::Ready(Ok(()))
            }
            ClientHelloState::Rejected => Poll::Ready(Err(io::Error::other(SniMismatch))),
            ClientHelloState::Reading { .. } | ClientHelloState::Forwarded => {
                Pin::new(&mut this.stream).poll_read(context, buffer)
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SniGuard<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
