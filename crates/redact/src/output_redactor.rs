//! Removes secret values from the output of code that has them.
//!
//! This prevents accidents only: code that transforms a value in a way that is not listed in
//! `encodings.rs` can still print it. The redactor never shows the secret, and holds back no output
//! that could not be part of one.

use crate::cache::{SecretEncodingsCache, SecretEncodingsError, build};
use crate::redacting_stream::RedactingStream;
use crate::secret::{SecretText, SecretVersion};
use crate::secret_encodings::SecretEncodings;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use tokio::sync::Semaphore;
use types::{
    Error, ErrorCode, Execution, NetworkAttempt, REDACTED_BYTES_MIN, SECRET_BYTES_PER_SANDBOX_MAX,
    SECRETS_PER_SANDBOX_MAX,
};

/// Limits the concurrent preparations of values that are not in a cache, in the whole process: each
/// takes a thread and memory for a while.
static PREPARATIONS: Semaphore = Semaphore::const_new(2);

/// The values to remove, each with the name that replaces it. Cloning is cheap.
#[derive(Clone, Default)]
pub struct OutputRedactor(Option<Arc<SecretEncodings>>);

impl OutputRedactor {
    /// Creates a redactor of names and values, off the threads that serve requests. It ignores
    /// values too short to be distinguished from other text, and refuses more values than one
    /// sandbox may have.
    pub async fn prepare(
        secrets: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, Error> {
        let secrets = secrets.into_iter().map(|(name, value)| (name, SecretText::new(value)));
        Self::build(secrets.filter(|(_, value)| is_redacted(value)).collect()).await
    }

    /// The redactor of these secrets. All sandboxes with exactly these secrets share it.
    pub async fn from_cache(
        cache: &SecretEncodingsCache,
        secrets: &[SecretVersion],
    ) -> Result<Self, Error> {
        let secrets: Vec<&SecretVersion> =
            secrets.iter().filter(|secret| is_redacted(&secret.value)).collect();
        let bytes = secrets.iter().map(|secret| secret.value.expose().len()).sum();
        check_secret_limits(secrets.len(), bytes)?;
        if secrets.is_empty() {
            return Ok(Self::default());
        }
        let encodings = cache.get_or_build(&secrets).await.map_err(preparation_error)?;
        Ok(Self(Some(encodings)))
    }

    async fn build(secrets: Vec<(String, SecretText)>) -> Result<Self, Error> {
        let bytes = secrets.iter().map(|(_, value)| value.expose().len()).sum();
        check_secret_limits(secrets.len(), bytes)?;
        if secrets.is_empty() {
            return Ok(Self::default());
        }
        let encodings = build(secrets, &PREPARATIONS).await.map_err(preparation_error)?;
        Ok(Self(Some(Arc::new(encodings))))
    }

    /// Whether it has no values to remove.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// A redactor for the values of both.
    pub async fn merge(&self, other: &Self) -> Result<Self, Error> {
        let (Some(own), Some(others)) = (&self.0, &other.0) else {
            return Ok(if self.0.is_some() { self.clone() } else { other.clone() });
        };
        let lacks = |has: &SecretEncodings, value: &SecretText| !has.contains_value(value);
        if !others.secrets().any(|(_, value)| lacks(own, value)) {
            return Ok(self.clone());
        }
        if !own.secrets().any(|(_, value)| lacks(others, value)) {
            return Ok(other.clone());
        }
        let added = others.secrets().filter(|(_, value)| lacks(own, value));
        let both = own.secrets().chain(added);
        Self::build(both.map(|(name, value)| (name.to_owned(), value.clone())).collect()).await
    }

    /// Redacts a complete text.
    pub fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        // A shorter text has no value, and a JSON document can have very many.
        if self.0.is_none() || text.len() < REDACTED_BYTES_MIN {
            return Cow::Borrowed(text);
        }
        let mut stream = self.stream();
        let mut clean = stream.feed(text.as_bytes()).into_owned();
        clean.append(&mut stream.finish());
        Cow::Owned(String::from_utf8_lossy(&clean).into_owned())
    }

