//! A text on its way out, in which values are looked for.

use super::patterns::{Patterns, is_break};
use aho_corasick::automaton::StateID;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use types::REDACTED_BYTES_MIN;

/// Places at the end of a text at which the beginning of a value is looked for; if there are more, all is taken
/// out.
const ENDS_MAX: usize = 1024;

/// Bytes that come in pieces. What may be the beginning of a value is held until the next one.
///
/// Places are counted from the first byte, without line ends: those are put back where they were, unless
/// they were inside of a value.
pub(crate) struct Stream {
    patterns: Option<Arc<Patterns>>,
    state: StateID,
    /// What has arrived and is not let out, without its line ends.
    held: Vec<u8>,
    /// The line ends among it, each with the place of the byte after it.
    breaks: VecDeque<(usize, u8)>,
    /// The place of the first byte that is held.
    gone: usize,
    /// No value that may still come to its end begins before this place.
    since: usize,
    /// The values that were found, in order.
    covered: VecDeque<Cover>,
}

struct Cover {
    places: Range<usize>,
    /// Of the longest form among them.
    length: usize,
    form: usize,
    /// Whether its marker was let out already.
    is_told: bool,
}

impl Stream {
    pub(super) fn new(patterns: Option<Arc<Patterns>>) -> Self {
        let state = patterns.as_ref().map_or(StateID::ZERO, |patterns| patterns.start());
        let (held, breaks, covered) = (Vec::new(), VecDeque::new(), VecDeque::new());
        Self { patterns, state, held, breaks, gone: 0, since: 0, covered }
    }

    pub(crate) fn feed<'p>(&mut self, piece: &'p [u8]) -> Cow<'p, [u8]> {
        let Some(patterns) = self.patterns.clone() else { return Cow::Borrowed(piece) };
        for (at, byte) in piece.iter().enumerate() {
            match is_break(*byte) {
                true => self.line_end(&patterns, *byte),
                false => self.take(&patterns, *byte, piece.get(at + 1).copied()),
            }
        }
        let mut clean = Vec::with_capacity(piece.len());
        self.let_out(&patterns, self.undecided(&patterns), &mut clean);
        Cow::Owned(clean)
    }

    /// What is left. The beginning of a value is as much as there is of it.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut clean = Vec::new();
        let Some(patterns) = self.patterns.clone() else { return clean };
        if let Some((from, form)) = self.cut_off(&patterns) {
            self.cover(Cover { places: from..self.end(), length: 0, form, is_told: false });
        }
        self.let_out(&patterns, self.end(), &mut clean);
        (self.state, self.since) = (patterns.start(), self.end());
        clean
    }

    fn end(&self) -> usize {
        self.gone + self.held.len()
    }

    fn take(&mut self, patterns: &Patterns, byte: u8, next: Option<u8>) {
        let at = self.end();
        self.held.push(byte);
        if self.state == patterns.start() {
            self.since = at;
            // A line end that comes next may be inside of a value.
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
        if let Some(found) = patterns.found(self.state) {
            let places = (at + 1).saturating_sub(found.length).max(self.gone)..at + 1;
            let (length, form) = (found.length, found.form);
            self.cover(Cover { places, length, form, is_told: false });
        }
    }

    /// A value goes on after the end of a line, but not after an empty line that it does not have itself.
    fn line_end(&mut self, patterns: &Patterns, byte: u8) {
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

    /// The places before this one are decided.
    fn undecided(&self, patterns: &Patterns) -> usize {
        let end = self.end();
        let longest = (end + 1).saturating_sub(patterns.length_max());
        let from = self.since.max(longest).clamp(self.gone, end);
        // A line is not held up by the few signs at its end; if it goes on as a value, that is taken out.
        let is_line = self.breaks.back().is_some_and(|(place, _)| *place == end);
        let is_covered = self.covered.back().is_some_and(|cover| cover.places.end == end);
        if is_line && (is_covered || end - from < REDACTED_BYTES_MIN) { end } else { from }
    }

    /// What is found later ends later.
    fn cover(&mut self, mut new: Cover) {
        while let Some(last) = self.covered.pop_back_if(|last| last.places.end > new.places.start) {
            new.places.start = new.places.start.min(last.places.start);
            new.places.end = new.places.end.max(last.places.end);
            new.is_told |= last.is_told;
            if last.length > new.length {
                (new.length, new.form) = (last.length, last.form);
            }
        }
        self.covered.push_back(new);
    }

    /// Where a value begins that the end of the text has cut off, and which.
    fn cut_off(&self, patterns: &Patterns) -> Option<(usize, usize)> {
        let from = self.since.max(self.gone);
        let text = self.held.get(from - self.gone..)?.to_ascii_lowercase();
        let last = (text.len() + 1).checked_sub(REDACTED_BYTES_MIN)?;
        let begins = |at: usize| Some((from + at, patterns.beginning_with(text.get(at..)?)?));
        let found = (0..last.min(ENDS_MAX)).find_map(begins);
        // Nobody prints such a text by accident.
        found.or_else(|| (last > ENDS_MAX).then_some((from + ENDS_MAX, usize::MAX)))
    }

    /// Lets out what is before a place.
    fn let_out(&mut self, patterns: &Patterns, until: usize, clean: &mut Vec<u8>) {
        while let Some(cover) = self.covered.front_mut().filter(|it| it.places.start < until) {
            let end = cover.places.end.min(until);
            let (start, form, is_told) = (cover.places.start, cover.form, cover.is_told);
            (cover.places.start, cover.is_told) = (end, true);
            if cover.places.is_empty() {
                self.covered.pop_front();
            }
            self.let_out_plain(start, clean);
            if !is_told {
                clean.extend_from_slice(patterns.marker(form).as_bytes());
            }
            self.held.drain(..end - self.gone);
            self.gone = end;
            while self.breaks.pop_front_if(|(place, _)| *place < end).is_some() {}
        }
        self.let_out_plain(until, clean);
    }

    fn let_out_plain(&mut self, until: usize, clean: &mut Vec<u8>) {
        let mut from = 0;
        while let Some((place, byte)) = self.breaks.pop_front_if(|(place, _)| *place <= until) {
            let at = place.saturating_sub(self.gone).max(from);
            clean.extend_from_slice(&self.held[from..at]);
            clean.push(byte);
            from = at;
        }
        clean.extend_from_slice(&self.held[from..until - self.gone]);
        self.held.drain(..until - self.gone);
        self.gone = until;
    }
}
