//! `code_execution`: a request in natural language is planned, written and run round by round, corrected, and
//! answered.

use crate::scripted_server::{CODE, Scene, call, code, offered, plan, say, text};
use serde_json::{Value, json};

// proves U-002, U-018, U-019, U-021, U-023, U-025, U-028, U-046, U-047
#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_planned_and_carried_out_step_by_step_in_one_interpreter() {
    let scene = Scene::play(json!([
        plan(&["Make a list", "Add it up"]),
        code("numbers = [3, 4, 5]\nprint(len(numbers), 'numbers')"),
        code("print('total', sum(numbers))"),
        say("The total is 12."),
    ]))
    .await;
    let done = scene.request("Add up 3, 4 and 5.").await;
    assert_eq!((&done["status"], &done["complete"]), (&json!("succeeded"), &json!(true)), "{done}");
    assert_eq!(done["answer"], "The total is 12.");
    assert_eq!(done["plan"], json!(["Make a list", "Add it up"]));
    assert_eq!((&done["total_rounds"], &done["max_rounds"]), (&json!(2), &json!(6)));
    assert_eq!((&done["generated_files"], &done["artifacts"]), (&json!([]), &json!([])));
    let rounds = done["rounds"].as_array().unwrap();
    let rounds: Vec<(&Value, &Value)> =
        rounds.iter().map(|round| (&round["step"], &round["stdout"])).collect();
    assert_eq!(
        rounds,
        [
            (&json!("Make a list"), &json!("3 numbers\n")),
            (&json!("Add it up"), &json!("total 12\n"))
        ]
    );
    for key in ["sandbox_id", "logs", "execution_id"] {
        assert!(!text(&done[key]).is_empty(), "{key}");
    }

    let asked = scene.asked();
    assert_eq!(asked.len(), 4);
    assert_eq!(offered(&asked[0]), ["plan"]);
    assert!(asked[1..].iter().all(|request| offered(request) == ["run_python"]));
    assert!(!scene.messages(0).contains("3 numbers"));
    // Each step is written after the one before was seen.
    assert!(scene.messages(1).contains("1. Make a list\n2. Add it up"));
    assert!(scene.messages(2).contains("3 numbers") && !scene.messages(2).contains("total 12"));
    assert!(scene.messages(3).contains("total 12"));
}

