//! Takes the values of secrets out of what a host says over a WebSocket.
//!
//! Frames go on as they are, but that a value in what they carry is covered, also where a message is
//! cut into several of them. What is no frame, or could carry something that cannot be read, must not
//! go on: nobody could have looked for a value in it.

use super::redact::Redactor;
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

const READ_BYTES: usize = 64 * 1024;

/// The bits of the first byte of a frame (RFC 6455), and the kinds that it names.
const LAST: u8 = 0x80;
const EXTENDED: u8 = 0x70;
const KIND: u8 = 0x0f;
const CONTINUED: u8 = 0;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PONG: u8 = 10;
/// A bit of the second.
const MASKED: u8 = 0x80;

/// What a frame between the parts of a message carries at most (RFC 6455).
const CONTROL_BYTES_MAX: u64 = 125;
/// Frames that wait for the rest of a message before them. Hosts send a few.
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// Why what a host says is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoFrame {
    #[error("is of an extension that nobody asked for")]
    Extension,
    #[error("is masked, as only clients do it")]
    Masked,
    #[error("is of a kind that there is not")]
    Kind,
    #[error("has a length that it cannot have")]
    Length,
    #[error("is not the next part of its message")]
    Order,
    #[error("is one of too many inside of a message")]
    Waiting,
}

/// The frame that is being read.
struct Frame {
    is_control: bool,
    /// Of its message.
    is_last: bool,
    /// So many bytes of what it carries are still to come.
    left: u64,
}

/// What goes on next.
enum Due {
    Whole(Bytes),
    /// So many bytes of a message, when they have been judged.
    Judged(usize),
}

/// Reads frames and covers what they carry.
struct Frames {
    redactor: Redactor,
    /// The head of a frame, as far as it has arrived.
    head: Vec<u8>,
    frame: Option<Frame>,
    /// What a control frame carries, as far as it has arrived.
    control: Vec<u8>,
    is_in_message: bool,
    due: VecDeque<Due>,
    /// Bytes of what is due as a whole.
    waiting: usize,
}

impl Frames {
    fn new(redactor: Redactor) -> Self {
        let (head, control, due) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { redactor, head, frame: None, control, is_in_message: false, due, waiting: 0 }
    }

    /// What may go on, now that this has arrived.
    fn pass(&mut self, mut bytes: Bytes) -> Result<BytesMut, NoFrame> {
        let mut out = BytesMut::new();
        loop {
            match &mut self.frame {
                Some(frame) if frame.left == 0 => {
                    let (is_control, is_last) = (frame.is_control, frame.is_last);
                    self.end(is_control, is_last, &mut out)?;
                }
                _ if bytes.is_empty() => return Ok(out),
                Some(frame) => {
                    let count = usize::try_from(frame.left).unwrap_or(usize::MAX).min(bytes.len());
                    frame.left -= count as u64;
                    let part = bytes.split_to(count);
                    if frame.is_control {
                        self.control.extend(part);
                    } else {
                        self.due.push_back(Due::Judged(count));
                        let judged = self.redactor.pass(part);
                        self.let_out(&judged, &mut out);
                    }
                }
                None => self.begin(bytes.get_u8())?,
            }
        }
    }

    /// One more byte of a head.
    fn begin(&mut self, byte: u8) -> Result<(), NoFrame> {
        self.head.push(byte);
        let Some(frame) = read_head(&self.head)? else { return Ok(()) };
        if !frame.is_control {
            let goes_on = self.head[0] & KIND == CONTINUED;
            if goes_on != self.is_in_message {
                return Err(NoFrame::Order);
            }
            self.is_in_message = true;
            let head = std::mem::take(&mut self.head);
            self.wait(head.into())?;
        }
        self.frame = Some(frame);
        Ok(())
    }

    fn end(&mut self, is_control: bool, is_last: bool, out: &mut BytesMut) -> Result<(), NoFrame> {
        self.frame = None;
        let mut judged = Bytes::new();
        if is_control {
            let carried = std::mem::take(&mut self.control);
            let carried = self.redactor.whole(&carried).unwrap_or_else(|| carried.into());
            let head = std::mem::take(&mut self.head);
            self.wait(head.into())?;
            self.wait(carried)?;
        } else if is_last {
            self.is_in_message = false;
            judged = self.redactor.rest();
        }
        self.let_out(&[judged], out);
        Ok(())
    }

