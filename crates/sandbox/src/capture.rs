//! Bringing stdout and stderr out: as text, in order, and no more of it than the limit.

use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use tokio::net::unix::pipe;
use types::Stream;

const READ_BYTES: usize = 64 * 1024;
/// Many times what a pipe holds, so that all that was there is read; and an end, because whoever
/// writes may write as fast as we read.
const READS_MAX: usize = 16;

/// One stream of a sandbox.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) stream: Stream,
    pipe: pipe::Receiver,
    /// The first bytes of a character whose rest has not come yet.
    partial: Vec<u8>,
    closed: bool,
}

/// How much of the limit is left, over both streams.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u64,
    pub(crate) kept: u64,
    pub(crate) dropped: u64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { left: limit, kept: 0, dropped: 0 }
    }

    /// How many of `count` bytes may still be kept.
    fn take(&mut self, count: usize) -> usize {
        let granted = self.left.min(count as u64);
        self.left -= granted;
        self.kept += granted;
        self.dropped += count as u64 - granted;
        usize::try_from(granted).unwrap_or(count)
    }
}

impl Source {
    pub(crate) fn new(stream: Stream, pipe: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            stream,
            pipe: pipe::Receiver::from_owned_fd(pipe)?,
            partial: Vec::new(),
            closed: false,
        })
    }

    /// Waits until there may be something to read; for ever once the stream has ended.
    pub(crate) async fn ready(&self) {
        if self.closed {
            std::future::pending::<()>().await;
        }
        if self.pipe.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Everything that is in the pipe now.
    ///
    /// The pipe itself is asked, not what the runtime remembers of it: when the kernel says that
    /// a cell is done, its last bytes are in the pipe though the runtime may not know yet.
    pub(crate) fn drain(&mut self, budget: &mut Budget, mut emit: impl FnMut(Stream, String)) {
        let mut buffer = [0; READ_BYTES];
        for _ in 0..READS_MAX {
            if self.closed {
                return;
            }
            let read = match rustix::io::read(&self.pipe, &mut buffer) {
                // Asked through the runtime as well, so that it too knows that the pipe is empty.
                Err(Errno::AGAIN) => self.pipe.try_read(&mut buffer).ok(),
                read => read.ok(),
            };
            match read {
                None => return,
                Some(0) => self.closed = true,
                Some(count) => {
                    let granted = budget.take(count);
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
    }

    /// What is left of a character that never came to its end.
    pub(crate) fn flush(&mut self, mut emit: impl FnMut(Stream, String)) {
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
