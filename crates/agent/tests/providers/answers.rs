//! Successful responses: text, calls, token counts, and the request that a provider gets.

use super::*;
use agent::{ModelStopReason, TokenUsage, ToolCall, ToolResult};
use serde_json::Value;

#[tokio::test]
async fn words_are_heard_as_they_come_and_counted() {
    for name in EACH {
        let server =
            ModelServer::start("- {say: six times seven is 42, tokens: {input: 31, output: 9}}");
        let (answer, pieces) = hear(&*choose(&server, name)).await;
        let answer = answer.unwrap();
        assert_eq!(answer.text, "six times seven is 42", "{name}");
        assert_eq!(pieces, ["six ", "times ", "seven ", "is ", "42"], "{name}");
        assert_eq!(answer.tokens, TokenUsage { input: 31, output: 9 }, "{name}");
        assert_eq!((answer.stop_reason, answer.calls.len()), (ModelStopReason::Done, 0), "{name}");
        assert_eq!(server.left(), 0, "{name}");
    }
}

#[tokio::test]
async fn several_tools_are_called_at_once() {
    for name in EACH {
        let server = ModelServer::start(
            "
- say: Both.
  calls:
    - {name: run_python, id: first, arguments: {code: 'print(6 * 7)', more: [1, 2.5, null]}}
    - {name: run_python, id: second, arguments: {code: print('ä ö 中')}}
    - {name: look, id: third}
",
        );
        let answer = answer(&*choose(&server, name)).await.unwrap();
        let call = |id: &str, name: &str, arguments: Value| ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments,
        };
        let expected = [
            call("first", "run_python", json!({"code": "print(6 * 7)", "more": [1, 2.5, null]})),
            call("second", "run_python", json!({"code": "print('ä ö 中')"})),
            call("third", "look", json!({})),
        ];
        assert_eq!(answer.text, "Both.", "{name}");
        assert_eq!(answer.calls, expected, "{name}");
    }
}

#[tokio::test]
async fn a_provider_is_told_all_that_was_said_and_which_tools_there_are() {
    for name in EACH {
        let server = ModelServer::start("- {say: It is 42., expect: forty-two came out}");
        let mut ask = question();
        ask.messages.extend([
            Message::Model {
                text: "I calculate.".to_owned(),
                calls: vec![ToolCall {
                    id: "call-1".to_owned(),
                    name: "run_python".to_owned(),
                    arguments: json!({"code": "6 * 7"}),
                }],
            },
            Message::Tools {
                results: vec![ToolResult {
                    call_id: "call-1".to_owned(),
                    name: "run_python".to_owned(),
                    text: "forty-two came out".to_owned(),
                    failed: false,
                }],
            },
        ]);
        choose(&server, name).respond(&ask, &|_| {}).await.unwrap();
        let sent = server.requests()[0].body.to_string();
        for part in [
            "You calculate.",
            "What is six times seven?",
            "I calculate.",
            "6 * 7",
            "run_python",
            "Runs code.",
            "forty-two came out",
        ] {
            assert!(sent.contains(part), "{name}: {part} in {sent}");
        }
    }
}

#[tokio::test]
async fn whether_a_tool_is_called_can_be_decided_before() {
    let sent = async |name: &str, choice: ToolCallMode, tools: bool| {
        let server = ModelServer::start("- say: yes");
        let mut ask = ModelRequest { call_mode: choice, ..question() };
        if !tools {
            ask.tools.clear();
        }
        choose(&server, name).respond(&ask, &|_| {}).await.unwrap();
        server.requests()[0].body.clone()
    };
    let one = ToolCallMode::Tool("run_python".to_owned());
    let chat = "openai/gpt-4.1";
    assert_eq!(sent(chat, ToolCallMode::Auto, true).await["tool_choice"], Value::Null);
    assert_eq!(sent(chat, ToolCallMode::Required, true).await["tool_choice"], "required");
    assert_eq!(sent(chat, ToolCallMode::Required, false).await["tool_choice"], Value::Null);
    let named = sent(chat, one.clone(), true).await;
    assert_eq!(named["tool_choice"]["function"]["name"], "run_python");
    let named = sent("anthropic/claude-sonnet-4-5", one.clone(), true).await;
    assert_eq!(named["tool_choice"], json!({"type": "tool", "name": "run_python"}));
    let named = sent("openai-responses/gpt-4.1", one.clone(), true).await;
    assert_eq!(named["tool_choice"]["name"], "run_python");
    let named = sent("gemini/gemini-2.5-pro", one, true).await;
    let config = &named["toolConfig"]["functionCallingConfig"];
    assert_eq!(config["allowedFunctionNames"], json!(["run_python"]));
}

