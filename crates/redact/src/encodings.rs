//! The list of encodings in which programs write a value: unchanged, and as common libraries escape
//! it. A value in an encoding that is not listed here is not found.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use std::collections::BTreeSet;
use std::fmt::Write;
use types::REDACTED_BYTES_MIN;

/// A character of base64 has six bits.
const BITS: usize = 6;

/// What a percent-encoder leaves as it is, beside letters and digits.
struct PercentEncoding {
    kept: &'static [u8],
    writes_space_as_plus: bool,
}

const PERCENT_ENCODINGS: [PercentEncoding; 9] = [
    PercentEncoding { kept: b"", writes_space_as_plus: false },
    // RFC 3986; Python's `quote` and `quote_plus`, both also with a path; Go.
    PercentEncoding { kept: b"-._~", writes_space_as_plus: false },
    PercentEncoding { kept: b"-._~", writes_space_as_plus: true },
    PercentEncoding { kept: b"-._~/", writes_space_as_plus: false },
    PercentEncoding { kept: b"-._~/", writes_space_as_plus: true },
    // JavaScript's `encodeURIComponent` and `encodeURI`.
    PercentEncoding { kept: b"-._~!*'()", writes_space_as_plus: false },
    PercentEncoding { kept: b"-._~!*'();,/?:@&=+$#", writes_space_as_plus: false },
    // HTML forms, Java; PHP.
    PercentEncoding { kept: b"-._*", writes_space_as_plus: true },
    PercentEncoding { kept: b"-._", writes_space_as_plus: true },
];

/// What a JSON encoder escapes beyond the required characters.
struct JsonEscaping {
    /// As `\/`.
    escapes_slash: bool,
    /// Characters written as `\u` escapes.
    unicode_escaped: &'static str,
    /// Whether all non-ASCII characters are written as `\u` escapes.
    escapes_non_ascii: bool,
}

const fn json(slash: bool, unicode: &'static str, non_ascii: bool) -> JsonEscaping {
    JsonEscaping { escapes_slash: slash, unicode_escaped: unicode, escapes_non_ascii: non_ascii }
}

const JSON_ESCAPINGS: [JsonEscaping; 10] = [
    // JavaScript, Rust; Python.
    json(false, "", false),
    json(false, "", true),
    // PHP, also with JSON_UNESCAPED_UNICODE, and with the JSON_HEX options of templates.
    json(true, "", true),
    json(true, "", false),
    json(true, "<>&'\"", true),
    json(false, "<>&'\"", false),
    // Go, Ruby on Rails; Django.
    json(false, "<>&\u{2028}\u{2029}", false),
    json(false, "<>&", true),
    // Gson.
    json(false, "<>&='\u{2028}\u{2029}", false),
    // .NET.
    json(false, "<>&'\"+`\u{7f}", true),
];

/// The characters that a library escapes for HTML beside `&`, `<` and `>`.
const HTML_ESCAPINGS: [&[(char, &str)]; 8] = [
    // Text between tags.
    &[],
    &[('"', "&quot;")],
    // Python, and with its number in decimal Ruby, Java and JavaScript, and PHP.
    &[('"', "&quot;"), ('\'', "&#x27;")],
    &[('"', "&quot;"), ('\'', "&#39;")],
    &[('"', "&quot;"), ('\'', "&#039;")],
    &[('"', "&quot;"), ('\'', "&apos;")],
    // Go.
    &[('"', "&#34;"), ('\'', "&#39;"), ('+', "&#43;")],
    // Mustache.
    &[('"', "&quot;"), ('\'', "&#39;"), ('/', "&#x2F;"), ('`', "&#x60;"), ('=', "&#x3D;")],
];

