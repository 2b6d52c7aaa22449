//! Taking values that code was given out of what comes back from it.
//!
//! A value is looked for as it is, and as programs write it down: base64, hexadecimal, percent-encoded,
//! escaped. This is against accidents: code that turns a value into something else can still print it.
//! What is looked for is never shown, and nothing is held back that could not be a part of it.

mod forms;
mod screen;

pub(crate) use screen::Screen;

use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};
use types::{Code, Execution, Fault, NetworkAttempt, REDACTED_BYTES_MIN};

/// Of a name in the place of a value, which may be much shorter and stand there often.
const NAME_CHARS_MAX: usize = 32;

/// So many bytes of every form find it.
type Beginning = [u8; REDACTED_BYTES_MIN];

/// The values that must not come back, each with the name that stands in its place. Cloning it costs
/// nothing.
#[derive(Clone, Default)]
pub struct Redactor(Option<Arc<Patterns>>);

struct Patterns {
    /// By value, so that the same one is there once.
    secrets: BTreeMap<String, String>,
    /// The same in small letters, if it was ever needed.
    small: OnceLock<Arc<Self>>,
    /// The longest form first.
    forms: HashMap<Beginning, Vec<Form>>,
    /// Of each form, less than its beginning.
    short_beginnings: HashSet<Vec<u8>>,
    /// Whether any form begins with these two bytes, which most places of a text rule out.
    pairs: Vec<bool>,
}

struct Form {
    bytes: Vec<u8>,
    marker: Arc<str>,
}

/// What is at one place of a text.
enum Found<'a> {
    Nothing,
    /// So many bytes, and what to write instead.
    Secret(usize, &'a str),
    /// What comes next decides.
    Perhaps,
}

impl Redactor {
    /// Of names and values. Values that are too short to be told from other text are left alone.
    pub fn new(secrets: impl IntoIterator<Item = (String, String)>) -> Self {
        let long = |(_, value): &(String, String)| value.len() >= REDACTED_BYTES_MIN;
        let secrets: BTreeMap<String, String> =
            secrets.into_iter().filter(long).map(|(name, value)| (value, name)).collect();
        Self((!secrets.is_empty()).then(|| Arc::new(Patterns::new(secrets))))
    }

    /// For both of what they are for.
    pub fn and(&self, other: &Self) -> Self {
        let (Some(ours), Some(theirs)) = (&self.0, &other.0) else {
            return if self.0.is_some() { self.clone() } else { other.clone() };
        };
        if theirs.secrets.keys().all(|value| ours.secrets.contains_key(value)) {
            return self.clone();
        }
        let secrets = theirs.secrets.iter().chain(&ours.secrets);
        let secrets = secrets.map(|(value, name)| (value.clone(), name.clone())).collect();
        Self(Some(Arc::new(Patterns::new(secrets))))
    }

    /// A text that is complete.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.0.is_none() {
            return Cow::Borrowed(text);
        }
        let mut stream = self.stream();
        let mut clean = stream.feed(text.as_bytes()).into_owned();
        clean.append(&mut stream.finish());
        Cow::Owned(String::from_utf8_lossy(&clean).into_owned())
    }

    /// A text that is complete and may have been brought into small letters on its way, as the names of
    /// hosts are.
    pub fn caseless<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(patterns) = &self.0 else { return Cow::Borrowed(text) };
        let small = text.to_ascii_lowercase();
        let (clean, _) = patterns.small().replace(small.as_bytes(), text.as_bytes(), true);
        Cow::Owned(String::from_utf8_lossy(&clean).into_owned())
    }

    /// Whom code has tried to reach.
    pub(crate) fn attempts(&self, attempts: &mut [NetworkAttempt]) {
        for attempt in attempts {
            attempt.host = self.caseless(&attempt.host).into_owned();
            let reason = attempt.reason.take();
            attempt.reason = reason.map(|reason| self.caseless(&reason).into_owned());
        }
    }

    /// A text that comes in pieces.
    pub(crate) fn stream(&self) -> Stream {
        Stream { redactor: self.clone(), held: Vec::new() }
    }

    /// Texts, names of fields, and numbers that are a value.
    pub(crate) fn json(&self, value: Value) -> Value {
        match value {
            _ if self.0.is_none() => value,
            Value::String(text) => self.text(&text).into(),
            Value::Array(items) => items.into_iter().map(|item| self.json(item)).collect(),
            Value::Object(fields) => {
                let clean = |(name, value): (String, Value)| {
                    (self.text(&name).into_owned(), self.json(value))
                };
                Value::Object(fields.into_iter().map(clean).collect())
            }
            Value::Number(number) => {
                let (shown, clean) =
                    (number.to_string(), self.text(&number.to_string()).into_owned());
                if clean == shown { Value::Number(number) } else { clean.into() }
            }
            Value::Null | Value::Bool(_) => value,
        }
    }

    /// What is said in a record beside its output, results and files.
    pub(crate) fn record(&self, execution: &mut Execution) {
        if self.0.is_none() {
            return;
        }
        execution.value = execution.value.take().map(|value| self.json(value));
        execution.error = execution.error.take().map(|error| self.fault(error));
        for warning in &mut execution.warnings {
            warning.message = self.text(&warning.message).into_owned();
        }
        self.attempts(&mut execution.network);
    }

    /// It may quote what somebody outside has made of a value.
    fn fault(&self, fault: Fault) -> Fault {
        let text = |text: String| self.caseless(&text).into_owned();
        let code = match fault.code {
            Code::Python(exception) => Code::Python(text(exception)),
            code => code,
        };
        let assertion = fault.assertion.map(|mut assertion| {
            assertion.source = text(assertion.source);
            let values = assertion.values.into_iter();
            assertion.values = values.map(|(part, value)| (text(part), text(value))).collect();
            assertion
        });
        Fault {
            code,
            exception: fault.exception.map(text),
            message: text(fault.message),
            traceback: fault.traceback.map(text),
            assertion,
            hint: fault.hint.map(text),
            retryable: fault.retryable,
        }
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().flat_map(|patterns| patterns.secrets.values());
        f.debug_set().entries(names).finish()
    }
}

