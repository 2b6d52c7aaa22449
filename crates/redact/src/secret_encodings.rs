//! The encodings of some values as one automaton: the time of a search does not depend on the
//! values.

use crate::encodings::{encode_all, searched_form};
use crate::prefilter::{NgramPrefilter, ScanRange};
use crate::secret::SecretText;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use types::REDACTED_BYTES_MIN;
use zeroize::Zeroizing;

/// Maximum length of a name that replaces a value. The value may be much shorter and occur often.
const NAME_CHARS_MAX: usize = 32;
/// Limit for all encodings of the values that one automaton searches for: it takes up to 24 bytes
/// of memory per byte, and three times that while it is built.
pub(crate) const ENCODING_BYTES_MAX: usize = 2 * 1024 * 1024;
/// A value of at most this size is searched for in every encoding, or refused. A longer one is
/// searched for in pieces of this size.
const PIECE_BYTES: usize = 4 * 1024;
/// A longer value is also searched for in every encoding if it has at most this size and the limit
/// of all encodings permits it. It does for all values that one host may have.
const ENCODED_BYTES_MAX: usize = 16 * 1024;
/// Consecutive line-break characters where a text was wrapped: one line end of any kind.
const BREAK_BYTES_MAX: usize = 2;

/// The values of some secrets in all of their encodings, compiled for the search.
pub struct SecretEncodings {
    /// Sorted by value, each once.
    secrets: Vec<NamedSecret>,
    search: NFA,
    start: StateID,
    /// Sorted, each with the index of its secret. The number of a pattern in the automaton is its
    /// index here.
    encodings: Vec<(Zeroizing<Vec<u8>>, u32)>,
    prefilter: NgramPrefilter,
    /// Whether any encoding begins with these two bytes; this rules out most positions of a text.
    pairs: Vec<bool>,
    /// Whether any encoding begins with this byte.
    firsts: [bool; 256],
    /// Consecutive line-break characters that may occur inside of a value.
    breaks_max: usize,
}

struct NamedSecret {
    value: SecretText,
    name: String,
    marker: String,
}

/// The encodings have more than [`ENCODING_BYTES_MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyEncodings;

/// The longest encoding that ends at a position.
pub(crate) struct PatternMatch {
    pub(crate) length: usize,
    pub(crate) pattern: usize,
}

impl SecretEncodings {
    /// Compiles names and values. Of two names of one value, the last counts.
    pub(crate) fn new(
        secrets: impl IntoIterator<Item = (String, SecretText)>,
    ) -> Result<Self, TooManyEncodings> {
        let mut secrets: Vec<NamedSecret> =
            secrets.into_iter().map(|(name, value)| NamedSecret::new(name, value)).collect();
        secrets.sort_by(|one, other| one.value.expose().cmp(other.value.expose()));
        secrets.dedup_by(|later, kept| {
            let is_same = later.value == kept.value;
            if is_same {
                std::mem::swap(later, kept);
            }
            is_same
        });
        let encodings = encodings_of(&secrets)?;
        let (mut pairs, mut firsts) = (vec![false; 1 << 16], [false; 256]);
        for (encoding, _) in &encodings {
            if let [first, second, ..] = encoding.as_slice() {
                pairs[pair(*first, *second)] = true;
                firsts[usize::from(*first)] = true;
            }
        }
        // Report overlapping matches: if a match ended the search for another, a user's own secret
        // could reveal the rest of a secret that is not theirs.
        let mut builder = NFA::builder();
        builder.match_kind(MatchKind::Standard).prefilter(false);
        let patterns = || encodings.iter().map(|(encoding, _)| encoding.as_slice());
        let search = builder.build(patterns()).map_err(|_| TooManyEncodings)?;
        let start = search.start_state(Anchored::No).map_err(|_| TooManyEncodings)?;
        let prefilter = NgramPrefilter::new(patterns());
        let breaks = secrets.iter().map(|secret| consecutive_breaks(secret.value.expose()));
        let breaks_max = breaks.max().unwrap_or_default().max(BREAK_BYTES_MAX);
        Ok(Self { secrets, search, start, encodings, prefilter, pairs, firsts, breaks_max })
    }

