//! The control channel between the supervisor and a runner, which is not trusted. Each frame is a length
//! and JSON.
//!
//! The length of a frame is checked before its body is stored. Descriptors that are sent along are never
//! received, so the Linux kernel drops them. A frame that is not exactly one [`RunnerEvent`] ends the
//! sandbox. A [`ReadLimiter`] bounds the number of frames, and large frames are parsed on separate
//! threads, a few at a time in the whole process.

use crate::frames::{self, RunnerEvent, RunnerRequest};
use crate::read_limiter::{ReadLimiter, TOTAL_BYTES_MAX};
use crate::time_slice::TimeSlice;
use crate::value_budget::ValueBudget;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};
use types::Limits;

/// Holds one result of the largest size that an operator may allow, as JSON and base64.
pub(crate) const FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of a frame besides a value or a result of `result_bytes`: the names in it, or an error
/// with its traceback instead of them.
const FRAME_REST_BYTES_MAX: usize = 1024 * 1024;
const READ_BYTES: usize = 64 * 1024;
const HEADER_BYTES: usize = 4;
/// Larger frames are parsed on another thread, because others would wait for them; smaller ones take
/// less time than the handover.
const INLINE_DECODE_BYTES_MAX: usize = 16 * 1024;
/// Larger frames wait for each other, and frames of other sandboxes with ordinary values do not wait
/// for them: one of these is parsed in a few milliseconds at most.
const MEDIUM_DECODE_BYTES_MAX: usize = 256 * 1024;
/// Permits to parse frames of more than [`MEDIUM_DECODE_BYTES_MAX`], in the whole process: each takes a
/// core, and up to 64 MiB as a tree before it is known whether memory is left. The other half of the
/// cores serves requests.
static LARGE_READS: LazyLock<Arc<Semaphore>> = LazyLock::new(half_of_the_cores);
/// Permits to parse smaller frames that are too large to be parsed inline.
static MEDIUM_READS: LazyLock<Arc<Semaphore>> = LazyLock::new(half_of_the_cores);
/// The permit to classify a large frame: a pass over its text shows whether it must wait for a permit of
/// [`LARGE_READS`], or has too many parts and needs none.
static CLASSIFICATIONS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(1)));

fn half_of_the_cores() -> Arc<Semaphore> {
    let cores = available_parallelism().map_or(1, usize::from);
    Arc::new(Semaphore::new((cores / 2).max(1)))
}

/// How a runner broke the protocol.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("a frame of {0} bytes exceeds its limit (`result_bytes` and 1 MiB)")]
    TooLarge(u64),
    #[error("an invalid frame: {0}")]
    NotAFrame(#[from] serde_json::Error),
    #[error("an incomplete frame")]
    Incomplete,
    #[error("a frame with contradictory fields")]
    Inconsistent,
    #[error("an unexpected frame")]
    OutOfOrder,
    #[error(
        "more than {} MiB of messages in one execution (each counts as 16 KiB plus its length)",
        TOTAL_BYTES_MAX / (1024 * 1024)
    )]
    TooManyBytes,
    #[error("a value that is nested too deeply")]
    TooDeep,
    #[error("a frame that could not be parsed")]
    DecodingFailed,
    #[error("the sandbox does not read the response to its request")]
    NotReading,
    #[error("reading the control channel failed: {0}")]
    Read(#[from] io::Error),
}

impl ProtocolError {
    /// Whether reading failed in the supervisor, rather than the runner.
    pub fn is_server_fault(&self) -> bool {
        matches!(self, Self::DecodingFailed | Self::Read(_))
    }
}

/// Assembles frames from bytes in the order of arrival.
#[derive(Debug)]
pub(crate) struct FrameDecoder {
    bytes: Vec<u8>,
    /// Start of the next frame; the bytes before it were taken already.
    start: usize,
    /// A frame with a larger length is refused before its body is stored.
    frame_bytes_max: usize,
}

impl Default for FrameDecoder {
    /// The channel of a runner that has not run code yet.
    fn default() -> Self {
        Self { bytes: Vec::new(), start: 0, frame_bytes_max: FRAME_REST_BYTES_MAX }
    }
}

