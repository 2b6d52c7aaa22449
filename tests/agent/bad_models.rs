//! Models that answer nonsense, never finish, refuse or disconnect: the run is bounded and explained, and the
//! session is usable afterwards.

use crate::scripted_server::{Scene, call, code, plan, say, text};
use serde_json::{Value, json};

/// A bad run, and what a good one finds in the same session.
struct Bad {
    scene: Scene,
    done: Value,
}

impl Bad {
    /// Plays these turns after a plan and a round that keeps something.
    async fn play(turns: &[Value]) -> Self {
        let mut all = vec![plan(&["Keep"]), code("kept = 42")];
        all.extend_from_slice(turns);
        Self::just(all).await
    }

    async fn just(mut turns: Vec<Value>) -> Self {
        turns.extend([plan(&["Look"]), code("print(globals().get('kept'))"), say("Seen.")]);
        let scene = Scene::play(json!(turns)).await;
        let done = scene.request("Do it.").await;
        Self { scene, done }
    }

    fn stopped(&self, code: &str, said: &str) {
        let done = &self.done;
        assert_eq!(
            (&done["status"], &done["complete"]),
            (&json!("failed"), &json!(false)),
            "{done}"
        );
        assert_eq!(done["error"]["code"], code, "{done}");
        let message = text(&done["error"]["message"]);
        assert!(message.contains(said), "{message}");
        assert!(!text(&done["error"]["hint"]).is_empty());
        assert!(text(&done["answer"]).contains(said), "{done}");
    }