// proves U-020
#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_shown_to_the_model_which_mends_it() {
    let scene = Scene::play(json!([
        plan(&["Divide"]),
        code("prices = {'tea': 3}\nprint(prices['Tea'])"),
        code("print(prices['tea'])"),
        say("Tea costs 3."),
    ]))
    .await;
    let done = scene.request("What does tea cost?").await;
    assert_eq!((&done["complete"], &done["answer"]), (&json!(true), &json!("Tea costs 3.")));
    assert_eq!(done["total_rounds"], 2, "{done}");
    assert_eq!(done["rounds"][0]["status"], "failed");
    assert_eq!(done["rounds"][0]["error"], "KeyError: 'Tea'");
    let both = [&done["rounds"][0]["step"], &done["rounds"][1]["step"]];
    assert_eq!(both, [&json!("Divide"), &json!("Divide")], "a step that failed is tried again");
    let messages = scene.messages(2);
    assert!(messages.contains("Traceback") && messages.contains("KeyError: 'Tea'"), "{messages}");
    assert!(!scene.messages(1).contains("KeyError"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_answer_says_of_a_number_that_failed_code_never_computed_is_not_believed() {
    let failing = |last: &str| [plan(&["Add up"]), code("print(1 / 0)"), say(last)];
    let both = [failing("The total is 4711."), failing("It could not be computed.")];
    let scene = Scene::play(both.concat().into()).await;
    let done = scene.request("What is the total?").await;
    assert_eq!((&done["status"], &done["complete"]), (&json!("failed"), &json!(false)), "{done}");
    let answer = text(&done["answer"]);
    assert!(!answer.contains("4711") && answer.contains("division by zero"), "{answer}");
    assert_eq!(done["error"]["type"], "ZeroDivisionError");

    let done = scene.request("What is the total?").await;
    assert_eq!(done["answer"], "It could not be computed.");
    assert_eq!(done["complete"], false, "{done}");
}

// proves U-007
#[tokio::test(flavor = "multi_thread")]
async fn the_context_of_a_request_reaches_the_model_that_writes_the_code() {
    let scene =
        Scene::play(json!([plan(&["Draw"]), say("Done."), plan(&["Draw"]), say("Done.")])).await;
    let asked = json!({"request": "Plot it.", "context": "Use a dark theme for the plot"});
    scene.code(asked).await;
    scene.request("Plot it.").await;
    for request in 0..4 {
        let has_context = scene.messages(request).contains("Use a dark theme for the plot");
        assert_eq!(has_context, request < 2, "{request}");
    }
}

// proves U-003
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_says_nothing_is_refused_and_nothing_is_made() {
    let scene = Scene::play(json!([plan(&["Greet"]), say("Hello.")])).await;
    for (body, path) in [
        (json!({"request": ""}), "/request"),
        (json!({"request": " \n\t"}), "/request"),
        (json!({"request": null}), "/request"),
        (json!({"request": 7}), "/request"),
        (json!({"request": ["a"]}), "/request"),
        (json!({"request": "x".repeat(100_001)}), "/request"),
        (json!({"request": "x", "context": "x".repeat(100_001)}), "/context"),
        (json!({"request": "x", "context": 7}), "/context"),
        (json!({"request": "x", "max_rounds": 0}), "/max_rounds"),
        (json!({"request": "x", "max_rounds": 101}), "/max_rounds"),
    ] {
        let (status, problem) = scene.owner().call("POST", CODE, Some(body.clone())).await;
        assert_eq!((status, &problem["code"]), (400, &json!("args.invalid")), "{problem}");
        assert_eq!(problem["errors"][0]["path"], path, "{problem}");
    }
    for body in [json!({}), json!({"request": "x", "code": "1"}), json!("x"), json!(null)] {
        let (status, problem) = scene.owner().call("POST", CODE, Some(body.clone())).await;
        assert_eq!(status, 400, "{body}: {problem}");
    }
    assert_eq!(scene.asked().len(), 0);
    assert_eq!(scene.owner().get("/v1/sessions").await["items"], json!([]));
    assert_eq!(scene.owner().get("/v1/executions").await["items"], json!([]));
    assert_eq!(scene.request("Say hello.").await["answer"], "Hello.");
}

// proves U-022
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_reaches_its_limit_says_so_and_shows_what_it_has_done() {
    let mut turns = vec![plan(&["Count", "Count on", "And on"])];
    turns.extend((0..20).map(|number| code(&format!("print('at', {number})"))));
    let scene = Scene::play(json!(turns)).await;
    let done = scene.request("Count for ever.").await;
    assert_eq!((&done["status"], &done["complete"]), (&json!("failed"), &json!(false)), "{done}");
    assert_eq!(done["error"]["code"], "budget.exhausted");
    assert_eq!((&done["total_rounds"], &done["max_rounds"]), (&json!(6), &json!(6)));
    assert!(text(&done["answer"]).contains("the limit of 6 rounds was reached"), "{done}");
    let logs = text(&done["logs"]);
    assert!(logs.contains("--- Round 6/6: And on... ---") && logs.contains("at 5"), "{logs}");
    assert!(!logs.contains("at 6"));
    assert_eq!(scene.asked().len(), 8, "a plan, six rounds, and one that was not run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_chosen_or_two_rounds_for_each_step() {
    let long = ["one", "two", "three", "four"];
    let turns = [
        plan(&["Count"]),
        code("print('once')"),
        code("print('twice')"),
        plan(&long),
        say("Done."),
    ];
    let scene = Scene::play(json!(turns)).await;
    let short = scene.code(json!({"request": "Count.", "max_rounds": 1})).await;
    assert_eq!((&short["total_rounds"], &short["max_rounds"]), (&json!(1), &json!(1)), "{short}");
    assert_eq!(short["error"]["code"], "budget.exhausted");
    let done = scene.request("Count to four.").await;
    assert_eq!((&done["max_rounds"], &done["status"]), (&json!(8), &json!("succeeded")), "{done}");
    assert_eq!(done["complete"], false, "no step of the plan was carried out");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_rounds_at_once_run_one_after_the_other_and_never_beyond_the_limit() {
    let both = json!({"calls": [
        {"name": "run_python", "arguments": {"code": "a = 1\nprint('first')"}},
        {"name": "run_python", "arguments": {"code": "a += 1\nprint('second', a)"}},
    ]});
    let scene = Scene::play(json!([plan(&["Count"]), both, both, say("never")])).await;
    let done = scene.code(json!({"request": "Count.", "max_rounds": 3})).await;
    assert_eq!(done["rounds"][1]["stdout"], "second 2\n");
    assert_eq!((&done["total_rounds"], &done["complete"]), (&json!(2), &json!(false)), "{done}");
    assert_eq!(done["error"]["code"], "budget.exhausted");
}

// proves U-038, U-039, U-040, U-041, U-042, U-043, U-044, U-045
#[tokio::test(flavor = "multi_thread")]
async fn the_transcript_reads_as_published() {
    let step = "Filter the rows that are of the fourth quarter and keep the columns that are needed for it.";
    let scene = Scene::play(json!([
        plan(&["Load the data", step]),
        code("rows = [('Q3', 1), ('Q4', 2)]\nprint(rows)\n"),
        code("import sys\nprint('careful', file=sys.stderr)\nraise ValueError('no such column')"),
        code("print([row for row in rows if row[0] == 'Q4'])"),
        say("There is one row."),
        plan(&["Say it again"]),
        say("One row."),
    ]))
    .await;
    let done = scene.request("Filter it for Q4.").await;
    let id = text(&done["sandbox_id"]);
    let expected = format!(
        "INFO: Started sandbox session: {id}\n\
         INFO: Development plan: [\"Load the data\", \"{step}\"]\n\
         \n--- Round 1/6: Load the data... ---\n\
         GENERATED CODE:\nrows = [('Q3', 1), ('Q4', 2)]\nprint(rows)\n\
         STDOUT:\n[('Q3', 1), ('Q4', 2)]\n\
         \nSTATUS: Execution successful\n\
         \n--- Round 2/6: Filter the rows that are of the fourth quarter and keep the columns that are nee... ---\n\
         GENERATED CODE:\nimport sys\nprint('careful', file=sys.stderr)\nraise ValueError('no such column')\n\
         STDERR:\ncareful\n\
         \nSTATUS: Execution failed: ValueError: no such column\n\
         \n--- Round 3/6: Filter the rows that are of the fourth quarter and keep the columns that are nee... ---\n\
         GENERATED CODE:\nprint([row for row in rows if row[0] == 'Q4'])\n\
         STDOUT:\n[('Q4', 2)]\n\
         \nSTATUS: Execution successful\n"
    );
    assert_eq!(text(&done["logs"]), expected);
    let again = scene.go_on(&done, "Say it again.").await;
    let resumed = format!(
        "INFO: Resumed sandbox session: {id}\nINFO: Development plan: [\"Say it again\"]\n"
    );
    assert_eq!(text(&again["logs"]), resumed);
}

// proves U-029, U-030
#[tokio::test(flavor = "multi_thread")]
async fn every_call_has_an_id_of_its_own_under_which_it_is_found_again() {
    let scene = Scene::play(json!([plan(&["a"]), say("One."), plan(&["b"]), say("Two.")])).await;
    let (one, two) = (scene.request("First.").await, scene.request("Second.").await);
    assert_ne!(one["execution_id"], two["execution_id"]);
    assert_ne!(one["sandbox_id"], two["sandbox_id"]);
    for done in [&one, &two] {
        let id = text(&done["sandbox_id"]);
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        assert!(id.len() >= 21 && id.bytes().all(is_plain), "{id}");
        let again = scene.owner().get(&format!("{CODE}/{}", text(&done["execution_id"]))).await;
        assert_eq!(&again, done);
    }
    let stranger = scene.world.principal("stranger", &["USAGE"]).await;
    let path = format!("{CODE}/{}", text(&one["execution_id"]));
    assert_eq!(stranger.refused("GET", &path, None).await, (404, "object.not_found".into()));
    let other = scene.owner().execute("1").await;
    let path = format!("{CODE}/{}", text(&other["id"]));
    assert_eq!(scene.owner().refused("GET", &path, None).await, (404, "object.not_found".into()));
}

// proves S-014
#[tokio::test(flavor = "multi_thread")]
async fn everything_that_was_said_and_run_is_in_the_trace() {
    let scene = Scene::play(json!([
        plan(&["Count"]),
        {"say": "Let me see.", "calls": [{"name": "run_python", "arguments": {"code": "print(6 * 7)"}}],
         "tokens": {"input": 100, "output": 20}},
        say("It is 42."),
    ]))
    .await;
    let done = scene.request("Count.").await;
    let id = text(&done["execution_id"]);
    let trace = scene.owner().get(&format!("/v1/executions/{id}/trace")).await;
    let steps: Vec<String> =
        trace["steps"].as_array().unwrap().iter().map(|step| text(&step["step"])).collect();
    assert_eq!(steps, ["asked", "asked", "ran", "asked"], "{trace}");
    assert_eq!(trace["steps"][2]["round"]["code"], "print(6 * 7)");
    assert_eq!(trace["steps"][1]["said"], "Let me see.");
    assert_eq!(
        (&trace["kind"], &trace["model"]),
        (&json!("code_execution"), &json!("openai/gpt-test"))
    );
    assert_eq!(
        (&done["model"]["requests"], &done["model"]["input_tokens"]),
        (&json!(3), &json!(100))
    );
    let ran = scene
        .owner()
        .get(&format!("/v1/executions/{}", text(&done["rounds"][0]["execution_id"])))
        .await;
    assert_eq!((&ran["parent"], &ran["code"]), (&json!(id), &json!("print(6 * 7)")));
    let stranger = scene.world.principal("stranger", &["USAGE"]).await;
    let path = format!("/v1/executions/{id}/trace");
    assert_eq!(stranger.refused("GET", &path, None).await, (404, "object.not_found".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_provider_does_the_same() {
    let turns =
        json!([plan(&["Count"]), code("n = 6 * 7\nprint(m)"), code("print(n)"), say("It is 42."),]);
    let scene = Scene::of("anthropic/claude-test", turns, &[]).await;
    let done = scene.request("Six times seven?").await;
    assert_eq!(
        (&done["answer"], &done["total_rounds"]),
        (&json!("It is 42."), &json!(2)),
        "{done}"
    );
    assert!(scene.messages(2).contains("NameError"), "{}", scene.messages(2));
    assert!(scene.model.requests().iter().all(|request| request.path == "/v1/messages"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_with_the_same_key_is_carried_out_once() {
    let scene = Scene::play(json!([plan(&["a"]), code("print(1)"), say("One.")])).await;
    let send = async || {
        let request = scene.owner().request(reqwest::Method::POST, CODE);
        let request =
            request.header("content-type", "application/json").header("idempotency-key", "k");
        let answer = request.body(r#"{"request": "Count."}"#).send().await.unwrap();
        serde_json::from_slice::<Value>(&answer.bytes().await.unwrap()).unwrap()
    };
    let (first, second) = (send().await, send().await);
    assert_eq!(first["answer"], "One.", "{first}");
    assert_eq!(first, second);
    assert_eq!(scene.asked().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_with_the_same_key_after_a_disconnect_gets_the_same_form() {
    let slow = json!({"say": "Nothing to count.", "pieces_ms": 300});
    let scene = Scene::play(json!([plan(&["a"]), slow])).await;
    let send = || {
        let request = scene.owner().request(reqwest::Method::POST, CODE);
        let request =
            request.header("content-type", "application/json").header("idempotency-key", "k");
        request.body(r#"{"request": "Count."}"#).send()
    };
    let first = tokio::spawn(send());
    scene.asked_times(2).await;
    first.abort();
    let again: Value =
        serde_json::from_slice(&send().await.unwrap().bytes().await.unwrap()).unwrap();
    assert_eq!(again["answer"], "Nothing to count.", "{again}");
    assert_eq!(scene.asked().len(), 2, "it was carried out once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_the_model_names_is_the_one_of_the_round() {
    let turn = |step: Value, code: &str| call("run_python", json!({"step": step, "code": code}));
    let scene = Scene::play(json!([
        plan(&["one", "two", "three"]),
        turn(json!(3), "1"),
        turn(json!(1), "1"),
        turn(json!(0), "1"),
        turn(json!(99), "1"),
        say("Done."),
    ]))
    .await;
    let done = scene.request("Count.").await;
    let steps: Vec<String> =
        done["rounds"].as_array().unwrap().iter().map(|round| text(&round["step"])).collect();
    assert_eq!(steps, ["three", "one", "two", "three"]);
}
