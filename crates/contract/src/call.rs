//! From arguments to a call that may be made, and from its value to one that may be given out.
//!
//! A [`Call`] exists only after its arguments were found to conform, so that nothing is ever
//! called with what its contract does not allow.

use crate::conform::{Nonconformity, Path, VIOLATIONS_MAX, Violation};
use crate::schema::{Kind, Object, Others, Python, Schema};
use crate::tool::{Entry, NO_RUN, RUN, TEST, Test, Tool, Variables};
use crate::{HANDLE, NO_HANDLE};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::{Code, Fault};

/// Unless the tool has another bound. A model does not write more, and what is larger is a file.
pub const ARGUMENTS_BYTES_MAX: usize = 1024 * 1024;
/// Of a value in a message: what is wrong shows in its beginning.
const SHOWN_CHARS_MAX: usize = 60;
/// A model reads it and pays for it; its own names can be as long as the arguments.
const MESSAGE_CHARS_MAX: usize = 4000;
const NO_TEST: &str = "Function 'test' not found.";
pub(crate) const TRY_AGAIN: &str =
    "call it again with arguments that fit its schema; it was not called";

/// A function of a tool with arguments that conform.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub(crate) tool: String,
    pub(crate) code: String,
    pub(crate) file: String,
    pub(crate) variables: Variables,
    pub(crate) wall_ms: Option<u64>,
    pub(crate) function: &'static str,
    pub(crate) arguments: Arguments,
    /// By parameter, what its argument becomes in Python.
    pub(crate) conversions: Map<String, Value>,
    pub(crate) output: Option<Object>,
    pub(crate) deployed: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Arguments {
    /// Of `handle`.
    Keywords(Map<String, Value>),
    /// Of `run`: the input.
    Input(Value),
    /// Of `test`.
    None,
}

impl Tool {
    /// Checks arguments against the contract.
    pub fn call(&self, arguments: Value) -> Result<Call, Fault> {
        self.check_size(&arguments)?;
        match &self.entry {
            Entry::Handle { input } => {
                let keywords = handle_arguments(input, arguments)?;
                Ok(Call {
                    conversions: fields_conversions(input),
                    ..self.call_of(HANDLE, Arguments::Keywords(keywords))
                })
            }
            Entry::Run { input, output } => {
                let input = run_input(input.as_ref(), arguments)?;
                let output = output.clone();
                Ok(Call { output, ..self.call_of(RUN, Arguments::Input(input)) })
            }
        }
    }

    /// The call of `test()`, if there is one that can be called.
    pub fn test(&self) -> Result<Call, Fault> {
        let fault = match self.test {
            Test::Present => return Ok(self.call_of(TEST, Arguments::None)),
            Test::Absent => Fault::new(Code::CodeNoEntry, NO_TEST).hint(
                "write `def test():` beside the tool, with asserts; the tool itself is valid",
            ),
            Test::WithParameters => {
                Fault::new(Code::CodeType, "test() has parameters, and no parameters are allowed")
            }
        };
        Err(fault)
    }

    fn call_of(&self, function: &'static str, arguments: Arguments) -> Call {
        Call {
            tool: self.name.clone(),
            code: self.source.as_str().to_owned(),
            file: self.file.clone(),
            variables: self.variables.clone(),
            wall_ms: self.timeout_seconds.map(|seconds| seconds.saturating_mul(1000)),
            function,
            arguments,
            conversions: Map::new(),
            output: None,
            deployed: false,
        }
    }

    fn check_size(&self, arguments: &Value) -> Result<(), Fault> {
        let most = self.input_bytes_max;
        check_size(arguments, most).map_err(|fault| match self.entry {
            Entry::Handle { .. } => fault,
            Entry::Run { .. } => {
                let message = format!("Code runner '{}' input exceeds {most} bytes", self.name);
                Fault { message, ..fault }
            }
        })
    }
}

/// Whether they are few enough, as JSON.
pub(crate) fn check_size(arguments: &Value, most: usize) -> Result<(), Fault> {
    let bytes = arguments.to_string().len();
    if bytes <= most {
        return Ok(());
    }
    let message = format!("The arguments have {bytes} bytes, and at most {most} are taken");
    Err(Fault::new(Code::ArgsInvalid, message).hint("pass large data as a file"))
}

