//! Approvals: decided once, used once, and not after their expiry.

use crate::world::{ALL, World, execution, id, moment};
use belljar_db::{
    AwaitedApproval, DatabaseError, DecisionRecord, NewApproval, OpenApproval, Origin,
    RememberedApproval, Tx,
};
use serde_json::json;
use std::slice::from_ref;
use tokio::task::JoinSet;
use types::{
    AgentId, Approval, ApprovalId, ApprovalScope, ApprovalState, Execution, ExecutionId,
    ExecutionStatus, KeyId, PrincipalId, SandboxId, ToolId, WorkspaceId,
};

fn approval(requester: PrincipalId) -> Approval {
    Approval {
        id: ApprovalId::new(id()),
        state: ApprovalState::Pending,
        execution_id: ExecutionId::new(id()),
        requester,
        run_as: requester,
        tool_id: ToolId::new(id()),
        tool_name: "add".into(),
        agent_id: None,
        sandbox_id: None,
        code: "def handle(): ...".into(),
        arguments: json!({}),
        files: vec![("a.csv".into(), "00".into())],
        environment: "default".into(),
        network: Vec::new(),
        secrets: Vec::new(),
        working_directory: None,
        created_at: moment(0),
        expires_at: moment(100),
        decided_by: None,
        decided_at: None,
        reason: None,
        scope: ApprovalScope::Once,
    }
}

/// The seal of an answer is not that of the question.
const ANSWERED: [u8; 32] = [8; 32];

fn allow(by: PrincipalId, second: i64) -> DecisionRecord {
    DecisionRecord {
        state: ApprovalState::Allowed,
        by,
        at: moment(second),
        reason: Some("fine".into()),
        scope: ApprovalScope::Once,
        mac: ANSWERED,
    }
}

fn new(approval: &Approval) -> NewApproval<'_> {
    NewApproval { approval, mac: &[9; 32], key: None, extra_bytes: 0 }
}

async fn ask(world: &World) -> Approval {
    let asked = approval(world.alice);
    let record = Execution {
        id: asked.execution_id,
        ..execution(world.alice, ExecutionStatus::WaitingApproval)
    };
    let record = Execution { code: asked.code.clone(), ..record };
    let (home, kept) = (world.home, asked.clone());
    world
        .write(move |tx| {
            tx.insert_waiting_execution(home, &record, b"plan")?;
            tx.insert_approval(home, &new(&kept), u64::MAX)
        })
        .await;
    asked
}

async fn decide(
    world: &World,
    workspace: WorkspaceId,
    id: ApprovalId,
    decision: DecisionRecord,
) -> bool {
    world.write(move |tx| tx.decide_approval(workspace, id, decision)).await.is_some()
}

async fn withdraw(
    world: &World,
    workspace: WorkspaceId,
    id: ApprovalId,
    decision: DecisionRecord,
) -> bool {
    world.write(move |tx| tx.withdraw_approval(workspace, id, decision)).await.is_some()
}

async fn state(world: &World, id: ApprovalId) -> ApprovalState {
    world.db.read(|r| r.approval(world.home, id)).unwrap().unwrap().0.state
}

#[tokio::test]
async fn a_question_is_answered_once() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let asked = ask(&world).await;
    let id = asked.id;
    assert!(decide(&world, home, id, allow(alice, 1)).await);
    let deny = DecisionRecord { state: ApprovalState::Denied, ..allow(alice, 2) };
    assert!(!decide(&world, home, id, deny).await);
    let (found, seal) = world.db.read(|r| r.approval(home, id)).unwrap().unwrap();
    assert_eq!(seal, ANSWERED);
    let decided = Approval {
        state: ApprovalState::Allowed,
        decided_by: Some(alice),
        decided_at: Some(moment(1)),
        reason: Some("fine".into()),
        ..asked
    };
    assert_eq!(found, decided);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_who_use_one_approval_at_once_one_succeeds() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let id = ask(&world).await.id;
    assert!(!world.write(move |tx| tx.consume_approval(home, id, moment(1))).await, "unanswered");
    world.write(move |tx| tx.decide_approval(home, id, allow(alice, 1))).await;
    let mut tries = JoinSet::new();
    for _ in 0..50 {
        let db = world.db.clone();
        tries.spawn(
            async move { db.write(move |tx| tx.consume_approval(home, id, moment(2))).await },
        );
    }
    let used = tries.join_all().await.into_iter().filter(|used| *used.as_ref().unwrap()).count();
    assert_eq!(used, 1);
    assert_eq!(state(&world, id).await, ApprovalState::Used);
}