#[tokio::test]
async fn an_answer_tells_why_it_ends() {
    for name in EACH {
        let server = ModelServer::start("- {say: 'and then', stop: length}");
        let cut = answer(&*choose(&server, name)).await.unwrap();
        assert_eq!(
            (cut.text.as_str(), cut.stop_reason),
            ("and then", ModelStopReason::Length),
            "{name}"
        );

        let server = ModelServer::start("- {say: I will not., stop: refusal}");
        let (refused, pieces) = hear(&*choose(&server, name)).await;
        let refused = refused.unwrap();
        assert_eq!(
            (refused.text.as_str(), refused.stop_reason),
            ("I will not.", ModelStopReason::Refusal),
            "{name}"
        );
        assert_eq!(pieces.concat(), "I will not.", "{name}");
    }
}

/// Gemini cannot send arguments that are not JSON.
#[tokio::test]
async fn arguments_that_are_no_json_are_handed_on_as_they_are_and_can_be_sent_back() {
    for name in EACH.into_iter().filter(|name| !name.starts_with("gemini")) {
        let server = ModelServer::start(
            "
- calls: [{name: run_python, id: c1, arguments: '{\"code\": \"print('}]
- say: sorry
",
        );
        let model = choose(&server, name);
        let bad = answer(&*model).await.unwrap();
        assert_eq!(bad.calls[0].arguments, json!("{\"code\": \"print("), "{name}");
        let mut ask = question();
        ask.messages.push(Message::Model { text: String::new(), calls: bad.calls });
        ask.messages.push(Message::User { text: "That was no JSON.".to_owned() });
        assert_eq!(model.respond(&ask, &|_| {}).await.unwrap().text, "sorry", "{name}");
        let sent = &server.requests()[1].body;
        if name.starts_with("anthropic") {
            assert!(sent["messages"][1]["content"][0]["input"].is_object(), "{sent}");
        }
    }
}

#[tokio::test]
async fn calls_have_ids_of_their_own_in_the_whole_conversation() {
    let server = ModelServer::start("- calls: [{name: look, id: same}, {name: look, id: same}]");
    let mut ask = question();
    let before = ToolCall { id: "same".to_owned(), name: "look".to_owned(), arguments: json!({}) };
    ask.messages.push(Message::Model { text: String::new(), calls: vec![before] });
    let model = choose(&server, "gemini/gemini-2.5-pro");
    let calls = model.respond(&ask, &|_| {}).await.unwrap().calls;
    assert_eq!(calls.len(), 2);
    assert!(calls[0].id != "same" && calls[1].id != "same" && calls[0].id != calls[1].id);
}

#[tokio::test]
async fn a_server_of_ones_own_is_asked_by_its_name_and_needs_no_key() {
    let server = ModelServer::start("[{say: one}, {say: two}]");
    let url = server.url().parse().unwrap();
    let endpoints = vec![("our-vllm".to_owned(), url)];
    let mut settings = ModelSettings { endpoints, ..ModelSettings::default() };
    let model = Models::new(settings.clone()).unwrap().choose(Some("our-vllm/Qwen/qwen-max"));
    assert_eq!(answer(&*model.unwrap()).await.unwrap().text, "one");
    settings.variables = variables(&[("OUR_VLLM_API_KEY", KEY)]);
    let model = Models::new(settings).unwrap().choose(Some("our-vllm/ft:a:b::c")).unwrap();
    assert_eq!(model.name(), "our-vllm/ft:a:b::c");
    assert_eq!(answer(&*model).await.unwrap().text, "two");
    let requests = server.requests();
    assert_eq!(requests[0].path, "/v1/chat/completions");
    assert_eq!(requests[0].headers.get("authorization"), None);
    assert_eq!(requests[1].headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(requests[0].body["model"], "Qwen/qwen-max");
    assert_eq!(requests[1].body["model"], "ft:a:b::c");
}

#[tokio::test]
async fn a_model_is_named_to_its_provider_as_it_was_chosen() {
    for name in EACH {
        let (provider, _) = name.split_once('/').unwrap();
        let server = ModelServer::start("[{say: hello}]");
        answer(&*choose(&server, &format!("{provider}/some-model-high"))).await.unwrap();
        let request = &server.requests()[0];
        let sent = format!("{} {}", request.path, request.body["model"]);
        assert!(sent.contains("some-model-high"), "{sent}");
        let body = request.body.to_string();
        assert!(!body.contains("effort") && !body.contains("thinking"), "{body}");
    }
}