impl Call {
    /// The name of the tool.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The source that the arguments were checked against.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// What the source is called in tracebacks.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Environment variables of this tool alone.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables.0
    }

    /// The wall time that the author of the tool has asked for.
    pub fn wall_ms(&self) -> Option<u64> {
        self.wall_ms
    }

    pub fn function(&self) -> &'static str {
        self.function
    }

    pub fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    pub fn conversions(&self) -> &Map<String, Value> {
        &self.conversions
    }

    pub fn is_test(&self) -> bool {
        self.function == TEST
    }

    /// Whether it is of a function, which has limits and an environment of its own.
    pub fn is_deployed(&self) -> bool {
        self.deployed
    }

    /// What to say when the function turns out not to be there, or not to be one.
    pub fn entry_missing(&self) -> Fault {
        let message = match self.function {
            RUN => NO_RUN,
            TEST => NO_TEST,
            _ => NO_HANDLE,
        };
        Fault::new(Code::CodeNoEntry, message)
            .hint(format!("`{}` was removed or replaced while the source ran", self.function))
    }

    /// Checks a value outside the sandbox, where nothing can lie about it any more.
    pub fn check_output(&self, value: &Value) -> Result<(), Fault> {
        let Some(output) = &self.output else { return Ok(()) };
        let Value::Object(members) = value else {
            return Err(output_fault(
                "Code runner output must be a JSON object when output_schema is defined",
            ));
        };
        match output.conform(members.clone()) {
            Ok(_) => Ok(()),
            Err(violations) => Err(output_fault(&sentences(&violations, output_violation))),
        }
    }
}

fn output_fault(message: &str) -> Fault {
    Fault::new(Code::OutputSchema, message)
        .hint("return an object as output_schema describes it, or change output_schema")
}

fn handle_arguments(input: &Object, arguments: Value) -> Result<Map<String, Value>, Fault> {
    let Value::Object(arguments) = arguments else {
        let message = format!("Arguments must be a JSON object, got {}", type_of(&arguments));
        return Err(Fault::new(Code::ArgsInvalid, message).hint(TRY_AGAIN));
    };
    input.conform(arguments).map_err(|violations| {
        let message = sentences(&violations, argument_violation);
        Fault::new(code_of(&violations), message).hint(TRY_AGAIN)
    })
}

/// Unknown fields at the top are dropped, unlike those of objects inside.
fn run_input(input: Option<&Object>, arguments: Value) -> Result<Value, Fault> {
    let Value::Object(mut arguments) = arguments else {
        let message = "Code runner execution parameters must be an object";
        return Err(Fault::new(Code::ArgsInvalid, message).hint(TRY_AGAIN));
    };
    let Some(input) = input else { return Ok(Value::Object(arguments)) };
    let names = input.names();
    arguments.retain(|name, _| names.contains(name.as_str()));
    input.conform(arguments).map(Value::Object).map_err(|violations| {
        let message = sentences(&violations, input_violation);
        Fault::new(code_of(&violations), message).hint(TRY_AGAIN)
    })
}

/// All arguments of one kind is that kind; a mixture, or a part of an argument, is invalid.
fn code_of(violations: &[Violation]) -> Code {
    let all = |is: fn(&Nonconformity) -> bool| {
        violations.iter().all(|it| it.path.depth() == 0 && is(&it.fault))
    };
    if all(|fault| matches!(fault, Nonconformity::Missing(_))) {
        Code::ArgsMissing
    } else if all(|fault| matches!(fault, Nonconformity::Unknown(_))) {
        Code::ArgsUnknown
    } else {
        Code::ArgsInvalid
    }
}

fn sentences(violations: &[Violation], say: fn(&Violation) -> String) -> String {
    let more = (violations.len() >= VIOLATIONS_MAX).then(|| "there may be more".to_owned());
    let sentences = violations.iter().map(say).chain(more).collect::<Vec<_>>().join("; ");
    cut(&sentences)
}

/// As much of a message as anybody reads.
pub(crate) fn cut(text: &str) -> String {
    cut_at(text, MESSAGE_CHARS_MAX)
}

