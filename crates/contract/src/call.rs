//! Validates the arguments of a call, and the value that it returns.
//!
//! A [`ValidatedCall`] exists only for arguments that conform, so that nothing is ever called with
//! arguments that its contract does not allow.

use crate::conform::{VIOLATIONS_MAX, ValuePath, Violation, ViolationKind};
use crate::message_text::{describe_value, join_shown, json_type_name, truncate_message};
use crate::schema::{AdditionalProperties, ObjectSchema, PythonConversion, Schema, SchemaKind};
use crate::tool::{
    CodeTool, NO_RUN, RUN_FUNCTION, TEST_FUNCTION, TestFunction, ToolEntryPoint, ToolVariables,
};
use crate::{HANDLE, NO_HANDLE};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::{Error, ErrorCode};

/// Default limit of arguments. A model does not write more, and larger data belongs in a file.
pub const ARGUMENTS_BYTES_MAX: usize = 1024 * 1024;
const NO_TEST: &str = "Function 'test' not found.";
pub(crate) const TRY_AGAIN: &str =
    "the tool was not called; call it again with arguments that match its schema";

/// A function of a tool with arguments that conform.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidatedCall {
    pub(crate) tool: String,
    pub(crate) code: String,
    pub(crate) file: String,
    pub(crate) variables: ToolVariables,
    pub(crate) wall_ms: Option<u64>,
    pub(crate) function: &'static str,
    pub(crate) arguments: CallArguments,
    /// The Python conversion of each argument, by parameter.
    pub(crate) conversions: Map<String, Value>,
    pub(crate) output: Option<ObjectSchema>,
    pub(crate) is_deployed: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum CallArguments {
    /// For `handle`.
    Keywords(Map<String, Value>),
    /// For `run`: the input.
    Input(Value),
    /// For `test`.
    None,
}

impl CodeTool {
    /// Checks arguments against the contract.
    pub fn validate_call(&self, arguments: Value) -> Result<ValidatedCall, Error> {
        self.check_size(&arguments)?;
        match &self.entry {
            ToolEntryPoint::Handle { input } => {
                let keywords = handle_arguments(input, arguments)?;
                Ok(ValidatedCall {
                    conversions: fields_conversions(input),
                    ..self.build_call(HANDLE, CallArguments::Keywords(keywords))
                })
            }
            ToolEntryPoint::Run { input, output } => {
                let input = run_input(input.as_ref(), arguments)?;
                let output = output.clone();
                Ok(ValidatedCall {
                    output,
                    ..self.build_call(RUN_FUNCTION, CallArguments::Input(input))
                })
            }
        }
    }

    /// The call of `test()`, if it exists and is callable.
    pub fn test_call(&self) -> Result<ValidatedCall, Error> {
        let error = match self.test {
            TestFunction::Present => return Ok(self.build_call(TEST_FUNCTION, CallArguments::None)),
            TestFunction::Absent => Error::new(ErrorCode::CodeNoEntry, NO_TEST)
                .hint("the tool itself is valid; to test it, add `def test():` with asserts"),
            TestFunction::WithParameters => Error::new(
                ErrorCode::CodeType,
                "test() has parameters, and no parameters are allowed",
            ),
        };
        Err(error)
    }

    fn build_call(&self, function: &'static str, arguments: CallArguments) -> ValidatedCall {
        ValidatedCall {
            tool: self.name.clone(),
            code: self.source.as_str().to_owned(),
            file: self.file.clone(),
            variables: self.variables.clone(),
            wall_ms: self.timeout_seconds.map(|seconds| seconds.saturating_mul(1000)),
            function,
            arguments,
            conversions: Map::new(),
            output: None,
            is_deployed: false,
        }
    }

    fn check_size(&self, arguments: &Value) -> Result<(), Error> {
        let most = self.input_bytes_max;
        check_size(arguments, most).map_err(|error| match self.entry {
            ToolEntryPoint::Handle { .. } => error,
            ToolEntryPoint::Run { .. } => {
                let message = format!("Code runner '{}' input exceeds {most} bytes", self.name);
                Error { message, ..error }
            }
        })
    }
}

/// Checks the size of the arguments as JSON.
pub(crate) fn check_size(arguments: &Value, most: usize) -> Result<(), Error> {
    let bytes = arguments.to_string().len();
    if bytes <= most {
        return Ok(());
    }
    let message = format!("The arguments have {bytes} bytes; at most {most} are allowed");
    Err(Error::new(ErrorCode::ArgsInvalid, message).hint("pass large data as a file"))
}

