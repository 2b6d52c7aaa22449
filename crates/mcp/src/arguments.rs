//! Arguments of the built-in tools. Invalid arguments are a tool error that names the argument, so
//! that a model can correct the call.

use contract::ArgumentsSchema;
use rmcp::model::JsonObject;
use serde::de::DeserializeOwned;
use serde_json::Value;
use service::{Caller, RequestError, Service};
use types::{Error, ErrorCode, SandboxId};

/// Reads arguments on a thread that may block, in the turn of the caller's workspace: they have up to
/// 8 MiB, as the message.
pub(crate) async fn read_arguments<T: Send + 'static>(
    service: &Service,
    caller: &Caller,
    arguments: Option<JsonObject>,
    read: fn(Option<JsonObject>) -> Result<T, Error>,
) -> Result<T, RequestError> {
    Ok(service.run_check(caller, move || read(arguments)).await??)
}

/// Rejects arguments that the schema lacks: an argument can never change the caller's identity. Models
/// send null for an argument that they leave out. For [`read_arguments`], on no thread that serves.
pub(crate) fn parse_arguments<T: DeserializeOwned>(
    arguments: Option<JsonObject>,
    schema: JsonObject,
) -> Result<T, Error> {
    let mut arguments = arguments.unwrap_or_default();
    let known = schema.get("properties").and_then(Value::as_object);
    let is_known = |name: &str| known.is_some_and(|known| known.contains_key(name));
    arguments.retain(|name, value| !value.is_null() || !is_known(name));
    let arguments = Value::Object(arguments);
    let schema = ArgumentsSchema::new(schema)
        .map_err(|error| Error::new(ErrorCode::ServerFault, error.to_string()))?;
    schema.check(&arguments)?;
    serde_json::from_value(arguments)
        .map_err(|error| Error::new(ErrorCode::ArgsInvalid, error.to_string()))
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