    /// Memory use in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let encodings: usize = self.encodings.iter().map(|(encoding, _)| encoding.len()).sum();
        let prefilter = self.prefilter.memory_bytes();
        self.search.memory_usage() + encodings + prefilter + self.pairs.len()
    }

    /// Names and values, sorted by value.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = (&str, &SecretText)> {
        self.secrets.iter().map(|secret| (secret.name.as_str(), &secret.value))
    }

    pub(crate) fn contains_value(&self, value: &SecretText) -> bool {
        let found = self.secrets.binary_search_by(|it| it.value.expose().cmp(value.expose()));
        found.is_ok()
    }

    pub(crate) fn start(&self) -> StateID {
        self.start
    }

    /// Length of the longest encoding.
    pub(crate) fn length_max(&self) -> usize {
        self.search.max_pattern_len()
    }

    pub(crate) fn breaks_max(&self) -> usize {
        self.breaks_max
    }

    /// The text that replaces an encoding.
    pub(crate) fn marker(&self, pattern: usize) -> &str {
        let secret = self.encodings.get(pattern).and_then(|(_, it)| self.secrets.get(*it as usize));
        secret.map_or("[redacted]", |secret| &secret.marker)
    }

    pub(crate) fn next(&self, state: StateID, byte: u8) -> StateID {
        self.search.next_state(Anchored::No, state, byte.to_ascii_lowercase())
    }

    /// Whether an encoding may begin with `byte` followed by `next`.
    pub(crate) fn may_begin(&self, byte: u8, next: Option<u8>) -> bool {
        let byte = byte.to_ascii_lowercase();
        match next {
            Some(next) => self.pairs[pair(byte, next.to_ascii_lowercase())],
            None => self.firsts[usize::from(byte)],
        }
    }

    /// The range of a text to scan, if no encoding began before it.
    pub(crate) fn scan_range(&self, text: &[u8]) -> ScanRange {
        self.prefilter.scan_range(text)
    }

    pub(crate) fn match_at(&self, state: StateID) -> Option<PatternMatch> {
        if !self.search.is_special(state) || !self.search.is_match(state) {
            return None;
        }
        let patterns =
            (0..self.search.match_len(state)).map(|it| self.search.match_pattern(state, it));
        let found = patterns
            .map(|it| PatternMatch { length: self.search.pattern_len(it), pattern: it.as_usize() });
        found.max_by_key(|found| found.length)
    }

    /// An encoding that begins with this lower-case text.
    pub(crate) fn beginning_with(&self, text: &[u8]) -> Option<usize> {
        let at = self.encodings.partition_point(|(encoding, _)| encoding.as_slice() < text);
        self.encodings.get(at).filter(|(encoding, _)| encoding.starts_with(text)).map(|_| at)
    }
}

impl fmt::Debug for SecretEncodings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.secrets.iter().map(|secret| &secret.name)).finish()
    }
}

impl NamedSecret {
    fn new(name: String, value: SecretText) -> Self {
        // The marker may be part of a file name.
        let shown: String = name.replace('/', "_").chars().take(NAME_CHARS_MAX).collect();
        Self { value, name, marker: format!("[redacted:{shown}]") }
    }
}

/// One encoding, and the index of its secret.
type EncodedSecret = (Zeroizing<Vec<u8>>, u32);

