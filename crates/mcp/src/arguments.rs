//! Arguments of the built-in tools. Invalid arguments are a tool error that names the argument, so
//! that a model can correct the call.

use rmcp::model::JsonObject;
use serde::de::DeserializeOwned;
use serde_json::Value;
use types::{Error, ErrorCode, SandboxId};

/// Rejects arguments that the schema lacks: an argument can never change the caller's identity.
pub(crate) fn parse_arguments<T: DeserializeOwned>(
    given: Option<JsonObject>,
    schema: &JsonObject,
) -> Result<T, Error> {
    let given = given.unwrap_or_default();
    let known = schema.get("properties").and_then(Value::as_object);
    if let Some(name) =
        given.keys().find(|name| !known.is_some_and(|known| known.contains_key(*name)))
    {
        return Err(Error::new(ErrorCode::ArgsUnknown, format!("unknown argument {name:?}"))
            .hint("use the arguments of the tool's input schema"));
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        if given.get(name).is_none_or(Value::is_null) {
            return Err(Error::new(
                ErrorCode::ArgsMissing,
                format!("missing required argument {name:?}"),
            ));
        }
    }
    for (name, value) in &given {
        let wanted = known.and_then(|known| known.get(name)?.get("type")?.as_str());
        if let Some(wanted) =
            wanted.filter(|wanted| !value.is_null() && !has_json_type(value, wanted))
        {
            let message = format!("argument {name:?} must be of type {wanted}");
            return Err(Error::new(ErrorCode::ArgsInvalid, message));
        }
    }
    serde_json::from_value(Value::Object(given))
        .map_err(|error| Error::new(ErrorCode::ArgsInvalid, error.to_string()))
}

fn has_json_type(value: &Value, wanted: &str) -> bool {
    match wanted {
        "string" => value.is_string(),
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        _ => true,
    }
}

pub(crate) fn parse_session(handle: &str) -> Result<SandboxId, Error> {
    handle.parse().map_err(|_| {
        Error::new(
            ErrorCode::ArgsInvalid,
            format!("argument \"session\" is not a session handle: {handle:?}"),
        )
        .hint("use the `session` that create_session returned")
    })
}
