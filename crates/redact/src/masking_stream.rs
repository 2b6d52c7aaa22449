//! Masks secrets in the response of a host, for code that must not learn them.
//!
//! Each value is masked in place by as many bytes, so that lengths stay correct. What is released,
//! and when, depends only on lengths and on bytes that no value has; only a complete value makes a
//! difference. Otherwise an attacker who makes a host echo guesses could find the value byte by
//! byte. A pause releases nothing: a host that pauses inside a value has sent its start and sends
//! the rest later. [`RedactingStream`](crate::RedactingStream) releases output earlier, for code
//! that has the values.

use crate::matcher::SecretMatcher;
use crate::secret_encodings::SecretEncodings;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

const MASK_BYTE: u8 = b'*';

/// Masks bytes that arrive in chunks.
#[derive(Clone)]
pub struct MaskingStream {
    encodings: Arc<SecretEncodings>,
    matcher: SecretMatcher,
    /// The end of what has arrived.
    held: VecDeque<u8>,
    /// Number of bytes before the held ones.
    released: usize,
}

impl fmt::Debug for MaskingStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MaskingStream(..)")
    }
}

impl MaskingStream {
    pub fn new(encodings: Arc<SecretEncodings>) -> Self {
        let matcher = SecretMatcher::new(Arc::clone(&encodings));
        Self { encodings, matcher, held: VecDeque::new(), released: 0 }
    }

    /// Masks a complete text; `None` if it contains no value.
    pub fn mask_complete(&self, text: &[u8]) -> Option<Bytes> {
        let mut stream = Self::new(Arc::clone(&self.encodings));
        stream.matcher.scan(text);
        let is_clean = stream.matcher.spans().is_empty();
        (!is_clean).then(|| stream.mask(Bytes::copy_from_slice(text)))
    }

    /// Adds a chunk and returns what may be released. Copies only bytes that are held or masked.
    pub fn mask_chunk(&mut self, mut part: Bytes) -> [Bytes; 2] {
        self.matcher.scan(&part);
        // These may be the start of an incomplete encoding.
        let held_max = self.encodings.length_max().saturating_sub(1);
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
    pub fn finish(&mut self) -> Bytes {
        self.release(self.held.len())
    }

    pub fn held_bytes(&self) -> usize {
        self.held.len()
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
        if self.matcher.spans().front().is_none_or(|span| span.range.start >= end) {
            return bytes;
        }
        let mut bytes = BytesMut::from(bytes);
        while let Some(span) = self.matcher.take_span_before(end) {
            bytes[span.range.start.max(first) - first..span.range.end - first].fill(MASK_BYTE);
        }
        bytes.freeze()
    }
}

/// Bytes that no header can contain, so no encoding of a header value contains them: no match
/// crosses a line end. The set is independent of the values.
fn is_separator(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::SecretText;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD_NO_PAD;
    use proptest::prelude::*;
    use std::time::Duration;

    fn masking_stream(values: &[&str]) -> MaskingStream {
        let named = |it: &&str| ((*it).to_owned(), SecretText::new((*it).to_owned()));
        MaskingStream::new(Arc::new(SecretEncodings::new(values.iter().map(named)).unwrap()))
    }

    /// The pieces in which a response is released.
    fn pieces(values: &[&str], parts: &[&[u8]]) -> Vec<String> {
        let mut redactor = masking_stream(values);
        let mut pass = |part: &&[u8]| redactor.mask_chunk(Bytes::copy_from_slice(part)).concat();
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
            let masked = pieces(&[VALUE], &parts);
            assert_eq!(masked.concat(), text);
            masked.iter().map(String::len).collect()
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
                        let masked = "*".repeat(value.len());
                        let output = passed(&values, &format!("{before}{value}{before}"));
                        let expected = format!("{before}{masked}{before}");
                        assert!(output == expected, "{value} after {far} of {filler:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_long_value_and_an_answer_in_single_bytes_cost_no_more_than_their_lengths() {
        for value in ["a".repeat(8192), "ab".repeat(4096)] {
            let text = value.repeat(64);
            let mut redactor = masking_stream(&[&value]);
            let began = std::time::Instant::now();
            let mut masked = Vec::new();
            for byte in text.as_bytes() {
                masked.extend(redactor.mask_chunk(Bytes::copy_from_slice(&[*byte])).concat());
            }
            masked.extend(redactor.finish());
            assert!(masked.iter().all(|byte| *byte == MASK_BYTE) && masked.len() == text.len());
            // Half a million bytes. This took minutes when each byte was compared with all held
            // ones.
            assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        }
    }

    #[test]
    fn each_encoding_is_masked_wherever_it_begins() {
        let value = "k+y/with=odd~<by-tes>\u{e4}";
        for before in ["", "a", "ab", "abc"] {
            let base64 = STANDARD_NO_PAD.encode(format!("{before}{value}{before}"));
            let masked = passed(&[value], &base64);
            // The rest are characters that the value shares with its neighbours.
            assert!(masked.matches('*').count() >= value.len() * 8 / 6 - 2, "{masked}");
        }
        for encoding in [
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
            assert_eq!(passed(&[value], encoding), "*".repeat(encoding.len()), "{encoding}");
        }
        assert_eq!(passed(&[value], "k+y/with=odd~"), "k+y/with=odd~");
    }

    #[test]
    fn a_secret_of_ones_own_does_not_uncover_the_rest_of_another() {
        let masked = passed(&["Bearer s", "sk-0123456789"], "Bearer sk-0123456789.");
        assert_eq!(masked, "********************.");
    }

    #[test]
    fn a_value_that_could_be_guessed_whole_is_left_and_holds_nothing_up() {
        let masked = pieces(&["1234567"], &[b"is 1234567", b"!"]);
        assert_eq!(masked, ["is 1234567", "!", ""]);
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
