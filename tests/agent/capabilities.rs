//! What a run has of the capabilities of its agent.

use crate::scripted_server::{Scene, agent_code, offered, say, say_to};
use serde_json::{Value, json};

async fn add(scene: &Scene, agent: &str, body: Value) -> Value {
    scene.owner().post(&format!("{agent}/capabilities"), body).await
}

// proves P-091
#[tokio::test(flavor = "multi_thread")]
async fn what_was_added_is_offered_to_the_model_of_the_next_run_and_what_was_removed_is_not() {
    let prints = [agent_code("print(6 * 7)"), say("It is 42.")];
    let scene =
        Scene::play(json!([say("I cannot."), prints[0], prints[1], say("Hello."), say("Hello."),]))
            .await;
    let owner = scene.owner();
    let agent = scene.agent("instructions: You answer.\n").await;
    say_to(owner, &agent, "Compute it.").await;
    assert_eq!(offered(&scene.asked()[0]), Vec::<String>::new());

    let catalog = owner.get("/v1/catalog").await;
    for entry in catalog["items"].as_array().unwrap() {
        add(&scene, &agent, entry["capability"].clone()).await;
    }
    let code = "def handle(a: int) -> int:\n    return a\n";
    let echo = json!({"type": "runPythonCode", "name": "echo", "description": "Gives it back.",
        "configuration": {"pythonCode": code}});
    let echo = owner.post("/v1/tools", echo).await;
    add(&scene, &agent, json!({"kind": "tool", "tool_id": echo["id"]})).await;
    let done = say_to(owner, &agent, "Compute it.").await;
    assert_eq!(
        (&done["answer"], &done["rounds"][0]["stdout"]),
        (&json!("It is 42."), &json!("42\n"))
    );
    assert_eq!(done["warnings"], json!([]), "{done}");
    let tools = ["code_execution", "execute_python", "echo", "load_skill", "run_skill_script"];
    assert_eq!(offered(&scene.asked()[1]), tools);
    // One skill is loaded, the other one is listed.
    for skill in ["# Code interpreter", "- dataviz:"] {
        assert!(scene.messages(1).contains(skill), "{}", scene.messages(1));
    }

    let listed = owner.get(&format!("{agent}/capabilities")).await;
    for item in listed["items"].as_array().unwrap() {
        // Every one that is listed can be removed by its kind and name.
        let (kind, name) = (item["kind"].as_str().unwrap(), item["name"].as_str().unwrap());
        if name != "echo" {
            owner.delete(&format!("{agent}/capabilities/{kind}/{name}")).await;
        }
    }
    say_to(owner, &agent, "Hi").await;
    assert_eq!(offered(&scene.asked()[3]), ["echo"]);
    owner.delete(&format!("{agent}/capabilities/tool/echo")).await;
    let done = say_to(owner, &agent, "Hi").await;
    assert_eq!(offered(&scene.asked()[4]), Vec::<String>::new());
    assert_eq!(done["warnings"], json!([]), "nothing is left of them: {done}");
}
