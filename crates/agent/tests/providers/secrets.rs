//! The operator's keys: each is sent to its provider only.

use super::*;
use std::io;

#[tokio::test]
async fn a_key_goes_to_its_provider_in_the_header_that_it_wants() {
    for (name, header) in [
        ("openai/gpt-4.1", "authorization"),
        ("openai-responses/gpt-4.1", "authorization"),
        ("anthropic/claude-sonnet-4-5", "x-api-key"),
        ("gemini/gemini-2.5-pro", "x-goog-api-key"),
    ] {
        let server = ModelServer::start("[{say: yes}]");
        answer(&*choose(&server, name)).await.unwrap();
        let request = &server.requests()[0];
        let with_key: Vec<&str> = request
            .headers
            .iter()
            .filter(|(_, value)| value.to_str().unwrap().contains(KEY))
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(with_key, [header], "{name}");
        assert!(!request.path.contains(KEY) && !request.body.to_string().contains(KEY), "{name}");
    }
}

#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_key_that_a_provider_repeats_is_redacted() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    for name in EACH.into_iter().filter(|name| !name.starts_with("ollama")) {
        let fail = |status: u16| {
            format!("{{fail: {{status: {status}, message: '{KEY} is no key, but {KEY}'}}}}")
        };
        for status in [401, 429, 500] {
            let fail = fail(status);
            let server = ModelServer::start(&format!("[{fail}, {fail}, {fail}]"));
            let model = choose(&server, name);
            let error = answer(&*model).await.unwrap_err();
            assert!(error.to_string().contains("[key] is no key, but [key]"), "{name}: {error}");
            let shown =
                format!("{error:?} {:?} {model:?} {:?}", error.to_error(), settings(&server));
            assert!(!shown.contains(KEY), "{name}: {shown}");
        }
    }
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("retrying the model request"), "{logged}");
    assert!(!logged.contains(KEY), "{logged}");
}

#[tokio::test]
async fn a_key_does_not_follow_to_another_host() {
    for name in EACH {
        let elsewhere = ModelServer::start("[{say: thank you for the key}]");
        let location = format!("{}/v1/chat/completions", elsewhere.host());
        let server = ModelServer::start(&format!(
            "[{{fail: {{status: 307, message: over there, location: '{location}'}}}}]"
        ));
        let error = answer(&*choose(&server, name)).await.unwrap_err();
        assert!(matches!(error, ModelError::Rejected { status: 307, .. }), "{name}: {error}");
        assert_eq!(elsewhere.requests().len(), 0, "{name}");
    }
}