    async fn goes_on(&self, kept: &str) {
        let again = self.scene.go_on(&self.done, "Look.").await;
        assert_eq!(
            (&again["answer"], &again["complete"]),
            (&json!("Seen."), &json!(true)),
            "{again}"
        );
        assert_eq!(again["rounds"][0]["stdout"], format!("{kept}\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_plan_the_request_is_the_only_step() {
    let each = [
        say("I think I would rather write a poem."),
        say(""),
        call("plan", json!({"steps": "first this, then that"})),
        call("plan", json!({"steps": []})),
        call("plan", json!("{\"steps\": [\"cut off")),
        call("dance", json!({})),
    ];
    let turns = each.iter().flat_map(|bad| [bad.clone(), code("print(6 * 7)"), say("It is 42.")]);
    let scene = Scene::play(turns.collect()).await;
    for nonsense in each {
        let done = scene.request("Six times seven?").await;
        assert_eq!(done["plan"], json!(["Six times seven?"]), "{nonsense}: {done}");
        assert_eq!((&done["answer"], &done["complete"]), (&json!("It is 42."), &json!(true)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_says_nothing_is_asked_a_few_times_and_left() {
    let bad = Bad::play(&[say(""), say("  \n"), say("")]).await;
    bad.stopped("budget.exhausted", "3 consecutive attempts failed");
    assert!(bad.scene.messages(4).contains("Your answer was empty"), "{}", bad.scene.messages(4));
    bad.goes_on("42").await;
    let good = Bad::play(&[say(""), say("Sorry. It is kept.")]).await;
    assert_eq!(
        (&good.done["answer"], &good.done["complete"]),
        (&json!("Sorry. It is kept."), &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_not_there_is_told_as_such_and_which_there_are() {
    let bad = Bad::play(&[
        call("shell", json!({"command": "rm -rf /"})),
        call("code_execution", json!({"code": "print(1)"})),
        call("", json!({})),
    ])
    .await;
    bad.stopped("budget.exhausted", "3 consecutive attempts failed");
    let messages = bad.scene.messages(3);
    assert!(
        messages.contains("There is no tool \"shell\". The tools are: run_python."),
        "{messages}"
    );
    assert_eq!(bad.done["total_rounds"], 1, "nothing else has run");
    bad.goes_on("42").await;
    let good = Bad::play(&[call("shell", json!({})), say("It is kept.")]).await;
    assert_eq!(good.done["complete"], true, "{}", good.done);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_run_nothing_says_what_failed_and_what_is_left_of_it() {
    let shell = call("shell", json!({}));
    let refused = json!({"fail": {"status": 401, "message": "bad key"}});
    let scene = Scene::play(json!([
        plan(&["Look"]),
        shell,
        shell,
        shell,
        plan(&["Look"]),
        refused,
        plan(&["Keep"]),
        code("kept = 42"),
        say("Kept."),
        plan(&["Look"]),
        shell,
        shell,
        shell,
    ]))
    .await;
    let nothing = |done: &Value, failed: &str| {
        let (answer, logs) = (text(&done["answer"]), text(&done["logs"]));
        assert!(answer.contains(failed) && answer.contains("the session has ended"), "{answer}");
        assert!(
            !answer.contains("The logs show") && !answer.contains("The session is open"),
            "{answer}"
        );
        assert_eq!((&done["sandbox_id"], &done["expires_at"]), (&Value::Null, &Value::Null));
        assert!(logs.starts_with("INFO: Started sandbox session: "), "{logs:?}");
        assert!(logs.ends_with("INFO: Development plan: [\"Look\"]\n"), "{logs:?}");
    };
    nothing(&scene.request("Look.").await, "the last error: There is no tool \"shell\".");
    nothing(&scene.request("Look.").await, "bad key");
    let kept = scene.request("Keep.").await;
    let again = scene.go_on(&kept, "Look.").await;
    let answer = text(&again["answer"]);
    assert!(answer.ends_with("Nothing was run; the session is unchanged."), "{answer}");
    assert_eq!(again["sandbox_id"], kept["sandbox_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_make_no_sense_run_nothing() {
    let bad = Bad::play(&[
        call("run_python", json!("{\"code\": \"print(1")),
        call("run_python", json!({"code": 7})),
        call("run_python", json!({"script": "print(1)"})),
    ])
    .await;
    bad.stopped("budget.exhausted", "3 consecutive attempts failed");
    for request in [3, 4] {
        let messages = bad.scene.messages(request);
        assert!(
            messages.contains("`code` is missing: give the code of this step, as text."),
            "{messages}"
        );
    }
    assert_eq!(bad.done["total_rounds"], 1);
    bad.goes_on("42").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_refuses_is_told_as_such() {
    let bad = Bad::play(&[json!({"say": "I can't.", "stop": "refusal"})]).await;
    bad.stopped("model.unavailable", "the model refuses");
    bad.goes_on("42").await;
    let at_once = Bad::just(vec![json!({"say": "No.", "stop": "refusal"})]).await;
    at_once.stopped("model.unavailable", "the model refuses");
    at_once.goes_on("None").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_provider_is_asked_again_and_a_broken_one_given_up() {
    let busy = json!({"fail": {"status": 429, "message": "slow down"}});
    let good = Bad::play(&[busy.clone(), busy, say("It is kept.")]).await;
    assert_eq!(
        (&good.done["answer"], &good.done["complete"]),
        (&json!("It is kept."), &json!(true))
    );

    let broken = json!({"fail": {"status": 500, "message": "out of order"}});
    let bad = Bad::play(&vec![broken; 4]).await;
    bad.stopped("model.unavailable", "out of order");
    assert_eq!(bad.done["error"]["retryable"], true);
    assert_eq!(bad.done["total_rounds"], 1, "what was done is there");
    bad.goes_on("42").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_refuses_or_breaks_off_is_told_as_such() {
    let bad = Bad::play(&[json!({"fail": {"status": 404, "message": "no such model"}})]).await;
    bad.stopped("model.unavailable", "no such model");
    assert_eq!(bad.done["error"]["retryable"], false);
    bad.goes_on("42").await;

    let bad = Bad::play(&[json!({"say": "one two three four", "cut": true})]).await;
    bad.stopped("model.unavailable", "invalid response");
    bad.goes_on("42").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_instead_of_an_answer_is_no_answer() {
    let page = json!({"raw": "<html>Sign in to the wireless network</html>"});
    let bad = Bad::play(&vec![page; 4]).await;
    bad.stopped("model.unavailable", "invalid response");
    assert!(!text(&bad.done["answer"]).contains("wireless"));
    bad.goes_on("42").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_gone_is_named() {
    let mut scene = Scene::play(json!([])).await;
    scene.model = crate::model::ModelServer::start("[]");
    let done = scene.request("Do it.").await;
    assert_eq!(done["error"]["code"], "model.unavailable", "{done}");
    let message = text(&done["error"]["message"]);
    assert!(message.contains("openai") && message.contains("is unavailable"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_ends_its_interpreter_costs_one_round() {
    let scene = Scene::play(json!([
        plan(&["Leave"]),
        code("import os\nos._exit(3)"),
        code("print('here again')"),
        say("It is back."),
    ]))
    .await;
    let done = scene.request("Leave.").await;
    assert_eq!(done["rounds"][0]["status"], "failed", "{done}");
    assert_eq!(
        (&done["rounds"][1]["stdout"], &done["answer"]),
        (&json!("here again\n"), &json!("It is back.")),
        "{done}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_immense_output_is_cut_for_the_model_and_says_so() {
    let scene = Scene::play(json!([
        plan(&["Shout"]),
        code("print('a' * 200_000 + 'the end')"),
        say("It was long."),
    ]))
    .await;
    let done = scene.request("Shout.").await;
    assert_eq!(done["complete"], true, "{done}");
    let messages = scene.messages(2);
    assert!(messages.len() < 60_000, "{}", messages.len());
    assert!(messages.contains("bytes are left out here") && messages.contains("the end"));
}