impl FrameDecoder {
    /// Allows frames of a run with this limit `result_bytes`. A larger limit of an earlier run stays: a
    /// thread of that run may still send a result.
    pub(crate) fn allow(&mut self, result_bytes: u64) {
        let result_bytes = usize::try_from(result_bytes).unwrap_or(usize::MAX);
        let most = result_bytes.saturating_add(FRAME_REST_BYTES_MAX).min(FRAME_BYTES_MAX);
        self.frame_bytes_max = self.frame_bytes_max.max(most);
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Once for all frames of a piece, and not for each.
        self.bytes.drain(..self.start);
        self.start = 0;
        // Growing by doubling, but not to more than a frame of the largest size needs, and the rest of
        // a piece that may follow it.
        let needed = self.bytes.len() + bytes.len();
        let most = self.frame_bytes_max + HEADER_BYTES + READ_BYTES;
        let capacity = needed.max((2 * self.bytes.len()).min(most));
        self.bytes.reserve_exact(capacity - self.bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// The body of the next whole frame, if it has arrived.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, ProtocolError> {
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        let Some((header, body)) = rest.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*header) as usize;
        if length > self.frame_bytes_max {
            return Err(ProtocolError::TooLarge(length as u64));
        }
        let Some(body) = body.get(..length) else {
            return Ok(None);
        };
        let begin = self.start + HEADER_BYTES;
        if length <= READ_BYTES {
            let body = body.to_vec();
            self.start = begin + length;
            return Ok(Some(body));
        }
        // A large frame takes its buffer along, so that a session does not keep it.
        let rest = self.bytes.split_off(begin + length);
        let mut body = std::mem::replace(&mut self.bytes, rest);
        body.drain(..begin);
        self.start = 0;
        Ok(Some(body))
    }
}

#[derive(Debug)]
pub(crate) struct ControlChannel {
    socket: UnixStream,
    decoder: FrameDecoder,
    read_limiter: ReadLimiter,
    /// Limit of a value or a result of the current execution.
    result_bytes: u64,
    /// Memory budget for the value of the current run.
    budget: ValueBudget,
    /// A large frame that waits for another thread, or is being parsed there.
    reading: Option<LargeRead>,
    /// Time that frames have waited in a queue since the last call of `take_queue_wait`.
    queue_wait: Duration,
}

/// A large frame that is parsed on another thread once a permit is free. A separate task holds its
/// position in the queue, so that waking the receiver does not lose it.
#[derive(Debug)]
struct LargeRead {
    task: JoinHandle<Result<(RunnerEvent, OwnedSemaphorePermit), ProtocolError>>,
    started_at: Arc<OnceLock<Instant>>,
    /// The waiting time up to here was returned by `take_queue_wait`.
    reported_until: Instant,
}

impl LargeRead {
    fn start(body: Vec<u8>, result_bytes: u64, budget: ValueBudget) -> Self {
        let started_at = Arc::new(OnceLock::new());
        let began = Arc::clone(&started_at);
        let task = tokio::spawn(async move {
            let (body, queue) = classify_frame(body, result_bytes).await?;
            let permit = queue.acquire_owned().await;
            let permit = permit.map_err(|_| ProtocolError::DecodingFailed)?;
            began.get_or_init(Instant::now);
            let frame = spawn_blocking(move || frames::parse(&body, result_bytes, &budget)).await;
            Ok((frame.map_err(|_| ProtocolError::DecodingFailed)??, permit))
        });
        Self { task, started_at, reported_until: Instant::now() }
    }

    /// The waiting time since the last call.
    fn take_queue_wait(&mut self) -> Duration {
        let end = self.started_at.get().copied().unwrap_or_else(Instant::now);
        let wait = end.saturating_duration_since(self.reported_until);
        self.reported_until += wait;
        wait
    }
}