    fn wait(&mut self, whole: Bytes) -> Result<(), NoFrame> {
        self.waiting += whole.len();
        if self.waiting > WAITING_BYTES_MAX {
            return Err(NoFrame::Waiting);
        }
        self.due.push_back(Due::Whole(whole));
        Ok(())
    }

    /// What is due, as far as it has been judged.
    fn let_out(&mut self, judged: &[Bytes], out: &mut BytesMut) {
        let mut judged: Bytes = judged.concat().into();
        while let Some(due) = self.due.pop_front() {
            match due {
                Due::Whole(bytes) => {
                    self.waiting -= bytes.len();
                    out.extend_from_slice(&bytes);
                }
                Due::Judged(count) if count > judged.len() => {
                    self.due.push_front(Due::Judged(count - judged.len()));
                    out.extend_from_slice(&judged);
                    return;
                }
                Due::Judged(count) => out.extend_from_slice(&judged.split_to(count)),
            }
        }
    }
}

/// A head that is there as a whole.
fn read_head(head: &[u8]) -> Result<Option<Frame>, NoFrame> {
    let [first, second, long @ ..] = head else { return Ok(None) };
    let (is_last, kind) = (first & LAST != 0, first & KIND);
    let is_control = match kind {
        CONTINUED..=BINARY => false,
        CLOSE..=PONG => true,
        _ => return Err(NoFrame::Kind),
    };
    if first & EXTENDED != 0 {
        return Err(NoFrame::Extension);
    }
    if second & MASKED != 0 {
        return Err(NoFrame::Masked);
    }
    let left = match (second, long) {
        (126, [high, low]) => u64::from(u16::from_be_bytes([*high, *low])),
        (127, long) if long.len() == 8 => {
            long.iter().fold(0, |left, byte| left << 8 | u64::from(*byte))
        }
        (126 | 127, _) => return Ok(None),
        (short, _) => u64::from(*short),
    };
    if left > i64::MAX as u64 || is_control && !(is_last && left <= CONTROL_BYTES_MAX) {
        return Err(NoFrame::Length);
    }
    Ok(Some(Frame { is_control, is_last, left }))
}

/// A host that speaks frames, as its client may hear it. What the client says goes on as it is.
pub(super) struct Covered<S> {
    stream: S,
    frames: Frames,
    arrived: BytesMut,
    /// What may be heard now.
    out: BytesMut,
    refused: Option<NoFrame>,
}

impl<S> Covered<S> {
    pub(super) fn new(stream: S, redactor: Redactor) -> Self {
        let (arrived, out) = (BytesMut::new(), BytesMut::new());
        Self { stream, frames: Frames::new(redactor), arrived, out, refused: None }
    }