#[tokio::test]
async fn after_its_time_an_approval_can_neither_be_answered_nor_used() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let (unanswered, unused, used) = (ask(&world).await, ask(&world).await, ask(&world).await);
    let (late, allowed) = (unanswered.id, unused.id);
    world
        .write(move |tx| {
            tx.decide_approval(home, allowed, allow(alice, 1))?;
            tx.decide_approval(home, used.id, allow(alice, 1))?;
            tx.consume_approval(home, used.id, moment(99))
        })
        .await;
    assert!(!decide(&world, home, late, allow(alice, 100)).await);
    assert!(!world.write(move |tx| tx.consume_approval(home, allowed, moment(100))).await);
    let overdue = |now| world.db.read(|r| r.overdue_approvals(moment(now), 10)).unwrap();
    assert_eq!(overdue(99), []);
    let mut found = overdue(100);
    found.sort_by_key(|open| open.approval.id);
    let ids: Vec<_> = found.iter().map(|open| (open.workspace, open.approval.id)).collect();
    assert_eq!(ids, [(home, late), (home, allowed)]);
    let expired =
        |open: &OpenApproval| Approval { state: ApprovalState::Expired, ..open.approval.clone() };
    for open in found {
        let (once, again) = world
            .write(move |tx| {
                let end = |tx: &Tx<'_>| tx.end_open_approval(home, &open, &expired(&open));
                Ok((end(tx)?, end(tx)?))
            })
            .await;
        assert!(once && !again, "it is ended as it was read, and once");
    }
    assert_eq!(overdue(100), []);
    assert_eq!(state(&world, late).await, ApprovalState::Expired);
    assert_eq!(state(&world, used.id).await, ApprovalState::Used);
    let open = |state| world.db.read(move |r| r.approvals(home, state, ALL)).unwrap().items.len();
    assert_eq!((open(Some(ApprovalState::Pending)), open(None)), (0, 3));
}

#[tokio::test]
async fn a_question_can_be_taken_back_until_it_is_used_and_then_it_cannot_be_used() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let back = || DecisionRecord { state: ApprovalState::Denied, ..allow(alice, 2) };
    let (open, allowed, used) = (ask(&world).await.id, ask(&world).await.id, ask(&world).await.id);
    assert!(decide(&world, home, allowed, allow(alice, 1)).await);
    assert!(decide(&world, home, used, allow(alice, 1)).await);
    assert!(world.write(move |tx| tx.consume_approval(home, used, moment(2))).await);
    assert!(withdraw(&world, home, open, back()).await);
    assert!(withdraw(&world, home, allowed, back()).await);
    assert!(!withdraw(&world, home, used, back()).await, "it has begun");
    assert!(!withdraw(&world, home, allowed, back()).await, "it is over");
    assert!(!world.write(move |tx| tx.consume_approval(home, allowed, moment(3))).await);
    assert_eq!(state(&world, used).await, ApprovalState::Used);
}

