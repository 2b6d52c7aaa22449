//! Redacts the values of secrets in WebSocket messages of a host.
//!
//! Frames are forwarded unchanged, except that values in their payload are masked, also across the
//! frames of a message. An invalid frame, or one whose payload may be transformed, must not be
//! forwarded: it could not be searched.

use bytes::{Buf, Bytes, BytesMut};
use redact::MaskingStream;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

const READ_BYTES: usize = 64 * 1024;

/// Bits of the first byte of a frame (RFC 6455), and opcodes.
const FIN_BIT: u8 = 0x80;
const RSV_BITS: u8 = 0x70;
const OPCODE_MASK: u8 = 0x0f;
const OPCODE_CONTINUATION: u8 = 0;
const OPCODE_BINARY: u8 = 2;
const OPCODE_CLOSE: u8 = 8;
const OPCODE_PONG: u8 = 10;
/// A bit of the second byte.
const MASK_BIT: u8 = 0x80;

/// Maximum payload of a control frame (RFC 6455).
const CONTROL_BYTES_MAX: u64 = 125;
/// Limit of frames that wait for the rest of a message before them. Hosts send a few.
const PENDING_BYTES_MAX: usize = 64 * 1024;

/// Why a host's data is not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("uses an extension that was not negotiated")]
    Extension,
    #[error("is masked, which only clients may do")]
    Masked,
    #[error("has an unknown opcode")]
    Kind,
    #[error("has an invalid length")]
    Length,
    #[error("is out of order in its message")]
    Order,
    #[error("is one of too many control frames within a message")]
    TooManyPending,
}

/// The frame that is being read.
struct WebSocketFrame {
    is_control: bool,
    /// Whether it is the last frame of its message.
    is_last: bool,
    /// Payload bytes that have not arrived yet.
    remaining: u64,
}

/// Output that is forwarded next.
enum PendingOutput {
    Verbatim(Bytes),
    /// This many bytes of a message, once they are redacted.
    Redacted(usize),
}

/// Parses frames and redacts their payload.
struct FrameRedactor {
    redactor: MaskingStream,
    /// The part of a frame header that has arrived.
    head: Vec<u8>,
    frame: Option<WebSocketFrame>,
    /// The part of a control frame's payload that has arrived.
    control: Vec<u8>,
    is_in_message: bool,
    pending: VecDeque<PendingOutput>,
    /// Bytes of complete frames that are pending.
    pending_bytes: usize,
}

impl FrameRedactor {
    fn new(redactor: MaskingStream) -> Self {
        let (head, control, due) = (Vec::new(), Vec::new(), VecDeque::new());
        Self {
            redactor,
            head,
            frame: None,
            control,
            is_in_message: false,
            pending: due,
            pending_bytes: 0,
        }
    }

    /// Adds bytes, and returns what may be forwarded.
    fn redact(&mut self, mut bytes: Bytes) -> Result<BytesMut, FrameError> {
        let mut out = BytesMut::new();
        loop {
            match &mut self.frame {
                Some(frame) if frame.remaining == 0 => {
                    let (is_control, is_last) = (frame.is_control, frame.is_last);
                    self.finish_frame(is_control, is_last, &mut out)?;
                }
                _ if bytes.is_empty() => return Ok(out),
                Some(frame) => {
                    let count =
                        usize::try_from(frame.remaining).unwrap_or(usize::MAX).min(bytes.len());
                    frame.remaining -= count as u64;
                    let part = bytes.split_to(count);
                    if frame.is_control {
                        self.control.extend(part);
                    } else {
                        self.pending.push_back(PendingOutput::Redacted(count));
                        let masked = self.redactor.mask_chunk(part);
                        self.flush_redacted(&masked, &mut out);
                    }
                }
                None => self.push_header_byte(bytes.get_u8())?,
            }
        }
    }

    /// Adds one byte of a frame header.
    fn push_header_byte(&mut self, byte: u8) -> Result<(), FrameError> {
        self.head.push(byte);
        let Some(frame) = parse_header(&self.head)? else { return Ok(()) };
        if !frame.is_control {
            let is_continuation = self.head[0] & OPCODE_MASK == OPCODE_CONTINUATION;
            if is_continuation != self.is_in_message {
                return Err(FrameError::Order);
            }
            self.is_in_message = true;
            let head = std::mem::take(&mut self.head);
            self.push_verbatim(head.into())?;
        }
        self.frame = Some(frame);
        Ok(())
    }

