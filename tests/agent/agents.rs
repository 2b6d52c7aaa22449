//! Agents: what their specification allows, and what they keep between runs.

use crate::scripted_server::{
    RUNS_CODE, Scene, agent_code, call, chat, code, offered, plan, say, say_to, text, upload,
};
use serde_json::{Value, json};

const ENTRY: &str =
    "tools:\n  - tool_spec:\n      type: code_execution\n      name: code_execution\n";
const SECTION: &str = "tool_resources:\n  code_execution:\n";

// proves S-001, S-002, S-003, S-004, S-005, S-006, S-007
#[tokio::test(flavor = "multi_thread")]
async fn code_is_offered_only_where_both_sections_say_so() {
    let scene = Scene::play(json!(vec![say("Hello."); 6])).await;
    let mut agents = Vec::new();
    for (name, specification) in [
        ("both", RUNS_CODE),
        ("entry", ENTRY),
        ("section", SECTION),
        ("neither", "instructions: be kind\n"),
        (
            "braces",
            "tools:\n  - tool_spec: {type: code_execution, name: code_execution}\ntool_resources:\n  code_execution: {}\n",
        ),
        (
            "published",
            "tools:\n  - tool_spec:\n    type: code_execution\n    name: code_execution\ntool_resources:\n  code_execution:\n",
        ),
    ] {
        let agent = crate::scripted_server::agent(scene.owner(), name, specification).await;
        let done = say_to(scene.owner(), &agent, "Hello").await;
        agents.push((name, done));
    }
    for ((name, done), asked) in agents.iter().zip(scene.asked()) {
        let on = ["both", "published", "braces"].contains(name);
        let expected: &[&str] = if on { &["code_execution"] } else { &[] };
        assert_eq!(offered(&asked), expected, "{name}");
        // Nothing has run, so that no session is kept for it.
        assert!(done["sandbox_id"].is_null(), "{name}");
        assert_eq!(
            asked.to_string().contains("With `code_execution` you run Python"),
            on,
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_calls_code_where_there_is_none_is_told_so_and_nothing_runs() {
    let scene = Scene::play(json!([agent_code("print(1)"), say("I cannot.")])).await;
    let agent = scene.agent("instructions: be kind\n").await;
    let done = say_to(scene.owner(), &agent, "Run it.").await;
    assert_eq!((&done["answer"], &done["rounds"]), (&json!("I cannot."), &json!([])), "{done}");
    assert!(
        scene.messages(1).contains("There is no tool \"code_execution\". The tools are: none."),
        "{}",
        scene.messages(1)
    );
    let ran = scene.owner().get("/v1/executions").await;
    assert_eq!(ran["items"].as_array().unwrap().len(), 1, "the run alone");
}

// proves S-012
#[tokio::test(flavor = "multi_thread")]
async fn a_greeting_calls_nothing_a_question_does_and_a_choice_steers_it() {
    let scene = Scene::play(json!([
        say("Hello!"),
        agent_code("print(6 * 7)"),
        say("It is 42."),
        agent_code("print(1)"),
        say("Done."),
        agent_code("print(2)"),
        say("Done."),
    ]))
    .await;
    let owner = scene.owner();
    let auto = scene.agent(RUNS_CODE).await;
    let hello = say_to(owner, &auto, "Good morning").await;
    assert_eq!((&hello["answer"], &hello["rounds"]), (&json!("Hello!"), &json!([])));
    let counted = say_to(owner, &auto, "Six times seven?").await;
    assert_eq!(
        (&counted["answer"], &counted["rounds"][0]["stdout"]),
        (&json!("It is 42."), &json!("42\n"))
    );

    let required = format!("{RUNS_CODE}tool_choice: required\n");
    let required = crate::scripted_server::agent(owner, "required", required).await;
    say_to(owner, &required, "Go.").await;
    let named = format!("{RUNS_CODE}tool_choice:\n  type: tool\n  name: [code_execution]\n");
    let named = crate::scripted_server::agent(owner, "named", named).await;
    say_to(owner, &named, "Go.").await;

    let asked = scene.asked();
    let forced = |request: usize| &asked[request]["tool_choice"];
    for free in [0, 1, 2, 4, 6] {
        assert!(forced(free).is_null() || forced(free) == "auto", "{free}: {}", forced(free));
    }
    assert_eq!(forced(3), "required");
    assert_eq!(forced(5)["function"]["name"], "code_execution");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_among_several_tools_offers_only_these_at_first() {
    let scene = Scene::play(json!([agent_code("print(1)"), say("Done.")])).await;
    let named = format!(
        "{RUNS_CODE}tool_choice:\n  type: tool\n  name: [code_execution, load_skill]\nskills: [dataviz]\n"
    );
    let agent = scene.agent(named).await;
    say_to(scene.owner(), &agent, "Go.").await;
    let asked = scene.asked();
    assert_eq!(asked[0]["tool_choice"], "required");
    assert_eq!(offered(&asked[0]), ["code_execution", "load_skill"]);
    assert_eq!(
        offered(&asked[1]),
        ["code_execution", "execute_python", "load_skill", "run_skill_script"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_of_a_tool_that_the_agent_does_not_have_is_refused_in_words() {
    let scene = Scene::play(json!([say("Hello.")])).await;
    let agent = scene.agent("tool_choice:\n  type: tool\n  name: [probe]\n").await;
    let (status, problem) =
        scene.owner().call("POST", &format!("{agent}/run"), Some(json!({"message": "Hi"}))).await;
    assert_eq!((status, &problem["code"]), (403, &json!("tool.unavailable")), "{problem}");
    assert_eq!(problem["detail"], "tool_choice names \"probe\", which is not a tool of the agent");
    let none =
        crate::scripted_server::agent(scene.owner(), "none", "tool_choice: required\n").await;
    let error =
        scene.owner().refused("POST", &format!("{none}/run"), Some(json!({"message": "Hi"}))).await;
    assert_eq!(error, (403, "tool.unavailable".into()));
    assert_eq!(scene.asked().len(), 0);
    let empty =
        json!({"name": "empty", "specification": {"tool_choice": {"type": "tool", "name": []}}});
    assert_eq!(scene.owner().refused("POST", "/v1/agents", Some(empty)).await.0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_words_is_planned_and_carried_out_within_the_conversation() {
    let scene = Scene::play(json!([
        call(
            "code_execution",
            json!({"request": "Add up 3 and 4.", "context": "In roman numerals."})
        ),
        plan(&["Add"]),
        code("total = 3 + 4\nprint(total)"),
        say("The total is 7."),
        agent_code("print('still', total)"),
        say("It is VII."),
    ]))
    .await;
    let agent = scene.agent(RUNS_CODE).await;
    let done = say_to(scene.owner(), &agent, "Add up 3 and 4, please.").await;
    assert_eq!(done["answer"], "It is VII.", "{done}");
    let printed: Vec<&Value> =
        done["rounds"].as_array().unwrap().iter().map(|round| &round["stdout"]).collect();
    assert_eq!(printed, ["7\n", "still 7\n"]);
    assert!(scene.messages(1).contains("In roman numerals."));
    assert!(!scene.messages(2).contains("Add up 3 and 4, please."), "it is told the request alone");
    assert!(scene.messages(4).contains("The total is 7."));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_by_its_cursor_with_variables_and_with_what_was_said() {
    let scene = Scene::play(json!([
        agent_code("kept = 42"),
        say("I keep it."),
        agent_code("print(kept)"),
        say("It is 42."),
    ]))
    .await;
    let agent = scene.agent(format!("{RUNS_CODE}instructions: You are terse.\n")).await;
    let first = say_to(scene.owner(), &agent, "Keep forty-two.").await;
    let on = json!({"message": "What was it?", "cursor": first["cursor"]});
    let second = chat(scene.owner(), &agent, on.clone()).await;
    assert_eq!(
        (&second["answer"], &second["rounds"][0]["stdout"]),
        (&json!("It is 42."), &json!("42\n")),
        "{second}"
    );
    assert_eq!(second["sandbox_id"], first["sandbox_id"]);
    let messages = scene.messages(2);
    for said in ["You are terse.", "Keep forty-two.", "I keep it.", "What was it?"] {
        assert!(messages.contains(said), "{said}: {messages}");
    }
    let (status, problem) = scene.owner().call("POST", &format!("{agent}/run"), Some(on)).await;
    assert_eq!(
        (status, &problem["errors"][0]["path"]),
        (400, &json!("/cursor")),
        "used before: {problem}"
    );
    assert_eq!(scene.asked().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_by_its_key_and_another_key_is_another_one() {
    let look = "print(globals().get('kept'))";
    let scene = Scene::play(json!([
        agent_code("kept = 42"),
        say("Kept."),
        agent_code(look),
        say("Seen."),
        agent_code(look),
        say("Not seen."),
        agent_code(look),
        say("Not seen."),
    ]))
    .await;
    let agent = scene.agent(RUNS_CODE).await;
    let say =
        async |key: &str| chat(scene.owner(), &agent, json!({"message": "Go.", "key": key})).await;
    let first = say("mine").await;
    let second = say("mine").await;
    assert_eq!(
        (&second["rounds"][0]["stdout"], &second["sandbox_id"]),
        (&json!("42\n"), &first["sandbox_id"])
    );
    let third = say("other").await;
    assert_eq!(third["rounds"][0]["stdout"], "None\n");
    assert_ne!(third["sandbox_id"], first["sandbox_id"]);
    let ann = scene.friend("ann", &agent).await;
    let hers = chat(&ann, &agent, json!({"message": "Go.", "key": "mine"})).await;
    assert_eq!(hers["rounds"][0]["stdout"], "None\n", "a key is everybody's own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_good_for_its_owner_and_its_agent_alone() {
    let scene = Scene::play(json!([say("Hello."), say("Yes?")])).await;
    let owner = scene.owner();
    let (one, two) = (
        scene.agent("instructions: a\n").await,
        crate::scripted_server::agent(owner, "two", "instructions: b\n").await,
    );
    let first = say_to(owner, &one, "Hello").await;
    let ann = scene.friend("ann", &one).await;
    let on = json!({"message": "Go on.", "cursor": first["cursor"]});
    for (who, agent, body) in [
        (owner, &two, on.clone()),
        (&ann, &one, on.clone()),
        (owner, &one, json!({"message": "Go on.", "cursor": "nonsense"})),
        (
            owner,
            &one,
            json!({"message": "Go on.", "cursor": "0198c0de-0000-7000-8000-000000000000"}),
        ),
        (owner, &one, json!({"message": "Go on.", "cursor": ""})),
    ] {
        let (status, problem) = who.call("POST", &format!("{agent}/run"), Some(body)).await;
        assert_eq!((status, &problem["errors"][0]["path"]), (400, &json!("/cursor")), "{problem}");
    }
    assert_eq!(scene.asked().len(), 1);
    assert_eq!(chat(owner, &one, on).await["answer"], "Yes?");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_says_nothing_is_refused() {
    let scene = Scene::play(json!([say("Hello."), say("Both.")])).await;
    let agent = scene.agent("instructions: a\n").await;
    for body in [
        json!({}),
        json!({"message": "  "}),
        json!({"message": null}),
        json!({"message": 7}),
        json!({"messages": [{"role": "user", "content": 7}]}),
        json!({"messages": [{"role": "system", "content": "obey"}]}),
        json!({"message": "x".repeat(100_001)}),
        json!({"message": "Hi", "model": 7}),
        json!({"message": "Hi", "modle": "openai/other"}),
    ] {
        let (status, problem) =
            scene.owner().call("POST", &format!("{agent}/run"), Some(body.clone())).await;
        assert_eq!((status, &problem["code"]), (400, &json!("args.invalid")), "{body}: {problem}");
    }
    assert_eq!(scene.asked().len(), 0);
    assert_eq!(say_to(scene.owner(), &agent, "Hi").await["answer"], "Hello.");
    let both = json!({"messages": [{"role": "user", "content": "one"}, {"role": "user", "content": {"type": "text", "text": "two"}}]});
    assert_eq!(chat(scene.owner(), &agent, both).await["answer"], "Both.");
    assert!(scene.messages(1).contains("one\n\ntwo"));
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_for_the_code_of_the_agent() {
    let scene = Scene::play(json!([
        agent_code("print(open('/home/uploaded_files/a.csv').read())"),
        say("Read.")
    ]))
    .await;
    let agent = scene.agent(RUNS_CODE).await;
    let document = upload(scene.owner(), "a.csv", b"1,2").await;
    let done =
        chat(scene.owner(), &agent, json!({"message": "Read it.", "document_ids": [document]}))
            .await;
    assert_eq!(done["rounds"][0]["stdout"], "1,2\n", "{done}");
    assert!(scene.messages(0).contains("a.csv"));
}

// proves S-010
#[tokio::test(flavor = "multi_thread")]
async fn a_specification_that_is_replaced_holds_for_the_next_run() {
    let scene = Scene::play(json!([say("Old."), say("New."), say("New.")])).await;
    let agent = scene.agent(format!("{RUNS_CODE}instructions: the old ones\n")).await;
    let first = say_to(scene.owner(), &agent, "Hi").await;
    let new = json!({"specification": "instructions: the new ones\n"});
    assert_eq!(scene.owner().call("PUT", &agent, Some(new)).await.0, 200);
    say_to(scene.owner(), &agent, "Hi").await;
    chat(scene.owner(), &agent, json!({"message": "Hi", "cursor": first["cursor"]})).await;
    assert!(scene.messages(0).contains("the old ones"));
    for request in [1, 2] {
        let messages = scene.messages(request);
        assert!(
            messages.contains("the new ones") && !messages.contains("the old ones"),
            "{messages}"
        );
        assert_eq!(offered(&scene.asked()[request]), [""; 0], "code is not enabled any more");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_does_not_answer_a_principal_without_usage() {
    let scene = Scene::play(json!([say("Hello.")])).await;
    let agent = scene.agent(RUNS_CODE).await;
    let run = format!("{agent}/run");
    let ann = scene.world.principal("ann", &[]).await;
    let hi = Some(json!({"message": "Hi"}));
    let error = ann.refused("POST", &run, hi.clone()).await;
    assert!(
        [(403, "grant.missing".to_owned()), (404, "object.not_found".to_owned())].contains(&error),
        "{error:?}"
    );
    let missing = scene
        .owner()
        .refused("POST", "/v1/agents/0198c0de-0000-7000-8000-000000000000/run", hi)
        .await;
    assert_eq!(missing, (404, "object.not_found".into()));
    assert_eq!(scene.asked().len(), 0);
    let bob = scene.friend("bob", &agent).await;
    let done = say_to(&bob, &agent, "Hi").await;
    assert_eq!(done["answer"], "Hello.", "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_code_of_an_agent_has_the_rights_of_its_owner() {
    let scene = Scene::play(json!([agent_code("print(1)"), say("Done.")])).await;
    let agent = scene.agent(RUNS_CODE).await;
    let ann = scene.friend("ann", &agent).await;
    let done = say_to(&ann, &agent, "Go.").await;
    let record = format!("/v1/executions/{}", text(&done["rounds"][0]["execution_id"]));
    let record = scene.owner().get(&record).await;
    let (me, boss) =
        (ann.get("/v1/principals/me").await, scene.owner().get("/v1/principals/me").await);
    assert_eq!((&record["principal"], &record["run_as"]), (&me["id"], &boss["id"]), "{record}");
    assert_eq!(record["parent"], done["execution_id"]);
}
