//! Takes the values of secrets out of what a host answers.
//!
//! A host that says back what it was sent must not hand a secret to the sandbox. Each value is
//! covered in place, by as many bytes, so that lengths stay true; in the spellings below and in no
//! other. A body that is compressed is not looked into, and hosts are asked for none.

use crate::authority::SecretText;
use aho_corasick::{AhoCorasick, BuildError, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use zeroize::Zeroizing;

const COVER: u8 = b'*';
/// Shorter ones than this are found in texts that have nothing to do with the value.
const SPELLING_BYTES_MIN: usize = 8;

/// What is looked for: the values of some secrets, in all of their spellings.
#[derive(Debug)]
pub(super) struct Spellings {
    values: Vec<Zeroizing<String>>,
    all: Vec<Vec<u8>>,
    search: AhoCorasick,
}

impl Spellings {
    pub(super) fn new<'a>(
        values: impl Iterator<Item = &'a SecretText>,
    ) -> Result<Self, BuildError> {
        let values: Vec<Zeroizing<String>> =
            values.map(|value| Zeroizing::new(value.expose().to_owned())).collect();
        let all: Vec<Vec<u8>> = values.iter().flat_map(|value| spellings(value)).collect();
        let mut builder = AhoCorasick::builder();
        let search = builder.match_kind(MatchKind::LeftmostLongest).build(&all)?;
        Ok(Self { values, all, search })
    }

    /// Whether they are of these values and of no others.
    pub(super) fn are_of<'a>(&self, values: impl Iterator<Item = &'a SecretText>) -> bool {
        self.values.iter().map(|value| value.as_str()).eq(values.map(SecretText::expose))
    }

    fn finds(&self, bytes: &[u8]) -> bool {
        self.search.is_match(bytes)
    }

    /// Covers the values in these headers. A name that has one in it takes its header with it.
    fn clean(&self, headers: &mut HeaderMap) {
        let lower_case = |spelling: &[u8]| spelling.to_ascii_lowercase();
        let telling = |name: &&HeaderName| {
            let name = name.as_str();
            self.all.iter().any(|it| contains(name.as_bytes(), &lower_case(it)))
        };
        let named: Vec<HeaderName> = headers.keys().filter(telling).cloned().collect();
        for name in named {
            headers.remove(name);
        }
        for value in headers.values_mut().filter(|value| self.finds(value.as_bytes())) {
            let mut bytes = BytesMut::from(value.as_bytes());
            self.cover(&mut bytes);
            *value = HeaderValue::from_maybe_shared(bytes.freeze())
                .unwrap_or(HeaderValue::from_static(""));
        }
    }

    fn cover(&self, bytes: &mut BytesMut) {
        let found: Vec<_> = self.search.find_iter(&bytes[..]).map(|it| it.range()).collect();
        for range in found {
            bytes[range].fill(COVER);
        }
    }

    /// How many bytes at the end are the beginning of a spelling.
    fn begun(&self, bytes: &[u8]) -> usize {
        let ends_with_begun = |spelling: &Vec<u8>| {
            let most = bytes.len().min(spelling.len() - 1);
            (1..=most).rev().find(|length| bytes.ends_with(&spelling[..*length])).unwrap_or(0)
        };
        self.all.iter().map(ends_with_begun).max().unwrap_or(0)
    }
}

/// Finds what is looked for, also where it is cut in two by the way it arrives.
#[derive(Debug)]
pub(super) struct Redactor {
    spellings: Arc<Spellings>,
    /// The end of what has arrived, as far as it is the beginning of a spelling.
    held: BytesMut,
}

impl Redactor {
    pub(super) fn new(spellings: Arc<Spellings>) -> Self {
        Self { spellings, held: BytesMut::new() }
    }

    pub(super) fn clean(&self, headers: &mut HeaderMap) {
        self.spellings.clean(headers);
    }