    fn finish_frame(
        &mut self,
        is_control: bool,
        is_last: bool,
        out: &mut BytesMut,
    ) -> Result<(), FrameError> {
        self.frame = None;
        let mut masked = Bytes::new();
        if is_control {
            let payload = std::mem::take(&mut self.control);
            let payload = self.redactor.mask_complete(&payload).unwrap_or_else(|| payload.into());
            let head = std::mem::take(&mut self.head);
            self.push_verbatim(head.into())?;
            self.push_verbatim(payload)?;
        } else if is_last {
            self.is_in_message = false;
            masked = self.redactor.finish();
        }
        self.flush_redacted(&[masked], out);
        Ok(())
    }

    fn push_verbatim(&mut self, whole: Bytes) -> Result<(), FrameError> {
        self.pending_bytes += whole.len();
        if self.pending_bytes > PENDING_BYTES_MAX {
            return Err(FrameError::TooManyPending);
        }
        self.pending.push_back(PendingOutput::Verbatim(whole));
        Ok(())
    }

    /// Forwards what is pending, as far as it is redacted.
    fn flush_redacted(&mut self, masked: &[Bytes], out: &mut BytesMut) {
        let mut masked: Bytes = masked.concat().into();
        while let Some(due) = self.pending.pop_front() {
            match due {
                PendingOutput::Verbatim(bytes) => {
                    self.pending_bytes -= bytes.len();
                    out.extend_from_slice(&bytes);
                }
                PendingOutput::Redacted(count) if count > masked.len() => {
                    self.pending.push_front(PendingOutput::Redacted(count - masked.len()));
                    out.extend_from_slice(&masked);
                    return;
                }
                PendingOutput::Redacted(count) => out.extend_from_slice(&masked.split_to(count)),
            }
        }
    }
}

/// Parses a frame header; `None` if it is incomplete.
fn parse_header(head: &[u8]) -> Result<Option<WebSocketFrame>, FrameError> {
    let [first, second, long @ ..] = head else { return Ok(None) };
    let (is_last, kind) = (first & FIN_BIT != 0, first & OPCODE_MASK);
    let is_control = match kind {
        OPCODE_CONTINUATION..=OPCODE_BINARY => false,
        OPCODE_CLOSE..=OPCODE_PONG => true,
        _ => return Err(FrameError::Kind),
    };
    if first & RSV_BITS != 0 {
        return Err(FrameError::Extension);
    }
    if second & MASK_BIT != 0 {
        return Err(FrameError::Masked);
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
        return Err(FrameError::Length);
    }
    Ok(Some(WebSocketFrame { is_control, is_last, remaining: left }))
}

/// The WebSocket stream of a host, redacted for its client. The client's data is not changed.
pub(super) struct RedactingWebSocketStream<S> {
    stream: S,
    frames: FrameRedactor,
    input: BytesMut,
    /// Bytes that the client may read now.
    output: BytesMut,
    error: Option<FrameError>,
}

impl<S> RedactingWebSocketStream<S> {
    pub(super) fn new(stream: S, redactor: MaskingStream) -> Self {
        let (arrived, out) = (BytesMut::new(), BytesMut::new());
        Self {
            stream,
            frames: FrameRedactor::new(redactor),
            input: arrived,
            output: out,
            error: None,
        }
    }

