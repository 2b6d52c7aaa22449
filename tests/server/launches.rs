//! An approved run passes the same checks as a direct one, at the time when it starts.

use crate::approvals::{approval_of, settled};
use crate::harness::{descendants_of, has_ended, wait};
use crate::overload::zygotes;
use crate::principals::{Person, grant, id, ungrant, workspace};
use crate::test_server::World;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A session of the owner, a principal who may see everything in the workspace, and code of theirs
/// in that session that waits for the owner's approval.
struct Waiting {
    world: World,
    guest: Person,
    session: String,
    ownership: Value,
    record: Value,
}

impl Waiting {
    async fn start() -> Self {
        let world = World::start().await;
        let (owner, guest) = (&world.owner, Person::new(&world, "guest").await);
        let everything = workspace(owner).await;
        grant(owner, &guest.id, "USAGE", &everything).await;
        let ownership = grant(owner, &guest.id, "OWNERSHIP", &everything).await;
        let session = owner.session().await;
        owner.run(&session, "kept = 'of the owner'").await;
        let ask = json!({"permission": "ask"});
        owner.call("PUT", "/v1/permissions/execute_python", Some(ask)).await;
        let path = format!("/v1/sessions/{session}/execute");
        let code = json!({"code": "print(kept)\nopen('ran.txt', 'w').write(kept)"});
        let (status, record) = guest.call("POST", &path, Some(code)).await;
        assert_eq!((status, &record["status"]), (202, &json!("waiting_approval")), "{record}");
        Self { world, guest, session, ownership, record }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t174_approved_code_does_not_run_in_a_session_that_its_requester_may_no_longer_use() {
    let Waiting { world, guest, session, ownership, record } = Waiting::start().await;
    ungrant(&world.owner, &ownership).await;
    let path = format!("/v1/sessions/{session}/execute");
    let direct = guest.refused("POST", &path, Some(json!({"code": "print(kept)"}))).await;
    assert_eq!(direct, (404, "session.not_found".into()));
    let allow = Some(json!({"decision": "allow"}));
    let approved = world.owner.refused("POST", &approval_of(&record), allow).await;
    assert_eq!(approved, direct, "an approval gives no right that a direct call lacks");
    let files = world.owner.get(&format!("/v1/sessions/{session}/files")).await;
    assert!(!files.to_string().contains("ran.txt"), "{files}");
    let now = world.owner.get(&format!("/v1/executions/{}", id(&record))).await;
    assert_eq!(now["status"], "waiting_approval");
}

#[tokio::test(flavor = "multi_thread")]
async fn t174_approved_code_runs_in_a_session_that_its_requester_may_still_use() {
    let Waiting { world, guest, record, .. } = Waiting::start().await;
    world.owner.post(&approval_of(&record), json!({"decision": "allow"})).await;
    let done = settled(&guest, &record).await;
    assert_eq!(done["status"], "succeeded", "{done}");
    assert_eq!(done["output"][0]["text"], "of the owner\n");
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// An approved call in a session whose sandbox has died, while no sandbox can start.
struct Starting {
    waiting: Waiting,
    zygote: u32,
    /// Runs of others, which wait as well.
    others: Vec<JoinHandle<Value>>,
}

impl Starting {
    async fn start() -> Self {
        let waiting = Waiting::start().await;
        let Waiting { world, session, record, .. } = &waiting;
        let owner = &world.owner;
        let allow = json!({"permission": "allow"});
        owner.call("PUT", "/v1/permissions/execute_python", Some(allow)).await;
        let busy = async || owner.get(&format!("/v1/sessions/{session}")).await["status"] == "busy";
        // The call is approved while another one has the session, which ends with its sandbox.
        let dies = "import os, time\ntry:\n    time.sleep(600)\nexcept BaseException:\n    os.kill(os.getpid(), 9)";
        let running = {
            let (owner, session) = (owner.clone(), session.clone());
            tokio::spawn(async move { owner.run(&session, dies).await })
        };
        wait::until("the session is busy", busy).await;
        owner.post(&approval_of(record), json!({"decision": "allow"})).await;
        let [zygote] = zygotes(world.pid())[..] else { panic!("there is no zygote") };
        signal(zygote, Signal::STOP);
        // They take the sandboxes that are ready.
        let others = (0..12).map(|_| {
            let owner = owner.clone();
            tokio::spawn(async move { owner.execute("6 * 7").await["value"].clone() })
        });
        let others = others.collect();
        let processes = async || descendants_of(world.pid()).len();
        wait::at_rest(Duration::from_secs(1), "the start of sandboxes", processes).await;
        owner.post(&format!("/v1/sessions/{session}/interrupt"), json!({})).await;
        assert_eq!(running.await.unwrap()["status"], "cancelled");
        wait::until("the approved call has the session", busy).await;
        Self { waiting, zygote, others }
    }

    /// That the call has ended as cancelled before any sandbox could start.
    async fn ends_cancelled(self) {
        let Self { waiting: Waiting { world, guest, session, record, .. }, zygote, others } = self;
        let done = settled(&guest, &record).await;
        assert_eq!(
            (&done["status"], &done["error"]["code"]),
            (&json!("cancelled"), &json!("execution.cancelled"))
        );
        let path = format!("/v1/sessions/{session}");
        let is_free = async || world.owner.get(&path).await["status"] != "busy";
        wait::until("the session is free", is_free).await;
        assert!(!has_ended(zygote), "it ended only when a sandbox could start");
        signal(zygote, Signal::CONT);
        for other in others {
            assert_eq!(other.await.unwrap(), 42);
        }
        // The twin: the session can be used again.
        assert_eq!(world.owner.run(&session, "6 * 7").await["value"], 42);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t214_an_approved_call_that_waits_for_its_sandbox_is_cancelled_by_an_interrupt() {
    let starting = Starting::start().await;
    let Waiting { world, session, .. } = &starting.waiting;
    world.owner.post(&format!("/v1/sessions/{session}/interrupt"), json!({})).await;
    starting.ends_cancelled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t214_an_approved_call_that_is_cancelled_gives_its_session_back_before_a_sandbox_starts() {
    let starting = Starting::start().await;
    let Waiting { guest, record, .. } = &starting.waiting;
    guest.post(&format!("/v1/executions/{}/cancel", id(record)), json!({})).await;
    starting.ends_cancelled().await;
}
