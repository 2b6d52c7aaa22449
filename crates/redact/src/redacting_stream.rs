//! Replaces secrets in a stream of output by the names of the secrets.

use crate::encodings::is_break;
use crate::matcher::{SecretMatcher, SecretSpan};
use crate::secret_encodings::SecretEncodings;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use types::REDACTED_BYTES_MIN;

/// Positions at the end of a text at which the search looks for the beginning of a value; if there
/// are more, all are removed.
const ENDS_MAX: usize = 1024;

/// Redacts bytes that arrive in pieces. Bytes that may be the beginning of a value are held until
/// the next piece, and no others: code that has the value can learn nothing from what is held.
///
/// Positions count from the first byte, without line breaks. Line breaks are put back where they
/// were, unless they were inside of a value.
#[derive(Default)]
pub struct RedactingStream(Option<HeldOutput>);

impl RedactingStream {
    pub(crate) fn new(encodings: Option<Arc<SecretEncodings>>) -> Self {
        Self(encodings.map(HeldOutput::new))
    }

    pub fn feed<'p>(&mut self, piece: &'p [u8]) -> Cow<'p, [u8]> {
        match &mut self.0 {
            Some(held) => Cow::Owned(held.feed(piece)),
            None => Cow::Borrowed(piece),
        }
    }

    /// Returns the remaining bytes. A value that the end cuts off is redacted as far as it goes.
    pub fn finish(&mut self) -> Vec<u8> {
        self.0.as_mut().map(HeldOutput::finish).unwrap_or_default()
    }
}

impl std::fmt::Debug for RedactingStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedactingStream(..)")
    }
}

struct HeldOutput {
    matcher: SecretMatcher,
    /// Bytes that have arrived, without their line breaks. Those before `emitted` are removed when
    /// they are at least as many as the others, so that each byte is moved once on average.
    buffer: Vec<u8>,
    /// The position of the first byte of the buffer.
    buffer_start: usize,
    /// The position of the first byte that is not emitted yet.
    emitted: usize,
    /// The line breaks that are not emitted yet, each with the position of the byte after it.
    breaks: VecDeque<(usize, u8)>,
    /// The position after the last line break.
    line_start: usize,
    /// Consecutive line breaks before that position.
    consecutive_breaks: usize,
}

impl HeldOutput {
    fn new(encodings: Arc<SecretEncodings>) -> Self {
        Self {
            matcher: SecretMatcher::new(encodings),
            buffer: Vec::new(),
            buffer_start: 0,
            emitted: 0,
            breaks: VecDeque::new(),
            line_start: 0,
            consecutive_breaks: 0,
        }
    }

    fn feed(&mut self, piece: &[u8]) -> Vec<u8> {
        for line in piece.split_inclusive(|byte| is_break(*byte)) {
            match line {
                [text @ .., end] if is_break(*end) => {
                    self.buffer.extend_from_slice(text);
                    self.push_line_end(*end);
                }
                text => self.buffer.extend_from_slice(text),
            }
        }
        self.scan_held();
        let mut clean = Vec::with_capacity(piece.len());
        self.emit_until(self.decided_until(), &mut clean);
        self.remove_emitted();
        clean
    }

    fn finish(&mut self) -> Vec<u8> {
        let mut clean = Vec::new();
        if let Some((from, pattern)) = self.truncated_match() {
            let range = from..self.end();
            self.matcher.add_span(SecretSpan { range, length: 0, pattern, is_begun: false });
        }
        self.emit_until(self.end(), &mut clean);
        self.remove_emitted();
        self.matcher.reset();
        clean
    }

    fn end(&self) -> usize {
        self.buffer_start + self.buffer.len()
    }

    /// Scans the held bytes that have not been scanned yet.
    fn scan_held(&mut self) {
        self.matcher.scan(&self.buffer[self.matcher.end() - self.buffer_start..]);
    }

    fn remove_emitted(&mut self) {
        let count = self.emitted - self.buffer_start;
        if count >= self.buffer.len() - count {
            self.buffer.drain(..count);
            self.buffer_start = self.emitted;
        }
    }

    /// A value may continue after a line break, but not after an empty line unless it contains one
    /// itself.
    fn push_line_end(&mut self, byte: u8) {
        let at = self.end();
        self.breaks.push_back((at, byte));
        let is_empty_line = at == self.line_start;
        self.consecutive_breaks = if is_empty_line { self.consecutive_breaks + 1 } else { 1 };
        self.line_start = at;
        if self.consecutive_breaks > self.matcher.encodings().breaks_max() {
            self.scan_held();
            self.matcher.reset();
        }
    }

    /// The positions before this one are decided.
    fn decided_until(&self) -> usize {
        let end = self.end();
        let longest = (end + 1).saturating_sub(self.matcher.encodings().length_max());
        let from = self.matcher.open_since().max(longest).clamp(self.emitted, end);
        // The few characters at the end of a line do not delay it; if the text continues as a
        // value, that part is removed.
        let is_line = self.breaks.back().is_some_and(|(place, _)| *place == end);
        let is_secret = self.matcher.spans().back().is_some_and(|span| span.range.end == end);
        if is_line && (is_secret || end - from < REDACTED_BYTES_MIN) { end } else { from }
    }

    /// The position and pattern of a value that the end of the text has cut off.
    fn truncated_match(&self) -> Option<(usize, usize)> {
        let from = self.matcher.open_since().max(self.emitted);
        let text = self.buffer.get(from - self.buffer_start..)?.to_ascii_lowercase();
        let last = (text.len() + 1).checked_sub(REDACTED_BYTES_MIN)?;
        let encodings = self.matcher.encodings();
        let begins = |at: usize| Some((from + at, encodings.beginning_with(text.get(at..)?)?));
        let found = (0..last.min(ENDS_MAX)).find_map(begins);
        // No program prints such a text by accident.
        found.or_else(|| (last > ENDS_MAX).then_some((from + ENDS_MAX, usize::MAX)))
    }

    /// Emits everything before a position.
    fn emit_until(&mut self, until: usize, clean: &mut Vec<u8>) {
        while let Some(SecretSpan { range, pattern, is_begun, .. }) =
            self.matcher.take_span_before(until)
        {
            self.emit_plain_until(range.start.max(self.emitted), clean);
            if !is_begun {
                clean.extend_from_slice(self.matcher.encodings().marker(pattern).as_bytes());
            }
            self.emitted = range.end;
            while self.breaks.pop_front_if(|(place, _)| *place < range.end).is_some() {}
        }
        self.emit_plain_until(until, clean);
    }

    fn emit_plain_until(&mut self, until: usize, clean: &mut Vec<u8>) {
        while let Some((place, byte)) = self.breaks.pop_front_if(|(place, _)| *place <= until) {
            self.emit_bytes_until(place.max(self.emitted), clean);
            clean.push(byte);
        }
        self.emit_bytes_until(until, clean);
    }

    fn emit_bytes_until(&mut self, until: usize, clean: &mut Vec<u8>) {
        let start = self.buffer_start;
        clean.extend_from_slice(&self.buffer[self.emitted - start..until - start]);
        self.emitted = until;
    }
}
