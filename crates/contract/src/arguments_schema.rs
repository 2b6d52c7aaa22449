//! Arguments that are checked against a JSON Schema and passed on unchanged.

use crate::call::{TRY_AGAIN, error_code_of};
use crate::json_schema::{JsonSchema, JsonSchemaError, MismatchKind, SchemaMismatch};
use crate::message_text::{json_type_name, truncate_message};
use crate::value_memory::value_memory;
use serde_json::{Map, Value, json};
use types::{Error, ErrorCode};

/// A JSON Schema of arguments, which are always an object.
#[derive(Debug, Clone)]
pub struct ArgumentsSchema {
    source: Map<String, Value>,
    schema: JsonSchema,
    memory_bytes: usize,
}

impl ArgumentsSchema {
    pub fn new(written: Map<String, Value>) -> Result<Self, JsonSchemaError> {
        match written.get("type") {
            None => {}
            Some(Value::String(kind)) if kind == "object" => {}
            Some(_) => return Err(JsonSchemaError::NotAnObjectSchema),
        }
        let written = Value::Object(written);
        let schema = JsonSchema::new(&written)?;
        let memory_bytes = value_memory(&written) + schema.memory_bytes();
        let Value::Object(source) = written else { return Err(JsonSchemaError::NotAnObjectSchema) };
        Ok(Self { source, schema, memory_bytes })
    }

    /// The schema as a model sees it.
    pub fn descriptor(&self) -> Value {
        let mut shown = self.source.clone();
        shown.entry("type").or_insert_with(|| json!("object"));
        Value::Object(shown)
    }

    /// Estimates its memory, with its compiled patterns.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    pub fn check(&self, arguments: &Value) -> Result<(), Error> {
        if !arguments.is_object() {
            let kind = json_type_name(arguments);
            let message = format!("Arguments must be a JSON object, got {kind}");
            return Err(Error::new(ErrorCode::ArgsInvalid, message).hint(TRY_AGAIN));
        }
        let mismatches = self.schema.find_mismatches(arguments);
        if mismatches.is_empty() {
            return Ok(());
        }
        let all = |kind: MismatchKind| {
            mismatches.iter().all(|it| it.kind() == kind && it.top_level_name().is_some())
        };
        let code = error_code_of(all(MismatchKind::Missing), all(MismatchKind::Unknown));
        let message = mismatches.iter().map(mismatch_text).collect::<Vec<_>>().join("; ");
        Err(Error::new(code, truncate_message(&message)).hint(TRY_AGAIN))
    }
}

fn mismatch_text(mismatch: &SchemaMismatch) -> String {
    let message = mismatch.message();
    match (mismatch.kind(), mismatch.top_level_name()) {
        (MismatchKind::Missing, Some(name)) => {
            let more = message.strip_prefix("is missing").unwrap_or_default();
            format!("Missing required argument '{name}'{more}")
        }
        (MismatchKind::Unknown, Some(name)) => {
            let more = message.strip_prefix("is unknown").unwrap_or_default();
            format!("Unknown argument '{name}'{more}")
        }
        _ if mismatch.path().is_empty() => format!("Invalid arguments: {message}"),
        _ => format!("Invalid argument '{}': {message}", mismatch.path()),
    }
}
