//! The control channel: frames of a length and JSON, between the supervisor and a kernel that may
//! be anything by now. A frame's length is checked before a byte of it is stored, descriptors
//! that come along are dropped by the system because nobody takes them, and a frame that is not
//! exactly one of [`FromKernel`] ends the sandbox.

use crate::frames::{Frame, FromKernel, ToKernel};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use tokio::net::UnixStream;

/// Holds one result of the largest size that an operator may allow, as JSON and base64.
pub(crate) const FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;
const READ_BYTES: usize = 64 * 1024;
const HEADER_BYTES: usize = 4;

/// How a kernel broke the protocol.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("a frame of {0} bytes, more than the {FRAME_BYTES_MAX} allowed")]
    TooLarge(u64),
    #[error("a frame that is not one of the protocol's: {0}")]
    NotAFrame(#[from] serde_json::Error),
    #[error("a frame that lacks a part")]
    Incomplete,
    #[error("a frame that contradicts itself")]
    Contradiction,
    #[error("a frame that does not belong here")]
    OutOfOrder,
    #[error("it does not read the answer that it asked for")]
    Deaf,
    #[error("reading the channel: {0}")]
    Read(#[from] io::Error),
}

/// Puts frames together out of bytes as they come.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Growing by doubling, as a vector does on its own, would take twice the cap.
        self.bytes.reserve_exact(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, if it has arrived.
    pub(crate) fn next(&mut self) -> Result<Option<FromKernel>, ProtocolError> {
        let Some((header, body)) = self.bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*header) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(ProtocolError::TooLarge(length as u64));
        }
        let Some(body) = body.get(..length) else {
            return Ok(None);
        };
        let frame = serde_json::from_slice::<Frame>(body)?.read()?;
        self.bytes.drain(..HEADER_BYTES + length);
        if self.bytes.is_empty() {
            // A large frame must not leave its room behind for the life of a session.
            self.bytes.shrink_to(READ_BYTES);
        }
        Ok(Some(frame))
    }
}

#[derive(Debug)]
pub(crate) struct Channel {
    socket: UnixStream,
    decoder: Decoder,
}

/// What became of waiting for a frame.
#[derive(Debug)]
pub(crate) enum Received {
    Frame(FromKernel),
    Closed,
}

