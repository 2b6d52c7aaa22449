//! The frames of the control channel in both directions: requests to the runner, and its events, parsed
//! within bounds.

use crate::channel::{FRAME_BYTES_MAX, ProtocolError};
use crate::truncate::{
    ASSERT_VALUES_MAX, MESSAGE_BYTES_MAX, PART_BYTES_MAX, TRACEBACK_BYTES_MAX, TYPE_BYTES_MAX,
    truncate_end, truncate_middle,
};
use crate::value_budget::ValueBudget;
use jail::JailError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use types::{Assertion, JsonMembers, JsonSize, MembersError};

const MIB: usize = 1024 * 1024;

/// Maximum memory of one value, or one displayed result, as a tree in the supervisor: some 450,000
/// numbers, or 90,000 small objects.
const VALUE_MEMORY_BYTES_MAX: usize = 64 * MIB;
/// Maximum nesting that is parsed. The runner writes at most 120 levels, and serde_json reads 127.
const DEPTH_MAX: usize = 126;
/// Maximum nesting of a result: its record and its event nest it deeper, and are parsed again.
const RESULT_DEPTH_MAX: usize = 120;
/// Bytes that a result may have besides `result_bytes`: the names of its formats, and the notes that
/// replace a format that was too large.
const RESULT_NAMES_BYTES_MAX: u64 = 64 * 1024;
/// Maximum size of names: reseeded generators, a failed step, a host and a port.
const SMALL_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of a list of packages to install: more than is accepted, so that the error for too many
/// can say why.
const INSTALL_BYTES_MAX: usize = MIB;
/// Maximum memory of such a part besides its text.
const PART_MEMORY_MAX: usize = 4 * MIB;

/// Environment variables, by name.
pub type Variables<'a> = BTreeMap<&'a str, Cow<'a, str>>;

/// A request to the runner. It borrows from the command that it is made of.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum RunnerRequest<'a> {
    /// Runs code.
    Run {
        code: &'a str,
        /// The file name in tracebacks.
        name: Cow<'a, str>,
        /// Whether the value of a last expression is a result.
        show_last: bool,
        /// A variable that is the result instead, if the code sets it.
        #[serde(skip_serializing_if = "Option::is_none")]
        answer: Option<&'a str>,
        /// Arguments (`sys.argv`); they make the code a script.
        #[serde(skip_serializing_if = "Option::is_none")]
        argv: Option<Cow<'a, [String]>>,
        /// The directory in which a script is started, if not the working directory.
        #[serde(skip_serializing_if = "Option::is_none")]
        directory: Option<&'a str>,
        /// Environment variables, set until a request has others.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        variables: Variables<'a>,
        result_limit: u64,
        value_limit: u64,
        /// The last code in this interpreter: after it, the runner waits for threads, runs exit handlers
        /// as at the end of a program, and exits.
        #[serde(skip)]
        last: bool,
    },
    /// Runs a source as a module and calls a function of it.
    Call {
        code: &'a str,
        /// The file name in tracebacks.
        name: &'a str,
        function: &'a str,
        #[serde(flatten)]
        arguments: FunctionArguments<'a>,
        /// For each parameter, the conversion of its argument before the call.
        conversions: &'a Map<String, Value>,
        /// Environment variables, set for this call alone.
        variables: Variables<'a>,
        /// Whether a failed `assert` is reported with the values in it.
        explain_asserts: bool,
        /// Whether modules in the working directory belong to the function, and not to a caller.
        own_modules: bool,
        result_limit: u64,
        value_limit: u64,
    },
    /// Warms up: runs a cell that leaves no trace, so that the pages of the first real one are touched.
    Warm,
    /// Waits for threads and runs exit handlers, as at the end of a script.
    Finish,
    /// Answers an `install` event during a run: the packages are installed.
    Installed { path: Option<&'a str>, packages: &'a [(String, String)] },
    /// Answers an `install` event during a run: no package was installed.
    NotInstalled { denied: bool, message: &'a str, hint: &'a str },
}

impl RunnerRequest<'_> {
    pub(crate) fn is_last(&self) -> bool {
        matches!(self, Self::Run { last: true, .. })
    }
}

