//! The encodings in which programs print a value.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use std::collections::BTreeSet;
use std::fmt::Write;
use types::REDACTED_BYTES_MIN;

/// Maximum size of a value that is searched for as a whole. A longer one is searched for in pieces
/// of this size, and unencoded only, so that the patterns of a workspace fit into memory.
const PIECE_BYTES: usize = 4 * 1024;
/// A character of base64 has six bits.
const BITS: usize = 6;

/// Every encoding of the value; none if it is too short to be distinguished from other text.
pub(super) fn encodings(value: &str) -> BTreeSet<Vec<u8>> {
    let mut forms = BTreeSet::new();
    if value.len() < REDACTED_BYTES_MIN {
        return forms;
    }
    if value.len() > PIECE_BYTES {
        forms.extend(split_chunks(value).map(|piece| piece.as_bytes().to_vec()));
        return forms;
    }
    let bytes = value.as_bytes();
    forms.insert(bytes.to_vec());
    forms.extend(base64_encodings(bytes));
    let hex = |upper: bool| hexadecimal(bytes, upper);
    let texts = [hex(false), hex(true)]
        .into_iter()
        .chain(percent_encodings(value))
        .chain(escaped_forms(value));
    let texts = texts.chain(types::html_escaped(value));
    forms.extend(texts.map(String::into_bytes));
    forms.retain(|form| form.len() >= REDACTED_BYTES_MIN);
    forms
}

/// No piece is so short that it would occur in other text.
fn split_chunks(value: &str) -> impl Iterator<Item = &str> {
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

fn hexadecimal(bytes: &[u8], upper: bool) -> String {
    let mut hex = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = if upper { write!(hex, "{byte:02X}") } else { write!(hex, "{byte:02x}") };
    }
    hex
}

/// In the middle of other bytes a value begins at one of three offsets, and only the characters
/// that consist of its own bits alone are the same every time.
fn base64_encodings(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    for before in 0..3 {
        let padded = [&[0; 2][..before.min(2)], bytes].concat();
        let (first, last) = ((before * 8).div_ceil(BITS), padded.len() * 8 / BITS);
        for alphabet in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let encoded = alphabet.encode(&padded).into_bytes();
            forms.extend(encoded.get(first..last).map(<[u8]>::to_vec));
        }
    }
    forms
}

/// The encodings of Python's `quote` and `quote_plus`, of HTML forms, and of programs that write
/// lower-case digits.
fn percent_encodings(value: &str) -> Vec<String> {
    let encode = |kept: &[u8], plus: bool, upper: bool| {
        let mut text = String::new();
        for byte in value.bytes() {
            let plain = byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte);
            match byte {
                b' ' if plus => text.push('+'),
                byte if plain || kept.contains(&byte) => text.push(char::from(byte)),
                byte if upper => text += &format!("%{byte:02X}"),
                byte => text += &format!("%{byte:02x}"),
            }
        }
        text
    };
    let mut forms = Vec::new();
    for upper in [true, false] {
        for plus in [true, false] {
            forms.extend([encode(b"", plus, upper), encode(b"/", plus, upper)]);
        }
    }
    forms
}

/// The escapes of `repr`, `ascii` and JSON between their quotes.
fn escaped_forms(value: &str) -> Vec<String> {
    let json = serde_json::to_string(value).unwrap_or_default();
    let json = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or_default();
    let json = json.to_owned();
    let ascii_json = json.chars().fold(String::new(), |text, sign| text + &utf16_escape(sign));
    let mut forms = vec![json, ascii_json];
    for quote in [None, Some('\''), Some('"')] {
        for ascii in [false, true] {
            forms.push(value.chars().map(|sign| repr(sign, quote, ascii)).collect());
        }
        forms.push(value.bytes().map(|byte| bytes_repr(byte, quote)).collect());
    }
    forms
}

fn utf16_escape(sign: char) -> String {
    if sign.is_ascii() {
        return sign.to_string();
    }
    let mut units = [0; 2];
    sign.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_looked_for_in_pieces_that_are_all_of_it() {
        let value: String = ('a'..='z').cycle().take(10_000).collect();
        assert_eq!(split_chunks(&value).collect::<String>(), value);
        let umlauts = "é".repeat(5_000);
        assert!(split_chunks(&umlauts).all(|piece| piece.len() >= REDACTED_BYTES_MIN));
        assert_eq!(encodings(&"x".repeat(7)).len(), 0);
    }
}