    /// Redacts the network attempts of code.
    pub fn redact_attempts(&self, attempts: &mut [NetworkAttempt]) {
        for attempt in attempts {
            attempt.host = self.redact_text(&attempt.host).into_owned();
            let reason = attempt.reason.take();
            attempt.reason = reason.map(|reason| self.redact_text(&reason).into_owned());
        }
    }

    /// A redactor for a text that arrives in pieces.
    pub fn stream(&self) -> RedactingStream {
        RedactingStream::new(self.0.clone())
    }

    /// Redacts strings, field names, and numbers that are a secret.
    pub fn redact_json(&self, value: Value) -> Value {
        match value {
            _ if self.0.is_none() => value,
            Value::String(text) => self.redact_text(&text).into(),
            Value::Array(items) => items.into_iter().map(|item| self.redact_json(item)).collect(),
            Value::Object(fields) => {
                let clean = |(name, value): (String, Value)| {
                    (self.redact_text(&name).into_owned(), self.redact_json(value))
                };
                Value::Object(fields.into_iter().map(clean).collect())
            }
            Value::Number(number) => {
                let text = number.to_string();
                let clean = self.redact_text(&text);
                if clean == text { Value::Number(number) } else { clean.into_owned().into() }
            }
            Value::Null | Value::Bool(_) => value,
        }
    }

    /// Redacts a record except for its output, results and files.
    pub fn redact_record(&self, execution: &mut Execution) {
        if self.0.is_none() {
            return;
        }
        execution.value = execution.value.take().map(|value| self.redact_json(value));
        execution.error = execution.error.take().map(|error| self.redact_error(error));
        for warning in &mut execution.warnings {
            warning.message = self.redact_text(&warning.message).into_owned();
        }
        self.redact_attempts(&mut execution.network);
    }

    /// An error may quote what a remote host made of a value.
    fn redact_error(&self, error: Error) -> Error {
        let text = |text: String| self.redact_text(&text).into_owned();
        let code = match error.code {
            ErrorCode::Python(exception) => ErrorCode::Python(text(exception)),
            code => code,
        };
        let assertion = error.assertion.map(|mut assertion| {
            assertion.source = text(assertion.source);
            let values = assertion.values.into_iter();
            assertion.values = values.map(|(part, value)| (text(part), text(value))).collect();
            assertion
        });
        Error {
            code,
            exception: error.exception.map(text),
            message: text(error.message),
            traceback: error.traceback.map(text),
            assertion,
            hint: error.hint.map(text),
            retryable: error.retryable,
        }
    }
}

impl fmt::Debug for OutputRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().flat_map(|encodings| encodings.secrets()).map(|(name, _)| name);
        f.debug_set().entries(names).finish()
    }
}

/// Refuses more secret values than one sandbox may have.
pub fn check_secret_limits(count: usize, bytes: usize) -> Result<(), Error> {
    if count <= SECRETS_PER_SANDBOX_MAX && bytes <= SECRET_BYTES_PER_SANDBOX_MAX {
        return Ok(());
    }
    let message = format!(
        "a sandbox is given at most {SECRETS_PER_SANDBOX_MAX} secret values of {SECRET_BYTES_PER_SANDBOX_MAX} bytes in total, \
         and this one would be given {count} of {bytes} bytes"
    );
    let hint = "delete secrets that are not needed, name fewer of them, or open another session";
    Err(Error::new(ErrorCode::QuotaExceeded, message).hint(hint))
}

fn is_redacted(value: &SecretText) -> bool {
    value.expose().len() >= REDACTED_BYTES_MIN
}

