//! The events in which each provider streams one response.

use agent::{ModelResponse, ModelStopReason, ToolCall};
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy)]
pub enum Wire {
    Chat,
    Responses,
    Anthropic,
    Gemini,
}

impl Wire {
    pub fn of(path: &str) -> Option<Self> {
        [
            ("/v1/chat/completions", Self::Chat),
            ("/v1/responses", Self::Responses),
            ("/v1/messages", Self::Anthropic),
            (":streamGenerateContent", Self::Gemini),
        ]
        .into_iter()
        .find_map(|(end, wire)| path.ends_with(end).then_some(wire))
    }

    /// What a client has said last, as it stands on the wire.
    pub fn last_message(self, body: &Value) -> String {
        let list = match self {
            Self::Chat | Self::Anthropic => &body["messages"],
            Self::Responses => &body["input"],
            Self::Gemini => &body["contents"],
        };
        list.as_array().and_then(|list| list.last()).map(texts).unwrap_or_default()
    }

    pub fn pieces(self, answer: &ModelResponse, body: &Value) -> Vec<String> {
        match self {
            Self::Chat => chat(answer, body),
            Self::Responses => responses(answer),
            Self::Anthropic => anthropic(answer),
            Self::Gemini => gemini(answer),
        }
    }
}

/// Every text in a value, without the escapes of JSON.
fn texts(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text}\n"),
        Value::Array(list) => list.iter().map(texts).collect(),
        Value::Object(map) => map.values().map(texts).collect(),
        _ => String::new(),
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

/// As the model wrote them, in two halves.
fn arguments(call: &ToolCall) -> [String; 2] {
    let text = match &call.arguments {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let middle = text.len() / 2;
    let middle = (0..=middle).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    [text[..middle].to_owned(), text[middle..].to_owned()]
}

fn data(event: &Value) -> String {
    format!("data: {event}\n\n")
}

fn named(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
}

fn chat(answer: &ModelResponse, body: &Value) -> Vec<String> {
    let chunk = |delta: Value, finish: Option<&str>| {
        data(&json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "model": body["model"],
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }))
    };
    let spoken = if answer.stop_reason == ModelStopReason::Refusal { "refusal" } else { "content" };
    let mut pieces =
        vec![chunk(json!({"role": "assistant", "content": "", "refusal": null}), None)];
    pieces.extend(words(&answer.text).map(|word| chunk(json!({spoken: word}), None)));
    for (index, call) in answer.calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        let call = json!({"index": index, "id": call.id, "type": "function", "function": function});
        pieces.push(chunk(json!({"tool_calls": [call]}), None));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        for half in arguments(call) {
            let call = json!({"index": index, "function": {"arguments": half}});
            pieces.push(chunk(json!({"tool_calls": [call]}), None));
        }
    }
    let finish = match answer.stop_reason {
        ModelStopReason::Length => "length",
        _ if !answer.calls.is_empty() => "tool_calls",
        _ => "stop",
    };
    pieces.push(chunk(json!({}), Some(finish)));
    if body["stream_options"]["include_usage"] == true {
        let (input, output) = (answer.tokens.input, answer.tokens.output);
        pieces.push(data(&json!({"id": "chatcmpl-1", "choices": [], "usage": {
            "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        }})));
    }
    pieces.push("data: [DONE]\n\n".to_owned());
    pieces
}

fn responses(answer: &ModelResponse) -> Vec<String> {
    let refused = answer.stop_reason == ModelStopReason::Refusal;
    let mut pieces = vec![named(&json!({"type": "response.created", "response": {}}))];
    let spoken = if refused { "response.refusal.delta" } else { "response.output_text.delta" };
    for word in words(&answer.text) {
        let event = json!({"type": spoken, "output_index": 0, "content_index": 0, "delta": word});
        pieces.push(named(&event));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        let index = index + 1;
        let item = |arguments: &str| {
            json!({"type": "function_call", "id": format!("fc_{index}"), "call_id": call.id,
                   "name": call.name, "arguments": arguments})
        };
        let added = "response.output_item.added";
        pieces.push(named(&json!({"type": added, "output_index": index, "item": item("")})));
        let halves = arguments(call);
        for half in &halves {
            let kind = "response.function_call_arguments.delta";
            pieces.push(named(&json!({"type": kind, "output_index": index, "delta": half})));
        }
        let (done, item) = ("response.output_item.done", item(&halves.concat()));
        pieces.push(named(&json!({"type": done, "output_index": index, "item": item})));
    }
    let (input, output) = (answer.tokens.input, answer.tokens.output);
    let status =
        if answer.stop_reason == ModelStopReason::Length { "incomplete" } else { "completed" };
    pieces.push(named(&json!({"type": format!("response.{status}"), "response": {
        "id": "resp_1", "status": status, "model": "scripted", "output": [],
        "usage": {"input_tokens": input, "output_tokens": output, "total_tokens": input + output},
    }})));
    pieces
}

fn anthropic(answer: &ModelResponse) -> Vec<String> {
    let block =
        |index: usize, start: Value, deltas: Vec<Value>| {
            let kind = "content_block_start";
            let mut events = vec![json!({"type": kind, "index": index, "content_block": start})];
            events.extend(deltas.into_iter().map(
                |delta| json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ));
            events.push(json!({"type": "content_block_stop", "index": index}));
            events
        };
    let mut events = vec![
        json!({"type": "message_start", "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "content": [],
            "usage": {"input_tokens": answer.tokens.input, "output_tokens": 1},
        }}),
        json!({"type": "ping"}),
    ];
    if !answer.text.is_empty() {
        let deltas = words(&answer.text).map(|word| json!({"type": "text_delta", "text": word}));
        events.extend(block(0, json!({"type": "text", "text": ""}), deltas.collect()));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        let start = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
        let deltas = arguments(call)
            .map(|half| json!({"type": "input_json_delta", "partial_json": half}))
            .to_vec();
        events.extend(block(index + 1, start, deltas));
    }
    let reason = match answer.stop_reason {
        ModelStopReason::Length => "max_tokens",
        ModelStopReason::Refusal => "refusal",
        ModelStopReason::Done if answer.calls.is_empty() => "end_turn",
        ModelStopReason::Done => "tool_use",
    };
    let usage = json!({"output_tokens": answer.tokens.output});
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}));
    events.push(json!({"type": "message_stop"}));
    events.iter().map(named).collect()
}

fn gemini(answer: &ModelResponse) -> Vec<String> {
    if answer.stop_reason == ModelStopReason::Refusal {
        return vec![data(&json!({"promptFeedback": {"blockReason": answer.text}}))];
    }
    let part = |part: Value| {
        data(&json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]}))
    };
    let mut pieces: Vec<String> =
        words(&answer.text).map(|word| part(json!({"text": word}))).collect();
    pieces.extend(answer.calls.iter().map(|call| {
        part(json!({"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}))
    }));
    let (input, output) = (answer.tokens.input, answer.tokens.output);
    let finish = if answer.stop_reason == ModelStopReason::Length { "MAX_TOKENS" } else { "STOP" };
    pieces.push(data(&json!({
        "candidates": [{"content": {"role": "model", "parts": []}, "finishReason": finish}],
        "usageMetadata": {"promptTokenCount": input, "candidatesTokenCount": output,
                          "totalTokenCount": input + output},
    })));
    pieces
}