impl Patterns {
    fn new(secrets: BTreeMap<String, String>) -> Self {
        Self::of_forms(secrets, |form| form)
    }

    fn small(&self) -> &Self {
        let make = || Self::of_forms(self.secrets.clone(), |form| form.to_ascii_lowercase());
        self.small.get_or_init(|| Arc::new(make()))
    }

    fn of_forms(secrets: BTreeMap<String, String>, spelt: fn(Vec<u8>) -> Vec<u8>) -> Self {
        let mut patterns = Self {
            secrets: BTreeMap::new(),
            small: OnceLock::new(),
            forms: HashMap::new(),
            short_beginnings: HashSet::new(),
            pairs: vec![false; 1 << 16],
        };
        for (value, name) in &secrets {
            // It may stand in the name of a file.
            let name: String = name.replace('/', "_").chars().take(NAME_CHARS_MAX).collect();
            let marker: Arc<str> = format!("[redacted:{name}]").into();
            let forms = forms::forms(value).into_iter();
            forms.for_each(|form| patterns.add(spelt(form), &marker));
        }
        for forms in patterns.forms.values_mut() {
            forms.sort_by_key(|form| std::cmp::Reverse(form.bytes.len()));
        }
        Self { secrets, ..patterns }
    }

    fn add(&mut self, bytes: Vec<u8>, marker: &Arc<str>) {
        let Some(beginning) = bytes.first_chunk::<REDACTED_BYTES_MIN>() else { return };
        for length in 1..REDACTED_BYTES_MIN {
            self.short_beginnings.insert(beginning[..length].to_vec());
        }
        if let Some(known) = self.pairs.get_mut(pair(beginning[0], beginning[1])) {
            *known = true;
        }
        let form = Form { marker: Arc::clone(marker), bytes: bytes.clone() };
        self.forms.entry(*beginning).or_default().push(form);
    }

    /// `last` if nothing comes after it: then the beginning of a value is as much as there is of it.
    fn look(&self, text: &[u8], last: bool) -> Found<'_> {
        if let [first, second, ..] = text
            && !self.pairs.get(pair(*first, *second)).is_some_and(|known| *known)
        {
            return Found::Nothing;
        }
        let Some(beginning) = text.first_chunk::<REDACTED_BYTES_MIN>() else {
            let perhaps = !last && self.short_beginnings.contains(text);
            return if perhaps { Found::Perhaps } else { Found::Nothing };
        };
        for Form { bytes, marker } in self.forms.get(beginning).into_iter().flatten() {
            if text.starts_with(bytes) {
                return Found::Secret(bytes.len(), marker);
            }
            if bytes.starts_with(text) {
                return if last { Found::Secret(text.len(), marker) } else { Found::Perhaps };
            }
        }
        Found::Nothing
    }

    /// What is shown instead of a text, and how much of it was read. Values are looked for in `text`;
    /// `shown` has all else, at the same places.
    fn replace(&self, text: &[u8], shown: &[u8], last: bool) -> (Vec<u8>, usize) {
        let mut clean = Vec::with_capacity(shown.len());
        let (mut at, mut plain) = (0, 0);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            match self.look(rest, last) {
                Found::Nothing => at += 1,
                Found::Perhaps => break,
                Found::Secret(length, marker) => {
                    clean.extend_from_slice(&shown[plain..at]);
                    clean.extend_from_slice(marker.as_bytes());
                    at += length;
                    plain = at;
                }
            }
        }
        clean.extend_from_slice(&shown[plain..at]);
        (clean, at)
    }
}

fn pair(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}

/// Bytes that come in pieces. What may be the beginning of a value is held until the next one.
pub(crate) struct Stream {
    redactor: Redactor,
    held: Vec<u8>,
}