/// All encodings of all values, sorted, within [`ENCODING_BYTES_MAX`].
fn encodings_of(secrets: &[NamedSecret]) -> Result<Vec<EncodedSecret>, TooManyEncodings> {
    let mut found = EncodingSet::default();
    let numbered = || (0..).zip(secrets.iter().map(|secret| secret.value.expose()));
    let (short, long): (Vec<_>, Vec<_>) =
        numbered().partition(|(_, value)| value.len() <= PIECE_BYTES);
    for (secret, value) in short {
        found.add(secret, encode_all(value)).map_err(|_| TooManyEncodings)?;
    }
    for (secret, value) in &long {
        let pieces = pieces(value).map(searched_form).collect();
        found.add(*secret, pieces).map_err(|_| TooManyEncodings)?;
    }
    for (secret, value) in long.into_iter().filter(|(_, value)| value.len() <= ENCODED_BYTES_MAX) {
        // Without space for them, this value is found only as it is.
        let _ = found.add(secret, encode_all(value));
    }
    let sorted = found.secrets_by_encoding.into_iter();
    Ok(sorted.map(|(encoding, secret)| (Zeroizing::new(encoding), secret)).collect())
}

#[derive(Default)]
struct EncodingSet {
    /// The index of the first secret with the encoding.
    secrets_by_encoding: BTreeMap<Vec<u8>, u32>,
    bytes: usize,
}

impl EncodingSet {
    /// Adds all encodings, or none if they would exceed the limit.
    fn add(&mut self, secret: u32, encodings: BTreeSet<Vec<u8>>) -> Result<(), TooManyEncodings> {
        let bytes = self.bytes + encodings.iter().map(Vec::len).sum::<usize>();
        if bytes > ENCODING_BYTES_MAX {
            return Err(TooManyEncodings);
        }
        self.bytes = bytes;
        let distinct = encodings.into_iter().filter(|it| it.len() >= REDACTED_BYTES_MIN);
        for encoding in distinct {
            self.secrets_by_encoding.entry(encoding).or_insert(secret);
        }
        Ok(())
    }
}

/// No piece is so short that it would occur in other text.
fn pieces(value: &str) -> impl Iterator<Item = &str> {
    let mut left = value;
    std::iter::from_fn(move || {
        if left.is_empty() {
            return None;
        }
        let all = left.len() < PIECE_BYTES + REDACTED_BYTES_MIN;
        let at = if all { left.len() } else { left.floor_char_boundary(PIECE_BYTES) };
        let (piece, rest) = left.split_at(at);
        left = rest;
        Some(piece)
    })
}

/// The maximum number of consecutive line-break characters.
fn consecutive_breaks(value: &str) -> usize {
    value.split(|sign| !matches!(sign, '\r' | '\n')).map(str::len).max().unwrap_or_default()
}

fn pair(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_searched_for_in_pieces_that_are_all_of_it() {
        let value: String = ('a'..='z').cycle().take(10_000).collect();
        assert_eq!(pieces(&value).collect::<String>(), value);
        let umlauts = "é".repeat(5_000);
        assert!(pieces(&umlauts).all(|piece| piece.len() >= REDACTED_BYTES_MIN));
    }

    #[test]
    fn t107_long_values_are_encoded_while_there_is_space_and_short_ones_are_refused_without() {
        let secrets = |count: usize, bytes: usize| {
            let value = move |it| format!("{it:04}{}", "'".repeat(bytes - 4));
            SecretEncodings::new(
                (0..count).map(|it| (format!("S{it}"), SecretText::new(value(it)))),
            )
        };
        let has_hex = |found: &SecretEncodings| found.beginning_with(b"303030302727").is_some();
        let one = secrets(1, ENCODED_BYTES_MAX).unwrap();
        assert!(has_hex(&one), "all values that a host may have fit");
        let many = secrets(8, ENCODED_BYTES_MAX).unwrap();
        let bytes = |found: &SecretEncodings| -> usize {
            found.encodings.iter().map(|(encoding, _)| encoding.len()).sum()
        };
        assert!(has_hex(&many) && bytes(&many) <= ENCODING_BYTES_MAX);
        assert!(many.beginning_with(b"0007''''").is_some(), "each is found as it is");
        assert_eq!(secrets(32, PIECE_BYTES).err(), Some(TooManyEncodings));
    }
}
