//! T130: a model that names one of its arguments as serde_json names raw JSON. What a model writes is read
//! here and by the client library of its provider, without anything in front of either.

#[path = "../harness/raw_json.rs"]
mod layers;

use crate::scripted_server::{Scene, call, say, say_to, text};
use layers::{NAME, layers};
use serde_json::{Value, json};

const MEASURE: &str = "def run(input):\n    ((name, text),) = input['given'].items()\n    return {'name': name, 'characters': len(text)}\n";

#[tokio::test(flavor = "multi_thread")]
async fn t130_arguments_of_a_model_with_the_name_of_raw_json_end_nothing() {
    let layers = layers(60);
    for model in ["openai/gpt-test", "anthropic/claude-test"] {
        for name in [NAME, "another name"] {
            // As text, so that nothing of this test reads it.
            let arguments = Value::String(json!({"given": {name: layers}}).to_string());
            let turns = json!([call("measure", arguments), say("Measured.")]);
            let scene = Scene::of(model, turns, &[]).await;
            let agent = scene.agent("instructions: x\n").await;
            let tool = json!({
                "name": "measure", "description": "Measures.", "tool_type": "code_runner",
                "configuration": {"type": "CodeRunner", "runtime": "python", "code": MEASURE,
                    "input_schema": [{"name": "given", "field_type": "OBJECT", "required": true}]},
            });
            let id = text(&scene.owner().post("/v1/tools", tool).await["id"]);
            scene.owner().post(&format!("{agent}/tools/{id}"), json!({})).await;
            let done = say_to(scene.owner(), &agent, "Measure.").await;
            assert_eq!(done["answer"], "Measured.", "{model}: {done}");
            let expected = json!({"name": name, "characters": layers.len()}).to_string();
            assert!(scene.messages(1).contains(&expected), "{model}: {expected}");
        }
    }
}
