//! Looks at the first bytes that a client sends into a tunnel.
//!
//! If they are the greeting of TLS, the name in it must be the one that the tunnel was opened for,
//! since a host serves by that name. Nothing of the greeting passes before it was read. What is
//! not TLS passes at once, and a host that speaks first is not kept waiting.

use policy::Destination;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::rustls::server::Acceptor;
use url::Host;

/// The first byte of a TLS connection: a record of its handshake.
pub(super) const HANDSHAKE: u8 = 22;
/// One record.
const PART_BYTES: usize = 16 * 1024;

/// Whether a client greets the host that it asked for. An address has no name to greet it by.
pub(super) fn names(said: Option<&str>, to: &Destination) -> bool {
    match to.host() {
        Host::Domain(name) => said.is_some_and(|said| said.eq_ignore_ascii_case(name)),
        Host::Ipv4(_) | Host::Ipv6(_) => said.is_none(),
    }
}

/// The client's end of a tunnel.
pub(super) struct Screened<S> {
    stream: S,
    to: Destination,
    greeting: Greeting,
}

enum Greeting {
    Unread {
        acceptor: Box<Acceptor>,
        read: Vec<u8>,
    },
    /// What was read of it, and how much of that has passed.
    Passing {
        read: Vec<u8>,
        passed: usize,
    },
    Passed,
    Refused,
}

#[derive(Debug, thiserror::Error)]
#[error("another name is in the greeting than the tunnel is for")]
struct OtherName;

impl<S: AsyncRead + Unpin> Screened<S> {
    pub(super) fn new(stream: S, to: Destination) -> Self {
        let greeting = Greeting::Unread { acceptor: Box::default(), read: Vec::new() };
        Self { stream, to, greeting }
    }

    /// Whether it was the greeting that ended the tunnel.
    pub(super) fn was_refused(&self) -> bool {
        matches!(self.greeting, Greeting::Refused)
    }

    fn poll_greeting(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Greeting::Unread { acceptor, read } = &mut self.greeting {
            let mut part = [0; PART_BYTES];
            let mut buffer = ReadBuf::new(&mut part);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            let part = buffer.filled();
            read.extend_from_slice(part);
            let said = match read.first() {
                Some(&HANDSHAKE) if !part.is_empty() => server_name(acceptor, part),
                // Not TLS, or the end before a greeting was complete.
                _ => Ok(Said::Nothing),
            };
            let fits = match said {
                Ok(Said::Incomplete) => continue,
                Ok(Said::Nothing) => read.first() != Some(&HANDSHAKE),
                Ok(Said::Name(name)) => names(name.as_deref(), &self.to),
                Err(_) => false,
            };
            if !fits {
                self.greeting = Greeting::Refused;
                return Poll::Ready(Err(io::Error::other(OtherName)));
            }
            self.greeting = Greeting::Passing { read: std::mem::take(read), passed: 0 };
        }
        Poll::Ready(Ok(()))
    }
}

enum Said {
    Incomplete,
    Nothing,
    Name(Option<String>),
}

fn server_name(acceptor: &mut Acceptor, mut part: &[u8]) -> io::Result<Said> {
    while !part.is_empty() {
        acceptor.read_tls(&mut part)?;
        let accepted = acceptor.accept().map_err(|(error, _)| io::Error::other(error))?;
        if let Some(accepted) = accepted {
            return Ok(Said::Name(accepted.client_hello().server_name().map(str::to_owned)));
        }
    }
    Ok(Said::Incomplete)
}

impl<S: AsyncRead + Unpin> AsyncRead for Screened<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_greeting(context))?;
        match &mut this.greeting {
            Greeting::Passing { read, passed } => {
                let left = read.get(*passed..).unwrap_or_default();
                let fits = left.len().min(buffer.remaining());
                buffer.put_slice(left.get(..fits).unwrap_or_default());
                *passed += fits;
                if *passed == read.len() {
                    this.greeting = Greeting::Passed;
                }
                Poll::Ready(Ok(()))
            }
            Greeting::Refused => Poll::Ready(Err(io::Error::other(OtherName))),
            Greeting::Unread { .. } | Greeting::Passed => {
                Pin::new(&mut this.stream).poll_read(context, buffer)
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Screened<S> {
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
