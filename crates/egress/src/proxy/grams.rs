//! Tells where in a long text a spelling may be, so that most of it is not looked at sign by sign.
//!
//! A text is looked at in pieces of a few bytes, one after the other. A spelling is long enough to have a
//! whole piece in it wherever it begins: where no piece is part of a spelling, there is none. For such
//! texts it takes the same time whatever they are, so that who has a host say back guesses learns from it
//! nothing about parts of a value that are shorter than a piece.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use zeroize::Zeroizing;

/// Of spellings of at least 15 bytes, as most keys have them, and of shorter ones.
const LONG: usize = 8;
const SHORT: usize = 4;
/// Makes letters of both cases the same, and some other signs, too.
const FOLD: u64 = 0x2020_2020_2020_2020;
/// One in so many of the bits is set, or fewer.
const BITS_PER_GRAM: usize = 64;
/// Between 8 KiB, which the nearest cache has room for, and 256 KiB.
const BITS_MIN: usize = 1 << 16;
const BITS_MAX: usize = 1 << 21;

/// What is left out of a text.
pub(super) struct Skip {
    /// So many bytes have nothing to do with any spelling.
    pub(super) idle: usize,
    /// Up to here the text is to be looked at sign by sign.
    pub(super) until: usize,
}

/// All pieces of all spellings.
pub(super) struct Grams {
    is_long: bool,
    length_max: usize,
    all: Zeroizing<Vec<u64>>,
    /// Whether a piece may be among them, by its hash. It has a key, so that nobody can tell which
    /// pieces have the hash of another.
    bits: Vec<u64>,
    key: u64,
    shift: u32,
}

impl Grams {
    pub(super) fn new(spellings: &BTreeSet<Vec<u8>>) -> Self {
        let length_min = spellings.iter().map(Vec::len).min().unwrap_or_default();
        let length_max = spellings.iter().map(Vec::len).max().unwrap_or_default();
        let is_long = length_min >= 2 * LONG - 1;
        let words = |it: &Vec<u8>| if is_long { words::<LONG>(it) } else { words::<SHORT>(it) };
        let all: BTreeSet<u64> = spellings.iter().flat_map(words).collect();
        let count = (all.len() * BITS_PER_GRAM).clamp(BITS_MIN, BITS_MAX).next_power_of_two();
        let mut grams = Self {
            is_long,
            length_max,
            all: Zeroizing::new(all.into_iter().collect()),
            bits: vec![0; count / 64],
            key: RandomState::new().hash_one(count) | 1,
            shift: 64 - count.ilog2(),
        };
        for index in 0..grams.all.len() {
            let (place, bit) = grams.place(grams.all[index]);
            grams.bits[place] |= bit;
        }
        grams
    }

    /// The memory that they take, in bytes.
    pub(super) fn weight(&self) -> usize {
        8 * (self.all.len() + self.bits.len())
    }

    /// What can be left out of a text, if no spelling has begun before it.
    pub(super) fn skip(&self, text: &[u8]) -> Skip {
        let (size, found) = match self.is_long {
            true => (LONG, self.next::<LONG>(text)),
            false => (SHORT, self.next::<SHORT>(text)),
        };
        match found {
            Some(at) => {
                let until = at + size;
                Skip { idle: until.saturating_sub(self.length_max), until }
            }
            // One that has just begun may have no whole piece in the text yet.
            None => Skip { idle: text.len().saturating_sub(2 * size - 2), until: text.len() },
        }
    }

    fn next<const SIZE: usize>(&self, text: &[u8]) -> Option<usize> {
        let (pieces, _) = text.as_chunks::<SIZE>();
        pieces.iter().position(|piece| self.has(word(piece))).map(|index| index * SIZE)
    }

    fn has(&self, word: u64) -> bool {
        let (place, bit) = self.place(word);
        self.bits.get(place).is_some_and(|bits| bits & bit != 0)
            && self.all.binary_search(&word).is_ok()
    }

    fn place(&self, word: u64) -> (usize, u64) {
        let hash = word.wrapping_mul(self.key) >> self.shift;
        ((hash / 64) as usize, 1 << (hash % 64))
    }
}

fn words<const SIZE: usize>(spelling: &[u8]) -> Vec<u64> {
    spelling.array_windows::<SIZE>().map(word).collect()
}

fn word<const SIZE: usize>(piece: &[u8; SIZE]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..SIZE].copy_from_slice(piece);
    u64::from_le_bytes(bytes) | FOLD
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "sk-0123456789abcdef";

    fn grams(spellings: &[&str]) -> Grams {
        Grams::new(&spellings.iter().map(|it| it.as_bytes().to_vec()).collect())
    }

    #[test]
    fn all_but_the_end_of_a_text_is_left_out_whatever_signs_it_has() {
        let text: String = (0..2000).map(|it| format!("sk-{it} 0123456 ABCDEF ")).collect();
        for grams in [grams(&[VALUE]), grams(&["twelve-signs"]), grams(&[])] {
            let Skip { idle, until } = grams.skip(text.as_bytes());
            assert!(idle >= text.len() - 14 && until == text.len(), "{idle}");
        }
    }

    #[test]
    fn a_guess_of_less_than_a_piece_is_left_out_like_any_other() {
        for begins in 0..VALUE.len() - LONG {
            let right = format!("{}?", &VALUE[begins..begins + LONG - 1]).repeat(1000);
            assert_eq!(grams(&[VALUE]).skip(right.as_bytes()).idle, right.len() - 14);
        }
    }

    #[test]
    fn a_spelling_in_any_case_is_never_left_out() {
        for far in 0..100 {
            let text = format!("{}{}", "x".repeat(far), VALUE.to_uppercase());
            let Skip { idle, until } = grams(&[VALUE]).skip(text.as_bytes());
            assert!(idle <= far && until > far, "{far}: {idle} {until}");
        }
    }
}
