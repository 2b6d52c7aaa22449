//! Tools that ask first: by default, and as it is set for each tool of an agent.

use crate::command::typed;
use crate::confirmations::{book, booking, ran, replies, reply};
use crate::harness::{stderr, wait};
use crate::scripted_server::{RUNS_CODE, Scene, agent_code, chat, say, say_to, text};
use serde_json::{Value, json};

const BOOK: &str = "def handle(what: str) -> str:\n    \"\"\"Books something.\n\n    Args:\n        what: which\n    \"\"\"\n    return 'booked ' + what\n";

fn stored(more: Value) -> Value {
    let mut tool = json!({
        "type": "runPythonCode", "name": "book", "description": "Books something for good.",
        "configuration": {"pythonCode": BOOK},
    });
    tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    tool
}

async fn attach(scene: &Scene, agent: &str, tool: Value) -> String {
    let id = text(&scene.owner().post("/v1/tools", tool).await["id"]);
    scene.owner().post(&format!("{agent}/tools/{id}"), json!({})).await;
    id
}

// proves C-172, C-146
#[tokio::test(flavor = "multi_thread")]
async fn an_attached_tool_asks_the_caller_of_the_agent_first_and_never_runs_without_an_answer() {
    let turns =
        json!([book("a table"), book("a table"), say("It was not booked."), say("Booked.")]);
    let scene = Scene::with(turns, &["--approval-seconds", "5"]).await;
    let agent = scene.agent("instructions: book\n").await;
    let tool = attach(&scene, &agent, stored(json!({}))).await;
    assert_eq!(scene.owner().get(&format!("/v1/tools/{tool}")).await["approval_action"], "confirm");
    let friend = scene.friend("friend", &agent).await;
    let asked = say_to(&friend, &agent, "Book a table.").await;
    let action = &asked["actions"][0]["toolConfirmation"];
    assert_eq!(
        (&action["toolName"], &action["toolType"]),
        (&json!("book"), &json!("runPythonCode")),
        "{asked}"
    );
    // Neither a retry nor an answer that is late makes it run.
    let request = Some(json!({"cursor": asked["cursor"]}));
    assert_eq!(friend.refused("POST", &format!("{agent}/run"), request).await.0, 409);
    let open = scene.owner().get("/v1/approvals?state=pending").await["items"][0].clone();
    let expires: chrono::DateTime<chrono::Utc> = text(&open["expires_at"]).parse().unwrap();
    wait::until("the time to answer is over", async || chrono::Utc::now() > expires).await;
    let again = chat(&friend, &agent, reply(&asked, "ALLOW")).await;
    assert_eq!(
        ran(scene.owner()).await,
        0,
        "the model has called it again, and that asks again: {again}"
    );
    let done = chat(&friend, &agent, reply(&again, "DENY")).await;
    assert_eq!(
        (&done["answer"], ran(scene.owner()).await),
        (&json!("It was not booked."), 0),
        "{done}"
    );
}

// proves C-172
#[tokio::test(flavor = "multi_thread")]
async fn the_caller_allows_it_and_a_tool_whose_policy_says_so_asks_nobody() {
    let scene =
        Scene::play(json!([book("a table"), say("Booked."), book("a cab"), say("Booked too.")]))
            .await;
    let agent = scene.agent("instructions: book\n").await;
    let tool = attach(&scene, &agent, stored(json!({}))).await;
    let friend = scene.friend("friend", &agent).await;
    let asked = say_to(&friend, &agent, "Book a table.").await;
    let done = chat(&friend, &agent, reply(&asked, "ALLOW")).await;
    assert_eq!((&done["answer"], ran(scene.owner()).await), (&json!("Booked."), 1), "{done}");
    let direct = scene
        .owner()
        .post(&format!("/v1/tools/{tool}/call"), json!({"arguments": {"what": "wine"}}))
        .await;
    assert_eq!(direct["value"], "booked wine", "who calls it directly has confirmed it: {direct}");
    let allow = Some(json!({"approval_action": "allow"}));
    assert_eq!(scene.owner().call("PATCH", &format!("/v1/tools/{tool}"), allow).await.0, 200);
    let done = say_to(&friend, &agent, "Book a cab.").await;
    assert_eq!((&done["answer"], &done["actions"]), (&json!("Booked too."), &json!([])), "{done}");
}

