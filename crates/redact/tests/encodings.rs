//! What programs make of a value is found in the output of code and in the response of a host,
//! wherever it is cut; what they make of another value is left as it is.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use belljar_redact::{
    MaskingStream, OutputRedactor, SecretEncodingsCache, SecretText, SecretVersion,
};
use bytes::Bytes;
use std::sync::Arc;
use types::SecretId;
use uuid::Uuid;

const VALUE: &str = "k/y +<&>\"'`=~\u{e4}\u{1f511}";

/// A program, and what it makes of the value. `@` stands for a `y`, and for another letter in the
/// harmless twin.
const WRITTEN: [(&str, &str); 24] = [
    ("unchanged", "k/@ +<&>\"'`=~\u{e4}\u{1f511}"),
    ("JSON of JavaScript", "k/@ +<&>\\\"'`=~\u{e4}\u{1f511}"),
    ("JSON of Python", "k/@ +<&>\\\"'`=~\\u00e4\\ud83d\\udd11"),
    ("JSON of PHP", "k\\/@ +<&>\\\"'`=~\\u00e4\\ud83d\\udd11"),
    ("JSON of PHP, JSON_UNESCAPED_UNICODE", "k\\/@ +<&>\\\"'`=~\u{e4}\u{1f511}"),
    (
        "JSON of PHP, all of JSON_HEX",
        "k\\/@ +\\u003C\\u0026\\u003E\\u0022\\u0027`=~\\u00e4\\ud83d\\udd11",
    ),
    ("JSON of Go", "k/@ +\\u003c\\u0026\\u003e\\\"'`=~\u{e4}\u{1f511}"),
    ("JSON of Django", "k/@ +\\u003C\\u0026\\u003E\\\"'`=~\\u00e4\\ud83d\\udd11"),
    ("JSON of Gson", "k/@ +\\u003c\\u0026\\u003e\\\"\\u0027`\\u003d~\u{e4}\u{1f511}"),
    (
        "JSON of .NET",
        "k/@ \\u002B\\u003C\\u0026\\u003E\\u0022\\u0027\\u0060=~\\u00E4\\uD83D\\uDD11",
    ),
    ("repr of Python", "k/@ +<&>\"\\'`=~\u{e4}\u{1f511}"),
    ("ascii of Python", "k/@ +<&>\"\\'`=~\\xe4\\U0001f511"),
    ("repr of bytes", "k/@ +<&>\"\\'`=~\\xc3\\xa4\\xf0\\x9f\\x94\\x91"),
    ("quote of Python", "k/@%20%2B%3C%26%3E%22%27%60%3D~%C3%A4%F0%9F%94%91"),
    ("quote_plus of Python", "k%2F@+%2B%3C%26%3E%22%27%60%3D~%C3%A4%F0%9F%94%91"),
    ("encodeURIComponent", "k%2F@%20%2B%3C%26%3E%22'%60%3D~%C3%A4%F0%9F%94%91"),
    ("encodeURI", "k/@%20+%3C&%3E%22'%60=~%C3%A4%F0%9F%94%91"),
    ("a form", "k%2F@+%2B%3C%26%3E%22%27%60%3D%7E%C3%A4%F0%9F%94%91"),
    ("lower-case digits", "k%2f@%20%2b%3c%26%3e%22%27%60%3d~%c3%a4%f0%9f%94%91"),
    ("HTML of Python", "k/@ +&lt;&amp;&gt;&quot;&#x27;`=~\u{e4}\u{1f511}"),
    ("HTML of PHP", "k/@ +&lt;&amp;&gt;&quot;&#039;`=~\u{e4}\u{1f511}"),
    ("HTML of Go", "k/@ &#43;&lt;&amp;&gt;&#34;&#39;`=~\u{e4}\u{1f511}"),
    ("HTML of Mustache", "k&#x2F;@ +&lt;&amp;&gt;&quot;&#39;&#x60;&#x3D;~\u{e4}\u{1f511}"),
    ("upper case", "K/@ +<&>\"'`=~\u{e4}\u{1f511}"),
];

async fn output_redactor() -> OutputRedactor {
    OutputRedactor::prepare([("TOKEN".to_owned(), VALUE.to_owned())]).await.unwrap()
}

async fn masking_stream() -> MaskingStream {
    let (id, name) = (SecretId::new(Uuid::nil()), "TOKEN".to_owned());
    let secret = SecretVersion { id, version: 1, name, value: SecretText::new(VALUE.to_owned()) };
    MaskingStream::new(SecretEncodingsCache::default().get_or_build(&[&secret]).await.unwrap())
}