    /// Why the host was not heard to its end.
    pub(super) fn refused(&self) -> Option<NoFrame> {
        self.refused
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Covered<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.out.is_empty() {
            this.arrived.reserve(READ_BYTES);
            let reading = std::pin::pin!(this.stream.read_buf(&mut this.arrived));
            if ready!(reading.poll(context))? == 0 {
                // What a frame has begun to carry may be the beginning of a value.
                return Poll::Ready(Ok(()));
            }
            match this.frames.pass(this.arrived.split().freeze()) {
                Ok(out) => this.out = out,
                Err(refused) => {
                    this.refused = Some(refused);
                    return Poll::Ready(Err(io::Error::other(refused)));
                }
            }
        }
        let count = this.out.len().min(buffer.remaining());
        buffer.put_slice(&this.out.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Covered<S> {
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

#[cfg(test)]
mod tests {
    use super::super::redact::Spellings;
    use super::*;
    use crate::authority::SecretText;
    use proptest::prelude::*;
    use std::sync::Arc;

    const VALUE: &str = "sk-0123456789abcdef";
    const TEXT: u8 = 1;
    const PING: u8 = 9;

    fn frames() -> Frames {
        let value = SecretText::new(VALUE.to_owned());
        Frames::new(Redactor::new(Arc::new(Spellings::new(&[value]).unwrap())))
    }

    fn frame(first: u8, carried: &[u8]) -> Vec<u8> {
        let length = match carried.len() {
            short @ ..126 => vec![short as u8],
            long @ ..65_536 => [&[126], &(long as u16).to_be_bytes()[..]].concat(),
            huge => [&[127], &(huge as u64).to_be_bytes()[..]].concat(),
        };
        [&[first], &length[..], carried].concat()
    }

    fn passed(said: &[u8]) -> Result<Vec<u8>, NoFrame> {
        frames().pass(Bytes::copy_from_slice(said)).map(Into::into)
    }

    #[test]
    fn t42_a_value_is_covered_and_the_frame_around_it_stays() {
        let covered = "*".repeat(VALUE.len());
        for size in [0, 100, 10_000, 70_000] {
            let filler = "x".repeat(size);
            let said = frame(LAST | TEXT, format!("{filler}{VALUE}{filler}").as_bytes());
            let told = frame(LAST | TEXT, format!("{filler}{covered}{filler}").as_bytes());
            assert!(passed(&said).unwrap() == told, "{size}");
        }
        let ping = passed(&frame(LAST | PING, VALUE.as_bytes())).unwrap();
        assert_eq!(ping, frame(LAST | PING, covered.as_bytes()));
    }

    #[test]
    fn t42_a_value_in_two_frames_is_covered_also_with_another_frame_between_them() {
        let said = |one: &[u8], rest: &[u8]| {
            let ping = frame(LAST | PING, b"?");
            [frame(TEXT, one), ping, frame(CONTINUED, b""), frame(LAST, rest)].concat()
        };
        for cut in 0..VALUE.len() {
            let (one, rest) = VALUE.as_bytes().split_at(cut);
            let covered = said(&vec![b'*'; one.len()], &vec![b'*'; rest.len()]);
            assert_eq!(passed(&said(one, rest)).unwrap(), covered);
        }
    }

    #[test]
    fn t42_a_frame_that_does_not_come_to_its_end_tells_nothing_of_a_value() {
        let whole = frame(LAST | TEXT, VALUE.as_bytes());
        let told = passed(&whole[..whole.len() - 1]).unwrap();
        assert_eq!(told, whole[..2]);
        let part = frame(TEXT, &VALUE.as_bytes()[..18]);
        assert_eq!(passed(&part).unwrap(), part[..2]);
    }

    #[test]
    fn a_message_arrives_at_its_end_and_needs_nothing_after_it() {
        for message in [&b""[..], b"1", b"sk-01", &[b'x'; 300]] {
            let said = frame(LAST | TEXT, message);
            assert_eq!(passed(&said).unwrap(), said);
        }
    }

    #[test]
    fn what_is_no_frame_of_a_host_does_not_go_on() {
        for (said, why) in [
            (vec![LAST | EXTENDED | TEXT, 0], NoFrame::Extension),
            (vec![LAST | TEXT, MASKED | 1, 0, 0, 0, 0, 0], NoFrame::Masked),
            (vec![LAST | 3, 0], NoFrame::Kind),
            (vec![LAST | 11, 0], NoFrame::Kind),
            (vec![PING, 0], NoFrame::Length),
            (vec![LAST | PING, 126, 0, 126], NoFrame::Length),
            ([&[LAST | TEXT, 127][..], &[255; 8]].concat(), NoFrame::Length),
            (vec![LAST, 0], NoFrame::Order),
            (vec![TEXT, 0, TEXT, 0], NoFrame::Order),
            ([frame(TEXT, b"x"), [LAST | PING, 0].repeat(70_000)].concat(), NoFrame::Waiting),
        ] {
            assert_eq!(passed(&said), Err(why));
        }
    }

    proptest! {
        #[test]
        fn how_frames_arrive_makes_no_difference(
            parts in proptest::collection::vec("(sk-0123456789|abcdef|sk-|x|\n){0,9}", 1..6),
            size in 1_usize..40,
        ) {
            let mut said = frame(TEXT, b"");
            said.extend(parts.iter().flat_map(|part| frame(CONTINUED, part.as_bytes())));
            said.extend(frame(LAST, b""));
            let mut frames = frames();
            let pieces = said.chunks(size).map(Bytes::copy_from_slice);
            let told: Vec<u8> = pieces.flat_map(|piece| frames.pass(piece).unwrap()).collect();
            prop_assert_eq!(told, passed(&said).unwrap());
        }
    }
}
