//! Call Function, the other kind of tool in vendor document 000: it has no code, and calls a
//! function that was deployed separately.

use crate::arguments_schema::ArgumentsSchema;
use crate::call::ARGUMENTS_BYTES_MAX;
use crate::call::check_size;
use crate::diagnostic::SourceCheck;
use crate::tool::invalid;
use crate::tool_json::{JsonReader, read_name_and_description};
use serde_json::{Map, Value};
use types::Error;

/// The vendor platform's maximum.
pub const POLLING_SECONDS_MAX: u64 = 540;

#[derive(Debug, Clone)]
pub struct CallFunctionTool {
    pub name: String,
    /// Its purpose, in its author's words to the model.
    pub description: String,
    /// The name of the function.
    pub external_id: String,
    /// How long a model waits for it.
    pub polling_seconds: u64,
    pub schema: ArgumentsSchema,
    /// Limit of the arguments, as JSON.
    pub input_bytes_max: usize,
}

impl CallFunctionTool {
    /// Parses `{"type":"callFunction","name","description","configuration":{"externalId",…}}`.
    pub fn from_json(tool: &Map<String, Value>) -> SourceCheck<Self> {
        let mut reader = JsonReader { object: tool, path: "$", problems: Vec::new() };
        reader.check_known_keys(&["type", "name", "description", "configuration"]);
        let (name, description) = read_name_and_description(&mut reader);
        let empty = Map::new();
        let configuration = tool.get("configuration").and_then(Value::as_object);
        let mut inner = JsonReader {
            object: configuration.unwrap_or(&empty),
            path: "$.configuration",
            problems: reader.problems,
        };
        inner.check_known_keys(&["externalId", "maxPollingTime", "schema"]);
        let external_id = inner.read_text("externalId").unwrap_or_default();
        if external_id.trim().is_empty() {
            inner.add_problem("externalId", "'externalId' must be the name of a deployed function");
        }
        let polling_seconds = read_polling(&mut inner);
        let schema = read_schema(&mut inner);
        let warnings = Vec::new();
        match schema {
            Some(schema) if inner.problems.is_empty() => {
                let input_bytes_max = ARGUMENTS_BYTES_MAX;
                let outcome = Ok(Self {
                    name,
                    description,
                    external_id,
                    polling_seconds,
                    schema,
                    input_bytes_max,
                });
                SourceCheck { result: outcome, warnings }
            }
            _ => invalid(inner.problems),
        }
    }

    /// Checks that the function may be called with these arguments.
    pub fn check(&self, arguments: &Value) -> Result<(), Error> {
        check_size(arguments, self.input_bytes_max)?;
        self.schema.check(arguments)
    }
}

fn read_polling(reader: &mut JsonReader<'_>) -> u64 {
    match reader.get_non_null("maxPollingTime").map(Value::as_u64) {
        None => POLLING_SECONDS_MAX,
        Some(Some(seconds @ 1..=POLLING_SECONDS_MAX)) => seconds,
        Some(_) => {
            let message = format!(
                "'maxPollingTime' must be a number of seconds from 1 to {POLLING_SECONDS_MAX}"
            );
            reader.add_problem("maxPollingTime", message);
            POLLING_SECONDS_MAX
        }
    }
}

fn read_schema(reader: &mut JsonReader<'_>) -> Option<ArgumentsSchema> {
    let written = match reader.get_non_null("schema") {
        None => Map::new(),
        Some(Value::Object(written)) => written.clone(),
        Some(_) => {
            reader.add_problem("schema", "'schema' must be a JSON Schema, an object");
            return None;
        }
    };
    ArgumentsSchema::new(written)
        .map_err(|error| reader.add_problem("schema", error.to_string()))
        .ok()
}
