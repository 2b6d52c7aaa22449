//! Converts a request to genai's types; genai adapts it to each provider.

use super::endpoint::ProviderApi;
use crate::model::{Message, ModelRequest, ToolCall, ToolCallMode};
use genai::chat::{
    CacheControl, ChatMessage, ChatOptions, ChatRequest, MessageContent, ReasoningEffort, Tool,
    ToolChoice, ToolResponse,
};
use serde_json::{Value, json};

pub(super) fn chat_request(ask: &ModelRequest) -> ChatRequest {
    let messages = ask.messages.iter().filter_map(chat_message).collect();
    let mut request = ChatRequest::new(messages);
    if !ask.system.is_empty() {
        request = request.with_system(&ask.system);
    }
    if !ask.tools.is_empty() {
        request = request.with_tools(ask.tools.iter().map(|offer| {
            Tool::new(&offer.name)
                .with_description(&offer.description)
                .with_schema(offer.input_schema.clone())
        }));
    }
    request
}

pub(super) fn chat_options(ask: &ModelRequest, wire: ProviderApi) -> ChatOptions {
    let mut options = ChatOptions::default()
        .with_capture_usage(true)
        // `tool_calls.rs` assembles the calls of chat completions.
        .with_capture_tool_calls(wire != ProviderApi::ChatCompletions)
        // The only cache setting that every provider either supports or does not receive.
        .with_cache_control(CacheControl::Ephemeral5m);
    // Some providers reject a tool choice without tools.
    if !ask.tools.is_empty() {
        options.tool_choice = tool_choice(&ask.call_mode);
    }
    options.reasoning_effort = Some(default_effort(wire));
    options
}

/// Without an explicit effort, genai strips `-max` or `-high` from the end of a model name, where
/// it may belong. These values send nothing, except that they turn off the default thinking of
/// Anthropic's models: their thoughts would have to be sent back with each call, and are not kept.
fn default_effort(wire: ProviderApi) -> ReasoningEffort {
    match wire {
        ProviderApi::ChatCompletions | ProviderApi::Responses => ReasoningEffort::Budget(0),
        ProviderApi::Anthropic | ProviderApi::Gemini => ReasoningEffort::Zero,
    }
}

fn tool_choice(choice: &ToolCallMode) -> Option<ToolChoice> {
    match choice {
        ToolCallMode::Auto => None,
        ToolCallMode::Required => Some(ToolChoice::Required),
        ToolCallMode::Tool(name) => Some(ToolChoice::tool(name)),
    }
}

/// `None` for an empty response: providers reject empty messages.
fn chat_message(message: &Message) -> Option<ChatMessage> {
    match message {
        Message::User { text } => Some(ChatMessage::user(text)),
        Message::Model { text, calls } if text.is_empty() && calls.is_empty() => None,
        Message::Model { text, calls } => {
            let mut content = MessageContent::default();
            if !text.is_empty() {
                content.push(text.as_str());
            }
            content.extend(calls.iter().map(|call| chat_tool_call(call).into()));
            Some(ChatMessage::assistant(content))
        }
        Message::Tools { results } => {
            let results: Vec<_> = results
                .iter()
                .map(|result| {
                    ToolResponse::new(&result.call_id, &result.text).with_fn_name(&result.name)
                })
                .collect();
            Some(ChatMessage::from(results))
        }
    }
}

fn chat_tool_call(call: &ToolCall) -> genai::chat::ToolCall {
    genai::chat::ToolCall {
        call_id: call.id.clone(),
        fn_name: call.name.clone(),
        // Providers accept only an object, even if the model wrote something else.
        fn_arguments: match &call.arguments {
            Value::Object(arguments) => Value::Object(arguments.clone()),
            other => json!({ "unreadable": other }),
        },
        thought_signatures: None,
    }
}
