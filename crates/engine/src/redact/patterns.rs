//! The encodings of some values as one automaton: the time of a search does not depend on the
//! values.

use super::encodings::encodings;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Error, ErrorCode, REDACTED_BYTES_MIN};

/// Maximum length of a name that replaces a value. The value may be much shorter and occur often.
const NAME_CHARS_MAX: usize = 32;
/// Limit for all encodings of the values of one sandbox: the automaton takes up to 14 bytes per
/// byte, and three times that while it is built.
const FORM_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Consecutive line-break characters where a text was wrapped: one line end of any kind.
const BREAK_BYTES_MAX: usize = 2;

pub(super) struct SecretPatterns {
    /// Names by value, so that each value is stored once.
    pub(super) secrets: BTreeMap<String, String>,
    search: NFA,
    start: StateID,
    /// Lower-case and sorted, each with its marker. The number of a pattern in the automaton is its
    /// index here.
    encodings: Vec<(Vec<u8>, Arc<str>)>,
    /// Whether any encoding begins with these two bytes; this rules out most positions of a text.
    pairs: Vec<bool>,
    /// Consecutive line-break characters that may occur inside of a value.
    breaks_max: usize,
    /// Whether any encoding begins with this byte.
    firsts: [bool; 256],
}

/// The longest encoding that ends at a position.
pub(super) struct PatternMatch {
    pub(super) length: usize,
    pub(super) form: usize,
}

impl SecretPatterns {
    pub(super) fn new(secrets: BTreeMap<String, String>) -> Result<Self, Error> {
        let mut bytes = 0;
        let mut all: BTreeMap<Vec<u8>, Arc<str>> = BTreeMap::new();
        for (value, name) in &secrets {
            // The marker may be part of a file name.
            let name: String = name.replace('/', "_").chars().take(NAME_CHARS_MAX).collect();
            let marker: Arc<str> = format!("[redacted:{name}]").into();
            for form in encodings(value) {
                bytes += form.len();
                let form = one_line(&form);
                if form.len() < REDACTED_BYTES_MIN {
                    continue;
                }
                all.entry(form).or_insert_with(|| Arc::clone(&marker));
            }
            if bytes > FORM_BYTES_MAX {
                return Err(encodings_too_long_error());
            }
        }
        let forms: Vec<(Vec<u8>, Arc<str>)> = all.into_iter().collect();
        let (mut pairs, mut firsts) = (vec![false; 1 << 16], [false; 256]);
        for (form, _) in &forms {
            if let [first, second, ..] = form.as_slice() {
                pairs[pair(*first, *second)] = true;
                firsts[usize::from(*first)] = true;
            }
        }
        let mut builder = NFA::builder();
        builder.match_kind(MatchKind::Standard).prefilter(false);
        let search = builder
            .build(forms.iter().map(|(form, _)| form))
            .map_err(|_| encodings_too_long_error())?;
        let start = search.start_state(Anchored::No).map_err(|_| encodings_too_long_error())?;
        let breaks_max = secrets.keys().map(|value| breaks(value)).max().unwrap_or_default();
        let breaks_max = breaks_max.max(BREAK_BYTES_MAX);
        Ok(Self { secrets, search, start, encodings: forms, pairs, breaks_max, firsts })
    }

    /// The memory that it takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let forms: usize = self.encodings.iter().map(|(form, _)| form.len()).sum();
        self.search.memory_usage() + forms + self.pairs.len()
    }

    pub(super) fn contains_all(&self, other: &Self) -> bool {
        other.secrets.keys().all(|value| self.secrets.contains_key(value))
    }

    pub(super) fn start(&self) -> StateID {
        self.start
    }

    pub(super) fn length_max(&self) -> usize {
        self.search.max_pattern_len()
    }

    pub(super) fn breaks_max(&self) -> usize {
        self.breaks_max
    }

    pub(super) fn marker(&self, form: usize) -> &str {
        self.encodings.get(form).map_or("[redacted]", |(_, marker)| marker)
    }

    pub(super) fn next(&self, state: StateID, byte: u8) -> StateID {
        self.search.next_state(Anchored::No, state, byte.to_ascii_lowercase())
    }

    /// Whether an encoding may begin with `byte` followed by `next`.
    pub(super) fn may_begin(&self, byte: u8, next: Option<u8>) -> bool {
        let byte = byte.to_ascii_lowercase();
        match next {
            Some(next) => self.pairs[pair(byte, next.to_ascii_lowercase())],
            None => self.firsts[usize::from(byte)],
        }
    }

    pub(super) fn match_at(&self, state: StateID) -> Option<PatternMatch> {
        if !self.search.is_special(state) || !self.search.is_match(state) {
            return None;
        }
        let forms =
            (0..self.search.match_len(state)).map(|it| self.search.match_pattern(state, it));
        let found = forms
            .map(|it| PatternMatch { length: self.search.pattern_len(it), form: it.as_usize() });
        found.max_by_key(|found| found.length)
    }

    /// An encoding that begins with this lower-case text.
    pub(super) fn beginning_with(&self, text: &[u8]) -> Option<usize> {
        let at = self.encodings.partition_point(|(form, _)| form.as_slice() < text);
        self.encodings.get(at).filter(|(form, _)| form.starts_with(text)).map(|_| at)
    }
}

pub(super) fn is_break(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// The form that is searched for: lower-case, and without line breaks.
fn one_line(form: &[u8]) -> Vec<u8> {
    form.iter().filter(|byte| !is_break(**byte)).map(u8::to_ascii_lowercase).collect()
}

/// The maximum number of consecutive line-break characters.
fn breaks(value: &str) -> usize {
    value.split(|sign| !matches!(sign, '\r' | '\n')).map(str::len).max().unwrap_or_default()
}

fn encodings_too_long_error() -> Error {
    let message = format!(
        "the encodings of the secrets of this sandbox have more than {FORM_BYTES_MAX} bytes"
    );
    Error::new(ErrorCode::QuotaExceeded, message).hint("give it fewer or shorter secrets")
}

fn pair(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}
