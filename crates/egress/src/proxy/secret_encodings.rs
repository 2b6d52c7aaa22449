//! The encodings in which hosts echo a value: unchanged, and as programs escape it.
//!
//! The search ignores case, so one encoding covers both cases of hexadecimal digits. A value in an
//! encoding that is not listed here is not found.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::collections::BTreeSet;
use types::REDACTED_BYTES_MIN;
use url::form_urlencoded::byte_serialize;

/// Characters that the standard, and most encoders, leave unescaped.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Python's `quote`, for paths.
const PATH_ENCODED: &AsciiSet = &UNRESERVED.remove(b'/');
/// JavaScript's `encodeURIComponent`.
const URI_COMPONENT: &AsciiSet =
    &UNRESERVED.remove(b'!').remove(b'*').remove(b'\'').remove(b'(').remove(b')');

/// What a JSON encoder escapes beyond the required characters.
struct JsonEscaping {
    /// As `\/`.
    escapes_slash: bool,
    /// Characters written as `\u` escapes.
    unicode_escaped: &'static str,
    /// Whether all non-ASCII characters are written as `\u` escapes.
    escapes_non_ascii: bool,
}

const JSON_ESCAPINGS: [JsonEscaping; 6] = [
    JsonEscaping { escapes_slash: false, unicode_escaped: "", escapes_non_ascii: false },
    JsonEscaping { escapes_slash: false, unicode_escaped: "", escapes_non_ascii: true },
    // PHP.
    JsonEscaping { escapes_slash: true, unicode_escaped: "", escapes_non_ascii: false },
    JsonEscaping { escapes_slash: true, unicode_escaped: "", escapes_non_ascii: true },
    // Go.
    JsonEscaping { escapes_slash: false, unicode_escaped: "<>&", escapes_non_ascii: false },
    // .NET.
    JsonEscaping { escapes_slash: false, unicode_escaped: "<>&'\"+`", escapes_non_ascii: true },
];

/// All encodings of a value; none for a value that is short enough to be guessed whole.
pub(super) fn encode_all(value: &str) -> BTreeSet<Vec<u8>> {
    if value.len() < REDACTED_BYTES_MIN {
        return BTreeSet::new();
    }
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let form: String = byte_serialize(value.as_bytes()).collect();
    let mut all = BTreeSet::from([value.to_owned(), hex, form]);
    let percent = [NON_ALPHANUMERIC, UNRESERVED, PATH_ENCODED, URI_COMPONENT];
    all.extend(percent.map(|set| utf8_percent_encode(value, set).to_string()));
    all.extend((0..3).flat_map(|before| base64_fragments(value, before)));
    all.extend(JSON_ESCAPINGS.iter().map(|json| json.escape(value)));
    all.extend(types::html_escaped(value));
    all.into_iter().map(String::into_bytes).collect()
}

/// The part of a base64 text that depends on this value alone, after this many other bytes.
fn base64_fragments(value: &str, before: usize) -> [String; 2] {
    let bytes = [&b"\0\0"[..before], value.as_bytes()].concat();
    let (first, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)]
        .map(|text| text.get(first..end).unwrap_or_default().to_owned())
}

impl JsonEscaping {
    /// Escapes a text as it stands between its quotes.
    fn escape(&self, value: &str) -> String {
        let mut text = String::new();
        for sign in value.chars() {
            match sign {
                '\t' => text.push_str("\\t"),
                '/' if self.escapes_slash => text.push_str("\\/"),
                _ if self.unicode_escaped.contains(sign)
                    || self.escapes_non_ascii && !sign.is_ascii() =>
                {
                    let mut units = [0; 2];
                    let units = sign.encode_utf16(&mut units).iter();
                    text.extend(units.map(|unit| format!("\\u{unit:04x}")));
                }
                '"' | '\\' => text.extend(['\\', sign]),
                _ => text.push(sign),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_could_be_guessed_whole_has_no_spelling() {
        assert!(encode_all("1234567").is_empty());
        assert!(encode_all("12345678").contains(&b"12345678"[..]));
    }

    #[test]
    fn every_spelling_is_as_hard_to_guess_as_the_value() {
        let short = |it: &Vec<u8>| it.len() < REDACTED_BYTES_MIN;
        assert!(!encode_all("12345678").iter().any(short));
    }
}