impl Channel {
    /// The socket must be non-blocking.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = UnixStream::from_std(StdUnixStream::from(socket))?;
        Ok(Self { socket, decoder: Decoder::default() })
    }

    /// May be dropped at any point and called again without loss.
    pub(crate) async fn receive(&mut self) -> Result<Received, ProtocolError> {
        loop {
            if let Some(frame) = self.decoder.next()? {
                return Ok(Received::Frame(frame));
            }
            self.socket.readable().await?;
            let mut buffer = [0; READ_BYTES];
            match self.socket.try_read(&mut buffer) {
                Ok(0) => return Ok(Received::Closed),
                Ok(count) => self.decoder.push(&buffer[..count]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
                    ErrorKind::ConnectionReset => return Ok(Received::Closed),
                    _ => return Err(ProtocolError::Read(error)),
                },
            }
        }
    }

    /// Takes in what has come without being asked for. A thread of the code may have shown a result
    /// between two executions; anything else is not the kernel's doing.
    pub(crate) fn discard_results(&mut self) -> Result<(), ProtocolError> {
        let mut buffer = [0; READ_BYTES];
        loop {
            while let Some(frame) = self.decoder.next()? {
                if !matches!(frame, FromKernel::Result { .. } | FromKernel::Refused { .. }) {
                    return Err(ProtocolError::OutOfOrder);
                }
            }
            // The socket itself is asked: the runtime may not have heard of the last bytes yet.
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(count @ 1..) => self.decoder.push(&buffer[..count]),
                // Nothing there, or nobody: whoever waits for the answer will find out.
                Ok(0) | Err(_) => return Ok(()),
            }
        }
    }

    pub(crate) async fn send(&self, message: &ToKernel<'_>) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let mut frame = length.to_le_bytes().to_vec();
        frame.extend(body);
        let mut left = frame.as_slice();
        while !left.is_empty() {
            match self.socket.try_write(left) {
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.socket.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(json: &str) -> Vec<u8> {
        let mut bytes = u32::try_from(json.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend(json.as_bytes());
        bytes
    }

    fn is_no_frame(error: &ProtocolError) -> bool {
        matches!(
            error,
            ProtocolError::NotAFrame(_) | ProtocolError::Incomplete | ProtocolError::Contradiction
        )
    }

    const DONE: &str = r#"{"ev":"done","error":null,"exit_code":null}"#;

    #[test]
    fn frames_arrive_whole_however_they_are_cut() {
        let bytes = [frame(DONE), frame(r#"{"ev":"ready","reseeded":["random"]}"#)].concat();
        for cut in 0..bytes.len() {
            let mut decoder = Decoder::default();
            let mut frames = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                decoder.push(part);
                while let Some(frame) = decoder.next().unwrap() {
                    frames.push(frame);
                }
            }
            assert!(
                matches!(frames[..], [FromKernel::Done(_), FromKernel::Ready { .. }]),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn a_length_over_the_cap_is_refused_before_the_body_comes() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert!(matches!(decoder.next(), Err(ProtocolError::TooLarge(4_294_967_295))));
    }

    #[test]
    fn what_the_protocol_does_not_know_is_refused() {
        for json in [
            r#"{"ev":"done","error":null,"exit_code":null,"status":"ok"}"#,
            r#"{"ev":"done","error":null,"exit_code":0,"value":1}"#,
            r#"{"ev":"done","error":null,"exit_code":null,"reseeded":[]}"#,
            r#"{"ev":"reboot"}"#,
            r#"{"ev":"ready"}"#,
            r#"{"ev":"done","error":{"type":"E","message":"","traceback":"","syntax":false,"denied":"sleep"},"exit_code":null}"#,
            "[]",
            "",
            "\u{0}",
        ] {
            let mut decoder = Decoder::default();
            decoder.push(&frame(json));
            let refused = decoder.next().is_err_and(|error| is_no_frame(&error));
            assert!(refused, "{json}");
        }
    }

    /// What fuzzing needs of chance, and a failure that can be had again from its seed.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, sides: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 >> 16).unwrap() % sides
        }

        fn bytes(&mut self, count: usize) -> Vec<u8> {
            (0..count).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
        }

        /// Frames, almost frames, and noise.
        fn hostile(&mut self) -> Vec<u8> {
            let valid = [
                DONE,
                r#"{"ev":"ready","reseeded":["random"]}"#,
                r#"{"ev":"result","data":{"text/plain":"\u00e9","n":[1,-2.5e3,null]},"main":true}"#,
                r#"{"ev":"done","error":{"type":"E","message":"m","traceback":"","syntax":false,"denied":"process"},"exit_code":3}"#,
                r#"{"ev":"wall","wall":{"step":"Landlock","errno":1}}"#,
                r#"{"ev":"install","requirements":["six"]}"#,
            ];
            let mut bytes = Vec::new();
            for _ in 0..=self.below(4) {
                let mut one = frame(valid[self.below(valid.len())]);
                match self.below(6) {
                    0 => {
                        let at = self.below(one.len());
                        one[at] = self.bytes(1)[0];
                    }
                    1 => one.truncate(self.below(one.len())),
                    2 => {
                        let count = self.below(300);
                        one = self.bytes(count);
                    }
                    3 => {
                        let count = self.below(200);
                        let noise = self.bytes(count);
                        one = u32::try_from(count).unwrap().to_le_bytes().to_vec();
                        one.extend(noise);
                    }
                    4 => one = frame(&"[".repeat(self.below(5000))),
                    _ => {}
                }
                bytes.extend(one);
            }
            bytes
        }

        /// Everything that a decoder makes of `bytes`, cut at random.
        fn decode(&mut self, mut bytes: &[u8]) -> Vec<Result<String, String>> {
            let mut decoder = Decoder::default();
            let mut made = Vec::new();
            while !bytes.is_empty() {
                let (now, later) = bytes.split_at(1 + self.below(bytes.len().min(READ_BYTES)));
                bytes = later;
                decoder.push(now);
                loop {
                    match decoder.next() {
                        Ok(Some(frame)) => made.push(Ok(format!("{frame:?}"))),
                        Ok(None) => break,
                        Err(error) => {
                            let too_large = matches!(error, ProtocolError::TooLarge(_));
                            assert!(too_large || is_no_frame(&error), "{error:?}");
                            made.push(Err(format!("{error:?}")));
                            // The sandbox is at its end with the first one.
                            return made;
                        }
                    }
                }
            }
            made
        }
    }

    #[test]
    fn t17_frame_decoder_fuzz() {
        let (mut frames, mut refusals) = (0, 0);
        for seed in 1..=20_000 {
            let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
            let bytes = dice.hostile();
            let made = dice.decode(&bytes);
            assert_eq!(made, dice.decode(&bytes), "cut otherwise, seed {seed}");
            frames += made.iter().filter(|made| made.is_ok()).count();
            refusals += made.iter().filter(|made| made.is_err()).count();
        }
        assert!(frames > 3_000 && refusals > 10_000, "{frames} frames, {refusals} refusals");
    }

    #[test]
    fn t17_a_decoder_keeps_no_more_than_the_cap() {
        let most = FRAME_BYTES_MAX + HEADER_BYTES + READ_BYTES;
        let length = u32::try_from(FRAME_BYTES_MAX).unwrap().to_le_bytes();
        let mut decoder = Decoder::default();
        decoder.push(&length);
        // Pieces of no round size: a vector that doubles would just fit otherwise.
        let piece = [b' '; READ_BYTES - 5_000];
        while let Ok(None) = decoder.next() {
            decoder.push(&piece);
            assert!(decoder.bytes.capacity() <= most, "{}", decoder.bytes.capacity());
        }
        assert!(decoder.bytes.len() >= FRAME_BYTES_MAX);

        let text = "x".repeat(FRAME_BYTES_MAX - 100);
        let text = format!(r#"{{"ev":"result","data":{{"text/plain":"{text}"}},"main":true}}"#);
        let mut decoder = Decoder::default();
        decoder.push(&frame(&text));
        assert!(matches!(decoder.next(), Ok(Some(FromKernel::Result { .. }))));
        assert!(decoder.bytes.capacity() <= READ_BYTES, "{}", decoder.bytes.capacity());
    }
}
