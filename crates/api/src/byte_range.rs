//! The part of a file that a `Range` header requests (RFC 9110): one range of bytes. Everything else
//! is ignored, as the standard allows, and the response has the whole file.

use axum::http::header::{IF_RANGE, RANGE};
use axum::http::{HeaderMap, Method};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteRange {
    Whole,
    /// The first byte, and the number of bytes, which is not zero.
    Part {
        first: u64,
        length: u64,
    },
    /// No byte of the file is in the range.
    Unsatisfiable,
}

impl ByteRange {
    /// The range of a request for a file of this size. Files have no validators, so that the
    /// condition of an `If-Range` header never holds.
    pub(crate) fn requested(method: &Method, headers: &HeaderMap, size: u64) -> Self {
        let mut given = headers.get_all(RANGE).iter();
        match (given.next(), given.next()) {
            (Some(range), None) if method == Method::GET && !headers.contains_key(IF_RANGE) => {
                range.to_str().ok().map_or(Self::Whole, |text| Self::parse(text, size))
            }
            _ => Self::Whole,
        }
    }

    fn parse(text: &str, size: u64) -> Self {
        let Some((unit, range)) = text.split_once('=') else { return Self::Whole };
        let Some((first, last)) = range.trim().split_once('-') else { return Self::Whole };
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return Self::Whole;
        }
        let (first, length) = match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => {
                (first, (last - first).saturating_add(1).min(size.saturating_sub(first)))
            }
            (Some(first), None) if last.is_empty() => (first, size.saturating_sub(first)),
            (None, Some(suffix)) if first.is_empty() => {
                (size.saturating_sub(suffix), suffix.min(size))
            }
            _ => return Self::Whole,
        };
        if length == 0 { Self::Unsatisfiable } else { Self::Part { first, length } }
    }
}

/// Digits only: no sign and no further range.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn requested(range: &str, size: u64) -> ByteRange {
        let headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_str(range).unwrap())]);
        ByteRange::requested(&Method::GET, &headers, size)
    }

    #[test]
    fn t256_a_range_is_inside_the_file_or_not_there() {
        let part = |first, length| ByteRange::Part { first, length };
        for (range, expected) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=2-4", part(2, 3)),
            ("bytes=2-", part(2, 8)),
            ("bytes=-3", part(7, 3)),
            ("bytes=-99", part(0, 10)),
            ("bytes=8-99", part(8, 2)),
            ("Bytes=0-18446744073709551615", part(0, 10)),
            ("bytes=10-", ByteRange::Unsatisfiable),
            ("bytes=10-18446744073709551615", ByteRange::Unsatisfiable),
            ("bytes=-0", ByteRange::Unsatisfiable),
        ] {
            assert_eq!(requested(range, 10), expected, "{range}");
        }
        for ignored in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=4-2",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=--1",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=0-99999999999999999999",
        ] {
            assert_eq!(requested(ignored, 10), ByteRange::Whole, "{ignored}");
        }
        for range in ["bytes=0-0", "bytes=-1"] {
            assert_eq!(requested(range, 0), ByteRange::Unsatisfiable, "{range}");
        }
        let mut headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_static("bytes=0-0"))]);
        assert_eq!(ByteRange::requested(&Method::HEAD, &headers, 10), ByteRange::Whole);
        headers.insert(IF_RANGE, HeaderValue::from_static("\"x\""));
        assert_eq!(ByteRange::requested(&Method::GET, &headers, 10), ByteRange::Whole);
    }
}