    /// What may go on of what has arrived.
    fn pass(&mut self, part: Bytes) -> Bytes {
        let spellings = &self.spellings;
        if self.held.is_empty() && !spellings.finds(&part) && spellings.begun(&part) == 0 {
            return part;
        }
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(&part);
        spellings.cover(&mut bytes);
        self.held = bytes.split_off(bytes.len() - spellings.begun(&bytes));
        bytes.freeze()
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The ways in which hosts say a value back.
fn spellings(value: &str) -> Vec<Vec<u8>> {
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut others = vec![
        utf8_percent_encode(value, NON_ALPHANUMERIC).to_string(),
        value.escape_default().to_string(),
        hex.to_uppercase(),
        hex,
    ];
    for before in 0..3 {
        others.extend(inside_base64(value, before));
    }
    others.retain(|other| other.len() >= SPELLING_BYTES_MIN && other != value);
    others.push(value.to_owned());
    others.retain(|it| !it.is_empty());
    others.into_iter().map(String::into_bytes).collect()
}

/// The part of a base64 text that is of this value alone, when so many bytes are before it.
fn inside_base64(value: &str, before: usize) -> [String; 2] {
    let bytes = [&b"\0\0"[..before], value.as_bytes()].concat();
    let (first, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)]
        .map(|text| text.get(first..end).unwrap_or_default().to_owned())
}

/// A body without the values of some secrets.
#[derive(Debug)]
pub(super) struct Redacted<B> {
    body: B,
    redactor: Redactor,
}

impl<B> Redacted<B> {
    pub(super) fn new(body: B, redactor: Redactor) -> Self {
        Self { body, redactor }
    }
}

impl<B> Body for Redacted<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        loop {
            let data = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.redactor.pass(data),
                    Err(frame) => return Poll::Ready(Some(Ok(this.trailers(frame)))),
                },
                None if this.redactor.held.is_empty() => return Poll::Ready(None),
                None => this.redactor.held.split().freeze(),
            };
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.redactor.held.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.redactor.held.len() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

impl<B> Redacted<B> {
    fn trailers(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        frame.into_trailers().map_or_else(
            |frame| frame,
            |mut trailers| {
                self.redactor.clean(&mut trailers);
                Frame::trailers(trailers)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn redactor(values: &[&str]) -> Redactor {
        let values: Vec<_> = values.iter().map(|it| SecretText::new((*it).to_owned())).collect();
        Redactor::new(Arc::new(Spellings::new(values.iter()).unwrap()))
    }

    fn passed(redactor: &mut Redactor, parts: &[&[u8]]) -> String {
        let mut all: Vec<u8> = Vec::new();
        for part in parts {
            all.extend(redactor.pass(Bytes::copy_from_slice(part)));
        }
        all.extend(redactor.held.split());
        String::from_utf8_lossy(&all).into_owned()
    }

    #[test]
    fn what_cannot_become_a_value_is_not_held_back() {
        let mut redactor = redactor(&["secret-value"]);
        assert_eq!(redactor.pass("data: x\n\n".into()), "data: x\n\n");
        assert_eq!(redactor.pass("a sec".into()), "a ");
        assert_eq!(redactor.pass("ond".into()), "second");
        assert_eq!(redactor.pass("secret-valu".into()), "");
        assert_eq!(redactor.pass("e!".into()), "************!");
    }

    #[test]
    fn each_spelling_is_covered_wherever_it_begins() {
        let value = "k+y/with=odd~bytes";
        for before in ["", "a", "ab", "abc"] {
            let text = format!("{before}{value}{before}");
            let base64 = STANDARD_NO_PAD.encode(&text);
            let told = passed(&mut redactor(&[value]), &[base64.as_bytes()]);
            // What is left is of characters that the value shares with its neighbours.
            assert!(told.matches('*').count() >= value.len() * 8 / 6 - 2, "{told}");
        }
        let hex = "6b2b792f776974683d6f64647e6279746573";
        assert_eq!(passed(&mut redactor(&[value]), &[hex.as_bytes()]), "*".repeat(hex.len()));
        let percent = "k%2By%2Fwith%3Dodd%7Ebytes";
        let told = passed(&mut redactor(&[value]), &[percent.as_bytes()]);
        assert_eq!(told, "*".repeat(percent.len()));
    }

    #[test]
    fn a_name_of_a_header_does_not_tell_either() {
        let redactor = redactor(&["Secret-Value"]);
        let mut headers = HeaderMap::new();
        headers.insert("x-secret-value-x", HeaderValue::from_static("1"));
        headers.insert("x-other", HeaderValue::from_static("is Secret-Value"));
        redactor.clean(&mut headers);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers["x-other"], "is ************");
    }

    proptest! {
        #[test]
        fn how_an_answer_is_cut_makes_no_difference(
            text in "(aab|ab|abaab|b|x){0,20}",
            cuts in proptest::collection::vec(0_usize..60, 0..8),
        ) {
            let whole = text.replace("abaab", "*****");
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> =
                cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
            prop_assert_eq!(passed(&mut redactor(&["abaab"]), &parts), whole);
        }
    }
}