impl Stream {
    pub(crate) fn feed<'p>(&mut self, piece: &'p [u8]) -> Cow<'p, [u8]> {
        if self.redactor.0.is_none() {
            return Cow::Borrowed(piece);
        }
        self.held.extend_from_slice(piece);
        Cow::Owned(self.pass(false))
    }

    /// What is left.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.pass(true)
    }

    fn pass(&mut self, last: bool) -> Vec<u8> {
        let Some(patterns) = &self.redactor.0 else { return Vec::new() };
        let (clean, read) = patterns.replace(&self.held, &self.held, last);
        self.held.drain(..read);
        clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SECRET: &str = "sk-live_ä/Ü+?\"'\\\n0123456789~zz";

    fn redactor() -> Redactor {
        Redactor::new([("TOKEN".to_owned(), SECRET.to_owned())])
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
            let clean = redactor.text(&text);
            assert!(clean.contains("[redacted:TOKEN]"), "{text}");
            assert!(clean.len() < text.len().max(60), "{text}: {clean}");
        }
        assert_eq!(
            redactor.text("sk-live is no secret, is 0123456789"),
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
        assert_eq!(redactor().text(&format!("cut {half}")), "cut [redacted:TOKEN]");
        assert_eq!(redactor().text("cut sk-live"), "cut sk-live", "too short to be one");
    }

    #[test]
    fn a_long_name_does_not_make_a_text_as_long() {
        let redactor = Redactor::new([("N".repeat(200), "12345678".to_owned())]);
        assert_eq!(redactor.text("12345678"), format!("[redacted:{}]", "N".repeat(32)));
    }

    #[test]
    fn the_name_of_a_host_hides_a_value_in_neither_case_and_other_names_stay_as_they_are() {
        let redactor = Redactor::new([("TOKEN".to_owned(), "Canary-4F7A-Zz".to_owned())]);
        let attempt = |host: &str| NetworkAttempt {
            t: 0,
            host: host.to_owned(),
            port: 443,
            integration: None,
            allowed: false,
            reason: Some(format!("{host}:443 is not opened by Any")),
        };
        let spellings = ["canary-4f7a-zz", "CANARY-4F7A-ZZ", "Canary-4F7A-Zz"];
        let hexadecimal = "43616E6172792d344637412D5a7a";
        let base64 = "q2fuyxj5ltrgn0etwno";
        for spelling in spellings.into_iter().chain([hexadecimal, base64]) {
            let mut attempts = [attempt(&format!("{spelling}.Example.com"))];
            redactor.attempts(&mut attempts);
            assert!(attempts[0].host.starts_with("[redacted:TOKEN]"), "{attempts:?}");
            assert!(attempts[0].host.ends_with(".Example.com"), "{attempts:?}");
            assert!(attempts[0].reason.as_deref().unwrap().starts_with("[redacted:TOKEN]"));
        }
        let mut others = [attempt("Canary-4F7.Example.com")];
        redactor.attempts(&mut others);
        assert_eq!(others, [attempt("Canary-4F7.Example.com")]);
    }

    #[test]
    fn a_value_that_begins_as_another_does_not_hide_the_longer_one() {
        let pair = [("A", "abcdefgh"), ("B", "abcdefghijkl")];
        let redactor = Redactor::new(pair.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(redactor.text("abcdefghijkl abcdefgh!"), "[redacted:B] [redacted:A]!");
        let mut stream = redactor.stream();
        let mut out = stream.feed(b"abcdefgh").into_owned();
        out.extend_from_slice(&stream.feed(b"ijkl."));
        assert_eq!(out, b"[redacted:B].");
    }

    #[test]
    fn values_are_found_inside_of_json_also_as_numbers_and_names() {
        let redactor = Redactor::new([("PIN".to_owned(), "1234567890".to_owned())]);
        let value = json!({"a": ["1234567890", 1_234_567_890, 7, null], "1234567890": true});
        let clean =
            json!({"a": ["[redacted:PIN]", "[redacted:PIN]", 7, null], "[redacted:PIN]": true});
        assert_eq!(redactor.json(value), clean);
    }

    #[test]
    fn a_long_value_and_many_values_are_found_without_much_ado() {
        let long: String =
            (0..60_000).map(|number| char::from(b'a' + (number * 7 % 23) as u8)).collect();
        let many =
            (0..1_000).map(|number| (format!("S{number}"), format!("value-number-{number:05}")));
        let redactor = Redactor::new(many.chain([("LONG".to_owned(), long.clone())]));
        let clean = redactor.text(&long).into_owned();
        assert_eq!(clean.replace("[redacted:LONG]", ""), "");
        assert_eq!(redactor.text("value-number-00999"), "[redacted:S999]");
        let text = "nothing of it here\n".repeat(50_000);
        assert_eq!(redactor.text(&text), text);
    }

    #[test]
    fn two_redactors_take_out_what_each_does_and_short_values_are_left_alone() {
        let other = Redactor::new([("OTHER".to_owned(), "another-value".to_owned())]);
        let both = redactor().and(&other);
        let text = format!("{SECRET} another-value");
        assert_eq!(both.text(&text), "[redacted:TOKEN] [redacted:OTHER]");
        assert_eq!(Redactor::default().and(&other).text("another-value"), "[redacted:OTHER]");
        let short = Redactor::new([("PIN".to_owned(), "1234567".to_owned())]);
        assert_eq!(short.text("1234567"), "1234567");
        assert_eq!(format!("{both:?}"), "{\"OTHER\", \"TOKEN\"}");
    }
}
