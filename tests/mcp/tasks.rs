//! Tasks: runs that take longer than a request, for clients that support tasks.

use crate::harness::wait;
use crate::test_server::World;
use crate::wire::{answer, post};
use serde_json::{Value, json};
use std::time::Duration;

fn tasks() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
}

async fn ask(world: &World, method: &str, params: Value) -> Value {
    answer(post(&world.owner, method, params, &tasks()).await).await
}

async fn run(world: &World, code: &str) -> Value {
    let params = json!({"name": "execute_python", "arguments": {"code": code}});
    ask(world, "tools/call", params).await["result"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_run_becomes_a_task_that_is_asked_for_later_also_after_a_restart() {
    let mut world = World::with(&["--task-seconds", "1"]).await;
    let short = run(&world, "6 * 7").await;
    assert_eq!(
        (&short["resultType"], &short["structuredContent"]["result"]),
        (&json!("complete"), &json!(42))
    );
    let long = run(&world, "import time\ntime.sleep(3)\nprint('done')").await;
    assert_eq!(
        (&long["resultType"], &long["status"]),
        (&json!("task"), &json!("working")),
        "{long}"
    );
    let id = long["taskId"].clone();
    let task = wait::until_some("the task has ended", async || {
        let task = ask(&world, "tasks/get", json!({"taskId": id})).await["result"].clone();
        (task["status"] != "working").then_some(task)
    });
    let task = task.await;
    assert_eq!(task["status"], "completed", "{task}");
    assert_eq!(task["result"]["structuredContent"]["result"], "done", "{task}");
    world.kill();
    world.again().await;
    let again = ask(&world, "tasks/get", json!({"taskId": id})).await["result"].clone();
    assert_eq!(again["result"], task["result"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_can_be_asked_for_the_moment_that_it_is_told() {
    let world = World::with(&["--task-seconds", "0"]).await;
    for _ in 0..10 {
        let begun = run(&world, "import time\ntime.sleep(0.2)").await;
        let id = json!({"taskId": begun["taskId"]});
        let task = ask(&world, "tasks/get", id).await;
        assert_eq!(task["result"]["status"], "working", "{begun} {task}");
        let answers = json!({"taskId": begun["taskId"], "inputResponses": {"nothing": {}}});
        let ignored = ask(&world, "tasks/update", answers).await;
        assert_eq!(ignored["result"]["resultType"], "complete", "{ignored}");
    }
    let unknown = json!({"taskId": "nothing", "inputResponses": {}});
    let unknown = ask(&world, "tasks/update", unknown).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_cancelled_only_by_its_owner() {
    let world = World::with(&["--task-seconds", "1"]).await;
    let long = run(&world, "import time\ntime.sleep(60)").await;
    let id = long["taskId"].clone();
    let ann = world.principal("ann", &["USAGE"]).await;
    let hidden = answer(post(&ann, "tasks/get", json!({"taskId": id}), &tasks()).await).await;
    assert_eq!(hidden["error"]["code"], -32602, "{hidden}");
    let foreign = answer(post(&ann, "tasks/cancel", json!({"taskId": id}), &tasks()).await).await;
    assert!(foreign.get("error").is_some(), "{foreign}");
    ask(&world, "tasks/cancel", json!({"taskId": id})).await;
    let is_cancelled = async || {
        ask(&world, "tasks/get", json!({"taskId": id})).await["result"]["status"] == "cancelled"
    };
    wait::within(Duration::from_secs(10), "the task is cancelled", is_cancelled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_tasks_waits_for_the_end() {
    let world = World::with(&["--task-seconds", "1"]).await;
    let params =
        json!({"name": "execute_python", "arguments": {"code": "import time\ntime.sleep(2)\n1"}});
    let result = answer(post(&world.owner, "tools/call", params, &json!({})).await).await;
    assert_eq!(result["result"]["structuredContent"]["result"], 1, "{result}");
}