impl Drop for LargeRead {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the queue that a frame belongs to.
async fn classify_frame(
    body: Vec<u8>,
    result_bytes: u64,
) -> Result<(Vec<u8>, Arc<Semaphore>), ProtocolError> {
    if body.len() <= MEDIUM_DECODE_BYTES_MAX {
        return Ok((body, Arc::clone(&MEDIUM_READS)));
    }
    let _permit = CLASSIFICATIONS.acquire().await.map_err(|_| ProtocolError::DecodingFailed)?;
    let classified = spawn_blocking(move || {
        let queue =
            if frames::makes_tree(&body, result_bytes) { &LARGE_READS } else { &MEDIUM_READS };
        (body, Arc::clone(queue))
    });
    classified.await.map_err(|_| ProtocolError::DecodingFailed)
}

/// The result of waiting for a frame.
#[derive(Debug)]
pub(crate) enum ReceivedFrame {
    Frame(RunnerEvent),
    /// Bytes have arrived, but no whole frame yet.
    Partial,
    Closed,
}

impl ControlChannel {
    /// The socket must be non-blocking.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = UnixStream::from_std(StdUnixStream::from(socket))?;
        Ok(Self {
            socket,
            decoder: FrameDecoder::default(),
            read_limiter: ReadLimiter::default(),
            result_bytes: 0,
            budget: ValueBudget::default(),
            reading: None,
            queue_wait: Duration::ZERO,
        })
    }