impl ValidatedCall {
    /// The name of the tool.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The source that the arguments were checked against.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The file name of the source in tracebacks.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Environment variables of this tool.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables.0
    }

    /// The wall-clock limit that the author of the tool has set.
    pub fn wall_ms(&self) -> Option<u64> {
        self.wall_ms
    }

    pub fn function(&self) -> &'static str {
        self.function
    }

    pub fn arguments(&self) -> &CallArguments {
        &self.arguments
    }

    pub fn conversions(&self) -> &Map<String, Value> {
        &self.conversions
    }

    pub fn is_test(&self) -> bool {
        self.function == TEST_FUNCTION
    }

    /// Whether it calls a deployed function, which has its own limits and environment.
    pub fn is_deployed(&self) -> bool {
        self.is_deployed
    }

    /// The error for a function that is missing or not callable.
    pub fn missing_function_error(&self) -> Error {
        let message = match self.function {
            RUN_FUNCTION => NO_RUN,
            TEST_FUNCTION => NO_TEST,
            _ => NO_HANDLE,
        };
        Error::new(ErrorCode::CodeNoEntry, message).hint(format!(
            "function `{}` was removed or replaced while the source ran",
            self.function
        ))
    }

    /// Checks a value outside the sandbox, where code can no longer change it.
    pub fn check_output(&self, value: &Value) -> Result<(), Error> {
        let Some(output) = &self.output else { return Ok(()) };
        let Value::Object(members) = value else {
            return Err(output_error(
                "Code runner output must be a JSON object when output_schema is defined",
            ));
        };
        match output.conform(members.clone()) {
            Ok(_) => Ok(()),
            Err(violations) => Err(output_error(&join_violations(&violations, output_violation))),
        }
    }
}

fn output_error(message: &str) -> Error {
    Error::new(ErrorCode::OutputSchema, message)
        .hint("return an object that matches output_schema, or change output_schema")
}

fn handle_arguments(input: &ObjectSchema, arguments: Value) -> Result<Map<String, Value>, Error> {
    let Value::Object(arguments) = arguments else {
        let message =
            format!("Arguments must be a JSON object, got {}", json_type_name(&arguments));
        return Err(Error::new(ErrorCode::ArgsInvalid, message).hint(TRY_AGAIN));
    };
    input.conform(arguments).map_err(|violations| {
        let message = join_violations(&violations, argument_violation);
        Error::new(violations_code(&violations), message).hint(TRY_AGAIN)
    })
}

/// Drops unknown top-level fields, unlike those of nested objects.
fn run_input(input: Option<&ObjectSchema>, arguments: Value) -> Result<Value, Error> {
    let Value::Object(mut arguments) = arguments else {
        let message = "Code runner execution parameters must be an object";
        return Err(Error::new(ErrorCode::ArgsInvalid, message).hint(TRY_AGAIN));
    };
    let Some(input) = input else { return Ok(Value::Object(arguments)) };
    arguments.retain(|name, _| input.properties.position(name).is_some());
    input.conform(arguments).map(Value::Object).map_err(|violations| {
        let message = join_violations(&violations, input_violation);
        Error::new(violations_code(&violations), message).hint(TRY_AGAIN)
    })
}

fn violations_code(violations: &[Violation]) -> ErrorCode {
    let all = |is: fn(&ViolationKind) -> bool| {
        violations.iter().all(|it| it.path.depth() == 0 && is(&it.kind))
    };
    let all_missing = all(|kind| matches!(kind, ViolationKind::Missing(_)));
    error_code_of(all_missing, all(|kind| matches!(kind, ViolationKind::Unknown(_))))
}

/// If all errors are of one kind, that kind; for a mixture, or a part of an argument, invalid.
pub(crate) fn error_code_of(all_missing: bool, all_unknown: bool) -> ErrorCode {
    if all_missing {
        ErrorCode::ArgsMissing
    } else if all_unknown {
        ErrorCode::ArgsUnknown
    } else {
        ErrorCode::ArgsInvalid
    }
}

/// Also the message of a check against a JSON Schema.
pub(crate) const TOO_MANY_STEPS: &str =
    "takes too long to check against the schema; make it smaller";

fn join_violations(violations: &[Violation], say: fn(&Violation) -> String) -> String {
    let more = (violations.len() >= VIOLATIONS_MAX).then(|| "there may be more errors".to_owned());
    let sentences = violations.iter().map(say).chain(more).collect::<Vec<_>>().join("; ");
    truncate_message(&sentences)
}