/// Every encoding of a value, as it is searched for: in lower case and without line breaks. None if
/// it is too short to be distinguished from other text.
pub(crate) fn encode_all(value: &str) -> BTreeSet<Vec<u8>> {
    if value.len() < REDACTED_BYTES_MIN {
        return BTreeSet::new();
    }
    let hexadecimal = value.bytes().fold(String::new(), |mut hex, byte| {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let texts = [value.to_owned(), hexadecimal].into_iter();
    let texts = texts
        .chain((0..3).flat_map(|before| base64_fragments(value, before)))
        .chain(PERCENT_ENCODINGS.iter().map(|it| it.encode(value)))
        .chain(JSON_ESCAPINGS.iter().map(|it| it.escape(value)))
        .chain(python_reprs(value))
        .chain(HTML_ESCAPINGS.iter().map(|it| html_escaped(value, it)));
    texts.map(|text| searched_form(&text)).filter(|it| it.len() >= REDACTED_BYTES_MIN).collect()
}

/// The form in which a text is searched for. The case of letters and line breaks do not count.
pub(crate) fn searched_form(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| !is_break(*byte)).map(|byte| byte.to_ascii_lowercase()).collect()
}

pub(crate) fn is_break(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// In the middle of other bytes a value begins at one of three offsets, and only the characters
/// that consist of its own bits alone are the same every time.
fn base64_fragments(value: &str, before: usize) -> [String; 2] {
    let bytes = [&b"\0\0"[..before], value.as_bytes()].concat();
    let (first, end) = ((before * 8).div_ceil(BITS), bytes.len() * 8 / BITS);
    [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)]
        .map(|text| text.get(first..end).unwrap_or_default().to_owned())
}

impl PercentEncoding {
    fn encode(&self, value: &str) -> String {
        let mut text = String::with_capacity(value.len());
        for byte in value.bytes() {
            match byte {
                b' ' if self.writes_space_as_plus => text.push('+'),
                byte if byte.is_ascii_alphanumeric() || self.kept.contains(&byte) => {
                    text.push(char::from(byte));
                }
                byte => {
                    let _ = write!(text, "%{byte:02x}");
                }
            }
        }
        text
    }
}

impl JsonEscaping {
    /// Escapes a text as it stands between its quotes.
    fn escape(&self, value: &str) -> String {
        let mut text = String::with_capacity(value.len());
        for sign in value.chars() {
            match sign {
                '/' if self.escapes_slash => text.push_str("\\/"),
                _ if self.unicode_escaped.contains(sign)
                    || self.escapes_non_ascii && !sign.is_ascii() =>
                {
                    push_utf16_escape(&mut text, sign);
                }
                '"' | '\\' => text.extend(['\\', sign]),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\u{8}' => text.push_str("\\b"),
                '\u{c}' => text.push_str("\\f"),
                '\0'..' ' => push_utf16_escape(&mut text, sign),
                _ => text.push(sign),
            }
        }
        text
    }
}

fn push_utf16_escape(text: &mut String, sign: char) {
    for unit in sign.encode_utf16(&mut [0; 2]) {
        let _ = write!(text, "\\u{unit:04x}");
    }
}

/// The escapes of `repr` and `ascii`, of text and bytes, between their quotes.
fn python_reprs(value: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for quote in [None, Some('\''), Some('"')] {
        for ascii in [false, true] {
            forms.push(value.chars().map(|sign| repr(sign, quote, ascii)).collect());
        }
        forms.push(value.bytes().map(|byte| bytes_repr(byte, quote)).collect());
    }
    forms
}

fn repr(sign: char, quote: Option<char>, ascii: bool) -> String {
    let number = u32::from(sign);
    match sign {
        '\\' => "\\\\".to_owned(),
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        sign if Some(sign) == quote => format!("\\{sign}"),
        sign if sign.is_ascii_control() => format!("\\x{number:02x}"),
        sign if sign.is_ascii() || !ascii => sign.to_string(),
        _ if number <= 0xff => format!("\\x{number:02x}"),
        _ if number <= 0xffff => format!("\\u{number:04x}"),
        _ => format!("\\U{number:08x}"),
    }
}

fn bytes_repr(byte: u8, quote: Option<char>) -> String {
    match byte.is_ascii() {
        true => repr(char::from(byte), quote, true),
        false => format!("\\x{byte:02x}"),
    }
}

fn html_escaped(value: &str, escaped: &[(char, &str)]) -> String {
    let mut text = String::with_capacity(value.len());
    for sign in value.chars() {
        match sign {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            sign => match escaped.iter().find(|(other, _)| *other == sign) {
                Some((_, written)) => text.push_str(written),
                None => text.push(sign),
            },
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_could_be_guessed_whole_has_no_encoding() {
        assert!(encode_all("1234567").is_empty());
        assert!(encode_all("12345678").contains(&b"12345678"[..]));
    }

    #[test]
    fn every_encoding_is_as_hard_to_guess_as_the_value() {
        let short = |it: &Vec<u8>| it.len() < REDACTED_BYTES_MIN;
        assert!(!encode_all("12345678").iter().any(short));
        assert!(!encode_all("123456\n\n").iter().any(short));
    }
}
