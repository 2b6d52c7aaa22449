//! Features that only the legacy revision has: server requests to the client during a call, and log
//! messages.

use crate::harness::wait;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequestParams,
    LoggingLevel, LoggingMessageNotificationParam,
};
use rmcp::service::{RequestContext, ServiceError};
use rmcp::{ErrorData, RoleServer};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

const LOGGING: &str = "test_tool_with_logging";
const LOGGING_ON_REQUEST: &str = "test_logging_tool";
const SAMPLING: &str = "test_sampling";
const ELICITATION: &str = "test_elicitation";
const ELICITATION_DEFAULTS: &str = "test_elicitation_sep1034_defaults";
const ELICITATION_ENUMS: &str = "test_elicitation_sep1330_enums";
pub(super) const NAMES: &[&str] =
    &[LOGGING, LOGGING_ON_REQUEST, SAMPLING, ELICITATION, ELICITATION_DEFAULTS, ELICITATION_ENUMS];

/// Pause between two messages, so that the suite sees them arrive one by one.
const PAUSE: Duration = Duration::from_millis(50);

type Context = RequestContext<RoleServer>;

pub(super) async fn call(
    request: &CallToolRequestParams,
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    let argument = |name: &str| {
        let value = request.arguments.as_ref().and_then(|given| given.get(name)?.as_str());
        value.unwrap_or_default().to_owned()
    };
    let result = match request.name.as_ref() {
        LOGGING => send_logs(context).await,
        LOGGING_ON_REQUEST => send_requested_logs(context).await,
        SAMPLING => sample(&argument("prompt"), context).await,
        ELICITATION_DEFAULTS => {
            elicit("All of these have a default.", defaults_schema(), context).await
        }
        ELICITATION_ENUMS => elicit("Choose.", choices_schema(), context).await,
        _ => elicit(&argument("message"), username_schema(), context).await,
    };
    let result = result.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(CallToolResult::success(vec![ContentBlock::text(result)]).into())
}

async fn send_logs(context: &Context) -> Result<String, ServiceError> {
    for message in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        log(LoggingLevel::Info, message, context).await?;
        wait::slow_peer(PAUSE).await;
    }
    Ok("logged".to_owned())
}

/// In the current revision, a request states whether it wants log messages.
async fn send_requested_logs(context: &Context) -> Result<String, ServiceError> {
    if let Some(level) = context.meta.log_level() {
        log(level, "as wanted", context).await?;
    }
    Ok("done".to_owned())
}

async fn log(level: LoggingLevel, message: &str, context: &Context) -> Result<(), ServiceError> {
    let message = LoggingMessageNotificationParam::new(level, json!(message));
    context.peer.notify_logging_message(message).await
}

async fn sample(prompt: &str, context: &Context) -> Result<String, ServiceError> {
    let request = read(json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": prompt}}],
        "maxTokens": 100,
    }))?;
    let answer = context.peer.create_message(request).await?;
    Ok(json!(answer).to_string())
}

async fn elicit(
    message: &str,
    properties: Value,
    context: &Context,
) -> Result<String, ServiceError> {
    let schema = json!({"type": "object", "properties": properties});
    let question = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message.to_owned(),
        requested_schema: read(schema)?,
    };
    let answer = context.peer.create_elicitation(question).await?;
    Ok(json!(answer).to_string())
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, ServiceError> {
    serde_json::from_value(value)
        .map_err(|error| ServiceError::McpError(ErrorData::internal_error(error.to_string(), None)))
}

fn username_schema() -> Value {
    json!({"username": {"type": "string"}, "email": {"type": "string"}})
}

fn defaults_schema() -> Value {
    json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": true},
    })
}

fn choices_schema() -> Value {
    let plain = json!(["option1", "option2", "option3"]);
    let titled = json!([
        {"const": "value1", "title": "First"},
        {"const": "value2", "title": "Second"},
        {"const": "value3", "title": "Third"},
    ]);
    json!({
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    })
}
