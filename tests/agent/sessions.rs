//! Model runs that continue in a session, and those that must not.

use crate::confirmations::{booking_and_code, reply};
use crate::harness::wait;
use crate::scripted_server::{CODE, Scene, begin, calls, chat, code, plan, say, say_to, text};
use serde_json::json;

const UNKNOWN: &str = "0198c0de-0000-7000-8000-000000000000";

// proves U-008, U-009, U-049, U-050, U-056
#[tokio::test(flavor = "multi_thread")]
async fn a_second_request_finds_the_variables_of_the_first_and_remembers_what_was_said() {
    let scene = Scene::play(json!([
        plan(&["Load the sales"]),
        code("sales = {'Q3': 7, 'Q4': 12}\ndef of(q):\n    return sales[q]\nprint(sales)"),
        say("The sales are loaded."),
        plan(&["Filter them"]),
        code("print('Q4 has', of('Q4'))"),
        say("Q4 has 12."),
    ]))
    .await;
    let first = json!({"request": "Load the sales of 2023.", "context": "Amounts are in euros."});
    let first = scene.code(first).await;
    let second = scene.go_on(&first, "Now filter that data for Q4 only.").await;
    assert_eq!(second["answer"], "Q4 has 12.", "{second}");
    assert_eq!(second["sandbox_id"], first["sandbox_id"]);
    assert_ne!(second["execution_id"], first["execution_id"]);
    assert_eq!(second["total_rounds"], 1);
    for request in [3, 4] {
        let messages = scene.messages(request);
        for earlier in [
            "Load the sales of 2023.",
            "Amounts are in euros.",
            "1. Load the sales",
            "The sales are loaded.",
            "{'Q3': 7, 'Q4': 12}",
            "Now filter that data for Q4 only.",
        ] {
            assert!(messages.contains(earlier), "{request} lacks {earlier}: {messages}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_can_be_gone_on_from() {
    let scene = Scene::play(json!([
        plan(&["Divide"]),
        code("kept = 5"),
        code("1 / 0"),
        code("1 / 0"),
        code("1 / 0"),
        plan(&["Print it"]),
        code("print(kept)"),
        say("It is 5."),
    ]))
    .await;
    let first = scene.request("Divide.").await;
    assert_eq!(first["error"]["code"], "budget.exhausted", "{first}");
    let second = scene.go_on(&first, "Then print what was kept.").await;
    assert_eq!((&second["answer"], &second["complete"]), (&json!("It is 5."), &json!(true)));
    assert!(scene.messages(5).contains("ZeroDivisionError"));
}

// proves U-053
#[tokio::test(flavor = "multi_thread")]
async fn two_requests_without_a_session_share_nothing() {
    let scene = Scene::play(json!([
        plan(&["Keep"]),
        code("secret = 'swordfish'\nopen('secret.txt', 'w').write(secret)"),
        say("Kept."),
        plan(&["Look"]),
        code("import os\nprint('secret' in globals(), os.listdir('/home/uploaded_files'))"),
        say("Nothing is there."),
    ]))
    .await;
    let first = scene.request("Keep a secret.").await;
    let second = scene.request("Look for it.").await;
    assert_ne!(first["sandbox_id"], second["sandbox_id"]);
    assert_eq!(second["rounds"][0]["stdout"], "False []\n", "{second}");
    assert!(!scene.messages(3).contains("Keep a secret."));
    assert!(!scene.messages(4).contains("swordfish"));
}

// proves U-010, U-011
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_unknown_or_of_another_principal_is_refused_and_no_other_is_made() {
    let scene =
        Scene::play(json!([plan(&["a"]), say("Mine."), plan(&["b"]), say("Still mine.")])).await;
    let (ann, bob) = (
        scene.world.principal("ann", &["USAGE"]).await,
        scene.world.principal("bob", &["USAGE"]).await,
    );
    let mine = ann.post(CODE, json!({"request": "Begin."})).await;
    let asked = scene.asked().len();
    let go_on = |id: &str| Some(json!({"request": "Go on.", "sandbox_id": id}));
    let theirs = text(&mine["sandbox_id"]);
    for (who, id) in [(&bob, &*theirs), (&ann, UNKNOWN), (&ann, "nonsense"), (&ann, "")] {
        let (status, problem) = who.call("POST", CODE, go_on(id)).await;
        let expected = if id == theirs || id == UNKNOWN {
            (404, "session.not_found")
        } else {
            (400, "args.invalid")
        };
        assert_eq!((status, problem["code"].as_str().unwrap()), expected, "{id}: {problem}");
    }
    assert_eq!(bob.get("/v1/sessions").await["items"], json!([]));
    assert_eq!(ann.get("/v1/sessions").await["items"].as_array().unwrap().len(), 1);
    assert_eq!(scene.asked().len(), asked);
    let again = ann.post(CODE, json!({"request": "Go on.", "sandbox_id": theirs})).await;
    assert_eq!(again["answer"], "Still mine.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_says_when_it_ends_and_is_refused_afterwards() {
    let turns = json!([plan(&["a"]), code("kept = 1"), say("Kept.")]);
    let scene = Scene::with(turns, &["--idle-seconds", "1"]).await;
    let first = scene.request("Keep it.").await;
    let expires = text(&first["expires_at"]);
    let session = format!("/v1/sessions/{}", text(&first["sandbox_id"]));
    let is_over = async || scene.owner().get(&session).await["status"] == "expired";
    wait::until("the session expires", is_over).await;
    assert!(is_a_moment(&expires), "{expires}");
    let go_on = json!({"request": "Go on.", "sandbox_id": first["sandbox_id"]});
    let (status, problem) = scene.owner().call("POST", CODE, Some(go_on)).await;
    assert_eq!((status, &problem["code"]), (410, &json!("session.expired")), "{problem}");
    assert_eq!(scene.asked().len(), 3);
}

fn is_a_moment(moment: &str) -> bool {
    moment.len() > 19 && moment.as_bytes()[10] == b'T' && moment.ends_with('Z')
}

// proves U-055
#[tokio::test(flavor = "multi_thread")]
async fn two_requests_at_once_in_one_session_are_one_and_a_refusal() {
    let scene = Scene::play(json!([
        plan(&["a"]),
        say("Begun."),
        plan(&["b"]),
        code("import time\ntime.sleep(1)\nprint('slept')"),
        say("Slept."),
        plan(&["c"]),
        say("And again."),
    ]))
    .await;
    let first = scene.request("Begin.").await;
    let go_on = json!({"request": "Sleep.", "sandbox_id": first["sandbox_id"]});
    let under_way = begin(scene.owner(), CODE, go_on.clone()).await;
    scene.asked_times(4).await;
    let (status, problem) = scene.owner().call("POST", CODE, Some(go_on.clone())).await;
    assert_eq!((status, &problem["code"]), (409, &json!("session.busy")), "{problem}");
    let done = scene.settled(&under_way).await;
    assert_eq!(done["status"], "succeeded", "{done}");
    assert_eq!(scene.code(go_on).await["answer"], "And again.");
}

// proves U-052
#[tokio::test(flavor = "multi_thread")]
async fn code_that_a_model_writes_sees_nothing_of_the_host() {
    let scene = Scene::play(json!([
        plan(&["Look around"]),
        code(
            "import os\nfor place in ['/etc/shadow', '/root/.ssh', '/proc/1/environ', '/work']:\n    try:\n        print(place, open(place).read() if os.path.isfile(place) else os.listdir(place))\n    except OSError as error:\n        print(place, 'refused')\nprint([k for k in os.environ if 'KEY' in k or 'OPENAI' in k or 'RECORDS' in k])",
        ),
        say("There is nothing."),
    ]))
    .await;
    let done = scene.request("Read the host's files.").await;
    let seen = text(&done["rounds"][0]["stdout"]);
    assert!(!seen.contains("sk-test") && seen.ends_with("[]\n"), "{seen}");
    assert!(seen.contains("/etc/shadow refused") && seen.contains("/work refused"), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_free_as_soon_as_its_answer_is_there() {
    let one = [plan(&["Count"]), code("n = globals().get('n', 0) + 1\nprint(n)"), say("Counted.")];
    let turns: Vec<_> = std::iter::repeat_n(one, 15).flatten().collect();
    let scene = Scene::play(turns.into()).await;
    let mut last = scene.request("Count.").await;
    for number in 2..=15 {
        last = scene.go_on(&last, "Count on.").await;
        assert_eq!(last["rounds"][0]["stdout"], format!("{number}\n"), "{last}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_waits_for_in_its_session_does_not_disturb_a_request_in_it() {
    let scene = Scene::play(json!([
        calls(&[
            ("code_execution", json!({"code": "kept = 42"})),
            ("book", json!({"what": "a table"})),
        ]),
        plan(&["Look"]),
        code("print(kept)"),
        say("It is 42."),
        say("It is booked."),
    ]))
    .await;
    let agent = scene.agent(booking_and_code()).await;
    let asked = say_to(scene.owner(), &agent, "Keep it and book a table.").await;
    assert_eq!(asked["actions"].as_array().unwrap().len(), 1, "{asked}");
    let looked = scene.go_on(&asked, "What was kept?").await;
    assert_eq!((&looked["answer"], &looked["complete"]), (&json!("It is 42."), &json!(true)));
    assert!(!scene.messages(1).contains("book a table"), "{}", scene.messages(1));
    let done = chat(scene.owner(), &agent, reply(&asked, "ALLOW")).await;
    assert_eq!(done["answer"], "It is booked.", "{done}");
}