/// The arguments of a function call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionArguments<'a> {
    Keywords(&'a Map<String, Value>),
    Positional(&'a [Value]),
}

#[derive(Debug)]
pub(crate) enum RunnerEvent {
    Ready {
        reseeded: Vec<String>,
    },
    IsolationFailed(JailError),
    Result {
        /// Absent if the result is larger than its limit.
        data: Option<BTreeMap<String, Value>>,
        main: bool,
        /// Whether formats of the result were left out.
        cut: bool,
    },
    /// Results that were not sent, because there were too many.
    ResultsDropped {
        results: u32,
    },
    /// Code requests packages and waits for them.
    Install {
        requirements: Vec<String>,
    },
    /// Code tried to connect to a host, and the sandbox has no egress.
    ConnectionRefused {
        destination: String,
    },
    Done(RunnerOutcome),
}

impl RunnerEvent {
    /// Whether the event can arrive between two executions, from threads that continue.
    pub(crate) fn may_be_unsolicited(&self) -> bool {
        matches!(
            self,
            Self::Result { .. } | Self::ConnectionRefused { .. } | Self::ResultsDropped { .. }
        )
    }
}

/// The last frame of a request to the runner.
#[derive(Debug, Clone)]
pub enum RunnerOutcome {
    /// Without a value: statements, or a script.
    NoValue,
    /// The value of a cell's last expression, or of a call.
    Value(ReturnedValue),
    NotJson(ValueEncodingError),
    Raised(PythonException),
    /// By `sys.exit`.
    Exited(u8),
    /// There is no function of that name that could be called.
    EntryPointMissing,
}

/// A value within its bounds.
#[derive(Debug, Clone, Default)]
pub struct ReturnedValue {
    pub value: Value,
    /// Length of the JSON text that it came as.
    pub bytes: usize,
}

/// A frame as sent: one flat object. Parts that can be large stay text, and are parsed once they are
/// known to be within their bounds.
#[derive(Debug, Default)]
struct RawFrame<'a> {
    ev: Option<EventKind>,
    reseeded: Option<&'a str>,
    isolation: Option<&'a str>,
    data: Option<&'a str>,
    main: Option<bool>,
    dropped: Option<&'a str>,
    error: Option<&'a str>,
    /// One byte, as exit codes of processes are.
    exit_code: Option<u8>,
    /// Null is a value too.
    value: Option<&'a str>,
    value_error: Option<&'a str>,
    entry_missing: Option<bool>,
    requirements: Option<&'a str>,
    destination: Option<&'a str>,
    results: Option<u32>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum EventKind {
    Ready,
    Isolation,
    Result,
    Unsent,
    Install,
    Refused,
    Done,
}

/// Parses the body of a frame, which must have all fields of its event and no others. `result_bytes`
/// limits a value or a result, and `budget` must grant the memory of a value before it is parsed.
pub(crate) fn parse(
    body: &[u8],
    result_bytes: u64,
    budget: &ValueBudget,
) -> Result<RunnerEvent, ProtocolError> {
    let text = std::str::from_utf8(body).map_err(invalid_frame)?;
    RawFrame::split(text)?.into_event(result_bytes, budget)
}

/// Whether parsing this frame would build a tree of its value or result, as far as a pass over its text
/// shows. Any other frame is refused, or has a few short parts.
pub(crate) fn makes_tree(body: &[u8], result_bytes: u64) -> bool {
    let Ok(text) = std::str::from_utf8(body) else { return false };
    let Ok(RawFrame { value, data, .. }) = RawFrame::split(text) else { return false };
    let is_large = |json: &str| JsonSize::measure(json).memory_bytes > VALUE_MEMORY_BYTES_MAX;
    value.is_some_and(|json| json.len() as u64 <= result_bytes && !is_large(json))
        || data.is_some_and(|json| !is_large(json))
}

impl<'a> RawFrame<'a> {
    /// Splits a frame into its fields; an unknown or repeated field is an error.
    fn split(text: &'a str) -> Result<Self, ProtocolError> {
        let mut frame = Self::default();
        let mut seen = Vec::new();
        for member in JsonMembers::of(text) {
            let (name, json) = member.map_err(|error| match error {
                MembersError::TooDeep => ProtocolError::TooDeep,
                MembersError::Malformed(_) => invalid_frame(error),
            })?;
            if seen.contains(&name) {
                return Err(ProtocolError::Inconsistent);
            }
            frame.set(&name, json)?;
            seen.push(name);
        }
        Ok(frame)
    }

    fn set(&mut self, name: &str, json: &'a str) -> Result<(), ProtocolError> {
        let text = (json != "null").then_some(json);
        match name {
            "ev" => self.ev = serde_json::from_str(json)?,
            "reseeded" => self.reseeded = text,
            "isolation" => self.isolation = text,
            "data" => self.data = text,
            "main" => self.main = serde_json::from_str(json)?,
            "dropped" => self.dropped = text,
            "error" => self.error = text,
            "exit_code" => self.exit_code = serde_json::from_str(json)?,
            "value" => self.value = Some(json),
            "value_error" => self.value_error = text,
            "entry_missing" => self.entry_missing = serde_json::from_str(json)?,
            "requirements" => self.requirements = text,
            "place" => self.destination = text,
            "results" => self.results = serde_json::from_str(json)?,
            _ => return Err(invalid_frame("it has an unknown field")),
        }
        Ok(())
    }

    fn into_event(
        mut self,
        result_bytes: u64,
        budget: &ValueBudget,
    ) -> Result<RunnerEvent, ProtocolError> {
        let missing = || ProtocolError::Incomplete;
        let event = match self.ev.ok_or_else(missing)? {
            EventKind::Ready => RunnerEvent::Ready {
                reseeded: parse_part(self.reseeded.take().ok_or_else(missing)?, SMALL_BYTES_MAX)?,
            },
            EventKind::Isolation => {
                let failed = self.isolation.take().ok_or_else(missing)?;
                RunnerEvent::IsolationFailed(parse_part(failed, SMALL_BYTES_MAX)?)
            }
            EventKind::Result => RunnerEvent::Result {
                data: parse_result(self.data.take().ok_or_else(missing)?, result_bytes)?,
                main: self.main.take().ok_or_else(missing)?,
                cut: self.dropped.take().map(has_dropped_forms).transpose()?.unwrap_or_default(),
            },
            EventKind::Unsent => {
                RunnerEvent::ResultsDropped { results: self.results.take().ok_or_else(missing)? }
            }
            EventKind::Install => {
                let requirements = self.requirements.take().ok_or_else(missing)?;
                RunnerEvent::Install { requirements: parse_part(requirements, INSTALL_BYTES_MAX)? }
            }
            EventKind::Refused => {
                let destination = self.destination.take().ok_or_else(missing)?;
                RunnerEvent::ConnectionRefused {
                    destination: parse_part(destination, SMALL_BYTES_MAX)?,
                }
            }
            EventKind::Done => RunnerEvent::Done(self.take_outcome(result_bytes, budget)?),
        };
        if self.is_empty() { Ok(event) } else { Err(ProtocolError::Inconsistent) }
    }

    /// Takes the first outcome of the frame. A second one stays, and is an error in `into_event`.
    fn take_outcome(
        &mut self,
        result_bytes: u64,
        budget: &ValueBudget,
    ) -> Result<RunnerOutcome, ProtocolError> {
        Ok(if let Some(error) = self.error.take() {
            RunnerOutcome::Raised(
                parse_part::<PythonException>(error, FRAME_BYTES_MAX)?.truncated(),
            )
        } else if let Some(code) = self.exit_code.take() {
            RunnerOutcome::Exited(code)
        } else if let Some(error) = self.value_error.take() {
            RunnerOutcome::NotJson(
                parse_part::<ValueEncodingError>(error, FRAME_BYTES_MAX)?.truncated(),
            )
        } else if let Some(value) = self.value.take() {
            match check_value(value, result_bytes, budget) {
                // The runner sends no value that is nested this deeply.
                Ok(size) if size.depth > DEPTH_MAX => return Err(ProtocolError::TooDeep),
                Ok(_) => RunnerOutcome::Value(ReturnedValue {
                    value: serde_json::from_str(value)?,
                    bytes: value.len(),
                }),
                Err(error) => RunnerOutcome::NotJson(error),
            }
        } else if self.entry_missing.take() == Some(true) {
            RunnerOutcome::EntryPointMissing
        } else {
            RunnerOutcome::NoValue
        })
    }

    fn is_empty(&self) -> bool {
        self.reseeded.is_none()
            && self.isolation.is_none()
            && self.data.is_none()
            && self.main.is_none()
            && self.dropped.is_none()
            && self.error.is_none()
            && self.exit_code.is_none()
            && self.value.is_none()
            && self.value_error.is_none()
            && self.entry_missing.is_none()
            && self.requirements.is_none()
            && self.destination.is_none()
            && self.results.is_none()
    }
}

fn invalid_frame(reason: impl Display) -> ProtocolError {
    ProtocolError::NotAFrame(serde::de::Error::custom(reason))
}

/// Parses a part of a frame, if it is no larger than its type allows.
fn parse_part<T: DeserializeOwned>(json: &str, bytes_max: usize) -> Result<T, ProtocolError> {
    let size = JsonSize::measure(json);
    // Texts take as much memory as they have bytes; the runner sends nothing that takes much more.
    if json.len() > bytes_max || size.memory_bytes > json.len() + PART_MEMORY_MAX {
        return Err(ProtocolError::TooLarge(json.len() as u64));
    }
    Ok(serde_json::from_str(json)?)
}

/// Whether formats of a result were left out. The supervisor does not need to know which.
fn has_dropped_forms(json: &str) -> Result<bool, ProtocolError> {
    if json.starts_with('{') { Ok(json != "{}") } else { Err(ProtocolError::Inconsistent) }
}

/// The formats of a result; `None` if the result exceeds its limits.
fn parse_result(
    json: &str,
    result_bytes: u64,
) -> Result<Option<BTreeMap<String, Value>>, ProtocolError> {
    let size = JsonSize::measure(json);
    let fits = json.len() as u64 <= result_bytes.saturating_add(RESULT_NAMES_BYTES_MAX)
        && size.memory_bytes <= VALUE_MEMORY_BYTES_MAX
        && size.depth <= RESULT_DEPTH_MAX;
    if fits { Ok(Some(serde_json::from_str(json)?)) } else { Ok(None) }
}

/// Measures a value and reserves its memory, independent of what the runner reports. The reservation
/// is last, so that a value that is refused takes no memory.
fn check_value(
    json: &str,
    result_bytes: u64,
    budget: &ValueBudget,
) -> Result<JsonSize, ValueEncodingError> {
    if json.len() as u64 > result_bytes {
        return Err(ValueEncodingError::too_large(format!(
            "the value has {} bytes as JSON; the limit result_bytes is {result_bytes}",
            json.len()
        )));
    }
    let size = JsonSize::measure(json);
    if size.memory_bytes > VALUE_MEMORY_BYTES_MAX {
        return Err(ValueEncodingError::too_large(format!(
            "the value has too many parts: it would need {} MiB of memory, and the limit is {}",
            size.memory_bytes.div_ceil(MIB),
            VALUE_MEMORY_BYTES_MAX / MIB
        )));
    }
    budget.take(size.memory_bytes as u64).map_err(ValueEncodingError::too_large)?;
    Ok(size)
}

/// Why a value cannot be returned as JSON, and which part of it is the reason.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueEncodingError {
    /// The path of the part, such as `$.results[2]`.
    pub path: String,
    #[serde(rename = "type")]
    _kind: Option<String>,
    pub problem: String,
    /// A change of the code that avoids the problem.
    pub fix: Option<String>,
    #[serde(default)]
    pub too_large: bool,
}

