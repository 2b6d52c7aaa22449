//! Tools and agents, stored as their authors wrote them.

use crate::world::{ALL, World, grant, id, moment};
use belljar_db::{DatabaseError, ObjectFilter, OwnedCounts};
use serde_json::{Map, json};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use types::{
    Agent, AgentId, ApprovalAction, Deployment, Function, FunctionId, FunctionStatus, ObjectRef,
    PrincipalId, Privilege, RunAs, SpecificationFormat, Tool, ToolId, WorkspaceId,
};

/// Bytes that some other way of keeping text would change.
const SOURCE: &str = "def handle():\r\n\treturn 'é\u{0}\u{feff}'  \n\n";

fn tool(workspace: WorkspaceId, owner: PrincipalId, name: &str) -> Tool {
    Tool {
        id: ToolId::new(id()),
        name: name.into(),
        owner,
        author: owner,
        description: "adds".into(),
        definition: Map::from_iter([("configuration".into(), json!({"z": 1, "a": 2}))]),
        entry: "handle".into(),
        environment: "default".into(),
        approval_action: ApprovalAction::Review,
        input_schema: json!({"type": "object"}),
        output_schema: None,
        code_sha256: "00".into(),
        deployment_id: workspace,
        created_at: moment(0),
        updated_at: moment(0),
    }
}

fn agent(owner: PrincipalId, name: &str) -> Agent {
    Agent {
        id: AgentId::new(id()),
        name: name.into(),
        owner,
        author: owner,
        specification: SOURCE.into(),
        format: SpecificationFormat::Yaml,
        run_as: RunAs::Caller,
        approval_actions: [("code_execution".to_owned(), ApprovalAction::Confirm)].into(),
        created_at: moment(0),
        updated_at: moment(0),
    }
}

#[tokio::test]
async fn source_and_specification_come_back_byte_for_byte() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let (add, helper) = (tool(home, alice, "add"), agent(alice, "helper"));
    let (kept_tool, kept_agent) = (add.clone(), helper.clone());
    world
        .write(move |tx| {
            tx.insert_tool(home, &kept_tool, SOURCE)?;
            tx.insert_agent(home, &kept_agent)
        })
        .await;
    let found = world.db.read(|r| r.tool_by_name(home, "add")).unwrap();
    assert_eq!(found, Some((add, SOURCE.to_owned())));
    assert_eq!(world.db.read(|r| r.agent_by_name(home, "helper")).unwrap(), Some(helper));
    let owned = world.db.read(|r| r.count_owned(home, alice)).unwrap();
    assert_eq!(owned, OwnedCounts { tools: 1, agents: 1, ..OwnedCounts::default() });
}

/// The output of a future that is complete at its first poll.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[test]
fn t209_a_large_tool_is_parsed_on_another_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        let world = World::new().await;
        let (home, alice) = (world.home, world.alice);
        let (small, mut large) = (tool(home, alice, "small"), tool(home, alice, "large"));
        let constants = serde_json::json!({"const": vec![0; 10_000]});
        large.definition.insert("schema".to_owned(), constants);
        let kept = [small.clone(), large.clone()];
        world
            .write(move |tx| kept.iter().try_for_each(|tool| tx.insert_tool(home, tool, SOURCE)))
            .await;
        let (release, held) = std::sync::mpsc::channel::<()>();
        // The only other thread is busy.
        let busy = tokio::task::spawn_blocking(move || held.recv().is_err());
        let found = |tool: &Tool| Some((tool.clone(), SOURCE.to_owned()));
        let mut read_small = pin!(world.db.tool(home, small.id));
        assert_eq!(poll_once(&mut read_small).await.unwrap().unwrap(), found(&small));
        let mut read_large = pin!(world.db.tool(home, large.id));
        assert!(poll_once(&mut read_large).await.is_none(), "it waits for the other thread");
        drop(release);
        assert!(busy.await.unwrap());
        assert_eq!(read_large.await.unwrap(), found(&large));
        assert_eq!(world.db.tool(home, ToolId::new(id())).await.unwrap(), None);
    });
}

