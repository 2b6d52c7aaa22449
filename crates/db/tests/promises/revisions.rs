//! Decisions may be cached while the revision of the records is the same. A change of a right, a rule or a secret
//! must always change the revision.

use crate::world::{World, execution, grant, id, moment, principal, session};
use belljar_db::{DatabaseError, IdempotencyKey, NewAuditEntry, Revision, Tx};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use types::{
    AllowedSecrets, ExecutionStatus, Integration, IntegrationId, NetworkLogEntry, NetworkRule,
    NetworkRuleId, ObjectRef, Privilege, RuleMode, RuleType, SandboxId, SessionStatus,
};

type Job = Box<dyn FnOnce(&Tx<'_>) -> Result<(), DatabaseError> + Send>;

/// Before a job, and after it was answered.
async fn around(world: &World, job: Job) -> (Revision, Revision) {
    let before = world.db.revision();
    world.write(job).await;
    (before, world.db.revision())
}

fn job(job: impl FnOnce(&Tx<'_>) -> Result<(), DatabaseError> + Send + 'static) -> Job {
    Box::new(job)
}

fn rule(world: &World) -> NetworkRule {
    NetworkRule {
        id: NetworkRuleId::new(id()),
        name: "site".into(),
        owner: world.alice,
        mode: RuleMode::Egress,
        kind: RuleType::HostPort,
        value_list: vec!["example.com:443".into()],
        comment: None,
        created_at: moment(0),
        updated_at: moment(0),
    }
}

fn integration(world: &World) -> Integration {
    Integration {
        id: IntegrationId::new(id()),
        name: "to_site".into(),
        owner: world.alice,
        allowed_network_rules: vec!["site".into()],
        allowed_secrets: AllowedSecrets::None,
        caller_token: None,
        enabled: true,
        comment: None,
        created_at: moment(0),
        updated_at: moment(0),
    }
}

#[tokio::test]
async fn whatever_decides_makes_a_new_revision_before_its_writer_is_answered() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let (bob, right) =
        (principal("bob"), grant(alice, Privilege::Usage, ObjectRef::Workspace(home)));
    let (bob_id, right_id) = (bob.id, right.id);
    let renamed = types::Principal { roles: Vec::new(), ..bob.clone() };
    let (rule, integration) = (rule(&world), integration(&world));
    let wider = NetworkRule { value_list: vec!["0.0.0.0".into()], ..rule.clone() };
    let off = Integration { enabled: false, ..integration.clone() };
    let (rule_id, integration_id) = (rule.id, integration.id);
    let open = session(alice, None);
    let closed = types::Session { status: SessionStatus::Closed, ..open.clone() };
    let changes = [
        ("principal", job(move |tx| tx.insert_principal(home, &bob))),
        ("roles", job(move |tx| tx.update_principal(home, &renamed).map(drop))),
        ("no principal", job(move |tx| tx.delete_principal(home, bob_id).map(drop))),
        ("grant", job(move |tx| tx.insert_grant(home, &right).map(drop))),
        ("no grant", job(move |tx| tx.delete_grant(home, right_id).map(drop))),
        ("rule", job(move |tx| tx.insert_network_rule(home, &rule))),
        ("wider rule", job(move |tx| tx.update_network_rule(home, &wider).map(drop))),
        ("no rule", job(move |tx| tx.delete_network_rule(home, rule_id).map(drop))),
        ("integration", job(move |tx| tx.insert_integration(home, &integration))),
        ("integration off", job(move |tx| tx.update_integration(home, &off).map(drop))),
        ("no integration", job(move |tx| tx.delete_integration(home, integration_id).map(drop))),
        ("session", job(move |tx| tx.insert_session(home, &open, None))),
        ("no session", job(move |tx| tx.update_session(home, &closed).map(drop))),
    ];
    for (what, change) in changes {
        let (before, after) = around(&world, change).await;
        assert_ne!(before, after, "{what}");
    }
}

#[tokio::test]
async fn what_only_tells_what_was_done_leaves_the_revision_unless_something_comes_with_it() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let attempt = NetworkLogEntry {
        at: moment(0),
        principal: alice,
        sandbox_id: SandboxId::new(id()),
        execution_id: None,
        host: "example.com".into(),
        port: 443,
        integration: None,
        allowed: false,
        reason: None,
    };
    let line = || NewAuditEntry {
        at: moment(0),
        workspace: home,
        principal: Some(alice),
        key: None,
        action: "session.open".into(),
        object: "session".into(),
        detail: String::new(),
    };
    let (ran, said) = (execution(alice, ExecutionStatus::Running), line());
    let key = IdempotencyKey { workspace: home, principal: alice, key: "one".into() };
    let notes = [
        ("attempt", job(move |tx| tx.append_network_log(home, &attempt))),
        ("execution", job(move |tx| tx.insert_execution(home, &ran))),
        ("audit", job(move |tx| tx.append_audit_entry(&said).map(drop))),
        ("request", job(move |tx| tx.claim_request(&key, &[0; 32], moment(0)).map(drop))),
        ("nothing", job(|_| Ok(()))),
    ];
    for (what, note) in notes {
        let (before, after) = around(&world, note).await;
        assert_eq!(before, after, "{what}");
    }
    let both = line();
    let right = grant(alice, Privilege::Usage, ObjectRef::Workspace(home));
    let (before, after) = around(
        &world,
        job(move |tx| {
            tx.append_audit_entry(&both)?;
            tx.insert_grant(home, &right).map(drop)
        }),
    )
    .await;
    assert_ne!(before, after);
}

/// How many rules there are, cached with the revision as a decision caches it.
#[derive(Default)]
struct Found(Mutex<Option<(Revision, u64)>>);

impl Found {
    fn rules(&self, world: &World) -> u64 {
        let revision = world.db.revision();
        if let Some((then, count)) = *self.0.lock().unwrap()
            && then == revision
        {
            return count;
        }
        let count = world.db.read(|rows| rows.count_network_rules(world.home)).unwrap();
        *self.0.lock().unwrap() = Some((revision, count));
        count
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_found_before_a_change_is_not_used_after_it_despite_concurrent_readers() {
    const WRITES: u64 = 200;
    let (world, found) = (Arc::new(World::new().await), Arc::new(Found::default()));
    let over = Arc::new(AtomicBool::new(false));
    let looking = {
        let (world, found, over) = (world.clone(), found.clone(), over.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                found.rules(&world);
            }
        })
    };
    let home = world.home;
    for number in 1..=WRITES {
        let rule = NetworkRule { name: format!("rule{number}"), ..rule(&world) };
        world.write(move |tx| tx.insert_network_rule(home, &rule)).await;
        assert_eq!(found.rules(&world), number);
    }
    over.store(true, Ordering::Relaxed);
    looking.join().unwrap();
}