impl ValueEncodingError {
    fn too_large(problem: String) -> Self {
        Self { path: "$".to_owned(), _kind: None, problem, fix: None, too_large: true }
    }

    fn truncated(self) -> Self {
        Self {
            path: truncate_end(self.path, PART_BYTES_MAX),
            _kind: None,
            problem: truncate_middle(self.problem, MESSAGE_BYTES_MAX),
            fix: self.fix.map(|fix| truncate_end(fix, PART_BYTES_MAX)),
            too_large: self.too_large,
        }
    }
}

/// An exception that the code did not catch.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PythonException {
    #[serde(rename = "type")]
    pub exception: String,
    pub message: String,
    pub traceback: String,
    /// Whether the code did not compile, so that no part of it ran.
    pub syntax: bool,
    #[serde(default)]
    pub assertion: Option<Assertion>,
    /// For an exception that the runner raised: the feature that the environment denies.
    #[serde(default)]
    pub denied: Option<DeniedFeature>,
    /// The hint of the refusal.
    #[serde(default)]
    pub hint: Option<String>,
}

impl PythonException {
    fn truncated(self) -> Self {
        Self {
            exception: truncate_end(self.exception, TYPE_BYTES_MAX),
            message: truncate_middle(self.message, MESSAGE_BYTES_MAX),
            traceback: truncate_middle(self.traceback, TRACEBACK_BYTES_MAX),
            assertion: self.assertion.map(|mut assertion| {
                assertion.source = truncate_middle(assertion.source, PART_BYTES_MAX);
                assertion.values.truncate(ASSERT_VALUES_MAX);
                let part = |text: String| truncate_middle(text, PART_BYTES_MAX);
                let values = assertion.values.into_iter();
                assertion.values = values.map(|(name, value)| (part(name), part(value))).collect();
                assertion
            }),
            hint: self.hint.map(|hint| truncate_end(hint, PART_BYTES_MAX)),
            ..self
        }
    }
}

