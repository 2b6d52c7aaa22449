//! What is said on the control channel, in either direction.

use crate::channel::ProtocolError;
use jail::WallError;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use types::Assertion;

#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum ToKernel<'a> {
    Run {
        code: &'a str,
        name: &'a str,
        show_last: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        answer: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        argv: Option<&'a [String]>,
        #[serde(skip_serializing_if = "Option::is_none")]
        directory: Option<&'a str>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        variables: &'a BTreeMap<String, String>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        passing: &'a BTreeMap<String, String>,
        result_limit: u64,
        value_limit: u64,
    },
    /// Runs a source as a module and calls a function of it.
    Call {
        code: &'a str,
        name: &'a str,
        function: &'a str,
        #[serde(flatten)]
        arguments: Arguments<'a>,
        conversions: &'a Map<String, Value>,
        variables: &'a BTreeMap<String, String>,
        explain_asserts: bool,
        own_modules: bool,
        result_limit: u64,
        value_limit: u64,
    },
    /// Runs a cell that leaves no trace, so that the first real one finds its pages touched.
    Warm,
    /// Waits for threads and runs exit handlers, as the end of a script does.
    Finish,
    /// Answers an `install`, in the middle of what it was asked in.
    Installed {
        path: Option<&'a str>,
        packages: &'a [(String, String)],
    },
    NotInstalled {
        denied: bool,
        message: &'a str,
        hint: &'a str,
    },
}

/// How a function is called.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arguments<'a> {
    Keywords(&'a Map<String, Value>),
    Positional(&'a [Value]),
}

#[derive(Debug)]
pub(crate) enum FromKernel {
    Ready {
        reseeded: Vec<String>,
    },
    Wall(WallError),
    Result {
        data: BTreeMap<String, Value>,
        main: bool,
        dropped: BTreeMap<String, u64>,
    },
    /// Code wants packages, and waits for them.
    Install {
        requirements: Vec<String>,
    },
    /// Code has tried to reach somebody, and there is no way out.
    Refused {
        place: String,
    },
    Done(Answer),
}

/// How the kernel says that what it was asked for has ended.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Without a value: statements, or a script.
    Nothing,
    /// Of a cell's last expression, or of a call.
    Value(Value),
    NotJson(ValueError),
    Raised(PythonError),
    /// By `sys.exit`.
    Exited(i32),
    /// There is no function of that name that could be called.
    EntryMissing,
}

/// A frame as it is written: one flat object, since serde keeps a second copy of whatever it has to
/// read before it knows what it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Frame {
    ev: Event,
    reseeded: Option<Vec<String>>,
    wall: Option<WallError>,
    data: Option<BTreeMap<String, Value>>,
    main: Option<bool>,
    dropped: Option<BTreeMap<String, u64>>,
    error: Option<PythonError>,
    exit_code: Option<i32>,
    /// Null is a value too.
    #[serde(default, deserialize_with = "present")]
    value: Option<Value>,
    value_error: Option<ValueError>,
    entry_missing: Option<bool>,
    requirements: Option<Vec<String>>,
    place: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Event {
    Ready,
    Wall,
    Result,
    Install,
    Refused,
    Done,
}

impl Frame {
    /// What it says, if it has all that its event needs and nothing that belongs to another.
    pub(crate) fn read(mut self) -> Result<FromKernel, ProtocolError> {
        let missing = || ProtocolError::Incomplete;
        let event = match self.ev {
            Event::Ready => {
                FromKernel::Ready { reseeded: self.reseeded.take().ok_or_else(missing)? }
            }
            Event::Wall => FromKernel::Wall(self.wall.take().ok_or_else(missing)?),
            Event::Result => FromKernel::Result {
                data: self.data.take().ok_or_else(missing)?,
                main: self.main.take().ok_or_else(missing)?,
                dropped: self.dropped.take().unwrap_or_default(),
            },
            Event::Install => {
                FromKernel::Install { requirements: self.requirements.take().ok_or_else(missing)? }
            }
            Event::Refused => FromKernel::Refused { place: self.place.take().ok_or_else(missing)? },
            Event::Done => FromKernel::Done(self.take_answer()),
        };
        if self.is_spent() { Ok(event) } else { Err(ProtocolError::Contradiction) }
    }

    /// The first thing that it says; a second one is left.
    fn take_answer(&mut self) -> Answer {
        if let Some(error) = self.error.take() {
            Answer::Raised(error)
        } else if let Some(code) = self.exit_code.take() {
            Answer::Exited(code)
        } else if let Some(error) = self.value_error.take() {
            Answer::NotJson(error)
        } else if let Some(value) = self.value.take() {
            Answer::Value(value)
        } else if self.entry_missing.take() == Some(true) {
            Answer::EntryMissing
        } else {
            Answer::Nothing
        }
    }

    fn is_spent(&self) -> bool {
        self.reseeded.is_none()
            && self.wall.is_none()
            && self.data.is_none()
            && self.main.is_none()
            && self.dropped.is_none()
            && self.error.is_none()
            && self.exit_code.is_none()
            && self.value.is_none()
            && self.value_error.is_none()
            && self.entry_missing.is_none()
            && self.requirements.is_none()
            && self.place.is_none()
    }
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Why a value cannot leave as JSON, and which part of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueError {
    /// As `$.results[2]`.
    pub path: String,
    #[serde(rename = "type")]
    _kind: Option<String>,
    pub problem: String,
    /// What to write instead.
    pub fix: Option<String>,
    #[serde(default)]
    pub too_large: bool,
}

/// An exception that the code did not catch.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PythonError {
    #[serde(rename = "type")]
    pub exception: String,
    pub message: String,
    pub traceback: String,
    /// The code did not compile, and nothing of it was run.
    pub syntax: bool,
    #[serde(default)]
    pub assertion: Option<Assertion>,
    /// It is the kernel's own, for something that the environment does not have.
    #[serde(default)]
    pub denied: Option<Denied>,
    /// What to do, as whoever refused it has said it.
    #[serde(default)]
    pub hint: Option<String>,
}

/// What the kernel guides code away from before it meets a wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Denied {
    Process,
    Package,
    /// Not refused, but not possible either.
    Install,
    Import,
    Network,
}
