//! Counts bytes and time between the proxy and a host.
//!
//! Every byte to or from a host passes a [`MeteredStream`], whatever the protocol. It closes the
//! connection at a limit, and records which one.

use super::limits::ProxyLimits;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TrafficLimit {
    #[error("no data for {0} seconds")]
    Idle(u64),
    #[error("limit of {0} bytes sent by this session reached; reset the session")]
    Up(u64),
    #[error("limit of {0} bytes received by this session reached; reset the session")]
    Down(u64),
}

/// Usage of all connections of one sandbox.
#[derive(Debug)]
pub(super) struct TrafficMeter {
    limits: ProxyLimits,
    up: AtomicU64,
    down: AtomicU64,
}

impl TrafficMeter {
    pub(super) fn new(limits: ProxyLimits) -> Self {
        Self { limits, up: AtomicU64::new(0), down: AtomicU64::new(0) }
    }

    /// Fails if a limit is reached.
    pub(super) fn check(&self) -> Result<(), TrafficLimit> {
        self.count_sent(0).and(self.count_received(0))
    }

    fn count_sent(&self, bytes: usize) -> Result<(), TrafficLimit> {
        let max = self.limits.bytes_up;
        if add_bytes(&self.up, bytes) > max { Err(TrafficLimit::Up(max)) } else { Ok(()) }
    }

    fn count_received(&self, bytes: usize) -> Result<(), TrafficLimit> {
        let max = self.limits.bytes_down;
        if add_bytes(&self.down, bytes) > max { Err(TrafficLimit::Down(max)) } else { Ok(()) }
    }
}

fn add_bytes(counter: &AtomicU64, bytes: usize) -> u64 {
    let bytes = bytes as u64;
    counter.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes)
}

/// The limit that ended a stream, for code that no longer has the stream.
pub(super) type StreamEnd = Arc<OnceLock<TrafficLimit>>;

/// A metered stream to a host.
#[derive(Debug)]
pub(super) struct MeteredStream<S> {
    stream: S,
    meter: Arc<TrafficMeter>,
    stream_end: StreamEnd,
    last_used: Instant,
    idle_timer: Pin<Box<Sleep>>,
}

impl<S> MeteredStream<S> {
    pub(super) fn new(stream: S, meter: Arc<TrafficMeter>) -> Self {
        let used = Instant::now();
        let alarm = Box::pin(sleep_until(used + meter.limits.idle_timeout));
        Self { stream, meter, stream_end: StreamEnd::default(), last_used: used, idle_timer: alarm }
    }

    pub(super) fn stream_end(&self) -> StreamEnd {
        self.stream_end.clone()
    }

    fn limit_error(&self, bound: TrafficLimit) -> io::Error {
        io::Error::other(*self.stream_end.get_or_init(|| bound))
    }

    /// The timer is not reset for each byte; when it fires, the last activity is checked.
    fn poll_idle_timer<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let idle = self.meter.limits.idle_timeout;
        loop {
            ready!(self.idle_timer.as_mut().poll(context));
            let due = self.last_used + idle;
            if due <= Instant::now() {
                return Poll::Ready(Err(self.limit_error(TrafficLimit::Idle(idle.as_secs()))));
            }
            self.idle_timer.as_mut().reset(due);
        }
    }

    fn check_limit(&mut self, counted: Result<(), TrafficLimit>) -> io::Result<()> {
        self.last_used = Instant::now();
        counted.map_err(|bound| self.limit_error(bound))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Pending => this.poll_idle_timer(context),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => {
                let counted = this.meter.count_received(buffer.filled().len() - before);
                Poll::Ready(this.check_limit(counted))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> MeteredStream<S> {
    fn count_written(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match result {
            Poll::Pending => self.poll_idle_timer(context),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(bytes)) => {
                let counted = self.meter.count_sent(bytes);
                Poll::Ready(self.check_limit(counted).map(|()| bytes))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.count_written(context, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.count_written(context, result)
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
