//! Redacts the values of secrets in responses.
//!
//! A host that echoes its request must not give a secret to the sandbox. Each value is masked in
//! place by as many bytes, so that lengths stay correct. What is released, and when, depends only
//! on lengths and on bytes that no value has; only a complete value makes a difference. Otherwise
//! an attacker who makes a host echo guesses could find the value byte by byte. A pause releases
//! nothing: a host that pauses inside a value has sent its start and sends the rest later.

use super::prefilter::NgramPrefilter;
use super::secret_encodings::encode_all;
use crate::policy_source::SecretText;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};
use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use std::collections::{BTreeSet, VecDeque};
use std::error::Error;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use zeroize::Zeroizing;

const MASK_BYTE: u8 = b'*';

/// The values of some secrets in all of their encodings, compiled for the search.
pub(super) struct SecretEncodings {
    values: Vec<Zeroizing<String>>,
    search: NFA,
    start: StateID,
    prefilter: NgramPrefilter,
}

impl SecretEncodings {
    /// Returns `None` if they are too many to search for.
    pub(super) fn new(values: &[SecretText]) -> Option<Self> {
        let values: Vec<Zeroizing<String>> =
            values.iter().map(|value| Zeroizing::new(value.expose().to_owned())).collect();
        let all: BTreeSet<Vec<u8>> = values.iter().flat_map(|value| encode_all(value)).collect();
        // Report overlapping matches: if a match ended the search for another, a user's own secret
        // could reveal the rest of a secret that is not theirs.
        let mut builder = NFA::builder();
        builder.match_kind(MatchKind::Standard).ascii_case_insensitive(true);
        let search = builder.build(&all).ok()?;
        let start = search.start_state(Anchored::No).ok()?;
        Some(Self { values, search, start, prefilter: NgramPrefilter::new(&all) })
    }

    /// Whether these are the encodings of exactly these values.
    pub(super) fn matches_values<'a>(&self, values: impl Iterator<Item = &'a SecretText>) -> bool {
        self.values.iter().map(|value| value.as_str()).eq(values.map(SecretText::expose))
    }

    /// Memory use in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.search.memory_usage() + self.prefilter.memory_bytes()
    }

    /// Number of bytes that may be the start of an incomplete encoding.
    fn held_bytes(&self) -> usize {
        self.search.max_pattern_len().saturating_sub(1)
    }

    /// Length of the longest encoding that ends at the current position.
    fn longest_match_ending(&self, state: StateID) -> Option<usize> {
        if !self.search.is_special(state) || !self.search.is_match(state) {
            return None;
        }
        let patterns = 0..self.search.match_len(state);
        let lengths = patterns.map(|it| self.search.match_pattern(state, it));
        lengths.map(|pattern| self.search.pattern_len(pattern)).max()
    }
}