#[tokio::test]
async fn a_tool_is_changed_in_place_and_cannot_take_the_name_of_another() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let (add, subtract) = (tool(home, alice, "add"), tool(home, alice, "subtract"));
    let id = add.id;
    let changed = Tool { name: "plus".into(), ..add.clone() };
    let taken = Tool { name: "subtract".into(), ..add.clone() };
    world
        .write(move |tx| {
            tx.insert_tool(home, &add, SOURCE)?;
            tx.insert_tool(home, &subtract, SOURCE)
        })
        .await;
    let refused = world.db.write(move |tx| tx.update_tool(home, &taken, "")).await;
    assert!(matches!(refused, Err(DatabaseError::NameTaken { kind: "tool", .. })));
    assert!(world.write(move |tx| tx.update_tool(home, &changed, "pass")).await);
    let (found, source) = world.db.read(|r| r.tool(home, id)).unwrap().unwrap();
    assert_eq!((&*found.name, &*source), ("plus", "pass"));
    let names = |search: Option<&str>| {
        let filter = ObjectFilter { search: search.map(str::to_owned), seen_by: None };
        let listed = world.db.read(|r| r.tools(home, &filter, ALL)).unwrap();
        listed.items.into_iter().map(|tool| tool.name).collect::<Vec<_>>()
    };
    assert_eq!(names(None), ["subtract", "plus"]);
    assert_eq!(names(Some("PLU")), ["plus"]);
    assert_eq!(names(Some("Add")), ["subtract", "plus"], "their description");
    assert_eq!(names(Some("%")), [""; 0]);
}

#[tokio::test]
async fn a_list_has_the_objects_on_which_the_principal_has_a_privilege() {
    let world = World::new().await;
    let (home, alice, bob) = (world.home, world.alice, PrincipalId::new(id()));
    let mut rows = vec![];
    let (mut tools, mut agents) = (vec![], vec![]);
    for (name, privilege) in [
        ("used", Some(Privilege::Usage)),
        ("changed", Some(Privilege::Modify)),
        ("owned", Some(Privilege::Ownership)),
        ("installed", Some(Privilege::Install)),
        ("hidden", None),
    ] {
        let (tool, agent) = (tool(home, alice, name), agent(alice, name));
        for object in [ObjectRef::Tool(tool.id), ObjectRef::Agent(agent.id)] {
            rows.extend(privilege.map(|privilege| grant(alice, privilege, object)));
        }
        tools.push(tool);
        agents.push(agent);
    }
    world
        .write(move |tx| {
            for (tool, agent) in tools.iter().zip(&agents) {
                tx.insert_tool(home, tool, SOURCE)?;
                tx.insert_agent(home, agent)?;
            }
            rows.iter().try_for_each(|row| tx.insert_grant(home, row).map(drop))
        })
        .await;
    let names = |viewers: &[PrincipalId]| {
        let filter = ObjectFilter { search: None, seen_by: Some(viewers.to_vec()) };
        let tools = world.db.read(|r| r.tools(home, &filter, ALL)).unwrap().items;
        let agents = world.db.read(|r| r.agents(home, &filter, ALL)).unwrap().items;
        let tools: Vec<String> = tools.into_iter().map(|tool| tool.name).collect();
        let agents: Vec<String> = agents.into_iter().map(|agent| agent.name).collect();
        assert_eq!(tools, agents);
        tools
    };
    assert_eq!(names(&[bob, alice]), ["owned", "changed", "used"]);
    assert_eq!(names(&[bob]), [""; 0]);
    assert_eq!(names(&[]), [""; 0]);
}

#[tokio::test]
async fn a_tool_that_an_agent_has_stays_until_it_is_detached() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let (add, helper) = (tool(home, alice, "add"), agent(alice, "helper"));
    let (tool_id, agent_id) = (add.id, helper.id);
    world
        .write(move |tx| {
            tx.insert_tool(home, &add, SOURCE)?;
            tx.insert_agent(home, &helper)?;
            tx.attach_tool(home, agent_id, tool_id, ApprovalAction::Allow, moment(1))?;
            tx.attach_tool(home, agent_id, tool_id, ApprovalAction::Review, moment(2))
        })
        .await;
    let bindings = world.db.read(|r| r.tool_bindings(home, agent_id)).unwrap();
    let [binding] = &*bindings else { panic!("{bindings:?}") };
    assert_eq!((binding.tool_id, &*binding.tool_name), (tool_id, "add"));
    assert_eq!(binding.approval_action, ApprovalAction::Review);
    assert_eq!(binding.created_at, moment(1));
    let using = world.db.read(|r| r.agents_using(home, tool_id)).unwrap();
    assert_eq!(using, [(agent_id, "helper".to_owned())]);
    assert!(world.db.write(move |tx| tx.delete_tool(home, tool_id)).await.is_err());
    let deny = ApprovalAction::Deny;
    assert!(world.write(move |tx| tx.set_tool_action(home, agent_id, tool_id, deny)).await);
    assert!(world.write(move |tx| tx.detach_tool(home, agent_id, tool_id)).await);
    assert!(!world.write(move |tx| tx.detach_tool(home, agent_id, tool_id)).await);
    assert!(world.write(move |tx| tx.delete_tool(home, tool_id)).await);
}

