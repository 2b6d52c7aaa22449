//! Limits for multipart forms. The multipart parser buffers everything but file content: the
//! preamble and the headers of each part. This module bounds both before the parser sees them.

use axum::body::{Body, Bytes};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::io;

/// Size of the preamble, which the parser ignores.
const PREAMBLE_BYTES_MAX: usize = 4 * 1024;
/// Size of the headers of one part: a name, a type, and a file name of a few hundred bytes.
const PART_HEADER_BYTES_MAX: usize = 16 * 1024;
/// Size of the epilogue after the last part.
const EPILOGUE_BYTES_MAX: usize = 4 * 1024;
/// Higher than the number of files in a form, so that the handler reports too many files by name.
const PARTS_MAX: usize = 128;
/// Maximum length of a boundary (RFC 2046).
const BOUNDARY_BYTES_MAX: usize = 70;

const HEADER_END: &[u8] = b"\r\n\r\n";

/// The boundary in a `Content-Type`. `None` if it is ambiguous: the parser must use the same
/// boundary as this module.
pub(super) fn boundary(kind: &str) -> Option<String> {
    let mut named = None;
    for parameter in kind.split(';').skip(1) {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim();
        let plain = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        let plain = plain.unwrap_or(value);
        if plain.contains(['"', '\\']) {
            return None;
        }
        if name.trim().eq_ignore_ascii_case("boundary") && named.replace(plain).is_some() {
            return None;
        }
    }
    let named = named.filter(|named| (1..=BOUNDARY_BYTES_MAX).contains(&named.len()))?;
    Some(named.to_owned())
}

/// Wraps a body so that it fails where it exceeds a limit.
pub(super) fn limit_body(body: Body, boundary: &str) -> Body {
    let mut reader = MultipartReader::new(boundary);
    let chunks = body.into_data_stream().map_err(io::Error::other).map(move |chunk| {
        let chunk: Bytes = chunk?;
        reader.read(&chunk).map_err(io::Error::other)?;
        Ok::<_, io::Error>(chunk)
    });
    // After an error, read no further.
    let chunks = stream::unfold(Some(Box::pin(chunks)), |chunks| async move {
        let mut chunks = chunks?;
        let chunk = chunks.next().await?;
        let rest = chunk.is_ok().then_some(chunks);
        Some((chunk, rest))
    });
    Body::from_stream(chunks)
}

enum MultipartState {
    Preamble,
    Header,
    Data,
    Epilogue,
}

/// Tracks the position in a multipart form.
struct MultipartReader {
    state: MultipartState,
    /// Bytes read in the current state, if that state is bounded.
    count: usize,
    parts: usize,
    delimiter: KmpSearch,
    header_end: KmpSearch,
    /// The first two bytes after a delimiter.
    after: [u8; 2],
}

impl MultipartReader {
    fn new(boundary: &str) -> Self {
        let mut delimiter = KmpSearch::new(format!("\r\n--{boundary}").into_bytes());
        // The first delimiter has no line break before it.
        delimiter.matched = 2;
        let header_end = KmpSearch::new(HEADER_END.to_vec());
        Self {
            state: MultipartState::Preamble,
            count: 0,
            parts: 0,
            delimiter,
            header_end,
            after: [0; 2],
        }
    }

    fn read(&mut self, chunk: &[u8]) -> Result<(), String> {
        chunk.iter().try_for_each(|byte| self.push_byte(*byte))
    }

    fn push_byte(&mut self, byte: u8) -> Result<(), String> {
        match self.state {
            MultipartState::Preamble | MultipartState::Data if self.delimiter.push_byte(byte) => {
                self.parts += 1;
                (self.state, self.count) = (MultipartState::Header, 0);
                (self.delimiter.matched, self.header_end.matched) = (0, 0);
                check_limit(self.parts, PARTS_MAX, "parts")
            }
            MultipartState::Data => Ok(()),
            MultipartState::Preamble => {
                self.count_byte(PREAMBLE_BYTES_MAX, "bytes before its first part")
            }
            MultipartState::Epilogue => {
                self.count_byte(EPILOGUE_BYTES_MAX, "bytes after its last part")
            }
            MultipartState::Header => {
                if let Some(place) = self.after.get_mut(self.count) {
                    *place = byte;
                }
                if self.count == 1 && self.after == *b"--" {
                    (self.state, self.count) = (MultipartState::Epilogue, 0);
                    return Ok(());
                }
                if self.header_end.push_byte(byte) {
                    self.state = MultipartState::Data;
                    return Ok(());
                }
                self.count_byte(PART_HEADER_BYTES_MAX, "bytes of headers in one part")
            }
        }
    }