/// Bytes that no header can contain, so no encoding of a header value contains them: no match
/// crosses a line end. The set is independent of the values.
fn is_separator(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

/// Finds encodings in a stream, also across chunk boundaries.
#[derive(Clone)]
pub(super) struct ResponseRedactor {
    encodings: Arc<SecretEncodings>,
    state: StateID,
    /// The end of what has arrived.
    held: VecDeque<u8>,
    /// Number of bytes before the held ones.
    released: usize,
    /// Ranges of held bytes to mask, as offsets in the whole stream, in order.
    masked: VecDeque<Range<usize>>,
}

impl ResponseRedactor {
    pub(super) fn new(spellings: Arc<SecretEncodings>) -> Self {
        let state = spellings.start;
        let (held, covered) = (VecDeque::new(), VecDeque::new());
        Self { encodings: spellings, state, held, released: 0, masked: covered }
    }

    /// Masks the values in these headers. Removes a header whose name contains one.
    pub(super) fn redact_headers(&self, headers: &mut HeaderMap) {
        let telling = |name: &&HeaderName| self.redact_complete(name.as_str().as_bytes()).is_some();
        let named: Vec<HeaderName> = headers.keys().filter(telling).cloned().collect();
        for name in named {
            headers.remove(name);
        }
        for value in headers.values_mut() {
            if let Some(clean) = self.redact_complete(value.as_bytes()) {
                *value =
                    HeaderValue::from_maybe_shared(clean).unwrap_or(HeaderValue::from_static(""));
            }
        }
    }

    /// Redacts a complete text; `None` if nothing had to be masked.
    pub(super) fn redact_complete(&self, text: &[u8]) -> Option<Bytes> {
        let mut redactor = Self::new(self.encodings.clone());
        redactor.scan(text);
        (!redactor.masked.is_empty()).then(|| redactor.mask(Bytes::copy_from_slice(text)))
    }

    /// Adds a chunk and returns what may be released. Copies only bytes that are held or masked.
    pub(super) fn redact_chunk(&mut self, mut part: Bytes) -> [Bytes; 2] {
        self.scan(&part);
        let held_max = self.encodings.held_bytes();
        let last = part.len().saturating_sub(held_max);
        let lines = part[last..].iter().rposition(|byte| is_separator(*byte));
        let count = match lines {
            Some(end) => self.held.len() + last + end + 1,
            None => (self.held.len() + part.len()).saturating_sub(held_max),
        };
        let of_part = count.saturating_sub(self.held.len());
        let first = self.release(count - of_part);
        let rest = part.split_off(of_part);
        let second = self.mask(part);
        self.held.extend(&rest);
        [first, second]
    }

    /// Releases everything that is held, at the end of the stream.
    pub(super) fn finish(&mut self) -> Bytes {
        self.release(self.held.len())
    }

    /// Scans a chunk that follows the held bytes.
    fn scan(&mut self, part: &[u8]) {
        let begins = self.released + self.held.len();
        let (mut at, mut until) = (0, 0);
        while at < part.len() {
            if self.state == self.encodings.start && at >= until {
                let skip = self.encodings.prefilter.scan_range(&part[at..]);
                until = at + skip.until;
                at += skip.skip;
            }
            let Some(byte) = part.get(at) else { break };
            at += 1;
            self.state = self.encodings.search.next_state(Anchored::No, self.state, *byte);
            if let Some(length) = self.encodings.longest_match_ending(self.state) {
                let end = begins + at;
                self.mark_masked(end.saturating_sub(length)..end);
            }
        }
    }

    /// Matches arrive ordered by their end.
    fn mark_masked(&mut self, mut range: Range<usize>) {
        while let Some(last) = self.masked.pop_back_if(|last| last.end >= range.start) {
            range.start = range.start.min(last.start);
        }
        self.masked.push_back(range);
    }

    /// Releases the first held bytes.
    fn release(&mut self, count: usize) -> Bytes {
        let bytes: Vec<u8> = self.held.drain(..count).collect();
        self.mask(bytes.into())
    }

    /// Masks the next bytes to release.
    fn mask(&mut self, bytes: Bytes) -> Bytes {
        let (first, end) = (self.released, self.released + bytes.len());
        self.released = end;
        if self.masked.front().is_none_or(|range| range.start >= end) {
            return bytes;
        }
        let mut bytes = BytesMut::from(bytes);
        for range in self.masked.iter().take_while(|range| range.start < end) {
            let from = range.start.max(first) - first;
            let to = range.end.min(end) - first;
            bytes[from..to].fill(MASK_BYTE);
        }
        while self.masked.pop_front_if(|range| range.end <= end).is_some() {}
        bytes.freeze()
    }
}

/// The next result of polling a body.
type BodyFrameResult = Option<Result<Frame<Bytes>, Box<dyn Error + Send + Sync>>>;

/// A body in which the values of some secrets are redacted.
pub(super) struct RedactingBody<B> {
    body: B,
    redactor: ResponseRedactor,
    /// Chunks to release next, in order.
    pending: VecDeque<Bytes>,
    /// The last frame, after all pending and held bytes.
    final_frame: Option<BodyFrameResult>,
}

impl<B> RedactingBody<B> {
    pub(super) fn new(body: B, redactor: ResponseRedactor) -> Self {
        Self { body, redactor, pending: VecDeque::new(), final_frame: None }
    }

    /// Processes the next result of the inner body.
    fn push_frame(&mut self, step: BodyFrameResult) {
        let after = match step {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    self.pending.extend(self.redactor.redact_chunk(data));
                    return;
                }
                Err(frame) => Some(Ok(self.redact_trailers(frame))),
            },
            // The body failed, perhaps inside a value, and perhaps where code wanted it to: at a
            // limit.
            Some(Err(error)) => {
                self.final_frame = Some(Some(Err(error)));
                return;
            }
            None => None,
        };
        self.pending.push_back(self.redactor.finish());
        self.final_frame = Some(after);
    }

    /// The next frame that is ready, skipping empty ones.
    fn next_frame(&mut self) -> Option<BodyFrameResult> {
        while let Some(data) = self.pending.pop_front() {
            if !data.is_empty() {
                return Some(Some(Ok(Frame::data(data))));
            }
        }
        self.final_frame.take()
    }

    fn held_bytes(&self) -> usize {
        self.redactor.held.len() + self.pending.iter().map(Bytes::len).sum::<usize>()
    }

    fn redact_trailers(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        frame.into_trailers().map_or_else(
            |frame| frame,
            |mut trailers| {
                self.redactor.redact_headers(&mut trailers);
                Frame::trailers(trailers)
            },
        )
    }
}

