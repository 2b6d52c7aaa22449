//! Searches for secrets in a stream of output.

use super::patterns::{SecretPatterns, is_break};
use aho_corasick::automaton::StateID;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use types::REDACTED_BYTES_MIN;

/// Positions at the end of a text at which the search looks for the beginning of a value; if there
/// are more, all are removed.
const ENDS_MAX: usize = 1024;

/// Redacts bytes that arrive in pieces. Bytes that may be the beginning of a value are held until
/// the next piece.
///
/// Positions count from the first byte, without line breaks. Line breaks are put back where they
/// were, unless they were inside of a value.
pub(crate) struct StreamRedactor {
    patterns: Option<Arc<SecretPatterns>>,
    state: StateID,
    /// Bytes that have arrived and are not emitted yet, without their line breaks.
    held: Vec<u8>,
    /// The line breaks among them, each with the position of the byte after it.
    breaks: VecDeque<(usize, u8)>,
    /// The position of the first held byte.
    emitted: usize,
    /// No value that may still be completed begins before this position.
    since: usize,
    /// The values that were found, in order.
    spans: VecDeque<RedactedSpan>,
}

struct RedactedSpan {
    range: Range<usize>,
    /// Length of the longest encoding among them.
    length: usize,
    form: usize,
    /// Whether its marker was emitted already.
    is_emitted: bool,
}

impl StreamRedactor {
    pub(super) fn new(patterns: Option<Arc<SecretPatterns>>) -> Self {
        let state = patterns.as_ref().map_or(StateID::ZERO, |patterns| patterns.start());
        let (held, breaks, covered) = (Vec::new(), VecDeque::new(), VecDeque::new());
        Self { patterns, state, held, breaks, emitted: 0, since: 0, spans: covered }
    }

    pub(crate) fn feed<'p>(&mut self, piece: &'p [u8]) -> Cow<'p, [u8]> {
        let Some(patterns) = self.patterns.clone() else { return Cow::Borrowed(piece) };
        for (at, byte) in piece.iter().enumerate() {
            match is_break(*byte) {
                true => self.push_line_end(&patterns, *byte),
                false => self.push_byte(&patterns, *byte, piece.get(at + 1).copied()),
            }
        }
        let mut clean = Vec::with_capacity(piece.len());
        self.emit_until(&patterns, self.decided_until(&patterns), &mut clean);
        Cow::Owned(clean)
    }

    /// Returns the remaining bytes. A value that the end cuts off is redacted as far as it goes.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut clean = Vec::new();
        let Some(patterns) = self.patterns.clone() else { return clean };
        if let Some((from, form)) = self.truncated_match(&patterns) {
            self.add_span(RedactedSpan {
                range: from..self.end(),
                length: 0,
                form,
                is_emitted: false,
            });
        }
        self.emit_until(&patterns, self.end(), &mut clean);
        (self.state, self.since) = (patterns.start(), self.end());
        clean
    }

    fn end(&self) -> usize {
        self.emitted + self.held.len()
    }

    fn push_byte(&mut self, patterns: &SecretPatterns, byte: u8, next: Option<u8>) {
        let at = self.end();
        self.held.push(byte);
        if self.state == patterns.start() {
            self.since = at;
            // A line break that comes next may be inside of a value.
            let next = next.filter(|next| !is_break(*next));
            if !patterns.may_begin(byte, next) {
                self.since = at + 1;
                return;
            }
        }
        self.state = patterns.next(self.state, byte);
        if self.state == patterns.start() {
            self.since = at + 1;
        }
        if let Some(found) = patterns.match_at(self.state) {
            let places = (at + 1).saturating_sub(found.length).max(self.emitted)..at + 1;
            let (length, form) = (found.length, found.form);
            self.add_span(RedactedSpan { range: places, length, form, is_emitted: false });
        }
    }

    /// A value may continue after a line break, but not after an empty line unless it contains one
    /// itself.
    fn push_line_end(&mut self, patterns: &SecretPatterns, byte: u8) {
        let at = self.end();
        self.breaks.push_back((at, byte));
        let last = self.breaks.iter().rev().take(patterns.breaks_max() + 1);
        if last.filter(|(place, _)| *place == at).count() > patterns.breaks_max() {
            (self.state, self.since) = (patterns.start(), at);
        }
        if self.state == patterns.start() {
            self.since = at;
        }
    }

    /// The positions before this one are decided.
    fn decided_until(&self, patterns: &SecretPatterns) -> usize {
        let end = self.end();
        let longest = (end + 1).saturating_sub(patterns.length_max());
        let from = self.since.max(longest).clamp(self.emitted, end);
        // The few characters at the end of a line do not delay it; if the text continues as a
        // value, that part is removed.
        let is_line = self.breaks.back().is_some_and(|(place, _)| *place == end);
        let is_covered = self.spans.back().is_some_and(|cover| cover.range.end == end);
        if is_line && (is_covered || end - from < REDACTED_BYTES_MIN) { end } else { from }
    }

    /// A span that is found later ends later.
    fn add_span(&mut self, mut new: RedactedSpan) {
        while let Some(last) = self.spans.pop_back_if(|last| last.range.end > new.range.start) {
            new.range.start = new.range.start.min(last.range.start);
            new.range.end = new.range.end.max(last.range.end);
            new.is_emitted |= last.is_emitted;
            if last.length > new.length {
                (new.length, new.form) = (last.length, last.form);
            }
        }
        self.spans.push_back(new);
    }

    /// The position and pattern of a value that the end of the text has cut off.
    fn truncated_match(&self, patterns: &SecretPatterns) -> Option<(usize, usize)> {
        let from = self.since.max(self.emitted);
        let text = self.held.get(from - self.emitted..)?.to_ascii_lowercase();
        let last = (text.len() + 1).checked_sub(REDACTED_BYTES_MIN)?;
        let begins = |at: usize| Some((from + at, patterns.beginning_with(text.get(at..)?)?));
        let found = (0..last.min(ENDS_MAX)).find_map(begins);
        // No program prints such a text by accident.
        found.or_else(|| (last > ENDS_MAX).then_some((from + ENDS_MAX, usize::MAX)))
    }

    /// Emits everything before a position.
    fn emit_until(&mut self, patterns: &SecretPatterns, until: usize, clean: &mut Vec<u8>) {
        while let Some(cover) = self.spans.front_mut().filter(|it| it.range.start < until) {
            let end = cover.range.end.min(until);
            let (start, form, is_told) = (cover.range.start, cover.form, cover.is_emitted);
            (cover.range.start, cover.is_emitted) = (end, true);
            if cover.range.is_empty() {
                self.spans.pop_front();
            }
            self.emit_plain_until(start, clean);
            if !is_told {
                clean.extend_from_slice(patterns.marker(form).as_bytes());
            }
            self.held.drain(..end - self.emitted);
            self.emitted = end;
            while self.breaks.pop_front_if(|(place, _)| *place < end).is_some() {}
        }
        self.emit_plain_until(until, clean);
    }

    fn emit_plain_until(&mut self, until: usize, clean: &mut Vec<u8>) {
        let mut from = 0;
        while let Some((place, byte)) = self.breaks.pop_front_if(|(place, _)| *place <= until) {
            let at = place.saturating_sub(self.emitted).max(from);
            clean.extend_from_slice(&self.held[from..at]);
            clean.push(byte);
            from = at;
        }
        clean.extend_from_slice(&self.held[from..until - self.emitted]);
        self.held.drain(..until - self.emitted);
        self.emitted = until;
    }
}
