//! Failures: providers that are busy, broken, silent, endless or cut off.

use super::*;
use crate::wait;
use futures_util::future::join_all;
use std::time::Instant;

#[tokio::test]
async fn a_busy_provider_is_asked_again() {
    for name in EACH {
        for status in [429, 500, 503, 529] {
            let server = ModelServer::start(&format!(
                "[{{fail: {{status: {status}, message: not now}}}}, {{say: now}}]"
            ));
            let (answer, pieces) = hear(&*choose(&server, name)).await;
            assert_eq!(answer.unwrap().text, "now", "{name} {status}");
            assert_eq!(pieces, ["now"], "{name} {status}");
        }
    }
}

#[tokio::test]
async fn a_provider_that_asks_for_time_gets_it() {
    let server = ModelServer::start("[{fail: {status: 429, retry_after: 1}}, {say: thanks}]");
    let started = Instant::now();
    assert_eq!(answer(&*choose(&server, EACH[0])).await.unwrap().text, "thanks");
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_provider_that_asks_for_too_much_time_is_not_waited_for() {
    let server =
        ModelServer::start("[{fail: {status: 429, message: come tomorrow, retry_after: 86400}}]");
    let error = answer(&*choose(&server, EACH[0])).await.unwrap_err();
    assert!(
        matches!(&error, ModelError::Busy { message, .. } if message == "come tomorrow"),
        "{error}"
    );
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_broken_provider_is_given_up_after_a_few_tries() {
    for name in EACH {
        let fail = "{fail: {status: 500, message: out of order}}";
        let server = ModelServer::start(&format!("[{fail}, {fail}, {fail}, {fail}]"));
        let error = answer(&*choose(&server, name)).await.unwrap_err();
        assert!(matches!(error, ModelError::Unavailable { .. }), "{name}: {error}");
        assert!(error.to_string().contains("out of order"), "{name}: {error}");
        assert_eq!(server.requests().len(), 3, "{name}");
        assert!(error.to_error().retryable);
    }
}

#[tokio::test]
async fn what_a_provider_refuses_is_not_asked_again() {
    for name in EACH {
        let long = "x".repeat(5_000);
        let server = ModelServer::start(&format!(
            "[{{fail: {{status: 404, message: no such model {long}}}}}]"
        ));
        let error = answer(&*choose(&server, name)).await.unwrap_err();
        let ModelError::Rejected { status: 404, message, .. } = &error else {
            panic!("{name}: {error}")
        };
        assert!(message.starts_with("no such model"), "{name}: {message}");
        assert!(message.len() < 600, "{name}: {message}");
        assert_eq!(server.requests().len(), 1, "{name}");
        assert!(!error.to_error().retryable);
    }
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_told_as_such() {
    let server = ModelServer::start("[]");
    let model = choose(&server, EACH[0]);
    drop(server);
    let error = answer(&*model).await.unwrap_err();
    let ModelError::Unavailable { provider, reason } = &error else { panic!("{error}") };
    assert_eq!(provider, "openai");
    assert!(reason.contains("refused"), "{reason}");
}

#[tokio::test]
async fn a_provider_that_never_answers_is_left() {
    let each = EACH.map(async |name| {
        let server = ModelServer::start("[{hang: true}]");
        let retry_policy =
            ProviderRetryPolicy { first_event_timeout: Duration::from_secs(3), ..PATIENCE };
        let error = answer(&*impatient(&server, name, retry_policy)).await.unwrap_err();
        assert!(matches!(error, ModelError::Unavailable { .. }), "{name}: {error}");
        assert_eq!(server.requests().len(), 1, "{name}");
    });
    join_all(each).await;
}

#[tokio::test]
async fn a_provider_that_falls_silent_is_left_and_a_slow_one_is_not() {
    let retry_policy = ProviderRetryPolicy {
        first_event_timeout: Duration::from_secs(20),
        event_timeout: Duration::from_secs(2),
        ..PATIENCE
    };
    let each = EACH.map(async |name| {
        // Its pieces together take longer than it may be silent.
        let server = ModelServer::start("[{say: one two three four, pieces_ms: 700}]");
        let slow = answer(&*impatient(&server, name, retry_policy)).await.unwrap();
        assert_eq!(slow.text, "one two three four", "{name}");

        let server = ModelServer::start("[{say: one two three four, pieces_ms: 4000}]");
        let silent = answer(&*impatient(&server, name, retry_policy)).await.unwrap_err();
        assert!(matches!(silent, ModelError::Unavailable { .. }), "{name}: {silent}");
    });
    join_all(each).await;
}

#[tokio::test]
async fn a_sign_of_life_is_no_silence() {
    let script = json!([{"flood": ": at work\n\n", "pieces_ms": 20}]).to_string();
    let server = ModelServer::start(&script);
    let retry_policy = ProviderRetryPolicy {
        first_event_timeout: Duration::from_secs(2),
        event_timeout: Duration::from_secs(2),
        response_timeout: Duration::from_secs(5),
        ..PATIENCE
    };
    let started = Instant::now();
    let error = answer(&*impatient(&server, EACH[0], retry_policy)).await.unwrap_err();
    assert!(matches!(error, ModelError::InvalidResponse { .. }), "{error}");
    assert!(started.elapsed() >= Duration::from_secs(5));
}

#[tokio::test]
async fn a_provider_without_an_end_is_left() {
    let word = r#"data: {"choices":[{"index":0,"delta":{"content":"aaaaaaaaaaaaaaaaaaaaaaaa"}}]}"#;
    let noise =
        r#"data: {"choices":[],"noise":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;
    for frame in [word, noise] {
        let frames = format!("{frame}\n\n").repeat(1_000);
        let script = serde_json::to_string(&json!([{"flood": frames}])).unwrap();
        let server = ModelServer::start(&script);
        let error = answer(&*choose(&server, EACH[0])).await.unwrap_err();
        let ModelError::InvalidResponse { reason, .. } = &error else { panic!("{error}") };
        assert!(reason.contains("exceeds the size limit"), "{reason}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_event_without_an_end_is_left_when_its_time_is_over() {
    let script = json!([{"flood": "a".repeat(10_000), "pieces_ms": 1}]).to_string();
    let server = ModelServer::start(&script);
    let retry_policy =
        ProviderRetryPolicy { first_event_timeout: Duration::from_millis(300), ..PATIENCE };
    let error = answer(&*impatient(&server, EACH[0], retry_policy)).await.unwrap_err();
    assert!(matches!(error, ModelError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn a_call_with_an_immense_number_takes_no_immense_memory() {
    let event = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "delta": {"tool_calls":
        [{"index": 4_000_000_000u32, "id": "a", "function": {"name": "look", "arguments": "{}"}}]}}]});
    let raw = format!("data: {event}\n\ndata: [DONE]\n\n");
    let server = ModelServer::start(&json!([{ "raw": raw }]).to_string());
    let answer = answer(&*choose(&server, EACH[0])).await.unwrap();
    assert_eq!((answer.calls.len(), answer.calls[0].name.as_str()), (1, "look"));
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_no_answer() {
    for name in EACH {
        let server = ModelServer::start("[{say: one two three four, cut: true}, {say: again}]");
        let (answer, pieces) = hear(&*choose(&server, name)).await;
        let error = answer.unwrap_err();
        assert!(matches!(error, ModelError::InvalidResponse { .. }), "{name}: {error}");
        // Text was already streamed, which a second attempt would repeat.
        assert!(!pieces.is_empty(), "{name}");
        assert_eq!(server.requests().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_before_a_word_is_asked_for_again() {
    for name in EACH {
        let server = ModelServer::start(
            "[{calls: [{name: look}, {name: look}], cut: true}, {calls: [{name: look, id: x}]}]",
        );
        let answer = answer(&*choose(&server, name)).await.unwrap();
        assert_eq!(answer.calls.len(), 1, "{name}");
        assert_eq!(server.requests().len(), 2, "{name}");
    }
}

#[tokio::test]
async fn an_answer_that_says_nothing_readable_is_no_answer() {
    for name in EACH {
        for raw in ["data: {\"half\n\n", "<html>a page</html>", ""] {
            let turn = json!({ "raw": raw });
            let server = ModelServer::start(&json!([turn, turn, turn]).to_string());
            let error = answer(&*choose(&server, name)).await.unwrap_err();
            assert!(matches!(error, ModelError::InvalidResponse { .. }), "{name} {raw:?}: {error}");
        }
    }
}

#[tokio::test]
async fn an_error_in_the_middle_is_told_as_the_provider_tells_it() {
    let overloaded =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "full"}});
    let raw = format!("event: error\ndata: {overloaded}\n\n");
    let turn = json!({ "raw": raw });
    let server = ModelServer::start(&json!([turn, turn, turn]).to_string());
    let error = answer(&*choose(&server, "anthropic/claude-sonnet-4-5")).await.unwrap_err();
    assert!(matches!(&error, ModelError::Busy { message, .. } if message == "full"), "{error}");
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn giving_an_answer_up_closes_the_connection() {
    for turn in ["{hang: true}", "{say: one two three, pieces_ms: 5000}"] {
        let each = EACH.map(async |name| {
            let server = ModelServer::start(&format!("[{turn}]"));
            let model = choose(&server, name);
            let asked = wait::until("it is asked", async || server.requests().len() == 1);
            tokio::select! {
                answered = answer(&*model) => panic!("{name}: {answered:?}"),
                () = asked => {}
            }
            let what = format!("{name} waits for {turn} no more");
            wait::until(&what, async || server.left() == 1).await;
        });
        join_all(each).await;
    }
}