#[tokio::test]
async fn an_agent_takes_its_bindings_along() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let (add, helper) = (tool(home, alice, "add"), agent(alice, "helper"));
    let (tool_id, agent_id) = (add.id, helper.id);
    world
        .write(move |tx| {
            tx.insert_tool(home, &add, SOURCE)?;
            tx.insert_agent(home, &helper)?;
            tx.attach_tool(home, agent_id, tool_id, ApprovalAction::Allow, moment(1))
        })
        .await;
    assert!(world.write(move |tx| tx.delete_agent(home, agent_id)).await);
    assert_eq!(world.db.read(|r| r.agents_using(home, tool_id)).unwrap(), []);
    assert!(world.write(move |tx| tx.delete_tool(home, tool_id)).await);
}

#[tokio::test]
async fn nothing_of_tools_and_agents_is_found_from_another_workspace() {
    let world = World::new().await;
    let (home, other, alice) = (world.home, world.other, world.alice);
    let (add, helper) = (tool(home, alice, "add"), agent(alice, "helper"));
    let (tool_id, agent_id) = (add.id, helper.id);
    let (kept_tool, kept_agent) = (add.clone(), helper.clone());
    world
        .write(move |tx| {
            tx.insert_tool(home, &kept_tool, SOURCE)?;
            tx.insert_agent(home, &kept_agent)?;
            tx.attach_tool(home, agent_id, tool_id, ApprovalAction::Allow, moment(1))
        })
        .await;
    for (workspace, there) in [(home, true), (other, false)] {
        let (db, all) = (&world.db, ObjectFilter::default());
        assert_eq!(db.read(|r| r.tool(workspace, tool_id)).unwrap().is_some(), there);
        assert_eq!(db.read(|r| r.tool_by_name(workspace, "add")).unwrap().is_some(), there);
        assert_eq!(!db.read(|r| r.tools(workspace, &all, ALL)).unwrap().items.is_empty(), there);
        assert_eq!(db.read(|r| r.agent(workspace, agent_id)).unwrap().is_some(), there);
        assert_eq!(db.read(|r| r.agent_by_name(workspace, "helper")).unwrap().is_some(), there);
        let agents = db.read(|r| r.agents(workspace, &all, ALL)).unwrap().items;
        assert_eq!(!agents.is_empty(), there);
        assert_eq!(!db.read(|r| r.tool_bindings(workspace, agent_id)).unwrap().is_empty(), there);
        assert_eq!(!db.read(|r| r.agents_using(workspace, tool_id)).unwrap().is_empty(), there);
    }
    assert!(!world.write(move |tx| tx.update_tool(other, &add, "")).await);
    assert!(!world.write(move |tx| tx.update_agent(other, &helper)).await);
    assert!(!world.write(move |tx| tx.delete_tool(other, tool_id)).await);
    assert!(!world.write(move |tx| tx.delete_agent(other, agent_id)).await);
    assert!(!world.write(move |tx| tx.detach_tool(other, agent_id, tool_id)).await);
    let foreign = world.db.write(move |tx| {
        tx.attach_tool(other, agent_id, tool_id, ApprovalAction::Allow, moment(1))
    });
    assert!(matches!(foreign.await, Err(DatabaseError::Sqlite(_))), "a tool of elsewhere");
}

#[tokio::test]
async fn an_environment_is_needed_while_a_function_has_it_or_prepares_it() {
    let world = World::new().await;
    let home = world.home;
    let deployment = Deployment {
        integrations: Vec::new(),
        description: String::new(),
        files: Vec::new(),
        sha256: "00".into(),
        environment: "fn-old".into(),
        python: None,
        memory_bytes: 1,
        timeout_seconds: 1,
        author: world.alice,
        deployed_at: moment(1),
    };
    let function = Function {
        id: FunctionId::new(id()),
        name: "f".into(),
        owner: world.alice,
        status: FunctionStatus::Deploying,
        deployed: Some(deployment),
        preparing: Some("fn-new".into()),
        preparing_integrations: Vec::new(),
        progress: None,
        error: None,
        created_at: moment(1),
        updated_at: moment(1),
    };
    let kept = function.clone();
    world.write(move |tx| tx.insert_function(home, &kept, Some(b"files"))).await;
    let is_needed = |name: &str| world.db.read(|r| r.is_environment_of_function(name)).unwrap();
    assert!(is_needed("fn-old") && is_needed("fn-new") && !is_needed("fn-other"));
    assert_eq!(world.db.read(|r| r.deploying_functions()).unwrap(), [(home, function.clone())]);

    let failed = Function { preparing: None, status: FunctionStatus::Failed, ..function.clone() };
    world.write(move |tx| tx.update_function(home, &failed, None)).await;
    assert!(is_needed("fn-old") && !is_needed("fn-new"));
    let (_, files) = world.db.read(|r| r.deployed_function(home, function.id)).unwrap().unwrap();
    assert_eq!(files, b"files", "what serves stays");
    world.write(move |tx| tx.delete_function(home, function.id)).await;
    assert!(!is_needed("fn-old"));
}
