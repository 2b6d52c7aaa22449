//! What is asked, in the words of genai, which knows how each provider wants to hear it.

use super::endpoint::Wire;
use crate::model::{Ask, Choice, Message, ToolCall};
use genai::chat::{
    CacheControl, ChatMessage, ChatOptions, ChatRequest, MessageContent, ReasoningEffort, Tool,
    ToolChoice, ToolResponse,
};
use serde_json::{Value, json};

pub(super) fn request(ask: &Ask) -> ChatRequest {
    let messages = ask.messages.iter().filter_map(message).collect();
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

pub(super) fn options(ask: &Ask, wire: Wire) -> ChatOptions {
    let mut options = ChatOptions::default()
        .with_capture_usage(true)
        // Those of chat completions are put together in `Calls`.
        .with_capture_tool_calls(wire != Wire::Chat)
        // The one that every provider either understands or is not told about.
        .with_cache_control(CacheControl::Ephemeral5m);
    // A choice without tools is an error of its own with some.
    if !ask.tools.is_empty() {
        options.tool_choice = tool_choice(&ask.choice);
    }
    options.reasoning_effort = Some(unsaid_effort(wire));
    options
}

/// Without one, genai takes `-max` or `-high` off the end of a name, where it may belong. Of these
/// nothing is sent, except that Anthropic's models which would think by themselves do not: their
/// thoughts would have to be sent back with each call, and are not kept.
fn unsaid_effort(wire: Wire) -> ReasoningEffort {
    match wire {
        Wire::Chat | Wire::Responses => ReasoningEffort::Budget(0),
        Wire::Anthropic | Wire::Gemini => ReasoningEffort::Zero,
    }
}

fn tool_choice(choice: &Choice) -> Option<ToolChoice> {
    match choice {
        Choice::Auto => None,
        Choice::Required => Some(ToolChoice::Required),
        Choice::Tool(name) => Some(ToolChoice::tool(name)),
    }
}

/// None for an answer that said nothing: providers refuse an empty message.
fn message(message: &Message) -> Option<ChatMessage> {
    match message {
        Message::User { text } => Some(ChatMessage::user(text)),
        Message::Model { text, calls } if text.is_empty() && calls.is_empty() => None,
        Message::Model { text, calls } => {
            let mut content = MessageContent::default();
            if !text.is_empty() {
                content.push(text.as_str());
            }
            content.extend(calls.iter().map(|call| call_again(call).into()));
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

fn call_again(call: &ToolCall) -> genai::chat::ToolCall {
    genai::chat::ToolCall {
        call_id: call.id.clone(),
        fn_name: call.name.clone(),
        // Providers take nothing but an object, also where the model wrote none.
        fn_arguments: match &call.arguments {
            Value::Object(arguments) => Value::Object(arguments.clone()),
            other => json!({ "unreadable": other }),
        },
        thought_signatures: None,
    }
}