/// Actions that the runner refuses with a hint before an isolation layer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DeniedFeature {
    Process,
    Package,
    /// An install that is not refused, but failed.
    Install,
    Import,
    Network,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use types::Limits;

    const RESULT_BYTES: u64 = Limits::DEFAULT.result_bytes;

    fn done(field: &str, json: &str) -> RunnerOutcome {
        done_in(&ValueBudget::default(), field, json)
    }

    fn done_in(budget: &ValueBudget, field: &str, json: &str) -> RunnerOutcome {
        let body = format!(r#"{{"ev":"done","{field}":{json}}}"#);
        match parse(body.as_bytes(), RESULT_BYTES, budget) {
            Ok(RunnerEvent::Done(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn list(item: &str, count: usize) -> String {
        format!("[{}]", vec![item; count].join(","))
    }

    #[test]
    fn t128_a_field_stands_once_however_it_is_written() {
        let value = |body: &[u8]| match parse(body, RESULT_BYTES, &ValueBudget::default()) {
            Ok(RunnerEvent::Done(RunnerOutcome::Value(returned))) => Ok(returned.value),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        let own = br#" { "\u0065v" : "done" , "error":null, "value" : {"ev":["}", "\"", 1.50]} } "#;
        assert_eq!(value(own).unwrap(), serde_json::json!({"ev": ["}", "\"", 1.5]}));
        assert_eq!(value(br#"{"value":null,"ev":"done"}"#).unwrap(), Value::Null);
        for twice in
            [r#""value":1"#, r#""v\u0061lue":1"#, r#""ev":"done""#, r#""error":null,"error":null"#]
        {
            let body = format!(r#"{{"ev":"done","value":1,{twice}}}"#);
            let result = parse(body.as_bytes(), RESULT_BYTES, &ValueBudget::default());
            assert!(matches!(result, Err(ProtocolError::Inconsistent)), "{twice}: {result:?}");
        }
        for other in
            [&b"{\"ev\":\"done\",\"value\":\"\xff\"}"[..], br#"{"value":1}"#, br#"{"ev":null}"#]
        {
            assert!(value(other).is_err());
        }
    }

    #[test]
    fn t128_a_frame_of_unknown_fields_or_without_an_end_is_refused_where_it_begins_to_be_one() {
        let fields = format!(r#"{{"ev":"done",{}"value":1}}"#, r#""":1,"#.repeat(1_000_000));
        let result = parse(fields.as_bytes(), RESULT_BYTES, &ValueBudget::default());
        assert!(matches!(result, Err(ProtocolError::NotAFrame(_))), "{result:?}");
        for field in ["value", "data", "dropped", "other"] {
            let deep = format!(r#"{{"{field}":{}"#, "[".repeat(2_000_000));
            let result = parse(deep.as_bytes(), RESULT_BYTES, &ValueBudget::default());
            assert!(matches!(result, Err(ProtocolError::TooDeep)), "{field}: {result:?}");
        }
    }

    #[test]
    fn t71_a_value_over_its_bounds_is_not_parsed_and_a_large_one_within_them_is() {
        let deep = format!(r#"{{"ev":"done","value":{}{}}}"#, "[".repeat(127), "]".repeat(127));
        let deep = parse(deep.as_bytes(), RESULT_BYTES, &ValueBudget::default());
        assert!(matches!(deep, Err(ProtocolError::TooDeep)), "{deep:?}");
        for (json, problem) in [
            (list("1", 3_500_000), "the limit result_bytes is"),
            (format!("\"{}\"", "x".repeat(2 * MIB)), "the limit result_bytes is"),
            (list("1", 1_000_000), "too many parts"),
            (list(r#"{"a":1}"#, 250_000), "too many parts"),
        ] {
            let RunnerOutcome::NotJson(error) = done("value", &json) else {
                panic!("it was parsed")
            };
            assert!(error.too_large && error.problem.contains(problem), "{}", error.problem);
        }
        for json in [
            list("123456", 290_000),
            list(r#"{"date":"2026-01-01","v":1.5}"#, 65_000),
            format!("\"{}\"", "x".repeat(2 * MIB - 2)),
            format!("{}{}", "[".repeat(120), "]".repeat(120)),
            "null".to_owned(),
        ] {
            let RunnerOutcome::Value(returned) = done("value", &json) else {
                panic!("it was refused")
            };
            assert_eq!(returned.bytes, json.len());
        }
    }

    #[test]
    fn t132_memory_for_a_value_is_asked_for_before_it_is_a_tree() {
        let numbers = list("1", 400_000);
        let requested = Arc::new(AtomicU64::new(0));
        let note = Arc::clone(&requested);
        let used_up = ValueBudget::new(move |bytes| {
            note.store(bytes, Ordering::Relaxed);
            if bytes > 1024 { Err("the budget is used up".to_owned()) } else { Ok(()) }
        });
        let RunnerOutcome::NotJson(error) = done_in(&used_up, "value", &numbers) else {
            panic!("it was parsed")
        };
        assert!(error.too_large && error.problem == "the budget is used up", "{error:?}");
        let tree = 400_000 * size_of::<Value>();
        assert!(requested.load(Ordering::Relaxed) as usize > tree, "{requested:?} for {tree}");
        // The twin: a small one fits into it.
        let RunnerOutcome::Value(returned) = done_in(&used_up, "value", "[1]") else {
            panic!("it was refused")
        };
        assert_eq!(returned.value, serde_json::json!([1]));
    }

    #[test]
    fn t71_a_result_over_its_bounds_is_not_parsed_and_counts_as_dropped() {
        let result = |json: &str| {
            let body = format!(r#"{{"ev":"result","data":{{"text/plain":{json}}},"main":true}}"#);
            match parse(body.as_bytes(), RESULT_BYTES, &ValueBudget::default()) {
                Ok(RunnerEvent::Result { data, .. }) => data.is_some(),
                other => panic!("{other:?}"),
            }
        };
        assert!(!result(&list("[1]", 500_000)));
        assert!(!result(&format!("\"{}\"", "x".repeat(3 * MIB))));
        assert!(result(&format!("\"{}\"", "x".repeat(2 * MIB))));
        assert!(result(&list("1.25", 250_000)));
    }

    #[test]
    fn t72_texts_of_an_error_are_cut_and_those_of_the_runner_are_not() {
        let error = |size: usize| {
            let text = "é".repeat(size / 2);
            let error = format!(
                r#"{{"type":"{text}","message":"{text}","traceback":"{text}","syntax":false,
                    "hint":"{text}","assertion":{{"line":1,"source":"{text}","values":{}}}}}"#,
                list(&format!(r#"["{text}","{text}"]"#), 3)
            );
            let RunnerOutcome::Raised(error) = done("error", &error) else {
                panic!("it was refused")
            };
            error
        };
        let cut = error(500_000);
        assert!(cut.exception.len() <= TYPE_BYTES_MAX);
        assert!(cut.message.len() <= MESSAGE_BYTES_MAX);
        assert!(cut.traceback.len() <= TRACEBACK_BYTES_MAX);
        assert!(cut.hint.unwrap().len() <= PART_BYTES_MAX);
        let assertion = cut.assertion.unwrap();
        assert!(assertion.source.len() <= PART_BYTES_MAX && assertion.values.len() == 3);
        assert!(assertion.values.iter().all(|(name, value)| name.len() + value.len() <= 16_384));
        let whole = error(800);
        assert_eq!((whole.exception.len(), whole.traceback.len()), (800, 800));
        assert_eq!(whole.assertion.unwrap().values[2].1.len(), 800);
    }

    #[test]
    fn t72_lists_that_take_far_more_than_their_text_are_no_frames() {
        let many = list(r#"["",""]"#, 500_000);
        let error = format!(
            r#"{{"type":"E","message":"","traceback":"","syntax":false,
                "assertion":{{"line":1,"source":"","values":{many}}}}}"#
        );
        for body in [
            format!(r#"{{"ev":"done","error":{error}}}"#),
            format!(r#"{{"ev":"ready","reseeded":{}}}"#, list("\"\"", 500_000)),
            format!(r#"{{"ev":"install","requirements":{}}}"#, list("\"\"", 500_000)),
            format!(r#"{{"ev":"refused","place":"{}"}}"#, "x".repeat(100_000)),
        ] {
            let read = parse(body.as_bytes(), RESULT_BYTES, &ValueBudget::default());
            assert!(matches!(read, Err(ProtocolError::TooLarge(_))), "{}", body.len());
        }
    }
}
