use super::*;
use crate::model::{Message, ModelRequest, ToolCallMode, ToolResult};
use serde_json::json;

fn settings(variables: &[(&str, &str)]) -> ModelSettings {
    let variables = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    ModelSettings { variables: variables.collect(), ..ModelSettings::default() }
}

fn models(variables: &[(&str, &str)]) -> Models {
    Models::new(settings(variables)).unwrap()
}

fn error_of(models: &Models, name: Option<&str>) -> (String, String) {
    let error = models.choose(name).unwrap_err();
    assert_eq!((&error.code, error.retryable), (&ErrorCode::ModelUnavailable, false));
    (error.message, error.hint.unwrap())
}

#[test]
fn a_missing_key_is_named_by_its_variable() {
    for (name, variable) in [
        ("openai/gpt-4.1", "OPENAI_API_KEY"),
        ("openai-responses/gpt-4.1", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-2.5-pro", "GEMINI_API_KEY"),
        ("ollama/llama3", "OLLAMA_HOST"),
    ] {
        let (message, hint) = error_of(&models(&[]), Some(name));
        assert!(message.contains(name), "{message}");
        assert!(
            hint.starts_with(&format!("set {variable} in the environment of the server")),
            "{hint}"
        );
        assert!(hint.ends_with("see `belljar model ls`"), "{hint}");
        // An empty variable counts as unset.
        let (_, hint) = error_of(&models(&[(variable, " ")]), Some(name));
        assert!(hint.contains(variable), "{hint}");
        assert!(models(&[(variable, "127.0.0.1")]).choose(Some(name)).is_ok());
    }
    assert!(models(&[("GOOGLE_API_KEY", "k")]).choose(Some("gemini/gemini-2.5-pro")).is_ok());
}

#[test]
fn a_name_that_leads_nowhere_is_told_where_it_could_lead() {
    let models = models(&[("OPENAI_API_KEY", "k")]);
    let (message, hint) = error_of(&models, Some("gpt-4.1"));
    assert!(message.contains("\"gpt-4.1\" has no provider"), "{message}");
    assert!(hint.contains("openai/gpt-4.1"), "{hint}");
    let (message, hint) = error_of(&models, Some("closedai/gpt-4.1"));
    assert!(message.contains("closedai/gpt-4.1"), "{message}");
    assert!(hint.contains("anthropic, gemini, ollama, openai, openai-responses"), "{hint}");
    let (_, hint) = error_of(&models, None);
    assert!(hint.contains("BELLJAR_MODEL"), "{hint}");
    let (message, _) = error_of(&models, Some(&format!("{}/x", "a".repeat(100_000))));
    assert!(message.len() < 300);
}

#[test]
fn a_name_is_never_more_than_a_name() {
    let models = models(&[("GEMINI_API_KEY", "k")]);
    let long = "a".repeat(NAME_BYTES_MAX + 1);
    for name in [
        "",
        "..",
        "../x",
        "a/../../files",
        "a//b",
        "/a",
        "a/",
        "a?key=1",
        "a#b",
        "a%2f",
        "ä",
        "a b",
        "a\nb",
        &long,
    ] {
        let (message, _) = error_of(&models, Some(&format!("gemini/{name}")));
        assert!(message.contains("invalid model name"), "{name:?}: {message}");
    }
    for name in ["gemini-2.5-pro", "tuned/a.b_c", "llama3:8b", "ft:a:b::c", "a@2024+x"] {
        assert!(models.choose(Some(&format!("gemini/{name}"))).is_ok(), "{name}");
    }
}

#[test]
fn a_script_is_nothing_that_a_caller_can_choose() {
    let models = models(&[("OPENAI_API_KEY", "k")]);
    for name in ["script:/etc/passwd", "script:a/b", "script/a", "http://host/v1/x"] {
        error_of(&models, Some(name));
    }
}

#[test]
fn there_are_models_once_the_operator_has_set_one_up() {
    assert!(!models(&[]).has_any());
    assert!(models(&[("ANTHROPIC_API_KEY", "k")]).has_any());
    assert!(models(&[("OLLAMA_HOST", "127.0.0.1")]).has_any());
    let default = Some("ollama/llama3".to_owned());
    let models = Models::new(ModelSettings { default, ..ModelSettings::default() }).unwrap();
    assert!(models.has_any());
    assert_eq!(models.choose(None).unwrap().name(), "ollama/llama3");
}

fn base(variables: &[(&str, &str)], provider: &str) -> String {
    match &models(variables).providers[provider] {
        ProviderEntry::Ready(endpoint) => endpoint.base_url.to_string(),
        ProviderEntry::MissingVariable(variable) => panic!("{provider} needs {variable}"),
    }
}

#[test]
fn addresses_are_read_as_each_provider_s_own_programs_read_them() {
    for (variable, address, provider, expected) in [
        ("OPENAI_BASE_URL", "http://host/v1", "openai", "http://host/v1/"),
        ("OPENAI_BASE_URL", "http://host/v1/", "openai-responses", "http://host/v1/"),
        ("OPENAI_BASE_URL", "http://host/proxy", "openai", "http://host/proxy/"),
        ("ANTHROPIC_BASE_URL", "http://host", "anthropic", "http://host/v1/"),
        ("ANTHROPIC_BASE_URL", "http://host/a/v1/", "anthropic", "http://host/a/v1/"),
        ("GEMINI_BASE_URL", "http://host/", "gemini", "http://host/v1beta/"),
        ("OLLAMA_HOST", "host", "ollama", "http://host:11434/v1/"),
        ("OLLAMA_HOST", "host:8080", "ollama", "http://host:8080/v1/"),
        ("OLLAMA_HOST", ":8080", "ollama", "http://127.0.0.1:8080/v1/"),
        ("OLLAMA_HOST", "https://host", "ollama", "https://host/v1/"),
        ("OLLAMA_BASE_URL", "http://host:1/v1", "ollama", "http://host:1/v1/"),
    ] {
        let keys = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"].map(|key| (key, "k"));
        let variables = [&keys[..], &[(variable, address)]].concat();
        assert_eq!(base(&variables, provider), expected, "{variable}={address}");
    }
    assert_eq!(base(&[("OPENAI_API_KEY", "k")], "openai"), "https://api.openai.com/v1/");
    assert_eq!(base(&[("ANTHROPIC_API_KEY", "k")], "anthropic"), "https://api.anthropic.com/v1/");
}

#[test]
fn what_the_operator_has_set_wrongly_is_told_when_the_server_starts() {
    let named = |name: &str, url: &str| {
        let endpoints = vec![(name.to_owned(), url.parse().unwrap())];
        Models::new(ModelSettings { endpoints, ..ModelSettings::default() })
    };
    for name in ["", "Ours", "a/b", "a_b", "openai", "ollama"] {
        assert!(
            matches!(named(name, "http://host/v1"), Err(ModelsError::EndpointName(_))),
            "{name}"
        );
    }
    for url in ["ftp://host/v1", "http://user:pass@host/v1", "http://user@host/v1"] {
        let error = named("ours", url).unwrap_err();
        assert!(matches!(&error, ModelsError::Address { name, .. } if name == "ours"), "{error}");
        assert!(!error.to_string().contains("pass@"), "{error}");
    }
    assert!(named("ours-2", "http://host/v1").is_ok());

    let default = |name: &str| {
        let default = Some(name.to_owned());
        Models::new(ModelSettings { default, ..ModelSettings::default() }).map(|_| ())
    };
    assert!(matches!(default("gpt-4.1"), Err(ModelsError::Default(_))));
    assert!(matches!(default("script:/nowhere.yaml"), Err(ModelsError::Script(_))));
    assert!(default("openai/gpt-4.1").is_ok());

    let key = |key: &str| Models::new(settings(&[("OPENAI_API_KEY", key)])).map(|_| ());
    for bad in ["two words", "quo\"te", "quo'te", "back\\slash", "ümlaut", "new\nline"] {
        let error = key(bad).unwrap_err();
        assert!(
            matches!(error, ModelsError::Key(_)) && !error.to_string().contains(bad),
            "{error}"
        );
    }
    assert!(key("sk-proj_ABC.123=/+\n").is_ok());
}

#[test]
fn no_key_is_shown() {
    let settings = settings(&[("OPENAI_API_KEY", "sk-very-secret")]);
    let models = Models::new(settings.clone()).unwrap();
    let model = models.choose(Some("openai/gpt-4.1")).unwrap();
    assert!(!format!("{settings:?} {models:?} {model:?}").contains("sk-very-secret"));
}

fn ask(message: Message) -> ModelRequest {
    ModelRequest {
        system: "the system says nothing of it".to_owned(),
        messages: vec![message],
        tools: Vec::new(),
        call_mode: ToolCallMode::Auto,
    }
}

const SCRIPT: &str = r#"
- expect: sales.csv
  say: I add it up.
  calls:
    - name: run_python
      arguments:
        code: |
          import pandas as pd
          print(pd.read_csv("sales.csv").sum())
    - name: look
  tokens: {input: 10, output: 5}
- expect: 42
  say: It is 42.
"#;

#[tokio::test]
async fn a_script_is_played_from_its_first_turn_to_its_last() {
    let script = ModelScript::parse(SCRIPT).unwrap();
    let model = ScriptedModel::new(script);
    let log = std::sync::Mutex::new(String::new());
    let listener = |piece: &str| log.lock().unwrap().push_str(piece);
    let first = ask(Message::User { text: "Sum sales.csv".to_owned() });
    let answer = model.respond(&first, &listener).await.unwrap();
    let code = "import pandas as pd\nprint(pd.read_csv(\"sales.csv\").sum())\n";
    assert_eq!(answer.calls[0].arguments, json!({"code": code}));
    assert_eq!(
        (answer.calls[0].id.as_str(), answer.calls[1].id.as_str()),
        ("call_1_1", "call_1_2")
    );
    assert_eq!((answer.tokens.input, answer.calls[1].arguments.clone()), (10, json!({})));

    let result = ToolResult {
        call_id: "call_1_1".to_owned(),
        name: "run_python".to_owned(),
        text: "the sum is 42".to_owned(),
        failed: false,
    };
    let second = ask(Message::Tools { results: vec![result] });
    assert_eq!(model.respond(&second, &listener).await.unwrap().text, "It is 42.");
    assert_eq!(*log.lock().unwrap(), "I add it up.It is 42.");
    let over = model.respond(&second, &listener).await.unwrap_err().to_string();
    assert!(over.contains("the model script has only 2 turns"), "{over}");
}

#[tokio::test]
async fn a_script_that_is_asked_something_else_says_what_it_expected() {
    let model = ScriptedModel::new(ModelScript::parse(SCRIPT).unwrap());
    let other = ask(Message::User { text: "Sum prices.csv".to_owned() });
    let error = model.respond(&other, &|_| {}).await.unwrap_err().to_string();
    assert!(error.contains("turn 1"), "{error}");
    assert!(error.contains("\"sales.csv\"") && error.contains("\"Sum prices.csv\""), "{error}");
}

#[test]
fn a_script_with_a_word_that_means_nothing_is_refused() {
    for text in ["- sya: hello", "say: hello", "- calls: [{nam: x}]", "- stop: never", "- [", "x"] {
        assert!(matches!(ModelScript::parse(text), Err(ScriptError::Yaml(_))), "{text}");
    }
    let json = r#"[{"say": "hello", "stop": "length"}]"#;
    assert_eq!(ModelScript::parse(json).unwrap().turns()[0].say, "hello");
}

#[test]
fn t278_a_listing_has_no_key_and_no_url() {
    let variables = [
        ("OPENAI_API_KEY", "sk-listed"),
        ("OPENAI_BASE_URL", "http://proxy.internal:8000/v1"),
        ("LAB_API_KEY", "sk-lab"),
    ];
    let listed = Models::new(ModelSettings {
        default: Some("lab/llama".to_owned()),
        endpoints: vec![("lab".to_owned(), "http://gpu-1.internal:9000/v1".parse().unwrap())],
        variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..ModelSettings::default()
    });
    let listed = listed.unwrap().list();
    let text = serde_json::to_string(&listed).unwrap();
    for secret in ["sk-listed", "sk-lab", "internal", "http"] {
        assert!(!text.contains(secret), "{text}");
    }
    let names: Vec<&str> = listed.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "lab/llama",
            "anthropic/*",
            "gemini/*",
            "lab/*",
            "ollama/*",
            "openai/*",
            "openai-responses/*"
        ]
    );
    let of = |name: &str| listed.iter().find(|model| model.name == name).unwrap();
    assert!(of("lab/llama").is_default && of("lab/llama").usable && of("openai/*").usable);
    let missing = of("anthropic/*");
    assert!(!missing.usable);
    let reason = missing.reason.as_deref().unwrap();
    assert!(reason.starts_with("ANTHROPIC_API_KEY is not set"), "{reason}");
    assert!(models(&[]).list().iter().all(|model| !model.is_default && !model.usable));
}