    /// Why the stream ended early.
    pub(super) fn error(&self) -> Option<FrameError> {
        self.error
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RedactingWebSocketStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.output.is_empty() {
            this.input.reserve(READ_BYTES);
            let reading = std::pin::pin!(this.stream.read_buf(&mut this.input));
            if ready!(reading.poll(context))? == 0 {
                // The start of a frame's payload may be the start of a value.
                return Poll::Ready(Ok(()));
            }
            match this.frames.redact(this.input.split().freeze()) {
                Ok(out) => this.output = out,
                Err(error) => {
                    this.error = Some(error);
                    return Poll::Ready(Err(io::Error::other(error)));
                }
            }
        }
        let count = this.output.len().min(buffer.remaining());
        buffer.put_slice(&this.output.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RedactingWebSocketStream<S> {
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
    use super::*;
    use proptest::prelude::*;
    use redact::{SecretEncodingsCache, SecretText, SecretVersion};
    use types::SecretId;
    use uuid::Uuid;

    const VALUE: &str = "sk-0123456789abcdef";
    const TEXT: u8 = 1;
    const PING: u8 = 9;

    fn frames() -> FrameRedactor {
        let (id, name) = (SecretId::new(Uuid::nil()), "TOKEN".to_owned());
        let value = SecretText::new(VALUE.to_owned());
        let secret = SecretVersion { id, version: 1, name, value };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let encodings = SecretEncodingsCache::default();
        let encodings = runtime.block_on(encodings.get_or_build(&[&secret])).unwrap();
        FrameRedactor::new(MaskingStream::new(encodings))
    }

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let length = match payload.len() {
            short @ ..126 => vec![short as u8],
            long @ ..65_536 => [&[126], &(long as u16).to_be_bytes()[..]].concat(),
            huge => [&[127], &(huge as u64).to_be_bytes()[..]].concat(),
        };
        [&[first], &length[..], payload].concat()
    }

    fn redact_all(sent: &[u8]) -> Result<Vec<u8>, FrameError> {
        frames().redact(Bytes::copy_from_slice(sent)).map(Into::into)
    }

    #[test]
    fn t42_a_value_is_covered_and_the_frame_around_it_stays() {
        let mask = "*".repeat(VALUE.len());
        for size in [0, 100, 10_000, 70_000] {
            let filler = "x".repeat(size);
            let sent = frame(FIN_BIT | TEXT, format!("{filler}{VALUE}{filler}").as_bytes());
            let expected = frame(FIN_BIT | TEXT, format!("{filler}{mask}{filler}").as_bytes());
            assert!(redact_all(&sent).unwrap() == expected, "{size}");
        }
        let ping = redact_all(&frame(FIN_BIT | PING, VALUE.as_bytes())).unwrap();
        assert_eq!(ping, frame(FIN_BIT | PING, mask.as_bytes()));
    }

    #[test]
    fn t42_a_value_in_two_frames_is_covered_also_with_another_frame_between_them() {
        let sent = |one: &[u8], rest: &[u8]| {
            let ping = frame(FIN_BIT | PING, b"?");
            [frame(TEXT, one), ping, frame(OPCODE_CONTINUATION, b""), frame(FIN_BIT, rest)].concat()
        };
        for cut in 0..VALUE.len() {
            let (one, rest) = VALUE.as_bytes().split_at(cut);
            let mask = sent(&vec![b'*'; one.len()], &vec![b'*'; rest.len()]);
            assert_eq!(redact_all(&sent(one, rest)).unwrap(), mask);
        }
    }

    #[test]
    fn t42_a_frame_that_does_not_come_to_its_end_tells_nothing_of_a_value() {
        let whole = frame(FIN_BIT | TEXT, VALUE.as_bytes());
        let expected = redact_all(&whole[..whole.len() - 1]).unwrap();
        assert_eq!(expected, whole[..2]);
        let part = frame(TEXT, &VALUE.as_bytes()[..18]);
        assert_eq!(redact_all(&part).unwrap(), part[..2]);
    }

    #[test]
    fn a_message_arrives_at_its_end_and_needs_nothing_after_it() {
        for message in [&b""[..], b"1", b"sk-01", &[b'x'; 300]] {
            let sent = frame(FIN_BIT | TEXT, message);
            assert_eq!(redact_all(&sent).unwrap(), sent);
        }
    }

    #[test]
    fn what_is_no_frame_of_a_host_does_not_go_on() {
        for (sent, why) in [
            (vec![FIN_BIT | RSV_BITS | TEXT, 0], FrameError::Extension),
            (vec![FIN_BIT | TEXT, MASK_BIT | 1, 0, 0, 0, 0, 0], FrameError::Masked),
            (vec![FIN_BIT | 3, 0], FrameError::Kind),
            (vec![FIN_BIT | 11, 0], FrameError::Kind),
            (vec![PING, 0], FrameError::Length),
            (vec![FIN_BIT | PING, 126, 0, 126], FrameError::Length),
            ([&[FIN_BIT | TEXT, 127][..], &[255; 8]].concat(), FrameError::Length),
            (vec![FIN_BIT, 0], FrameError::Order),
            (vec![TEXT, 0, TEXT, 0], FrameError::Order),
            (
                [frame(TEXT, b"x"), [FIN_BIT | PING, 0].repeat(70_000)].concat(),
                FrameError::TooManyPending,
            ),
        ] {
            assert_eq!(redact_all(&sent), Err(why));
        }
    }

    proptest! {
        #[test]
        fn how_frames_arrive_makes_no_difference(
            parts in proptest::collection::vec("(sk-0123456789|abcdef|sk-|x|\n){0,9}", 1..6),
            size in 1_usize..40,
        ) {
            let mut sent = frame(TEXT, b"");
            sent.extend(parts.iter().flat_map(|part| frame(OPCODE_CONTINUATION, part.as_bytes())));
            sent.extend(frame(FIN_BIT, b""));
            let mut frames = frames();
            let pieces = sent.chunks(size).map(Bytes::copy_from_slice);
            let expected: Vec<u8> = pieces.flat_map(|piece| frames.redact(piece).unwrap()).collect();
            prop_assert_eq!(expected, redact_all(&sent).unwrap());
        }
    }
}