// proves C-173
#[tokio::test(flavor = "multi_thread")]
async fn ask_first_is_set_for_one_tool_of_an_agent_over_rest_and_on_the_command_line() {
    let scene = Scene::play(json!([
        book("a table"),
        say("Booked."),
        agent_code("print(6 * 7)"),
        say("It is 42."),
    ]))
    .await;
    let mut specification = crate::confirmations::booking_and_code();
    specification["tools"][0]["approval_action"] = json!("allow");
    let agent = scene.agent(specification.clone()).await;
    let actions = async || {
        let tools = scene.owner().get(&agent).await["specification_tools"].clone();
        let pair = |tool: &Value| {
            format!("{}: {}", text(&tool["tool_name"]), text(&tool["approval_action"]))
        };
        tools.as_array().unwrap().iter().map(pair).collect::<Vec<_>>()
    };
    assert_eq!(actions().await, ["book: allow", "order: confirm", "code_execution: allow"]);
    let confirm = Some(json!({"approval_action": "confirm"}));
    let (status, set) =
        scene.owner().call("PATCH", &format!("{agent}/tools/book"), confirm.clone()).await;
    assert_eq!((status, &set["approval_action"]), (200, &json!("confirm")), "{set}");
    let said =
        typed(scene.owner(), &["agent", "approval", "helper", "code_execution", "confirm"]).await;
    assert!(said.status.success(), "{}", stderr(&said));
    assert_eq!(actions().await, ["book: confirm", "order: confirm", "code_execution: confirm"]);
    let friend = scene.friend("friend", &agent).await;
    let asked = say_to(&friend, &agent, "Book a table.").await;
    assert_eq!(
        (asked["actions"].as_array().unwrap().len(), ran(scene.owner()).await),
        (1, 0),
        "{asked}"
    );
    assert_eq!(chat(&friend, &agent, reply(&asked, "ALLOW")).await["answer"], "Booked.");
    let asked = say_to(&friend, &agent, "Compute it.").await;
    let action = &asked["actions"][0]["toolConfirmation"];
    assert_eq!(
        (&action["toolName"], &asked["rounds"]),
        (&json!("code_execution"), &json!([])),
        "{asked}"
    );
    let done = chat(&friend, &agent, reply(&asked, "ALLOW")).await;
    assert_eq!(
        (&done["answer"], &done["rounds"][0]["stdout"]),
        (&json!("It is 42."), &json!("42\n")),
        "{done}"
    );
    assert_eq!(friend.refused("PATCH", &format!("{agent}/tools/book"), confirm).await.0, 403);
    // It is kept when the specification is replaced, for the tools that it still has.
    specification["tools"].as_array_mut().unwrap().remove(1);
    let (status, _) =
        scene.owner().call("PUT", &agent, Some(json!({"specification": specification}))).await;
    assert_eq!(
        (status, actions().await),
        (200, vec!["book: confirm".to_owned(), "code_execution: confirm".to_owned()])
    );
}

