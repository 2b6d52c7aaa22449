//! Promises of the provider models, over the real protocol of each provider.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

extern crate belljar_agent as agent;

#[path = "../../../../tests/harness/model.rs"]
mod model;

#[path = "../../../../tests/harness/wait.rs"]
mod wait;

mod answers;
mod recordings;
mod secrets;
mod troubles;

use agent::{
    Message, Model, ModelError, ModelRequest, ModelResponse, ModelSettings, Models,
    ProviderRetryPolicy, ToolCallMode, ToolDefinition,
};
use model::ModelServer;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KEY: &str = "sk-test-0123456789";

/// One model of each kind of provider.
const EACH: [&str; 5] = [
    "openai/gpt-4.1",
    "openai-responses/gpt-4.1",
    "anthropic/claude-sonnet-4-5",
    "gemini/gemini-2.5-pro",
    "ollama/llama3",
];

/// Short delays and timeouts.
const PATIENCE: ProviderRetryPolicy = ProviderRetryPolicy {
    first_event_timeout: Duration::from_secs(5),
    event_timeout: Duration::from_secs(5),
    response_timeout: Duration::from_secs(20),
    attempts_max: 3,
    retry_delay: Duration::from_millis(5),
    retry_delay_max: Duration::from_secs(2),
};

fn settings(server: &ModelServer) -> ModelSettings {
    let variables = [
        ("OPENAI_API_KEY", KEY.to_owned()),
        ("OPENAI_BASE_URL", server.url()),
        ("ANTHROPIC_API_KEY", KEY.to_owned()),
        ("ANTHROPIC_BASE_URL", server.host()),
        ("GEMINI_API_KEY", KEY.to_owned()),
        ("GEMINI_BASE_URL", server.host()),
        ("OLLAMA_HOST", server.host()),
    ];
    ModelSettings {
        variables: variables.map(|(name, value)| (name.to_owned(), value)).into(),
        retry_policy: PATIENCE,
        ..ModelSettings::default()
    }
}

fn choose(server: &ModelServer, name: &str) -> Arc<dyn Model> {
    Models::new(settings(server)).unwrap().choose(Some(name)).unwrap()
}

fn impatient(
    server: &ModelServer,
    name: &str,
    retry_policy: ProviderRetryPolicy,
) -> Arc<dyn Model> {
    let settings = ModelSettings { retry_policy, ..settings(server) };
    Models::new(settings).unwrap().choose(Some(name)).unwrap()
}

fn question() -> ModelRequest {
    ModelRequest {
        system: "You calculate.".to_owned(),
        messages: vec![Message::User { text: "What is six times seven?".to_owned() }],
        tools: vec![ToolDefinition {
            name: "run_python".to_owned(),
            description: "Runs code.".to_owned(),
            input_schema: json!({"type": "object", "properties": {"code": {"type": "string"}}}),
        }],
        call_mode: ToolCallMode::Auto,
    }
}

async fn answer(model: &dyn Model) -> Result<ModelResponse, ModelError> {
    model.respond(&question(), &|_| {}).await
}

/// The response, and the pieces in which it was streamed.
async fn hear(model: &dyn Model) -> (Result<ModelResponse, ModelError>, Vec<String>) {
    let pieces = Mutex::new(Vec::new());
    let listener = |piece: &str| pieces.lock().unwrap().push(piece.to_owned());
    let answer = model.respond(&question(), &listener).await;
    (answer, pieces.into_inner().unwrap())
}

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}