#[tokio::test]
async fn what_waits_is_found_with_the_state_of_its_question() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let mut waiting = Vec::new();
    for status in [
        ExecutionStatus::WaitingApproval,
        ExecutionStatus::WaitingApproval,
        ExecutionStatus::Denied,
    ] {
        let record = execution(alice, status);
        let asked = Approval { execution_id: record.id, ..approval(alice) };
        waiting.push((asked.id, record.id));
        world
            .write(move |tx| {
                tx.insert_execution(home, &record)?;
                tx.insert_approval(home, &new(&asked), u64::MAX)
            })
            .await;
    }
    let allowed = waiting[1].0;
    assert!(decide(&world, home, allowed, allow(alice, 1)).await);
    let mut found = world.db.read(|r| r.awaited_approvals()).unwrap();
    found.sort_by_key(|question| question.id);
    let question =
        |(id, execution), state| AwaitedApproval { workspace: home, id, execution, state };
    assert_eq!(
        found,
        [
            question(waiting[0], ApprovalState::Pending),
            question(waiting[1], ApprovalState::Allowed)
        ]
    );
}

#[tokio::test]
async fn an_answer_is_remembered_for_its_requester_tool_agent_and_session() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let (tool, agent, chat) = (ToolId::new(id()), AgentId::new(id()), SandboxId::new(id()));
    let always = RememberedApproval {
        id: id(),
        requester: alice,
        tool,
        agent: Some(agent),
        sandbox_id: None,
        scope: ApprovalScope::Always,
        mac: [3; 32],
        approval_id: ApprovalId::new(id()),
        created_at: moment(0),
    };
    let in_chat = RememberedApproval {
        id: id(),
        sandbox_id: Some(chat),
        scope: ApprovalScope::Session,
        ..always.clone()
    };
    let both = [always.clone(), in_chat.clone()];
    world
        .write(move |tx| {
            both.iter().try_for_each(|answer| tx.insert_remembered_approval(home, answer))
        })
        .await;
    let found = |workspace, requester, agent, sandbox| {
        let db = &world.db;
        db.read(move |r| r.remembered_approvals_for(workspace, requester, tool, agent, sandbox))
            .unwrap()
    };
    let (agent, chat) = (Some(agent), Some(chat));
    assert_eq!(found(home, alice, agent, chat), [in_chat, always.clone()]);
    assert_eq!(found(home, alice, agent, Some(SandboxId::new(id()))), from_ref(&always));
    assert_eq!(found(home, alice, agent, None), [always]);
    assert_eq!(found(home, alice, None, chat), []);
    assert_eq!(found(home, world.mallory, agent, chat), []);
    assert_eq!(found(world.other, alice, agent, chat), []);
    let other = world.other;
    assert_eq!(world.write(move |tx| tx.delete_remembered_approvals_of_tool(other, tool)).await, 0);
    assert_eq!(world.write(move |tx| tx.delete_remembered_approvals_of_tool(home, tool)).await, 2);
}

#[tokio::test]
async fn what_is_remembered_goes_with_an_agent_or_a_requester() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let agent = AgentId::new(id());
    let answer = move |agent| RememberedApproval {
        id: id(),
        requester: alice,
        tool: ToolId::new(id()),
        agent,
        sandbox_id: None,
        scope: ApprovalScope::Always,
        mac: [3; 32],
        approval_id: ApprovalId::new(id()),
        created_at: moment(0),
    };
    world
        .write(move |tx| {
            tx.insert_remembered_approval(home, &answer(Some(agent)))?;
            tx.insert_remembered_approval(home, &answer(None))
        })
        .await;
    assert_eq!(
        world.write(move |tx| tx.delete_remembered_approvals_of_agent(home, agent)).await,
        1
    );
    assert_eq!(
        world.write(move |tx| tx.delete_remembered_approvals_of_requester(home, alice)).await,
        1
    );
}

