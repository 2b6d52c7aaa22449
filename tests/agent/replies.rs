//! Replies to actions of an agent that are outdated, repeated, or of another principal: refused, and nothing runs.

use crate::confirmations::{book, booking, ran, replies, reply};
use crate::harness::wait;
use crate::scripted_server::{Scene, calls, chat, say, say_to, text};
use serde_json::{Value, json};

async fn refused(scene: &Scene, agent: &str, body: Value) -> (u16, Value) {
    let (status, problem) = scene.owner().call("POST", &format!("{agent}/run"), Some(body)).await;
    assert!(status >= 400, "{problem}");
    (status, problem)
}

// proves C-145
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_wrong_in_any_way_is_refused_and_nothing_runs() {
    let scene = Scene::play(json!([book("a table"), book("a cab"), say("It is booked.")])).await;
    let agent = scene.agent(booking()).await;
    let asked = say_to(scene.owner(), &agent, "Book a table.").await;
    let other = crate::scripted_server::agent(scene.owner(), "other", booking()).await;
    let elsewhere = say_to(scene.owner(), &other, "Book a cab.").await;
    let good = reply(&asked, "ALLOW");
    let with = |pointer: &str, value: Value| {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed
    };
    let twice =
        json!({"cursor": asked["cursor"], "messages": [good["messages"][0], good["messages"][0]]});
    let mut without = good.clone();
    without.as_object_mut().unwrap().remove("cursor");
    for (what, body) in [
        (
            "an unknown action",
            with("/messages/0/actionId", json!("0198c0de-0000-7000-8000-000000000000")),
        ),
        ("no action", with("/messages/0/actionId", json!(""))),
        (
            "an action of another agent",
            with("/messages/0/actionId", elsewhere["actions"][0]["actionId"].clone()),
        ),
        ("another agent's cursor", with("/cursor", elsewhere["cursor"].clone())),
        ("a cursor that is none", with("/cursor", json!("nonsense"))),
        ("no cursor", without),
        ("a status that is none", with("/messages/0/status", json!("MAYBE"))),
        ("a status in small letters", with("/messages/0/status", json!("allow"))),
        ("no status", with("/messages/0/status", json!(null))),
        ("another type", with("/messages/0/type", json!("clientTool"))),
        ("the same twice", twice),
    ] {
        let (status, problem) = refused(&scene, &agent, body).await;
        assert_eq!((status, &problem["code"]), (400, &json!("args.invalid")), "{what}: {problem}");
        assert_eq!(ran(scene.owner()).await, 0, "{what}");
    }
    let (status, problem) =
        refused(&scene, &agent, json!({"cursor": asked["cursor"], "message": "Just do it."})).await;
    assert_eq!((status, &problem["code"]), (409, &json!("approval.required")), "{problem}");
    assert!(
        problem["detail"].as_str().unwrap().contains(&text(&asked["actions"][0]["actionId"])),
        "{problem}"
    );
    assert_eq!((ran(scene.owner()).await, scene.asked().len()), (0, 2));

    assert_eq!(chat(scene.owner(), &agent, good.clone()).await["answer"], "It is booked.");
    let (status, problem) = refused(&scene, &agent, good).await;
    assert_eq!(
        (status, &problem["errors"][0]["path"]),
        (400, &json!("/cursor")),
        "again: {problem}"
    );
    assert_eq!((ran(scene.owner()).await, scene.asked().len()), (1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_reply_is_named_by_its_place_among_the_messages() {
    let scene = Scene::play(json!([book("a table")])).await;
    let agent = scene.agent(booking()).await;
    let asked = say_to(scene.owner(), &agent, "Book a table.").await;
    let mut wrong = reply(&asked, "ALLOW");
    wrong["messages"][0]["actionId"] = json!("nonsense");
    wrong["messages"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"role": "user", "content": "Yes, do it."}));
    let (_, problem) = refused(&scene, &agent, wrong).await;
    assert_eq!(problem["errors"][0]["path"], "/messages/1/actionId", "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_another_principal_cannot_be_answered() {
    let scene = Scene::play(json!([book("a table"), say("It is booked.")])).await;
    let agent = scene.agent(booking()).await;
    let (ann, bob) = (scene.friend("ann", &agent).await, scene.friend("bob", &agent).await);
    let asked = say_to(&ann, &agent, "Book a table.").await;
    for thief in [&bob, scene.owner()] {
        let (status, problem) =
            thief.call("POST", &format!("{agent}/run"), Some(reply(&asked, "ALLOW"))).await;
        assert_eq!((status, &problem["errors"][0]["path"]), (400, &json!("/cursor")), "{problem}");
    }
    assert_eq!(ran(scene.owner()).await, 0);
    assert_eq!(chat(&ann, &agent, reply(&asked, "ALLOW")).await["answer"], "It is booked.");
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_replies_at_once_are_one_run() {
    let scene = Scene::play(json!([book("a table"), say("It is booked.")])).await;
    let agent = scene.agent(booking()).await;
    let asked = say_to(scene.owner(), &agent, "Book a table.").await;
    let sent = (0..20).map(|_| {
        let (api, path, body) =
            (scene.owner().clone(), format!("{agent}/run"), reply(&asked, "ALLOW"));
        async move { api.call("POST", &path, Some(body)).await.0 }
    });
    let statuses = futures_util::future::join_all(sent).await;
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!((ran(scene.owner()).await, scene.asked().len()), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_decided_elsewhere_needs_no_reply_and_takes_none() {
    let scene = Scene::play(json!([
        calls(&[("book", json!({"what": "a table"})), ("order", json!({"what": "wine"}))]),
        say("The table is booked."),
    ]))
    .await;
    let agent = scene.agent(booking()).await;
    let asked = say_to(scene.owner(), &agent, "Book it.").await;
    let boss = scene.world.principal("boss", &["OWNERSHIP"]).await;
    let at = |index: usize| format!("/v1/approvals/{}", text(&asked["actions"][index]["actionId"]));
    let listed = boss.get("/v1/approvals?state=pending").await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    boss.post(&at(0), json!({"decision": "allow"})).await;

    let alone = json!({"cursor": asked["cursor"]});
    let (status, problem) = refused(&scene, &agent, alone.clone()).await;
    assert_eq!(
        (status, &problem["code"]),
        (409, &json!("approval.required")),
        "one is still open: {problem}"
    );
    let (status, _) = refused(&scene, &agent, replies(&asked, &["DENY", "DENY"])).await;
    assert_eq!(status, 400, "what was decided is not decided again");
    boss.post(&at(1), json!({"decision": "deny", "reason": "no wine"})).await;
    let done = chat(scene.owner(), &agent, alone).await;
    assert_eq!(done["answer"], "The table is booked.", "{done}");
    let messages = scene.messages(1);
    assert!(messages.contains("booked a table") && messages.contains("no wine"), "{messages}");
    assert_eq!(ran(scene.owner()).await, 1);
}

// Here no reply has come in time, or at all. That a reply counts once, and not by halves, is shown by
// twenty_replies_at_once_are_one_run and a_reply_that_is_wrong_in_any_way_is_refused_and_nothing_runs;
// that a restart allows nothing, by crashes.rs.
// proves C-146
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_has_grown_old_is_told_as_not_answered_and_no_retry_runs_it() {
    let turns = json!([book("a table"), say("Nobody has answered.")]);
    let scene = Scene::with(turns, &["--approval-seconds", "5"]).await;
    let agent = scene.agent(booking()).await;
    let asked = say_to(scene.owner(), &agent, "Book a table.").await;
    let (status, problem) = refused(&scene, &agent, json!({"cursor": asked["cursor"]})).await;
    assert_eq!((status, &problem["code"]), (409, &json!("approval.required")), "{problem}");
    let open = scene.owner().get("/v1/approvals?state=pending").await["items"][0].clone();
    let expires: chrono::DateTime<chrono::Utc> =
        open["expires_at"].as_str().unwrap().parse().unwrap();
    wait::until("the time to answer is over", async || chrono::Utc::now() > expires).await;
    let done = chat(scene.owner(), &agent, reply(&asked, "ALLOW")).await;
    assert_eq!(done["answer"], "Nobody has answered.", "{done}");
    assert!(
        scene.messages(1).contains("approval.expired: the approval has expired"),
        "{}",
        scene.messages(1)
    );
    let (status, problem) = refused(&scene, &agent, reply(&asked, "ALLOW")).await;
    assert_eq!((status, &problem["errors"][0]["path"]), (400, &json!("/cursor")), "{problem}");
    assert_eq!((ran(scene.owner()).await, scene.asked().len()), (0, 2));
}
