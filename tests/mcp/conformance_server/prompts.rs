//! Prompts for the suite, and completions of their arguments.

use super::content::{PNG, embedded_resource};
use super::input::{CONTEXT_FIRST, InputRound, RetryInput, next_round};
use rmcp::model::{
    ContentBlock, GetPromptRequestParams, GetPromptResponse, GetPromptResult, Prompt,
    PromptArgument, PromptMessage, Role,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

const SIMPLE: &str = "test_simple_prompt";
const ARGUMENTS: &str = "test_prompt_with_arguments";
const EMBEDDED: &str = "test_prompt_with_embedded_resource";
const IMAGE: &str = "test_prompt_with_image";
const ASKS: &str = "test_input_required_result_prompt";

/// Completions of an argument.
const WORDS: [&str; 3] = ["paris", "park", "party"];

pub(super) fn list_prompts() -> impl Iterator<Item = Prompt> {
    let kinds: [(&str, &[&str]); 5] = [
        (SIMPLE, &[]),
        (ARGUMENTS, &["arg1", "arg2"]),
        (EMBEDDED, &["resourceUri"]),
        (IMAGE, &[]),
        (ASKS, &[]),
    ];
    kinds.into_iter().map(|(name, arguments)| {
        let arguments = arguments.iter().map(|name| PromptArgument::new(*name).with_required(true));
        Prompt::new(name, Some("Of the conformance suite."), Some(arguments.collect()))
    })
}

/// Returns `None` for an unknown prompt.
pub(super) fn get_prompt(
    request: &GetPromptRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<Option<GetPromptResponse>, ErrorData> {
    let argument = |name: &str| {
        let value = request.arguments.as_ref().and_then(|given| given.get(name));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let content = match request.name.as_str() {
        SIMPLE => ContentBlock::text("a simple prompt"),
        ARGUMENTS => ContentBlock::text(format!("{} and {}", argument("arg1"), argument("arg2"))),
        EMBEDDED => embedded_resource(&argument("resourceUri"), "text/plain", "embedded"),
        IMAGE => ContentBlock::image(PNG, "image/png"),
        ASKS => match next_round(CONTEXT_FIRST, RetryInput::from_prompt(request), context)? {
            InputRound::InputRequired(required) => return Ok(Some(required.into())),
            InputRound::Complete(answers) => ContentBlock::text(json!(answers).to_string()),
        },
        _ => return Ok(None),
    };
    let message = PromptMessage::new(Role::User, content);
    Ok(Some(GetPromptResult::new(vec![message]).into()))
}

pub(super) fn completions_of(begun: &str) -> Vec<String> {
    let fitting = WORDS.iter().filter(|word| word.starts_with(begun));
    fitting.map(|word| (*word).to_owned()).collect()
}