#[tokio::test]
async fn nothing_of_approvals_is_found_from_another_workspace() {
    let world = World::new().await;
    let (home, other, alice) = (world.home, world.other, world.alice);
    let id = ask(&world).await.id;
    assert!(!decide(&world, other, id, allow(alice, 1)).await);
    assert!(!withdraw(&world, other, id, allow(alice, 1)).await);
    assert!(decide(&world, home, id, allow(alice, 1)).await);
    assert!(!world.write(move |tx| tx.consume_approval(other, id, moment(2))).await);
    assert_eq!(world.db.read(|r| r.approval(other, id)).unwrap(), None);
    assert!(world.db.read(|r| r.approvals(other, None, ALL)).unwrap().items.is_empty());
    assert_eq!(world.db.read(|r| r.approvals(home, None, ALL)).unwrap().items.len(), 1);
}

#[tokio::test]
async fn t103_open_questions_count_against_the_quota_and_those_that_are_over_do_not() {
    const MOST: u64 = 10_000;
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let held = || world.db.read(move |r| r.file_bytes(home)).unwrap();
    let asked: Vec<Approval> = (0..3).map(|_| approval(alice)).collect();
    let (first, second, third) = (asked[0].id, asked[1].id, asked[2].id);
    let write = |one: Approval| {
        let db = world.db.clone();
        let write = move |tx: &Tx<'_>| {
            tx.insert_approval(home, &NewApproval { extra_bytes: 4_000, ..new(&one) }, MOST)
        };
        async move { db.write(write).await }
    };
    write(asked[0].clone()).await.unwrap();
    let each = held();
    assert!(each > 4_000, "{each}: what is kept beside a question counts");
    write(asked[1].clone()).await.unwrap();
    let refused = write(asked[2].clone()).await;
    assert!(matches!(refused, Err(DatabaseError::QuotaExceeded { most: MOST })), "{refused:?}");
    assert_eq!(world.db.read(|r| r.approval(home, third)).unwrap(), None);
    assert!(decide(&world, home, first, allow(alice, 1)).await);
    assert_eq!(held(), 2 * each, "it has not begun");
    assert!(world.write(move |tx| tx.consume_approval(home, first, moment(2))).await);
    assert_eq!(held(), each);
    let void =
        world.write(move |tx| tx.void_approval(home, second, moment(2), "changed".into())).await;
    assert_eq!(void.unwrap().state, ApprovalState::Void);
    assert_eq!(held(), 0);
    write(asked[2].clone()).await.unwrap();
}

#[tokio::test]
async fn t103_the_code_of_a_question_is_kept_once_and_still_shown() {
    let world = World::new().await;
    let home = world.home;
    let asked = ask(&world).await;
    let (found, _) = world.db.read(|r| r.approval(home, asked.id)).unwrap().unwrap();
    assert_eq!(found, asked);
    let listed = world.db.read(|r| r.approvals(home, None, ALL)).unwrap().items;
    assert_eq!(listed, from_ref(&asked));
    let records = rusqlite::Connection::open(world.data.path().join("db/belljar.sqlite3")).unwrap();
    let body: String =
        records.query_row("SELECT body FROM approvals", [], |row| row.get(0)).unwrap();
    assert!(!body.contains("def handle"), "{body}");
}

#[tokio::test]
async fn t106_what_was_asked_with_a_key_is_found_by_it_until_it_is_over() {
    let world = World::new().await;
    let home = world.home;
    let (key, other) = (KeyId::new(id()), KeyId::new(id()));
    let asked = approval(world.alice);
    let one = asked.clone();
    world
        .write(move |tx| {
            tx.insert_approval(home, &NewApproval { key: Some(key), ..new(&one) }, u64::MAX)
        })
        .await;
    let with =
        |key| world.db.read(move |r| r.open_approvals_from(home, Origin::Key(key), 10)).unwrap();
    let ids = |open: Vec<OpenApproval>| Vec::from_iter(open.iter().map(|it| it.approval.id));
    assert_eq!((ids(with(key)), ids(with(other))), (vec![asked.id], vec![]));
    assert_eq!(world.db.read(|r| r.requesting_key(home, asked.id)).unwrap(), Some(key));
    world.write(move |tx| tx.void_approval(home, asked.id, moment(1), "revoked".into())).await;
    assert_eq!(with(key), []);
}
