//! An approved run passes the same checks as a direct one, at the time when it starts.

use crate::approvals::{approval_of, settled};
use crate::principals::{Person, grant, id, ungrant, workspace};
use crate::test_server::World;
use serde_json::{Value, json};

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