    /// Waits for the next frame, or for a part of it. May be dropped at any point and called again
    /// without loss.
    pub(crate) async fn receive(&mut self) -> Result<ReceivedFrame, ProtocolError> {
        if let Some(frame) = self.next().await? {
            return Ok(ReceivedFrame::Frame(frame));
        }
        self.socket.readable().await?;
        let mut buffer = [0; READ_BYTES];
        match self.socket.try_read(&mut buffer) {
            Ok(0) => return Ok(ReceivedFrame::Closed),
            Ok(count) => self.decoder.push(&buffer[..count]),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
                ErrorKind::ConnectionReset => return Ok(ReceivedFrame::Closed),
                _ => return Err(ProtocolError::Read(error)),
            },
        }
        Ok(ReceivedFrame::Partial)
    }

    /// Waits for the next frame of a runner that has not run code yet; none if it has exited.
    pub(crate) async fn receive_frame(&mut self) -> Result<Option<RunnerEvent>, ProtocolError> {
        loop {
            match self.receive().await? {
                ReceivedFrame::Frame(frame) => return Ok(Some(frame)),
                ReceivedFrame::Partial => {}
                ReceivedFrame::Closed => return Ok(None),
            }
        }
    }

    /// The next frame in the bytes that have arrived.
    async fn next(&mut self) -> Result<Option<RunnerEvent>, ProtocolError> {
        if self.reading.is_none() {
            self.read_limiter.ready().await;
            let Some(body) = self.decoder.next()? else {
                return Ok(None);
            };
            self.read_limiter.charge(body.len())?;
            if body.len() <= INLINE_DECODE_BYTES_MAX {
                return frames::parse(&body, self.result_bytes, &self.budget).map(Some);
            }
            self.reading = Some(LargeRead::start(body, self.result_bytes, self.budget.clone()));
        }
        self.read_large().await.map(Some)
    }

    /// Waits for the large frame that is being read.
    async fn read_large(&mut self) -> Result<RunnerEvent, ProtocolError> {
        let reading = self.reading.as_mut().ok_or(ProtocolError::DecodingFailed)?;
        let read = (&mut reading.task).await;
        self.queue_wait += reading.take_queue_wait();
        self.reading = None;
        let (frame, _permit) = read.map_err(|_| ProtocolError::DecodingFailed)??;
        Ok(frame)
    }

    /// How long whole frames have waited for others to be parsed, since the last call.
    pub(crate) fn take_queue_wait(&mut self) -> Duration {
        let current = self.reading.as_mut().map(LargeRead::take_queue_wait).unwrap_or_default();
        std::mem::take(&mut self.queue_wait) + current
    }

    /// Prepares for a run with these limits: reads the frames that have arrived since the last run. A
    /// thread of the code may have displayed a result between two executions; any other frame does not
    /// come from the runner.
    pub(crate) async fn begin_request(
        &mut self,
        limits: &Limits,
        budget: &ValueBudget,
    ) -> Result<(), ProtocolError> {
        self.read_limiter = ReadLimiter::default();
        self.result_bytes = limits.result_bytes;
        self.budget = budget.clone();
        self.decoder.allow(limits.result_bytes);
        let mut slice = TimeSlice::start();
        loop {
            while let Some(frame) = self.next().await? {
                if !frame.may_be_unsolicited() {
                    return Err(ProtocolError::OutOfOrder);
                }
                slice.yield_if_used().await;
            }
            if !self.try_read_available() {
                break;
            }
            slice.yield_if_used().await;
        }
        self.read_limiter = ReadLimiter::default();
        self.queue_wait = Duration::ZERO;
        Ok(())
    }

    /// Reads the available bytes; returns whether there were any.
    fn try_read_available(&mut self) -> bool {
        let mut buffer = [0; READ_BYTES];
        // Reads the socket directly: the runtime may not know of the last bytes yet.
        match rustix::io::read(&self.socket, &mut buffer) {
            Ok(count @ 1..) => {
                self.decoder.push(&buffer[..count]);
                true
            }
            // Nothing to read, or a closed socket, which the next wait reports.
            Ok(0) | Err(_) => false,
        }
    }

    pub(crate) async fn send(&self, message: &RunnerRequest<'_>) -> io::Result<()> {
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
    use crate::frames::RunnerOutcome;
    use tokio::time::timeout;

    fn frame(json: &str) -> Vec<u8> {
        let mut bytes = u32::try_from(json.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend(json.as_bytes());
        bytes
    }

    fn read(body: &[u8]) -> Result<RunnerEvent, ProtocolError> {
        frames::parse(body, FRAME_BYTES_MAX as u64, &ValueBudget::default())
    }

    fn is_invalid_frame(error: &ProtocolError) -> bool {
        matches!(
            error,
            ProtocolError::NotAFrame(_) | ProtocolError::Incomplete | ProtocolError::Inconsistent
        )
    }

    const DONE: &str = r#"{"ev":"done","error":null,"exit_code":null}"#;

    #[test]
    fn frames_arrive_whole_however_they_are_cut() {
        let bytes = [frame(DONE), frame(r#"{"ev":"ready","reseeded":["random"]}"#)].concat();
        for cut in 0..bytes.len() {
            let mut decoder = FrameDecoder::default();
            let mut frames = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                decoder.push(part);
                while let Some(body) = decoder.next().unwrap() {
                    frames.push(read(&body).unwrap());
                }
            }
            assert!(
                matches!(frames[..], [RunnerEvent::Done(_), RunnerEvent::Ready { .. }]),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn a_length_over_the_cap_is_refused_before_the_body_comes() {
        let mut decoder = FrameDecoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert!(matches!(decoder.next(), Err(ProtocolError::TooLarge(4_294_967_295))));
    }

    #[test]
    fn t133_a_frame_longer_than_its_run_may_send_is_refused_at_its_header() {
        let header = |length: usize| u32::try_from(length).unwrap().to_le_bytes();
        let result_bytes = Limits::DEFAULT.result_bytes;
        let most = usize::try_from(result_bytes).unwrap() + FRAME_REST_BYTES_MAX;
        let starts = |allowed: &[u64], length: usize| {
            let mut decoder = FrameDecoder::default();
            allowed.iter().for_each(|bytes| decoder.allow(*bytes));
            decoder.push(&header(length));
            decoder.next().map(|body| body.is_none())
        };
        for (allowed, length) in [
            (&[][..], FRAME_REST_BYTES_MAX + 1),
            (&[result_bytes][..], most + 1),
            (&[u64::MAX][..], FRAME_BYTES_MAX + 1),
        ] {
            let result = starts(allowed, length);
            assert!(matches!(result, Err(ProtocolError::TooLarge(_))), "{allowed:?} {result:?}");
        }
        // The twins: the largest that may come, and one that a run before this one may still send.
        assert!(starts(&[], FRAME_REST_BYTES_MAX).unwrap());
        assert!(starts(&[result_bytes], most).unwrap());
        assert!(starts(&[result_bytes, 1], most).unwrap());
    }

    #[test]
    fn what_the_protocol_does_not_know_is_refused() {
        for json in [
            r#"{"ev":"done","error":null,"exit_code":null,"status":"ok"}"#,
            r#"{"ev":"done","error":null,"exit_code":0,"value":1}"#,
            r#"{"ev":"done","error":null,"exit_code":null,"reseeded":[]}"#,
            r#"{"ev":"done","error":null,"exit_code":256}"#,
            r#"{"ev":"done","error":null,"exit_code":-1}"#,
            r#"{"ev":"result","data":{},"main":true,"dropped":7}"#,
            r#"{"ev":"unsent","results":-1}"#,
            r#"{"ev":"reboot"}"#,
            r#"{"ev":"ready"}"#,
            r#"{"ev":"done","error":{"type":"E","message":"","traceback":"","syntax":false,"denied":"sleep"},"exit_code":null}"#,
            "[]",
            "",
            "\u{0}",
        ] {
            let mut decoder = FrameDecoder::default();
            decoder.push(&frame(json));
            let body = decoder.next().unwrap().unwrap();
            let is_refused = read(&body).is_err_and(|error| is_invalid_frame(&error));
            assert!(is_refused, "{json}");
        }
    }

    /// Maximum wait of a test.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A channel with a frame on it that holds so many numbers.
    fn channel_with(numbers: usize) -> (ControlChannel, JoinHandle<StdUnixStream>) {
        let (socket, mut peer) = StdUnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut channel = ControlChannel::new(socket.into()).unwrap();
        channel.result_bytes = FRAME_BYTES_MAX as u64;
        channel.decoder.allow(FRAME_BYTES_MAX as u64);
        let list = vec!["123456"; numbers].join(",");
        let frame = frame(&format!(r#"{{"ev":"done","value":[{list}]}}"#));
        let sent = spawn_blocking(move || {
            std::io::Write::write_all(&mut peer, &frame).unwrap();
            peer
        });
        (channel, sent)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn t164_large_frames_of_others_hold_up_no_ordinary_value_and_no_clock() {
        let permits = u32::try_from(half_of_the_cores().available_permits()).unwrap();
        // Other sandboxes have large frames read, one after another.
        let others = Arc::clone(&LARGE_READS).acquire_many_owned(permits).await.unwrap();
        let (mut large, sent_large) = channel_with(100_000);
        let (mut ordinary, sent_ordinary) = channel_with(5_000);
        let value = timeout(PATIENCE, ordinary.receive_frame()).await;
        let value = value.expect("an ordinary value waits behind large frames").unwrap();
        assert!(matches!(value, Some(RunnerEvent::Done(_))), "{value:?}");
        // The large one waits, however often its receiver is woken, and its wait is reported.
        let (mut reported, began) = (Duration::ZERO, Instant::now());
        while reported < Duration::from_millis(20) {
            assert!(began.elapsed() < PATIENCE, "its wait is not reported");
            let received = timeout(Duration::from_millis(1), large.receive_frame()).await;
            assert!(received.is_err(), "{received:?}");
            reported += large.take_queue_wait();
        }
        drop(others);
        let value = large.receive_frame().await.unwrap();
        assert!(matches!(value, Some(RunnerEvent::Done(_))), "{value:?}");
        large.take_queue_wait();
        assert_eq!(large.take_queue_wait(), Duration::ZERO, "a wait is reported once");
        sent_large.await.unwrap();
        sent_ordinary.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn t187_a_large_frame_with_too_many_parts_is_refused_without_a_place_among_large_ones() {
        let permits = u32::try_from(half_of_the_cores().available_permits()).unwrap();
        let others = Arc::clone(&LARGE_READS).acquire_many_owned(permits).await.unwrap();
        let (socket, mut peer) = StdUnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut channel = ControlChannel::new(socket.into()).unwrap();
        channel.result_bytes = FRAME_BYTES_MAX as u64;
        channel.decoder.allow(FRAME_BYTES_MAX as u64);
        let lists = vec!["[]"; 500_000].join(",");
        let bytes = frame(&format!(r#"{{"ev":"done","value":[{lists}]}}"#));
        let sent = spawn_blocking(move || {
            std::io::Write::write_all(&mut peer, &bytes).unwrap();
            peer
        });
        let received = timeout(PATIENCE, channel.receive_frame()).await;
        let received = received.expect("it waits behind the others").unwrap();
        let is_refused = matches!(received, Some(RunnerEvent::Done(RunnerOutcome::NotJson(_))));
        assert!(is_refused, "{received:?}");
        drop(others);
        sent.await.unwrap();
    }

    /// Random numbers for fuzzing, reproducible from a seed.
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
                r#"{"ev":"isolation","isolation":{"step":"Landlock","errno":1}}"#,
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
            let mut decoder = FrameDecoder::default();
            let mut decoded = Vec::new();
            while !bytes.is_empty() {
                let (now, later) = bytes.split_at(1 + self.below(bytes.len().min(READ_BYTES)));
                bytes = later;
                decoder.push(now);
                loop {
                    match decoder.next().and_then(|body| body.map(|body| read(&body)).transpose()) {
                        Ok(Some(frame)) => decoded.push(Ok(format!("{frame:?}"))),
                        Ok(None) => break,
                        Err(error) => {
                            let too_large = matches!(error, ProtocolError::TooLarge(_));
                            assert!(too_large || is_invalid_frame(&error), "{error:?}");
                            decoded.push(Err(format!("{error:?}")));
                            // The sandbox is at its end with the first one.
                            return decoded;
                        }
                    }
                }
            }
            decoded
        }
    }

    #[test]
    fn t17_frame_decoder_fuzz() {
        let (mut frames, mut refusals) = (0, 0);
        for seed in 1..=20_000 {
            let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
            let bytes = dice.hostile();
            let decoded = dice.decode(&bytes);
            assert_eq!(decoded, dice.decode(&bytes), "cut otherwise, seed {seed}");
            frames += decoded.iter().filter(|decoded| decoded.is_ok()).count();
            refusals += decoded.iter().filter(|decoded| decoded.is_err()).count();
        }
        assert!(frames > 3_000 && refusals > 10_000, "{frames} frames, {refusals} refusals");
    }

    #[test]
    fn t17_a_decoder_keeps_no_more_than_the_cap() {
        let most = FRAME_BYTES_MAX + HEADER_BYTES + READ_BYTES;
        let length = u32::try_from(FRAME_BYTES_MAX).unwrap().to_le_bytes();
        let mut decoder = FrameDecoder::default();
        decoder.allow(FRAME_BYTES_MAX as u64);
        decoder.push(&length);
        // Pieces of no round size: a vector that doubles would just fit otherwise.
        let piece = [b' '; READ_BYTES - 5_000];
        let body = loop {
            if let Some(body) = decoder.next().unwrap() {
                break body;
            }
            decoder.push(&piece);
            assert!(decoder.bytes.capacity() <= most, "{}", decoder.bytes.capacity());
        };
        assert_eq!(body.len(), FRAME_BYTES_MAX);

        let text = "x".repeat(FRAME_BYTES_MAX - 100);
        let text = format!(r#"{{"ev":"result","data":{{"text/plain":"{text}"}},"main":true}}"#);
        let mut decoder = FrameDecoder::default();
        decoder.allow(FRAME_BYTES_MAX as u64);
        decoder.push(&frame(&text));
        assert_eq!(decoder.next().unwrap().unwrap(), text.as_bytes());
        assert!(decoder.bytes.capacity() <= READ_BYTES, "{}", decoder.bytes.capacity());
    }

    /// Frames that came together are not moved once for each of them.
    #[test]
    fn t70_many_small_frames_of_one_piece_are_taken_without_moving_the_rest() {
        let mut decoder = FrameDecoder::default();
        let piece = frame(DONE).repeat(1_000);
        decoder.push(&piece);
        let begins = decoder.bytes.as_ptr();
        for taken in 1..=1_000 {
            assert_eq!(decoder.next().unwrap().unwrap(), DONE.as_bytes());
            assert_eq!(decoder.start, taken * (HEADER_BYTES + DONE.len()));
        }
        assert!(decoder.next().unwrap().is_none());
        assert_eq!((decoder.bytes.as_ptr(), decoder.bytes.len()), (begins, piece.len()));
        decoder.push(&frame(DONE));
        assert_eq!(decoder.next().unwrap().unwrap(), DONE.as_bytes());
    }
}