fn argument_violation(Violation { path, kind }: &Violation) -> String {
    match kind {
        ViolationKind::Missing(name) if path.depth() == 0 => {
            format!("Missing required argument '{name}'")
        }
        ViolationKind::Unknown(names) if path.depth() == 0 => {
            format!("Unknown argument(s): {}", join_shown(names))
        }
        ViolationKind::Missing(name) => format!("Invalid argument '{path}': '{name}' is missing"),
        ViolationKind::Unknown(names) => {
            format!("Invalid argument '{path}': it has no {}", join_shown(names))
        }
        ViolationKind::Type { expected, found } => {
            format!("Invalid argument '{path}': expected {expected}, got {}", describe_value(found))
        }
        ViolationKind::TooManySteps => format!("Invalid arguments: {TOO_MANY_STEPS}"),
        other => format!("Invalid argument '{path}': {}", detail(other)),
    }
}

fn input_violation(violation: &Violation) -> String {
    let Violation { path, kind } = violation;
    match kind {
        ViolationKind::Missing(name) if path.depth() == 0 => {
            format!("Missing required code runner input field '{name}'")
        }
        ViolationKind::Missing(name) => {
            format!("Missing required input field '{}'", path.child(name))
        }
        ViolationKind::Unknown(names) => format!(
            "Code runner input object '{path}' contains undeclared fields: {}",
            join_shown(names)
        ),
        kind => field_violation("input", path, kind),
    }
}

fn output_violation(violation: &Violation) -> String {
    let Violation { path, kind } = violation;
    match kind {
        ViolationKind::Missing(name) => {
            format!("Code runner output missing required field '{}'", path.child(name))
        }
        ViolationKind::Unknown(names) if path.depth() == 0 => {
            format!("Code runner output contains undeclared fields: {}", join_shown(names))
        }
        ViolationKind::Unknown(names) => format!(
            "Code runner output object '{path}' contains undeclared fields: {}",
            join_shown(names)
        ),
        kind => field_violation("output", path, kind),
    }
}

fn field_violation(which: &str, path: &ValuePath, kind: &ViolationKind) -> String {
    match kind {
        ViolationKind::Type { expected, .. } => {
            format!("Invalid {which} field '{path}' for type {}", expected.to_uppercase())
        }
        ViolationKind::TooManySteps => format!("Invalid {which}: {TOO_MANY_STEPS}"),
        other => format!("Invalid {which} field '{path}': {}", detail(other)),
    }
}

fn detail(kind: &ViolationKind) -> String {
    match kind {
        ViolationKind::Type { expected, found } => {
            format!("expected {expected}, got {}", describe_value(found))
        }
        ViolationKind::Missing(name) => format!("'{name}' is missing"),
        ViolationKind::Unknown(names) => format!("it has no {}", join_shown(names)),
        ViolationKind::NotOneOf(choices) => {
            format!("it must be one of {}", join_shown(choices))
        }
        ViolationKind::Below(minimum) => format!("it is less than the minimum {minimum}"),
        ViolationKind::Above(maximum) => format!("it is more than the maximum {maximum}"),
        ViolationKind::TooFewItems(least) => format!("it needs at least {least} items"),
        ViolationKind::TooManyItems(most) => format!("it allows at most {most} items"),
        ViolationKind::Format { name, found } => {
            format!("{} is not in the format {name}", describe_value(found))
        }
        ViolationKind::TooManyDigits => {
            "it does not fit into 64 bits; pass it as a string".to_owned()
        }
        ViolationKind::TooManySteps => TOO_MANY_STEPS.to_owned(),
    }
}

/// The Python conversions of an object's arguments, by name; unconverted ones are omitted.
fn fields_conversions(object: &ObjectSchema) -> Map<String, Value> {
    let properties = object.properties.iter();
    properties
        .filter_map(|property| Some((property.name.clone(), conversion(&property.schema)?)))
        .collect()
}

pub(crate) fn conversion(schema: &Schema) -> Option<Value> {
    match (&schema.conversion, &schema.kind) {
        (Some(PythonConversion::Datetime), _) => Some(json!("datetime")),
        (Some(PythonConversion::NodeId), _) => Some(json!("node_id")),
        (Some(PythonConversion::Dataclass(name)), SchemaKind::Object(object)) => {
            Some(json!({ "dataclass": name, "fields": fields_conversions(object) }))
        }
        (_, SchemaKind::Array(array)) => {
            let items = array.items.as_deref().and_then(conversion)?;
            Some(json!({ "list": items }))
        }
        (
            _,
            SchemaKind::Object(ObjectSchema {
                additional_properties: AdditionalProperties::Matching(each),
                ..
            }),
        ) => conversion(each).map(|each| json!({ "values": each })),
        (_, SchemaKind::Object(object)) => {
            let fields = fields_conversions(object);
            (!fields.is_empty()).then(|| json!({ "fields": fields }))
        }
        _ => None,
    }
}
