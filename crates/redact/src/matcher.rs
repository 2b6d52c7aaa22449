//! Finds secrets in a stream, also across the boundaries of its pieces.

use crate::secret_encodings::SecretEncodings;
use aho_corasick::automaton::StateID;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// The search in one stream. Positions count from the first byte that it was given.
#[derive(Clone)]
pub(crate) struct SecretMatcher {
    encodings: Arc<SecretEncodings>,
    state: StateID,
    /// Number of bytes that were scanned.
    end: usize,
    open_since: usize,
    /// The values that were found and not taken yet, in order and without overlaps.
    spans: VecDeque<SecretSpan>,
}

/// Bytes that belong to one value, or to several that overlap.
#[derive(Clone)]
pub(crate) struct SecretSpan {
    pub(crate) range: Range<usize>,
    /// Length of the longest encoding among them.
    pub(crate) length: usize,
    pub(crate) pattern: usize,
    /// Whether a part of the span was released already.
    pub(crate) is_begun: bool,
}

impl SecretMatcher {
    pub(crate) fn new(encodings: Arc<SecretEncodings>) -> Self {
        let (state, spans) = (encodings.start(), VecDeque::new());
        Self { encodings, state, end: 0, open_since: 0, spans }
    }

    pub(crate) fn encodings(&self) -> &SecretEncodings {
        &self.encodings
    }

    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// No value that may still be completed begins before this position.
    pub(crate) fn open_since(&self) -> usize {
        self.open_since
    }

    pub(crate) fn spans(&self) -> &VecDeque<SecretSpan> {
        &self.spans
    }

    /// Scans the next bytes.
    pub(crate) fn scan(&mut self, text: &[u8]) {
        let (begin, start) = (self.end, self.encodings.start());
        let (mut at, mut until) = (0, 0);
        while at < text.len() {
            if self.state == start && at >= until {
                let range = self.encodings.scan_range(&text[at..]);
                until = at + range.until;
                at += range.skip;
            }
            let Some(byte) = text.get(at) else { break };
            at += 1;
            if self.state == start {
                if !self.encodings.may_begin(*byte, text.get(at).copied()) {
                    continue;
                }
                self.open_since = begin + at - 1;
            }
            self.state = self.encodings.next(self.state, *byte);
            if let Some(found) = self.encodings.match_at(self.state) {
                let end = begin + at;
                let range = end.saturating_sub(found.length)..end;
                let (length, pattern) = (found.length, found.pattern);
                self.add_span(SecretSpan { range, length, pattern, is_begun: false });
            }
        }
        self.end = begin + text.len();
        if self.state == start {
            self.open_since = self.end;
        }
    }

    /// Ends every value that has begun: what comes next does not continue it.
    pub(crate) fn reset(&mut self) {
        (self.state, self.open_since) = (self.encodings.start(), self.end);
    }

    /// A span that is found later ends later.
    pub(crate) fn add_span(&mut self, mut new: SecretSpan) {
        while let Some(last) = self.spans.pop_back_if(|last| last.range.end > new.range.start) {
            new.range.start = new.range.start.min(last.range.start);
            new.range.end = new.range.end.max(last.range.end);
            new.is_begun |= last.is_begun;
            if last.length > new.length {
                (new.length, new.pattern) = (last.length, last.pattern);
            }
        }
        self.spans.push_back(new);
    }

    /// Takes the part of the first span that is before a position, if there is any. The rest of the
    /// span, which has begun, stays.
    pub(crate) fn take_span_before(&mut self, until: usize) -> Option<SecretSpan> {
        let span = self.spans.front_mut().filter(|span| span.range.start < until)?;
        let mut taken = span.clone();
        taken.range.end = span.range.end.min(until);
        (span.range.start, span.is_begun) = (taken.range.end, true);
        if span.range.is_empty() {
            self.spans.pop_front();
        }
        Some(taken)
    }
}