// proves C-173
#[tokio::test(flavor = "multi_thread")]
async fn t239_code_asks_first_where_the_specification_says_so_and_no_looser_word_undoes_the_policy_of_the_workspace()
 {
    let scene = Scene::play(json!([
        agent_code("print(1)"),
        say("One."),
        agent_code("print(2)"),
        say("Two."),
        agent_code("print(3)"),
        say("Denied."),
    ]))
    .await;
    let section = |action: &str| {
        RUNS_CODE.trim_end().to_owned() + &format!(" {{approval_action: {action}}}\n")
    };
    let agent = scene.agent(section("confirm")).await;
    let friend = scene.friend("friend", &agent).await;
    let asked = say_to(&friend, &agent, "Go.").await;
    assert_eq!(asked["rounds"], json!([]), "{asked}");
    let done = chat(&friend, &agent, reply(&asked, "ALLOW")).await;
    assert_eq!(
        (&done["answer"], &done["rounds"][0]["stdout"]),
        (&json!("One."), &json!("1\n")),
        "{done}"
    );
    // The workspace requires an approval, which the caller of the agent cannot give.
    let ask = Some(json!({"permission": "ask"}));
    assert_eq!(scene.owner().call("PUT", "/v1/permissions/execute_python", ask).await.0, 200);
    let asked = say_to(&friend, &agent, "Go on.").await;
    let refused =
        friend.refused("POST", &format!("{agent}/run"), Some(replies(&asked, &["ALLOW"]))).await;
    assert_eq!(refused.1, "approval.denied");
    let boss = scene.world.principal("boss", &["OWNERSHIP"]).await;
    boss.post(
        &format!("/v1/approvals/{}", text(&asked["actions"][0]["actionId"])),
        json!({"decision": "allow"}),
    )
    .await;
    assert_eq!(chat(&friend, &agent, json!({"cursor": asked["cursor"]})).await["answer"], "Two.");
    let allow = Some(json!({"permission": "allow"}));
    assert_eq!(scene.owner().call("PUT", "/v1/permissions/execute_python", allow).await.0, 200);
    let deny = Some(json!({"approval_action": "deny"}));
    assert_eq!(
        scene.owner().call("PATCH", &format!("{agent}/tools/code_execution"), deny).await.0,
        200
    );
    let done = say_to(&friend, &agent, "Once more.").await;
    assert_eq!(
        (&done["answer"], &done["rounds"][0]["status"]),
        (&json!("Denied."), &json!("failed")),
        "{done}"
    );
    assert!(
        scene.messages(5).contains("denied by the approval policy of the agent"),
        "{}",
        scene.messages(5)
    );
}

// proves C-032
#[tokio::test(flavor = "multi_thread")]
async fn the_generated_schema_is_what_the_model_is_given_unchanged() {
    let scene = Scene::play(json!([say("Hello.")])).await;
    let agent = scene.agent(booking()).await;
    let tool = attach(&scene, &agent, stored(json!({"name": "stored"}))).await;
    say_to(scene.owner(), &agent, "Hello?").await;
    let offered = scene.asked()[0]["tools"].clone();
    let of = |name: &str| {
        let tools = offered.as_array().unwrap().iter();
        let mut found = tools.filter(|tool| tool["function"]["name"] == name);
        found.next().unwrap()["function"]["parameters"].clone()
    };
    let schema = scene.owner().get(&format!("/v1/tools/{tool}")).await["input_schema"].clone();
    let expected = json!({
        "type": "object",
        "properties": {"what": {"type": "string", "description": "which"}},
        "required": ["what"],
    });
    assert_eq!(
        (of("stored").to_string(), of("book").to_string()),
        (schema.to_string(), schema.to_string())
    );
    assert_eq!(schema, expected);
}

// proves C-166
#[tokio::test(flavor = "multi_thread")]
async fn a_run_names_the_environment_of_its_code() {
    let scene =
        Scene::with(json!([agent_code("print(1)"), say("One.")]), &[crate::test_server::BY_KIND])
            .await;
    let agent = scene.agent(RUNS_CODE).await;
    let done = say_to(scene.owner(), &agent, "Go.").await;
    assert_eq!(
        (&done["environment"], &done["rounds"][0]["stdout"]),
        (&json!("cortex"), &json!("1\n")),
        "{done}"
    );
    let round = text(&done["rounds"][0]["execution_id"]);
    assert_eq!(
        scene.owner().get(&format!("/v1/executions/{round}")).await["environment"],
        "cortex"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_of_a_tool_in_the_specification_is_not_given_by_the_caller_whom_confirm_asks() {
    let scene = Scene::play(json!([book("a table"), book("a cab"), say("Booked.")])).await;
    for (action, decides) in [("review", false), ("confirm", true)] {
        let tool = stored(json!({"approval_action": action}));
        let specification = json!({"instructions": "book", "tools": [tool]}).to_string();
        let agent = json!({"name": action, "specification": specification});
        let agent = scene.owner().post("/v1/agents", agent).await;
        let agent = format!("/v1/agents/{}", text(&agent["id"]));
        let friend = scene.friend(action, &agent).await;
        let asked = say_to(&friend, &agent, "Book it.").await;
        let (path, allow) = (format!("{agent}/run"), Some(reply(&asked, "ALLOW")));
        let (status, answer) = friend.call("POST", &path, allow).await;
        assert_eq!(status == 200, decides, "{action}: {answer}");
        assert_eq!(ran(scene.owner()).await, usize::from(decides), "{action}: {answer}");
    }
}
