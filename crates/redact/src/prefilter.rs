//! Finds where a long text may contain an encoding, so that most of it is not scanned byte by byte.
//!
//! A text is sampled in consecutive n-grams. An encoding is long enough to contain a whole n-gram
//! at any offset: where no n-gram belongs to an encoding, there is none. For such texts the time is
//! constant, so an attacker who makes a host echo guesses learns nothing about parts of a value
//! that are shorter than an n-gram.

use std::hash::{BuildHasher, RandomState};
use zeroize::Zeroizing;

/// For encodings of at least 15 bytes, which most keys have, and for shorter ones.
const LONG_NGRAM_BYTES: usize = 8;
const SHORT_NGRAM_BYTES: usize = 4;
/// Folds both cases of letters, and also merges some other characters.
const CASE_FOLD_MASK: u64 = 0x2020_2020_2020_2020;
/// At most one of this many bits is set.
const BITS_PER_GRAM: usize = 64;
/// Between 8 KiB, which fits into the L1 cache, and 256 KiB.
const BITS_MIN: usize = 1 << 16;
const BITS_MAX: usize = 1 << 21;

/// The part of a text that must be scanned.
pub(crate) struct ScanRange {
    /// Bytes that cannot belong to an encoding.
    pub(crate) skip: usize,
    /// The end of the part to scan byte by byte.
    pub(crate) until: usize,
}

/// All n-grams of all encodings.
pub(crate) struct NgramPrefilter {
    is_long: bool,
    length_max: usize,
    ngrams: Zeroizing<Vec<u64>>,
    /// A bit set by keyed hash. The key prevents an attacker from predicting which n-grams collide.
    filter: Vec<u64>,
    key: u64,
    shift: u32,
}

impl NgramPrefilter {
    pub(crate) fn new<'e>(encodings: impl Iterator<Item = &'e [u8]> + Clone) -> Self {
        let lengths = encodings.clone().map(<[u8]>::len);
        let length_max = lengths.clone().max().unwrap_or_default();
        let is_long = lengths.min().unwrap_or_default() >= 2 * LONG_NGRAM_BYTES - 1;
        let mut all: Vec<u64> = match is_long {
            true => encodings.flat_map(ngrams_of::<LONG_NGRAM_BYTES>).collect(),
            false => encodings.flat_map(ngrams_of::<SHORT_NGRAM_BYTES>).collect(),
        };
        all.sort_unstable();
        all.dedup();
        all.shrink_to_fit();
        let count = (all.len() * BITS_PER_GRAM).clamp(BITS_MIN, BITS_MAX).next_power_of_two();
        let mut grams = Self {
            is_long,
            length_max,
            ngrams: Zeroizing::new(all),
            filter: vec![0; count / 64],
            key: RandomState::new().hash_one(count) | 1,
            shift: 64 - count.ilog2(),
        };
        for index in 0..grams.ngrams.len() {
            let (place, bit) = grams.bit_position(grams.ngrams[index]);
            grams.filter[place] |= bit;
        }
        grams
    }

    /// Memory use in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        8 * (self.ngrams.len() + self.filter.len())
    }

    /// The range of a text to scan, if no encoding began before it.
    pub(crate) fn scan_range(&self, text: &[u8]) -> ScanRange {
        let (size, found) = match self.is_long {
            true => (LONG_NGRAM_BYTES, self.next_candidate::<LONG_NGRAM_BYTES>(text)),
            false => (SHORT_NGRAM_BYTES, self.next_candidate::<SHORT_NGRAM_BYTES>(text)),
        };
        match found {
            Some(at) => {
                let until = at + size;
                ScanRange { skip: until.saturating_sub(self.length_max), until }
            }
            // An encoding that has just begun may not have a whole n-gram in the text yet.
            None => ScanRange { skip: text.len().saturating_sub(2 * size - 2), until: text.len() },
        }
    }

    fn next_candidate<const SIZE: usize>(&self, text: &[u8]) -> Option<usize> {
        let (pieces, _) = text.as_chunks::<SIZE>();
        pieces.iter().position(|piece| self.contains(ngram(piece))).map(|index| index * SIZE)
    }

    fn contains(&self, word: u64) -> bool {
        let (place, bit) = self.bit_position(word);
        self.filter.get(place).is_some_and(|bits| bits & bit != 0)
            && self.ngrams.binary_search(&word).is_ok()
    }

    fn bit_position(&self, word: u64) -> (usize, u64) {
        let hash = word.wrapping_mul(self.key) >> self.shift;
        ((hash / 64) as usize, 1 << (hash % 64))
    }
}

fn ngrams_of<const SIZE: usize>(encoding: &[u8]) -> impl Iterator<Item = u64> {
    encoding.array_windows::<SIZE>().map(ngram)
}

fn ngram<const SIZE: usize>(piece: &[u8; SIZE]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..SIZE].copy_from_slice(piece);
    u64::from_le_bytes(bytes) | CASE_FOLD_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "sk-0123456789abcdef";

    fn grams(encodings: &[&str]) -> NgramPrefilter {
        NgramPrefilter::new(encodings.iter().map(|it| it.as_bytes()))
    }

    #[test]
    fn all_but_the_end_of_a_text_is_left_out_whatever_signs_it_has() {
        let text: String = (0..2000).map(|it| format!("sk-{it} 0123456 ABCDEF ")).collect();
        for grams in [grams(&[VALUE]), grams(&["twelve-signs"]), grams(&[])] {
            let ScanRange { skip: idle, until } = grams.scan_range(text.as_bytes());
            assert!(idle >= text.len() - 14 && until == text.len(), "{idle}");
        }
    }

    #[test]
    fn a_guess_of_less_than_a_piece_is_left_out_like_any_other() {
        for begins in 0..VALUE.len() - LONG_NGRAM_BYTES {
            let right = format!("{}?", &VALUE[begins..begins + LONG_NGRAM_BYTES - 1]).repeat(1000);
            assert_eq!(grams(&[VALUE]).scan_range(right.as_bytes()).skip, right.len() - 14);
        }
    }

    #[test]
    fn a_spelling_in_any_case_is_never_left_out() {
        for far in 0..100 {
            let text = format!("{}{}", "x".repeat(far), VALUE.to_uppercase());
            let ScanRange { skip: idle, until } = grams(&[VALUE]).scan_range(text.as_bytes());
            assert!(idle <= far && until > far, "{far}: {idle} {until}");
        }
    }
}