    fn count_byte(&mut self, max: usize, what: &str) -> Result<(), String> {
        self.count += 1;
        check_limit(self.count, max, what)
    }
}

fn check_limit(count: usize, max: usize, what: &str) -> Result<(), String> {
    if count <= max { Ok(()) } else { Err(format!("a form can have at most {max} {what}")) }
}

/// Finds a byte string in a stream in constant time per byte, for any input (Knuth-Morris-Pratt).
struct KmpSearch {
    text: Vec<u8>,
    /// For each matched length, the longest shorter prefix that matches too.
    fallback: Vec<usize>,
    matched: usize,
}

impl KmpSearch {
    fn new(text: Vec<u8>) -> Self {
        let mut shorter = vec![0; text.len()];
        let mut matched = 0;
        for at in 1..text.len() {
            while matched > 0 && text[at] != text[matched] {
                matched = shorter[matched - 1];
            }
            matched += usize::from(text[at] == text[matched]);
            shorter[at] = matched;
        }
        Self { text, fallback: shorter, matched: 0 }
    }

    /// Returns whether this byte completes a match.
    fn push_byte(&mut self, byte: u8) -> bool {
        if self.matched == self.text.len() {
            self.matched = self.fallback.last().copied().unwrap_or_default();
        }
        while self.matched > 0 && self.text[self.matched] != byte {
            self.matched = self.fallback[self.matched - 1];
        }
        self.matched += usize::from(self.text[self.matched] == byte);
        self.matched == self.text.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(form: &str) -> Result<(), String> {
        let mut reader = MultipartReader::new("b-b");
        form.as_bytes().chunks(7).try_for_each(|piece| reader.read(piece))
    }

    #[test]
    fn t111_what_is_not_a_file_is_bounded_and_a_file_is_not() {
        let part = |header: &str, data: &str| format!("--b-b\r\nA: {header}\r\n\r\n{data}\r\n");
        let usual = part("a", "1") + &part("b", &"\r\n--b-".repeat(20_000)) + "--b-b--\r\n";
        assert_eq!(read(&usual), Ok(()));
        assert_eq!(read(&format!("a preamble\r\n{usual}an epilogue")), Ok(()));
        let error = |form: String| read(&form).unwrap_err();
        assert!(error("x".repeat(5_000)).contains("before its first part"));
        assert!(error(part(&"x".repeat(20_000), "")).contains("bytes of headers"));
        assert!(error(part("a", "1") + &part(&"x".repeat(20_000), "")).contains("headers"));
        assert!(error(part("a", "1").repeat(200)).contains("at most 128 parts"));
        assert!(error(usual + &"x".repeat(5_000)).contains("after its last part"));
    }

    #[test]
    fn a_boundary_is_read_from_the_type() {
        assert_eq!(boundary("multipart/form-data; boundary=abc").as_deref(), Some("abc"));
        assert_eq!(boundary("multipart/form-data;x=y; Boundary=\"a b\"").as_deref(), Some("a b"));
        assert_eq!(boundary("multipart/form-data"), None);
        // Reject ambiguous values: the parser would use another boundary.
        for two in
            [r#"x="; boundary=a"; boundary=b"#, "boundary=a; boundary=b", r#"boundary="a\"b""#]
        {
            assert_eq!(boundary(&format!("multipart/form-data; {two}")), None, "{two}");
        }
        assert_eq!(boundary(&format!("multipart/form-data; boundary={}", "x".repeat(71))), None);
    }
}
