//! Whose model answers: the caller's choice, the agent's, or the server's.

use crate::scripted_server::{CODE, RUNS_CODE, Scene, chat, plan, say, say_to, text};
use crate::test_server::{Api, World};
use serde_json::{Value, json};

async fn prefer(api: &Api, preferences: Value) {
    let (status, answer) = api.call("PUT", "/v1/preferences", Some(preferences)).await;
    assert_eq!(status, 200, "{answer}");
}

async fn ask(api: &Api) -> (u16, Value) {
    api.call("POST", CODE, Some(json!({"request": "Say hello."}))).await
}

// proves U-026, U-027
#[tokio::test(flavor = "multi_thread")]
async fn each_principal_chooses_for_themselves_and_from_the_next_call_on() {
    let each: Vec<Value> = (0..4).flat_map(|_| [plan(&["Greet"]), say("Hello.")]).collect();
    let scene = Scene::play(json!(each)).await;
    let ann = scene.world.principal("ann", &["USAGE"]).await;
    let models = async |api: &Api| ask(api).await.1["model"]["name"].clone();
    assert_eq!(models(&ann).await, "openai/gpt-test", "nobody has chosen");
    prefer(&ann, json!({"code_model": "anthropic/claude-small"})).await;
    assert_eq!(models(&ann).await, "anthropic/claude-small");
    assert_eq!(scene.asked()[2]["model"], "claude-small");
    assert_eq!(models(scene.owner()).await, "openai/gpt-test", "others choose for themselves");

    for (name, said) in [
        ("nobody/gpt", "model \"nobody/gpt\": unknown provider \"nobody\""),
        ("gpt", "has no provider"),
        ("openai/../x", "invalid model name"),
    ] {
        prefer(&ann, json!({"code_model": name})).await;
        let (status, problem) = ask(&ann).await;
        assert_eq!((status, &problem["code"]), (424, &json!("model.unavailable")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(said), "{problem}");
        assert!(
            problem["hint"].as_str().unwrap().contains("provider") || name == "openai/../x",
            "{problem}"
        );
    }
    prefer(&ann, json!({"code_model": "gemini/gemini-pro"})).await;
    let (status, problem) = ask(&ann).await;
    assert_eq!((status, &problem["code"]), (424, &json!("model.unavailable")));
    assert!(problem["hint"].as_str().unwrap().contains("GEMINI_API_KEY"), "{problem}");
    assert_eq!(scene.asked().len(), 6, "nobody was asked");
    assert_eq!(ann.get("/v1/sessions").await["items"].as_array().unwrap().len(), 2);

    prefer(&ann, json!({})).await;
    assert_eq!(models(&ann).await, "openai/gpt-test");
}

// proves U-080
#[tokio::test(flavor = "multi_thread")]
async fn the_request_chooses_before_the_agent_the_agent_before_its_caller_and_the_caller_before_the_server()
 {
    let each: Vec<Value> = (0..3).flat_map(|_| [plan(&["Greet"]), say("Hello.")]).collect();
    let turns: Vec<Value> = (0..6).map(|_| say("Hello.")).collect();
    let scene = Scene::play(json!([turns, each].concat())).await;
    let owner = scene.owner();
    let named = scene.agent("model: anthropic/claude-of-agent\n").await;
    let unnamed = crate::scripted_server::agent(owner, "unnamed", "instructions: x\n").await;
    let used = async |agent: &str, request: Value| {
        chat(owner, agent, request).await["model"]["name"].clone()
    };
    let (plain, asked) =
        (json!({"message": "Hi"}), json!({"message": "Hi", "model": "openai/of-request"}));
    assert_eq!(used(&unnamed, plain.clone()).await, "openai/gpt-test", "the server's default");
    prefer(owner, json!({"code_model": "openai/mine"})).await;
    assert_eq!(used(&unnamed, plain.clone()).await, "openai/mine", "before the server's");
    assert_eq!(used(&named, plain.clone()).await, "anthropic/claude-of-agent", "before mine");
    assert_eq!(used(&named, asked.clone()).await, "openai/of-request", "before the agent's");
    assert_eq!(used(&unnamed, asked).await, "openai/of-request");
    let codes = async |request: Value| {
        let (status, done) = owner.call("POST", CODE, Some(request)).await;
        assert_eq!(status, 200, "{done}");
        done["model"]["name"].clone()
    };
    prefer(owner, json!({})).await;
    assert_eq!(used(&unnamed, plain).await, "openai/gpt-test");
    prefer(owner, json!({"code_model": "openai/mine"})).await;
    assert_eq!(codes(json!({"request": "Hi."})).await, "openai/mine");
    assert_eq!(codes(json!({"request": "Hi.", "model": "openai/fast"})).await, "openai/fast");
    let (_, removed) =
        owner.call("PATCH", "/v1/preferences", Some(json!({"code_model": null}))).await;
    assert_eq!(removed, json!({}));
    assert_eq!(codes(json!({"request": "Hi."})).await, "openai/gpt-test");
    // What the provider was asked is what the records say.
    let models: Vec<String> = scene.asked().iter().map(|asked| text(&asked["model"])).collect();
    let of_agents = ["gpt-test", "mine", "claude-of-agent", "of-request", "of-request", "gpt-test"];
    assert_eq!(models[..6], of_agents);
    assert_eq!(models[6..], ["mine", "mine", "fast", "fast", "gpt-test", "gpt-test"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_a_model_that_cannot_be_had_is_refused_and_runs_with_no_other() {
    let scene = Scene::play(json!([say("Hello.")])).await;
    let agent = scene.agent("model: anthropic/claude-of-agent\n").await;
    let run = format!("{agent}/run");
    for model in ["nobody/gpt", "gpt", "openai/*", "script", "gemini/gemini-pro", ""] {
        for (path, body) in [
            (CODE, json!({"request": "Hi", "model": model})),
            (&*run, json!({"message": "Hi", "model": model})),
        ] {
            let (status, problem) = scene.owner().call("POST", path, Some(body)).await;
            let expected = (424, &json!("model.unavailable"));
            assert_eq!((status, &problem["code"]), expected, "{model:?}: {problem}");
        }
    }
    assert_eq!(scene.asked().len(), 0);
    assert_eq!(say_to(scene.owner(), &agent, "Hi").await["answer"], "Hello.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_model_says_what_to_set_and_makes_nothing() {
    let bare = [
        "env",
        "-u",
        "OPENAI_API_KEY",
        "-u",
        "ANTHROPIC_API_KEY",
        "-u",
        "GEMINI_API_KEY",
        "-u",
        "BELLJAR_MODEL",
    ];
    let world = World::under(&bare, &[]).await;
    let agent = crate::scripted_server::agent(&world.owner, "helper", RUNS_CODE).await;
    let run = format!("{agent}/run");
    for (path, body) in [(CODE, json!({"request": "Hi"})), (&*run, json!({"message": "Hi"}))] {
        let (status, problem) = world.owner.call("POST", path, Some(body)).await;
        assert_eq!((status, &problem["code"]), (424, &json!("model.unavailable")), "{problem}");
        let hint = problem["hint"].as_str().unwrap();
        assert!(
            hint.contains("BELLJAR_MODEL") && hint.contains("preferences.code_model"),
            "{hint}"
        );
    }
    assert_eq!(world.owner.get("/v1/sessions").await["items"], json!([]));
    assert_eq!(world.owner.execute("6 * 7").await["value"], 42, "everything else works");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_of_a_provider_is_told_to_anybody() {
    let scene = Scene::play(
        json!([{"fail": {"status": 401, "message": "Incorrect API key provided: sk-test"}}]),
    )
    .await;
    let (_, problem) = ask(scene.owner()).await;
    assert_eq!(problem["error"]["code"], "model.unavailable", "{problem}");
    assert!(!problem.to_string().contains("sk-test"), "{problem}");
    assert!(!scene.world.log().contains("sk-test"));
    assert_eq!(scene.model.requests()[0].headers["authorization"], "Bearer sk-test");
}