fn preparation_error(error: SecretEncodingsError) -> Error {
    let message = error.to_string();
    match error {
        SecretEncodingsError::TooLong => {
            Error::new(ErrorCode::QuotaExceeded, message).hint("give it fewer or shorter secrets")
        }
        SecretEncodingsError::CacheFull => Error::new(ErrorCode::CapacityExhausted, message)
            .hint("send the request again when some have ended"),
        SecretEncodingsError::NotBuilt => Error::server_fault(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SECRET: &str = "sk-live_ä/Ü+?\"'\\\n0123456789~zz";

    fn of(secrets: impl IntoIterator<Item = (String, String)>) -> OutputRedactor {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(OutputRedactor::prepare(secrets)).unwrap()
    }

    fn merged(one: &OutputRedactor, other: &OutputRedactor) -> OutputRedactor {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(one.merge(other)).unwrap()
    }

    fn redactor() -> OutputRedactor {
        of([("TOKEN".to_owned(), SECRET.to_owned())])
    }

    #[test]
    fn a_value_is_found_in_every_encoding_and_alignment() {
        use base64::Engine;
        use base64::engine::general_purpose::{STANDARD, URL_SAFE};
        let redactor = redactor();
        let mut texts = vec![
            format!("a{SECRET}b"),
            format!("{:?}", SECRET.bytes().map(|byte| format!("{byte:02x}")).collect::<String>()),
            SECRET.bytes().map(|byte| format!("{byte:02X}")).collect(),
            serde_json::to_string(SECRET).unwrap(),
        ];
        for before in 0..6 {
            let around = format!("{}{SECRET}tail", "x".repeat(before));
            texts.extend([STANDARD.encode(&around), URL_SAFE.encode(&around)]);
        }
        for text in texts {
            let clean = redactor.redact_text(&text);
            assert!(clean.contains("[redacted:TOKEN]"), "{text}");
            assert!(clean.len() < text.len().max(60), "{text}: {clean}");
        }
        assert_eq!(
            redactor.redact_text("sk-live is no secret, is 0123456789"),
            "sk-live is no secret, is 0123456789"
        );
    }

    #[test]
    fn a_value_is_found_however_it_is_cut_into_pieces_and_other_text_is_not_changed() {
        let redactor = redactor();
        let text = format!("before sk-live {SECRET}{SECRET} sk-l after sk-");
        let clean = "before sk-live [redacted:TOKEN][redacted:TOKEN] sk-l after sk-";
        for size in 1..text.len() {
            let (mut stream, mut out) = (redactor.stream(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                out.extend_from_slice(&stream.feed(piece));
            }
            out.append(&mut stream.finish());
            assert_eq!(String::from_utf8(out).unwrap(), clean, "pieces of {size}");
        }
    }

    #[test]
    fn what_cannot_be_a_value_is_not_held_back() {
        let mut stream = redactor().stream();
        assert_eq!(&*stream.feed(b"done\n"), b"done\n");
        assert_eq!(&*stream.feed(b"ask: s"), b"ask: ");
        assert_eq!(&*stream.feed(b"ure\n"), b"sure\n");
    }

    #[test]
    fn half_a_value_at_the_end_is_taken_out_too() {
        let half: String = SECRET.chars().take(12).collect();
        assert_eq!(redactor().redact_text(&format!("cut {half}")), "cut [redacted:TOKEN]");
        assert_eq!(redactor().redact_text("cut sk-live"), "cut sk-live", "too short to be one");
    }

    #[test]
    fn a_long_name_does_not_make_a_text_as_long() {
        let redactor = of([("N".repeat(200), "12345678".to_owned())]);
        assert_eq!(redactor.redact_text("12345678"), format!("[redacted:{}]", "N".repeat(32)));
    }

    #[test]
    fn the_name_of_a_host_hides_a_value_in_neither_case_and_other_names_stay_as_they_are() {
        let redactor = of([("TOKEN".to_owned(), "Canary-4F7A-Zz".to_owned())]);
        let attempt = |host: &str| NetworkAttempt {
            t: 0,
            host: host.to_owned(),
            port: 443,
            integration: None,
            allowed: false,
            reason: Some(format!("{host}:443 is not opened by Any")),
        };
        let encodings = ["canary-4f7a-zz", "CANARY-4F7A-ZZ", "Canary-4F7A-Zz"];
        let hexadecimal = "43616E6172792d344637412D5a7a";
        let base64 = "q2fuyxj5ltrgn0etwno";
        for encoding in encodings.into_iter().chain([hexadecimal, base64]) {
            let mut attempts = [attempt(&format!("{encoding}.Example.com"))];
            redactor.redact_attempts(&mut attempts);
            assert!(attempts[0].host.starts_with("[redacted:TOKEN]"), "{attempts:?}");
            assert!(attempts[0].host.ends_with(".Example.com"), "{attempts:?}");
            assert!(attempts[0].reason.as_deref().unwrap().starts_with("[redacted:TOKEN]"));
        }
        let mut others = [attempt("Canary-4F7.Example.com")];
        redactor.redact_attempts(&mut others);
        assert_eq!(others, [attempt("Canary-4F7.Example.com")]);
    }

    #[test]
    fn a_value_that_begins_as_another_does_not_hide_the_longer_one() {
        let pair = [("A", "abcdefgh"), ("B", "abcdefghijkl")];
        let redactor = of(pair.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(redactor.redact_text("abcdefghijkl abcdefgh!"), "[redacted:B] [redacted:A]!");
        let mut stream = redactor.stream();
        let mut out = stream.feed(b"abcdefgh").into_owned();
        out.extend_from_slice(&stream.feed(b"ijkl."));
        assert_eq!(out, b"[redacted:B].");
    }

    #[test]
    fn values_are_found_inside_of_json_also_as_numbers_and_names() {
        let redactor = of([("PIN".to_owned(), "1234567890".to_owned())]);
        let value = json!({"a": ["1234567890", 1_234_567_890, 7, null], "1234567890": true});
        let clean =
            json!({"a": ["[redacted:PIN]", "[redacted:PIN]", 7, null], "[redacted:PIN]": true});
        assert_eq!(redactor.redact_json(value), clean);
    }

    #[test]
    fn a_long_value_and_many_values_are_found() {
        let long: String =
            (0..60_000).map(|number| char::from(b'a' + (number * 7 % 23) as u8)).collect();
        let many =
            (0..255).map(|number| (format!("S{number}"), format!("value-number-{number:05}")));
        let redactor = of(many.chain([("LONG".to_owned(), long.clone())]));
        let clean = redactor.redact_text(&long).into_owned();
        assert_eq!(clean.replace("[redacted:LONG]", ""), "");
        assert_eq!(redactor.redact_text("value-number-00254"), "[redacted:S254]");
        let text = "nothing of it here\n".repeat(50_000);
        assert_eq!(redactor.redact_text(&text), text);
    }

    #[test]
    fn two_redactors_take_out_what_each_does_and_short_values_are_left_alone() {
        let other = of([("OTHER".to_owned(), "another-value".to_owned())]);
        let both = merged(&redactor(), &other);
        let text = format!("{SECRET} another-value");
        assert_eq!(both.redact_text(&text), "[redacted:TOKEN] [redacted:OTHER]");
        assert_eq!(
            merged(&OutputRedactor::default(), &other).redact_text("another-value"),
            "[redacted:OTHER]"
        );
        let short = of([("PIN".to_owned(), "1234567".to_owned())]);
        assert_eq!(short.redact_text("1234567"), "1234567");
        assert_eq!(format!("{both:?}"), "{\"OTHER\", \"TOKEN\"}");
    }

    #[test]
    fn t107_a_search_takes_as_long_for_values_that_are_made_for_it_as_for_others() {
        use std::time::Instant;
        // All values share a prefix, which the text has at each of its positions.
        let alike = (0..128).map(|it| (format!("S{it}"), format!("{}{it:03}", "a".repeat(900))));
        let others = (0..128).map(|it| (format!("S{it}"), format!("{it:03}{}", "b".repeat(900))));
        let took = |redactor: OutputRedactor, text: &str| {
            let began = Instant::now();
            assert_eq!(redactor.redact_text(text), text);
            began.elapsed()
        };
        let (calm, hostile) = (of(others), of(alike));
        let text = format!("{} ", "a".repeat(300)).repeat(2_000);
        let (calm, hostile) = (took(calm, &text), took(hostile, &text));
        assert!(hostile < calm * 20 + std::time::Duration::from_secs(2), "{hostile:?}, {calm:?}");
    }

    #[test]
    fn t107_more_values_than_a_sandbox_may_have_are_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let quota_error = |secrets: Vec<(String, String)>| {
            let error = runtime.block_on(OutputRedactor::prepare(secrets)).unwrap_err();
            assert_eq!(error.code, ErrorCode::QuotaExceeded);
            error.message
        };
        let many = |count: usize, bytes: usize| -> Vec<(String, String)> {
            let value = |it| format!("{}{it:04}", "v".repeat(bytes - 4));
            (0..count).map(|it| (format!("S{it}"), value(it))).collect()
        };
        assert!(quota_error(many(SECRETS_PER_SANDBOX_MAX + 1, 16)).contains("257 of 4112 bytes"));
        assert!(
            quota_error(many(3, SECRET_BYTES_PER_SANDBOX_MAX / 2)).contains("3 of 196608 bytes")
        );
        // In some encodings each byte takes six.
        let odd = |it| (format!("S{it}"), format!("{}{it:02}", "\u{1}".repeat(4_000)));
        assert!(quota_error((0..30).map(odd).collect()).contains("encodings"));
        assert_eq!(of(many(SECRETS_PER_SANDBOX_MAX, 400)).redact_text("x"), "x");
    }

    #[test]
    fn t115_a_value_that_is_wrapped_into_lines_is_found() {
        use base64::Engine;
        use base64::engine::general_purpose::STANDARD;
        let value: String = (0..90).map(|it| char::from(b'0' + (it * 7 % 70) as u8)).collect();
        let redactor = of([("TOKEN".to_owned(), value.clone())]);
        for (width, end) in [(76, "\n"), (64, "\r\n"), (20, "\n"), (5, "\r\n")] {
            for text in
                [value.clone(), STANDARD.encode(&value), STANDARD.encode(format!("ab{value}"))]
            {
                let lines: Vec<&[u8]> = text.as_bytes().chunks(width).collect();
                let wrapped = String::from_utf8(lines.join(end.as_bytes())).unwrap();
                let clean = redactor.redact_text(&format!("first\n{wrapped}\nlast\n")).into_owned();
                assert!(clean.contains("[redacted:TOKEN]"), "{width}: {clean}");
                assert!(clean.starts_with("first\n") && clean.ends_with("\nlast\n"), "{clean}");
                assert!(clean.len() < 50, "{width}: {clean}");
            }
        }
        let (first, last) = value.split_at(45);
        let apart = format!("{first}\n\n\n{last}\n\r\n\n");
        assert_eq!(redactor.redact_text(&apart), apart, "not one text any more");
        let mut stream = redactor.stream();
        assert_eq!(&*stream.feed(format!("it is {}\n", &value[..5]).as_bytes()), b"it is 07>EL\n");
        assert_eq!(&*stream.feed(format!("{}\n", &value[5..]).as_bytes()), b"[redacted:TOKEN]\n");
    }

    #[test]
    fn t115_a_value_on_a_page_is_found() {
        let value = "a<b>&\"'`=/c0123";
        let redactor = of([("TOKEN".to_owned(), value.to_owned())]);
        for page in [
            "a&lt;b&gt;&amp;&quot;&#x27;`=/c0123",
            "a&lt;b&gt;&amp;&quot;&#039;`=/c0123",
            "a&lt;b&gt;&amp;&#34;&#39;`=/c0123",
            "a&lt;b&gt;&amp;&quot;&apos;`=/c0123",
            "a&lt;b&gt;&amp;\"'`=/c0123",
            "a&lt;b&gt;&amp;&quot;&#39;&#x60;&#x3D;&#x2F;c0123",
        ] {
            assert_eq!(redactor.redact_text(page), "[redacted:TOKEN]", "{page}");
        }
        assert_eq!(redactor.redact_text("a &lt; b"), "a &lt; b");
    }
}
