//! Reading stdout and stderr of a sandbox: as text, in order, up to the output limit.
//!
//! Code that writes byte by byte would wake the supervisor for each byte. After many small reads a pipe
//! rests for a moment, and the bytes that are written meanwhile are read together. It rests as well
//! while its [`ExecutionGroup`] has written more than its rate.

use crate::execution_group::ExecutionGroup;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::net::unix::pipe;
use tokio::time::sleep_until;
use types::OutputStream;

const READ_BYTES: usize = 64 * 1024;
/// Maximum reads of one drain: many times the capacity of a pipe, so that all available bytes are read;
/// bounded, because a process may write as fast as the supervisor reads.
const READS_MAX: usize = 16;
/// A read of fewer bytes is a small one. A pipe that is filled faster is read at once.
const LITTLE_BYTES: usize = 4 * 1024;
/// Small reads without a pause that are ordinary, such as lines that alternate between the two streams,
/// for which the runner waits until the other stream was read. After more of them a pipe rests.
const LITTLE_READS_MAX: u32 = 512;
/// Time without bytes after which the count of small reads starts again.
const PAUSE: Duration = Duration::from_millis(100);
/// Time that a pipe rests: much less than the runner waits for it (20 ms). It holds 64 KiB meanwhile.
const REST: Duration = Duration::from_millis(2);

/// One stream of a sandbox.
#[derive(Debug)]
pub(crate) struct OutputPipe {
    pub(crate) stream: OutputStream,
    pipe: Pipe,
    /// The first bytes of a character whose other bytes have not arrived yet.
    partial: Vec<u8>,
    /// Small reads since the last pause.
    little_reads: u32,
    last_read: Instant,
}

#[derive(Debug)]
enum Pipe {
    /// The runtime reports when bytes are available.
    Watched(pipe::Receiver),
    /// Read again at this time. It is not registered with the runtime, where every byte would wake a
    /// thread.
    Resting {
        pipe: OwnedFd,
        until: Instant,
    },
    Closed,
}

impl Pipe {
    fn watch(pipe: OwnedFd) -> io::Result<Self> {
        pipe::Receiver::from_owned_fd(pipe).map(Self::Watched)
    }

    /// The available bytes; `None` if there are none.
    ///
    /// Reads the pipe directly and not through the readiness of the runtime: when the runner reports the
    /// end of a cell, its last bytes are in the pipe, though the runtime may not know yet.
    fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        match self {
            Self::Watched(pipe) => match rustix::io::read(pipe, &mut *buffer) {
                // Read through the runtime as well, so that it knows that the pipe is empty.
                Err(Errno::AGAIN) => pipe.try_read(buffer).ok(),
                read => read.ok(),
            },
            Self::Resting { pipe, .. } => rustix::io::read(pipe, buffer).ok(),
            Self::Closed => None,
        }
    }

    /// The state after a drain: resting for that time, otherwise watched.
    fn after(self, rest: Duration, watch: impl FnOnce(OwnedFd) -> io::Result<Self>) -> Self {
        match self {
            Self::Watched(pipe) if !rest.is_zero() => {
                pipe.into_nonblocking_fd().map_or(Self::Closed, |pipe| Self::rest(pipe, rest))
            }
            Self::Resting { pipe, .. } if !rest.is_zero() => Self::rest(pipe, rest),
            // If the user of this process has no epoll watch or descriptor left, the pipe keeps resting
            // and is polled: its writer is not the cause.
            Self::Resting { pipe, .. } => {
                let watched = pipe.try_clone().and_then(watch);
                watched.unwrap_or_else(|_| Self::rest(pipe, REST))
            }
            same => same,
        }
    }

    fn rest(pipe: OwnedFd, time: Duration) -> Self {
        Self::Resting { pipe, until: Instant::now() + time }
    }
}

/// The rest of the output limit, for both streams together.
#[derive(Debug)]
pub(crate) struct CaptureBudget {
    group: ExecutionGroup,
    left: u64,
    pub(crate) kept: u64,
    pub(crate) dropped: u64,
}

