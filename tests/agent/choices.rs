//! Whose model answers: the caller's choice, the agent's, or the server's.

use crate::scripted_server::{CODE, RUNS_CODE, Scene, chat, plan, say, say_to};
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

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_a_model_of_its_own_unless_the_caller_chooses() {
    let scene = Scene::play(json!([say("One."), say("Two."), say("Three.")])).await;
    let agent = scene.agent("model: anthropic/claude-of-agent\n").await;
    assert_eq!(
        say_to(scene.owner(), &agent, "Hi").await["model"]["name"],
        "anthropic/claude-of-agent"
    );
    prefer(scene.owner(), json!({"code_model": "openai/mine"})).await;
    assert_eq!(say_to(scene.owner(), &agent, "Hi").await["model"]["name"], "openai/mine");
    let unnamed =
        crate::scripted_server::agent(scene.owner(), "unnamed", "instructions: x\n").await;
    prefer(scene.owner(), json!({})).await;
    assert_eq!(
        chat(scene.owner(), &unnamed, json!({"message": "Hi"})).await["model"]["name"],
        "openai/gpt-test"
    );
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
