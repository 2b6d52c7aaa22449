//! Counts and times what goes between the proxy and a host.
//!
//! Every byte to or from a host passes a [`Metered`] stream, whatever is spoken over it. It ends
//! the connection when a bound is reached, and remembers which.

use super::limits::Limits;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The bound that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Bound {
    #[error("there was silence for {0} seconds")]
    Idle(u64),
    #[error("this session has sent {0} bytes, which is the most")]
    Up(u64),
    #[error("this session has received {0} bytes, which is the most")]
    Down(u64),
}

/// What all connections of one sandbox have used.
#[derive(Debug)]
pub(super) struct Meter {
    limits: Limits,
    up: AtomicU64,
    down: AtomicU64,
}

impl Meter {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, up: AtomicU64::new(0), down: AtomicU64::new(0) }
    }

    /// Whether anything is left.
    pub(super) fn check(&self) -> Result<(), Bound> {
        self.sent(0).and(self.received(0))
    }

    fn sent(&self, bytes: usize) -> Result<(), Bound> {
        let max = self.limits.bytes_up;
        if spend(&self.up, bytes) > max { Err(Bound::Up(max)) } else { Ok(()) }
    }

    fn received(&self, bytes: usize) -> Result<(), Bound> {
        let max = self.limits.bytes_down;
        if spend(&self.down, bytes) > max { Err(Bound::Down(max)) } else { Ok(()) }
    }
}

fn spend(counter: &AtomicU64, bytes: usize) -> u64 {
    let bytes = bytes as u64;
    counter.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes)
}

/// Tells which bound ended a stream, to who does not have the stream any more.
pub(super) type Ending = Arc<OnceLock<Bound>>;

/// A stream to a host.
#[derive(Debug)]
pub(super) struct Metered<S> {
    stream: S,
    meter: Arc<Meter>,
    ending: Ending,
    used: Instant,
    alarm: Pin<Box<Sleep>>,
}

impl<S> Metered<S> {
    pub(super) fn new(stream: S, meter: Arc<Meter>) -> Self {
        let used = Instant::now();
        let alarm = Box::pin(sleep_until(used + meter.limits.idle));
        Self { stream, meter, ending: Ending::default(), used, alarm }
    }

    pub(super) fn ending(&self) -> Ending {
        self.ending.clone()
    }

    fn end(&self, bound: Bound) -> io::Error {
        io::Error::other(*self.ending.get_or_init(|| bound))
    }

    /// The alarm is not set anew for each byte, but looked at again when it rings.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let idle = self.meter.limits.idle;
        loop {
            ready!(self.alarm.as_mut().poll(context));
            let due = self.used + idle;
            if due <= Instant::now() {
                return Poll::Ready(Err(self.end(Bound::Idle(idle.as_secs()))));
            }
            self.alarm.as_mut().reset(due);
        }
    }

    fn count(&mut self, counted: Result<(), Bound>) -> io::Result<()> {
        self.used = Instant::now();
        counted.map_err(|bound| self.end(bound))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Pending => this.wait(context),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => {
                let counted = this.meter.received(buffer.filled().len() - before);
                Poll::Ready(this.count(counted))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> Metered<S> {
    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => self.wait(context),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(bytes)) => {
                let counted = self.meter.sent(bytes);
                Poll::Ready(self.count(counted).map(|()| bytes))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.wrote(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.wrote(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