#[tokio::test]
async fn t107_the_encodings_of_a_secret_are_prepared_once_for_all_sandboxes() {
    let id = SecretId::new(Uuid::nil());
    let secret = |version, value: &str| SecretVersion {
        id,
        version,
        name: "TOKEN".to_owned(),
        value: SecretText::new(value.to_owned()),
    };
    let cache = SecretEncodingsCache::default();
    let first = cache.get_or_build(&[&secret(1, VALUE)]).await.unwrap();
    let again = cache.get_or_build(&[&secret(1, VALUE)]).await.unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    // Twin: another version, or another value, has encodings of its own.
    for other in [secret(2, VALUE), secret(1, "another value")] {
        assert!(!Arc::ptr_eq(&first, &cache.get_or_build(&[&other]).await.unwrap()));
    }
}

/// A text in one piece, in single bytes, and in two pieces with a cut at each boundary.
fn cuts(text: &[u8]) -> Vec<Vec<&[u8]>> {
    let halves = (0..=text.len()).map(|at| vec![&text[..at], &text[at..]]);
    halves.chain([vec![text], text.chunks(1).collect()]).collect()
}

fn redacted(redactor: &OutputRedactor, pieces: &[&[u8]]) -> String {
    let mut stream = redactor.stream();
    let mut clean = Vec::new();
    for piece in pieces {
        clean.extend_from_slice(&stream.feed(piece));
    }
    clean.extend(stream.finish());
    String::from_utf8(clean).unwrap()
}

fn masked(stream: &MaskingStream, pieces: &[&[u8]]) -> String {
    let mut stream = stream.clone();
    let mut clean = Vec::new();
    for piece in pieces {
        clean.extend(stream.mask_chunk(Bytes::copy_from_slice(piece)).concat());
    }
    clean.extend(stream.finish());
    String::from_utf8(clean).unwrap()
}

#[tokio::test]
async fn t178_each_encoding_is_found_in_output_and_in_responses_wherever_it_is_cut() {
    let (redactor, stream) = (output_redactor().await, masking_stream().await);
    for (program, written) in WRITTEN {
        let written = written.replace('@', "y");
        let text = format!("{{\"key\":\"{written}\"}}\n");
        for pieces in cuts(text.as_bytes()) {
            let clean = redacted(&redactor, &pieces);
            assert_eq!(clean, "{\"key\":\"[redacted:TOKEN]\"}\n", "output, {program}");
            let mask = "*".repeat(written.len());
            let clean = masked(&stream, &pieces);
            assert_eq!(clean, format!("{{\"key\":\"{mask}\"}}\n"), "response, {program}");
        }
    }
}

#[tokio::test]
async fn t178_the_encodings_of_another_value_are_left_as_they_are() {
    let (redactor, stream) = (output_redactor().await, masking_stream().await);
    for (program, written) in WRITTEN {
        let text = format!("{{\"key\":\"{}\"}}\n", written.replace('@', "x"));
        for pieces in cuts(text.as_bytes()) {
            assert_eq!(redacted(&redactor, &pieces), text, "output, {program}");
            assert_eq!(masked(&stream, &pieces), text, "response, {program}");
        }
    }
}

#[tokio::test]
async fn t178_base64_and_hexadecimal_are_found_wherever_they_are_cut() {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    let (redactor, stream) = (output_redactor().await, masking_stream().await);
    let hexadecimal: String = VALUE.bytes().map(|byte| format!("{byte:02X}")).collect();
    for pieces in cuts(hexadecimal.as_bytes()) {
        assert_eq!(redacted(&redactor, &pieces), "[redacted:TOKEN]");
        assert_eq!(masked(&stream, &pieces), "*".repeat(hexadecimal.len()));
    }
    for before in ["", "a", "ab"] {
        for text in [
            STANDARD.encode(format!("{before}{VALUE}")),
            URL_SAFE.encode(format!("{before}{VALUE}")),
        ] {
            // The first and last characters have bits of other bytes.
            let own = text.trim_end_matches('=').len() - before.len() - 2;
            for pieces in cuts(text.as_bytes()) {
                assert!(redacted(&redactor, &pieces).contains("[redacted:TOKEN]"), "{text}");
                assert!(masked(&stream, &pieces).matches('*').count() >= own, "{text}");
            }
        }
    }
}