fn cut_at(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn argument_violation(Violation { path, fault }: &Violation) -> String {
    match fault {
        Nonconformity::Missing(name) if path.depth() == 0 => {
            format!("Missing required argument '{name}'")
        }
        Nonconformity::Unknown(names) if path.depth() == 0 => {
            format!("Unknown argument(s): {}", names.join(", "))
        }
        Nonconformity::Missing(name) => format!("Invalid argument '{path}': '{name}' is missing"),
        Nonconformity::Unknown(names) => {
            format!("Invalid argument '{path}': it has no {}", names.join(", "))
        }
        Nonconformity::Type { expected, found } => {
            format!("Invalid argument '{path}': expected {expected}, got {}", describe(found))
        }
        other => format!("Invalid argument '{path}': {}", detail(other)),
    }
}

fn input_violation(violation: &Violation) -> String {
    let Violation { path, fault } = violation;
    match fault {
        Nonconformity::Missing(name) if path.depth() == 0 => {
            format!("Missing required code runner input field '{name}'")
        }
        Nonconformity::Missing(name) => {
            format!("Missing required input field '{}'", path.key(name))
        }
        Nonconformity::Unknown(names) => format!(
            "Code runner input object '{path}' contains undeclared fields: {}",
            names.join(", ")
        ),
        fault => field_violation("input", path, fault),
    }
}

fn output_violation(violation: &Violation) -> String {
    let Violation { path, fault } = violation;
    match fault {
        Nonconformity::Missing(name) => {
            format!("Code runner output missing required field '{}'", path.key(name))
        }
        Nonconformity::Unknown(names) if path.depth() == 0 => {
            format!("Code runner output contains undeclared fields: {}", names.join(", "))
        }
        Nonconformity::Unknown(names) => format!(
            "Code runner output object '{path}' contains undeclared fields: {}",
            names.join(", ")
        ),
        fault => field_violation("output", path, fault),
    }
}

fn field_violation(which: &str, path: &Path, fault: &Nonconformity) -> String {
    match fault {
        Nonconformity::Type { expected, .. } => {
            format!("Invalid {which} field '{path}' for type {}", expected.to_uppercase())
        }
        other => format!("Invalid {which} field '{path}': {}", detail(other)),
    }
}

fn detail(fault: &Nonconformity) -> String {
    match fault {
        Nonconformity::Type { expected, found } => {
            format!("expected {expected}, got {}", describe(found))
        }
        Nonconformity::Missing(name) => format!("'{name}' is missing"),
        Nonconformity::Unknown(names) => format!("it has no {}", names.join(", ")),
        Nonconformity::NotOneOf(choices) => {
            let choices: Vec<String> = choices.iter().map(Value::to_string).collect();
            format!("it must be one of {}", choices.join(", "))
        }
        Nonconformity::Below(minimum) => format!("it is less than the minimum {minimum}"),
        Nonconformity::Above(maximum) => format!("it is more than the maximum {maximum}"),
        Nonconformity::TooFewItems(least) => format!("it needs at least {least} items"),
        Nonconformity::TooManyItems(most) => format!("it takes at most {most} items"),
        Nonconformity::Format { name, found } => {
            format!("{} is not in the format {name}", describe(found))
        }
        Nonconformity::TooManyDigits => "it does not fit 64 bits; pass it as a string".to_owned(),
    }
}

pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn describe(value: &Value) -> String {
    if matches!(value, Value::Null | Value::Array(_) | Value::Object(_)) {
        return type_of(value).to_owned();
    }
    format!("{} {}", type_of(value), cut_at(&value.to_string(), SHOWN_CHARS_MAX))
}

/// What the arguments of an object become in Python, by name; those that stay as they are left
/// out.
fn fields_conversions(object: &Object) -> Map<String, Value> {
    let properties = object.properties.iter();
    properties
        .filter_map(|property| Some((property.name.clone(), conversion(&property.schema)?)))
        .collect()
}

pub(crate) fn conversion(schema: &Schema) -> Option<Value> {
    match (&schema.python, &schema.kind) {
        (Some(Python::Datetime), _) => Some(json!("datetime")),
        (Some(Python::NodeId), _) => Some(json!("node_id")),
        (Some(Python::Dataclass(name)), Kind::Object(object)) => {
            Some(json!({ "dataclass": name, "fields": fields_conversions(object) }))
        }
        (_, Kind::Array(array)) => {
            let items = array.items.as_deref().and_then(conversion)?;
            Some(json!({ "list": items }))
        }
        (_, Kind::Object(Object { others: Others::Each(each), .. })) => {
            conversion(each).map(|each| json!({ "values": each }))
        }
        (_, Kind::Object(object)) => {
            let fields = fields_conversions(object);
            (!fields.is_empty()).then(|| json!({ "fields": fields }))
        }
        _ => None,
    }
}
