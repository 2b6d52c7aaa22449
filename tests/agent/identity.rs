//! Whose call it is: code of an agent runs for the principal who talks to it, whatever the model writes.

use crate::scripted_server::{RUNS_CODE, Scene, call, say, say_to};
use serde_json::{Value, json};

// proves P-063, P-065
#[tokio::test(flavor = "multi_thread")]
async fn t261_a_model_cannot_say_whose_code_it_runs() {
    let code = "import os\nprint(os.environ['BELLJAR_PRINCIPAL'])";
    let forged = json!({
        "code": code, "agent_id": "another", "principal": "another", "run_as": "another",
        "workspace": "another", "api_key": "bj_another",
    });
    let scene = Scene::play(json!([
        call("code_execution", json!({"code": code})),
        call("code_execution", forged),
        say("Done."),
    ]))
    .await;
    let agent = scene.agent(RUNS_CODE).await;
    let bob = scene.friend("bob", &agent).await;
    let done = say_to(&bob, &agent, "Who am I?").await;
    assert_eq!(done["answer"], "Done.", "{done}");
    let rounds = done["rounds"].as_array().unwrap();
    let records: Vec<Value> = {
        let mut records = Vec::new();
        for round in rounds {
            let id = round["execution_id"].as_str().unwrap();
            records.push(bob.get(&format!("/v1/executions/{id}")).await);
        }
        records
    };
    let owner = scene.owner().get("/v1/principals/me").await["id"].clone();
    let me = bob.get("/v1/principals/me").await["id"].clone();
    assert_eq!(records.len(), 2, "{done}");
    for record in &records {
        assert_eq!((&record["principal"], &record["run_as"]), (&me, &owner), "{record}");
        assert_eq!(record["output"][0]["text"], records[0]["output"][0]["text"]);
    }
    // No call has a key: neither the tools of the model nor its conversation has a place for one.
    for asked in scene.asked() {
        let text = asked.to_string();
        assert!(!text.contains(&bob.key) && !text.contains(&scene.owner().key), "{text}");
        let tools = asked["tools"].to_string();
        assert!(!tools.contains("api_key") && !tools.contains("authorization"), "{tools}");
    }
}