impl CaptureBudget {
    pub(crate) fn new(limit: u64, group: ExecutionGroup) -> Self {
        Self { group, left: limit, kept: 0, dropped: 0 }
    }

    /// Whether more output fits into the limit.
    pub(crate) fn is_open(&self) -> bool {
        self.left > 0
    }

    /// Takes up to `count` bytes from the budget; returns how many fit into the limit.
    fn reserve(&mut self, count: usize) -> usize {
        let granted = self.left.min(count as u64);
        self.left -= granted;
        self.kept += granted;
        self.dropped += count as u64 - granted;
        usize::try_from(granted).unwrap_or(count)
    }
}

impl OutputPipe {
    pub(crate) fn new(stream: OutputStream, pipe: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            stream,
            pipe: Pipe::watch(pipe)?,
            partial: Vec::new(),
            little_reads: 0,
            last_read: Instant::now(),
        })
    }

    /// Waits until bytes may be available; for ever once the stream has ended.
    pub(crate) async fn ready(&self) {
        let is_open = match &self.pipe {
            Pipe::Watched(pipe) => pipe.readable().await.is_ok(),
            Pipe::Resting { until, .. } => {
                sleep_until((*until).into()).await;
                true
            }
            Pipe::Closed => false,
        };
        if !is_open {
            std::future::pending::<()>().await;
        }
    }

    /// Reads all available bytes and emits the text within the budget. Returns for how long the group
    /// must not be read, because it is over its rate.
    pub(crate) fn drain(
        &mut self,
        budget: &mut CaptureBudget,
        mut emit: impl FnMut(OutputStream, String),
    ) -> Duration {
        let mut buffer = [0; READ_BYTES];
        let mut bytes = 0;
        let (kept, dropped) = (budget.kept, budget.dropped);
        for _ in 0..READS_MAX {
            match self.pipe.read(&mut buffer) {
                None => break,
                Some(0) => self.pipe = Pipe::Closed,
                Some(count) => {
                    bytes += count;
                    let granted = budget.reserve(count);
                    let text = self.decode(&buffer[..granted]);
                    if !text.is_empty() {
                        emit(self.stream, text);
                    }
                    // A cut in the middle of a character leaves a part that nothing will follow.
                    if granted < count {
                        self.partial.clear();
                    }
                }
            }
        }
        let pause = budget.group.charge_output(budget.kept - kept, budget.dropped - dropped);
        let rest = if self.count_read(bytes) { pause.max(REST) } else { pause };
        self.pipe = std::mem::replace(&mut self.pipe, Pipe::Closed).after(rest, Pipe::watch);
        pause
    }

    /// Counts a read; returns whether there were so many small ones that the pipe must rest.
    fn count_read(&mut self, bytes: usize) -> bool {
        let now = Instant::now();
        if now.duration_since(self.last_read) > PAUSE {
            self.little_reads = 0;
        }
        if bytes > 0 {
            self.last_read = now;
        }
        let is_little = (1..LITTLE_BYTES).contains(&bytes);
        self.little_reads = self.little_reads.saturating_add(u32::from(is_little));
        is_little && self.little_reads > LITTLE_READS_MAX
    }

    /// Emits a replacement character for an incomplete character at the end.
    pub(crate) fn flush(&mut self, mut emit: impl FnMut(OutputStream, String)) {
        if !self.partial.is_empty() {
            self.partial.clear();
            emit(self.stream, char::REPLACEMENT_CHARACTER.into());
        }
    }

    fn decode(&mut self, bytes: &[u8]) -> String {
        self.partial.extend_from_slice(bytes);
        let mut text = String::new();
        let mut left = self.partial.as_slice();
        loop {
            match std::str::from_utf8(left) {
                Ok(valid) => {
                    text.push_str(valid);
                    left = &[];
                    break;
                }
                Err(error) => {
                    let (valid, rest) = left.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    match error.error_len() {
                        Some(bad) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            left = &rest[bad..];
                        }
                        None => {
                            left = rest;
                            break;
                        }
                    }
                }
            }
        }
        self.partial = left.to_vec();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    /// A pipe that holds more than is written here.
    fn stream() -> (OwnedFd, OutputPipe) {
        let (read, write) = rustix::pipe::pipe().unwrap();
        (write, OutputPipe::new(OutputStream::Stdout, read).unwrap())
    }

    fn drained(source: &mut OutputPipe) -> String {
        let mut all = String::new();
        source.drain(&mut CaptureBudget::new(u64::MAX, ExecutionGroup::default()), |_, text| {
            all.push_str(&text)
        });
        all
    }

    #[tokio::test]
    async fn t136_code_that_writes_single_bytes_does_not_wake_the_supervisor_for_each_of_them() {
        let (write, mut source) = stream();
        let (mut text, mut looks, mut written) = (String::new(), 0, 0);
        let until = Instant::now() + 200 * REST;
        while Instant::now() < until {
            rustix::io::write(&write, b"x").unwrap();
            written += 1;
            // It is looked at as often as it says that it is ready.
            if timeout(Duration::ZERO, source.ready()).await.is_ok() {
                looks += 1;
                text += &drained(&mut source);
            }
        }
        text += &drained(&mut source);
        assert_eq!(text.len(), written);
        // Twice as many as there are rests: a drain may find nothing and be followed by a byte.
        let most = LITTLE_READS_MAX + 2 * 200 + 2;
        assert!((1..=most).contains(&looks), "{looks} looks at {written} bytes");
    }

    #[tokio::test]
    async fn t163_a_pipe_that_cannot_be_watched_again_is_looked_at_until_it_can() {
        let (write, mut source) = stream();
        source.little_reads = LITTLE_READS_MAX;
        rustix::io::write(&write, b"one").unwrap();
        source.ready().await;
        assert_eq!(drained(&mut source), "one");
        assert!(matches!(source.pipe, Pipe::Resting { .. }));
        // Another sandbox of the same user has all the watches.
        let resting = std::mem::replace(&mut source.pipe, Pipe::Closed);
        source.pipe = resting.after(Duration::ZERO, |_| Err(Errno::NOSPC.into()));
        assert!(matches!(source.pipe, Pipe::Resting { .. }), "{:?}", source.pipe);
        rustix::io::write(&write, b"two").unwrap();
        source.ready().await;
        assert_eq!(drained(&mut source), "two");
        // The twin: once there is one, it is watched, and its end is seen.
        source.ready().await;
        assert_eq!(drained(&mut source), "");
        assert!(matches!(source.pipe, Pipe::Watched(_)), "{:?}", source.pipe);
        drop(write);
        source.ready().await;
        assert_eq!(drained(&mut source), "");
        assert!(matches!(source.pipe, Pipe::Closed));
    }

    #[tokio::test]
    async fn ordinary_text_is_read_at_once_and_a_flood_again_after_a_pause_and_so_is_much() {
        let (write, mut source) = stream();
        for text in ["first", "second"] {
            rustix::io::write(&write, text.as_bytes()).unwrap();
            source.ready().await;
            assert_eq!(drained(&mut source), text);
            assert!(matches!(source.pipe, Pipe::Watched(_)));
        }
        source.little_reads = LITTLE_READS_MAX;
        rustix::io::write(&write, b"one of many").unwrap();
        source.ready().await;
        assert_eq!(drained(&mut source), "one of many");
        assert!(matches!(source.pipe, Pipe::Resting { .. }));
        source.last_read = Instant::now().checked_sub(2 * PAUSE).unwrap();
        rustix::io::write(&write, b"after a pause").unwrap();
        source.ready().await;
        assert_eq!(drained(&mut source), "after a pause");
        assert!(matches!(source.pipe, Pipe::Watched(_)));
        let much = "y".repeat(2 * LITTLE_BYTES);
        rustix::io::write(&write, much.as_bytes()).unwrap();
        source.ready().await;
        assert_eq!(drained(&mut source), much);
        assert!(matches!(source.pipe, Pipe::Watched(_)));
        drop(write);
        source.ready().await;
        assert_eq!(drained(&mut source), "");
        assert!(matches!(source.pipe, Pipe::Closed));
    }
}