impl<B> Body for RedactingBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<BodyFrameResult> {
        let this = self.get_mut();
        loop {
            if let Some(next) = this.next_frame() {
                return Poll::Ready(next);
            }
            let step = ready!(Pin::new(&mut this.body).poll_frame(context));
            this.push_frame(step.map(|frame| frame.map_err(Into::into)));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held_bytes() == 0 && self.final_frame.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held_bytes() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD_NO_PAD;
    use http_body_util::BodyExt;
    use proptest::prelude::*;
    use std::time::Duration;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tokio::time::timeout;

    /// A part of a body, or an error.
    type Part = Result<Frame<Bytes>, &'static str>;

    /// A host that sends what the test tells it to.
    struct ChannelBody(UnboundedReceiver<Part>);

    impl Body for ChannelBody {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Part>> {
            self.0.poll_recv(context)
        }
    }

    /// A host, and its redacted response for a sandbox that sent it this value.
    fn told(value: &str) -> (UnboundedSender<Part>, RedactingBody<ChannelBody>) {
        let (host, said) = unbounded_channel();
        (host, RedactingBody::new(ChannelBody(said), redactor(&[value])))
    }

    fn data(text: &str) -> Part {
        Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())))
    }

    fn redactor(values: &[&str]) -> ResponseRedactor {
        let values: Vec<_> = values.iter().map(|it| SecretText::new((*it).to_owned())).collect();
        ResponseRedactor::new(Arc::new(SecretEncodings::new(&values).unwrap()))
    }

    /// The pieces in which a response is released.
    fn pieces(values: &[&str], parts: &[&[u8]]) -> Vec<String> {
        let mut redactor = redactor(values);
        let mut pass = |part: &&[u8]| redactor.redact_chunk(Bytes::copy_from_slice(part)).concat();
        let mut out: Vec<Vec<u8>> = parts.iter().map(&mut pass).collect();
        out.push(redactor.finish().into());
        out.iter().map(|it| String::from_utf8_lossy(it).into_owned()).collect()
    }

    fn passed(values: &[&str], text: &str) -> String {
        pieces(values, &[text.as_bytes()]).concat()
    }

    #[test]
    fn a_guess_that_is_almost_right_looks_like_any_other() {
        const VALUE: &str = "sk-0123456789abcdef";
        let lengths = |text: &str, size: usize| -> Vec<usize> {
            let parts: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let told = pieces(&[VALUE], &parts);
            assert_eq!(told.concat(), text);
            told.iter().map(String::len).collect()
        };
        for known in 0..VALUE.len() {
            for before in ["note ", "note\n"] {
                let right = format!("{before}{}", &VALUE[..known]);
                let wrong = format!("{before}{}", "?".repeat(known));
                for size in [1, 7, 100] {
                    assert_eq!(lengths(&right, size), lengths(&wrong, size), "{known} {size}");
                }
            }
        }
        // Only the whole value differs, and its mask is as long.
        assert_eq!(passed(&[VALUE], VALUE), "*".repeat(VALUE.len()));
    }

    #[test]
    fn a_value_is_found_wherever_it_begins_in_a_long_text() {
        let long: Vec<String> = ('a'..='z').map(|sign| format!("{sign}-secret-value-1")).collect();
        let short: Vec<String> = ('a'..='z').map(|sign| format!("{sign}-secret")).collect();
        for values in [long, short] {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            for far in (0..50).chain([1000, 100_000]) {
                for filler in ["\0", "x", "-secre"] {
                    let before = &filler.repeat(far)[..far];
                    for value in [values[0], values[25]] {
                        let covered = "*".repeat(value.len());
                        let told = passed(&values, &format!("{before}{value}{before}"));
                        let right = format!("{before}{covered}{before}");
                        assert!(told == right, "{value} after {far} of {filler:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_long_value_and_an_answer_in_single_bytes_cost_no_more_than_their_lengths() {
        for value in ["a".repeat(8192), "ab".repeat(4096)] {
            let text = value.repeat(64);
            let mut redactor = redactor(&[&value]);
            let began = std::time::Instant::now();
            let mut told = Vec::new();
            for byte in text.as_bytes() {
                told.extend(redactor.redact_chunk(Bytes::copy_from_slice(&[*byte])).concat());
            }
            told.extend(redactor.finish());
            assert!(told.iter().all(|byte| *byte == MASK_BYTE) && told.len() == text.len());
            // Half a million bytes. This took minutes when each byte was compared with all held
            // ones.
            assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        }
    }

    #[test]
    fn each_spelling_is_covered_wherever_it_begins() {
        let value = "k+y/with=odd~<by-tes>\u{e4}";
        for before in ["", "a", "ab", "abc"] {
            let base64 = STANDARD_NO_PAD.encode(format!("{before}{value}{before}"));
            let told = passed(&[value], &base64);
            // The rest are characters that the value shares with its neighbours.
            assert!(told.matches('*').count() >= value.len() * 8 / 6 - 2, "{told}");
        }
        for spelling in [
            value,
            "6b2b792f776974683d6f64647e3c62792d7465733ec3a4",
            "6B2B792F776974683D6F64647E3C62792D7465733EC3A4",
            "k%2By%2Fwith%3Dodd%7E%3Cby%2Dtes%3E%C3%A4",
            "k%2By%2Fwith%3Dodd~%3Cby-tes%3E%C3%A4",
            "k%2by%2fwith%3dodd~%3cby-tes%3e%c3%a4",
            "k%2By/with%3Dodd~%3Cby-tes%3E%C3%A4",
            "k+y\\/with=odd~<by-tes>\\u00e4",
            "k\\u002By/with=odd~\\u003Cby-tes\\u003E\\u00E4",
            "k\\u002by/with=odd~\\u003cby-tes\\u003e\\u00e4",
            "k+y/with=odd~\\u003cby-tes\\u003e\u{e4}",
        ] {
            assert_eq!(passed(&[value], spelling), "*".repeat(spelling.len()), "{spelling}");
        }
        assert_eq!(passed(&[value], "k+y/with=odd~"), "k+y/with=odd~");
    }

    #[test]
    fn a_secret_of_ones_own_does_not_uncover_the_rest_of_another() {
        let told = passed(&["Bearer s", "sk-0123456789"], "Bearer sk-0123456789.");
        assert_eq!(told, "********************.");
    }

    #[test]
    fn a_value_that_could_be_guessed_whole_is_left_and_holds_nothing_up() {
        let told = pieces(&["1234567"], &[b"is 1234567", b"!"]);
        assert_eq!(told, ["is 1234567", "!", ""]);
    }

    #[test]
    fn a_name_of_a_header_does_not_tell_either() {
        let redactor = redactor(&["Secret-Value"]);
        let mut headers = HeaderMap::new();
        headers.insert("x-secret-value-x", HeaderValue::from_static("1"));
        headers.insert("x-other", HeaderValue::from_static("is Secret-Value"));
        redactor.redact_headers(&mut headers);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers["x-other"], "is ************");
    }

    #[tokio::test]
    async fn a_line_arrives_before_the_host_says_more() {
        let (host, mut body) = told("secret-value");
        for event in ["data: 1\n\n", "data: secret-va\n\n", "\n", "{\"a\": \"b\"}\r\n"] {
            host.send(data(event)).unwrap();
            let mut heard = Vec::new();
            while heard.len() < event.len() {
                let frame = timeout(Duration::from_secs(5), body.frame()).await.expect(event);
                heard.extend(frame.unwrap().unwrap().into_data().unwrap());
            }
            assert_eq!(heard, event.as_bytes());
        }
    }

    #[tokio::test]
    async fn what_a_host_says_arrives_before_how_it_ends() {
        let (host, body) = told("secret-value");
        host.send(data("secret-")).unwrap();
        host.send(data("value")).unwrap();
        let trailers = HeaderMap::from_iter([(
            HeaderName::from_static("x-sum"),
            HeaderValue::from_static("secret-value"),
        )]);
        host.send(Ok(Frame::trailers(trailers))).unwrap();
        drop(host);
        let whole = body.collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap()["x-sum"], "************");
        assert_eq!(whole.to_bytes(), "************");
    }

    #[tokio::test]
    async fn t42_a_host_that_pauses_inside_of_a_value_tells_nothing_of_it() {
        const VALUE: &str = "sk-0123456789abcdef";
        for cut in [1, VALUE.len() / 2, VALUE.len() - 1] {
            let (host, mut body) = told(VALUE);
            host.send(data(&format!("your key:\n{}", &VALUE[..cut]))).unwrap();
            let mut heard = Vec::new();
            while let Ok(frame) = timeout(Duration::from_millis(200), body.frame()).await {
                heard.extend(frame.unwrap().unwrap().into_data().unwrap());
            }
            assert_eq!(heard, b"your key:\n", "{cut}");
            host.send(data(&VALUE[cut..])).unwrap();
            drop(host);
            assert_eq!(body.collect().await.unwrap().to_bytes(), "*".repeat(VALUE.len()));
        }
    }

    #[tokio::test]
    async fn t42_an_answer_that_breaks_off_inside_of_a_value_tells_nothing_of_it() {
        let (host, mut body) = told("sk-0123456789abcdef");
        host.send(data("your key:\nsk-0123456789abcde")).unwrap();
        host.send(Err("a limit")).unwrap();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, "your key:\n");
        assert!(body.frame().await.unwrap().is_err());
    }

    proptest! {
        #[test]
        fn how_an_answer_is_cut_makes_no_difference(
            is_long: bool,
            text in "(aabaabab|ab|abaab|b|x|\n){0,20}",
            cuts in proptest::collection::vec(0_usize..100, 0..8),
        ) {
            let value = if is_long { "aabaababaabaabab" } else { "aabaabab" };
            let mut whole = text.clone().into_bytes();
            for at in (0..text.len()).filter(|at| text[*at..].starts_with(value)) {
                whole[at..at + value.len()].fill(MASK_BYTE);
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> =
                cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
            prop_assert_eq!(pieces(&[value], &parts).concat().into_bytes(), whole);
        }
    }
}
