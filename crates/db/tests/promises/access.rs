//! Principals, their keys and their grants.

use crate::world::{ALL, World, grant, id, moment, principal};
use belljar_db::{DatabaseError, GrantFilter, OwnedCounts, PageRequest};
use types::{ApiKey, KeyId, ObjectRef, Principal, PrincipalId, PrincipalKind, Privilege, ToolId};

fn key(principal: PrincipalId) -> ApiKey {
    ApiKey {
        id: KeyId::new(id()),
        name: "laptop".into(),
        principal,
        created_with: None,
        counted_with: None,
        rate_per_second: Some(5),
        concurrency: None,
        created_at: moment(0),
        expires_at: None,
        revoked_at: None,
    }
}

#[tokio::test]
async fn a_key_tells_its_workspace_its_hash_and_its_principal() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let laptop = key(alice);
    let kept = laptop.clone();
    world.write(move |tx| tx.insert_key(home, &kept, &[7; 32])).await;
    let found = world.db.read(|reader| reader.find_key(laptop.id)).unwrap().unwrap();
    assert_eq!((found.workspace, found.hash, &found.key), (home, [7; 32], &laptop));
    assert_eq!((found.principal.id, &*found.principal.name), (alice, "alice"));
    let unknown = KeyId::new(id());
    assert_eq!(world.db.read(|reader| reader.find_key(unknown)).unwrap(), None);
}

#[tokio::test]
async fn a_key_is_revoked_once_and_only_from_its_own_workspace() {
    let world = World::new().await;
    let (home, other) = (world.home, world.other);
    let laptop = key(world.alice);
    let id = laptop.id;
    world.write(move |tx| tx.insert_key(home, &laptop, &[7; 32])).await;
    let revoke = |workspace, second| {
        world.write(move |tx| tx.revoke_key(workspace, id, Some(id), moment(second)))
    };
    assert!(revoke(other, 1).await.is_empty());
    assert_eq!(revoke(home, 2).await.len(), 1);
    assert!(revoke(home, 3).await.is_empty());
    let found = world.db.read(|reader| reader.find_key(id)).unwrap().unwrap();
    assert_eq!(found.key.revoked_at, Some(moment(2)));
}

#[tokio::test]
async fn keys_and_grants_go_with_their_principal() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let laptop = key(alice);
    let id = laptop.id;
    world
        .write(move |tx| {
            tx.insert_key(home, &laptop, &[7; 32])?;
            tx.insert_grant(home, &grant(alice, Privilege::Usage, ObjectRef::Workspace(home)))
        })
        .await;
    assert!(world.write(move |tx| tx.delete_principal(home, alice)).await);
    assert_eq!(world.db.read(|reader| reader.find_key(id)).unwrap(), None);
    let held =
        world.db.read(|reader| reader.grants_held(home, &[alice], &[ObjectRef::Workspace(home)]));
    assert_eq!(held.unwrap(), []);
}

#[tokio::test]
async fn a_grant_that_is_given_twice_is_the_first_one() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let object = ObjectRef::Tool(ToolId::new(id()));
    let (first, second) =
        (grant(alice, Privilege::Usage, object), grant(alice, Privilege::Usage, object));
    let (given, again) = (first.clone(), second.clone());
    assert_eq!(world.write(move |tx| tx.insert_grant(home, &given)).await, first);
    assert_eq!(world.write(move |tx| tx.insert_grant(home, &again)).await, first);
    let listed = world.db.read(|reader| reader.grants(home, GrantFilter::default(), ALL));
    assert_eq!(listed.unwrap().items, std::slice::from_ref(&first));
    assert!(!world.write(move |tx| tx.delete_grant(home, second.id)).await);
    assert!(world.write(move |tx| tx.delete_grant(home, first.id)).await);
}

#[tokio::test]
async fn grants_of_any_subject_on_any_object_are_held_together() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let role = Principal { kind: PrincipalKind::Role, ..principal("analysts") };
    let analysts = role.id;
    let (tool, stranger) = (ObjectRef::Tool(ToolId::new(id())), ObjectRef::Tool(ToolId::new(id())));
    let all = [
        grant(alice, Privilege::Install, ObjectRef::Workspace(home)),
        grant(analysts, Privilege::Usage, tool),
        grant(analysts, Privilege::Usage, stranger),
    ];
    let given = all.clone();
    world
        .write(move |tx| {
            tx.insert_principal(home, &role)?;
            given.iter().try_for_each(|grant| tx.insert_grant(home, grant).map(drop))
        })
        .await;
    let objects = [ObjectRef::Workspace(home), tool];
    let held =
        world.db.read(|reader| reader.grants_held(home, &[alice, analysts], &objects)).unwrap();
    assert_eq!(held, all[..2]);
    // Nobody is given what a user has by putting that user's name among their roles.
    let roles = ["analysts".to_owned(), "nobody".to_owned(), "alice".to_owned()];
    assert_eq!(world.db.read(|reader| reader.role_ids(home, &roles)).unwrap(), [analysts]);
    assert_eq!(world.write(move |tx| tx.delete_grants_on(home, tool)).await, 1);
}

#[tokio::test]
async fn owners_and_members_are_found_in_their_own_workspace_only() {
    let world = World::new().await;
    let (home, other, alice) = (world.home, world.other, world.alice);
    let tool = ObjectRef::Tool(ToolId::new(id()));
    let owner = grant(alice, Privilege::Ownership, tool);
    let given = [owner.clone(), grant(alice, Privilege::Usage, tool)];
    let role = Principal { kind: PrincipalKind::Role, ..principal("analysts") };
    let member = Principal { roles: vec!["analysts".into()], ..principal("carol") };
    let carol = member.id;
    world
        .write(move |tx| {
            tx.insert_principal(home, &role)?;
            tx.insert_principal(home, &member)?;
            tx.insert_principal(other, &Principal { id: PrincipalId::new(id()), ..member })?;
            given.iter().try_for_each(|grant| tx.insert_grant(home, grant).map(drop))
        })
        .await;
    assert_eq!(world.db.read(|rows| rows.ownership_grants(home, tool)).unwrap(), [owner]);
    assert_eq!(world.db.read(|rows| rows.ownership_grants(other, tool)).unwrap(), []);
    let members = world.db.read(|rows| rows.role_members(home, "analysts")).unwrap();
    assert_eq!(members.iter().map(|member| member.id).collect::<Vec<_>>(), [carol]);
    assert_eq!(world.db.read(|rows| rows.role_members(home, "nobody")).unwrap(), []);
}

#[tokio::test]
async fn keys_that_were_revoked_are_not_counted() {
    let world = World::new().await;
    let (home, other, alice) = (world.home, world.other, world.alice);
    let (laptop, phone) = (key(alice), key(alice));
    let (first, second) = (laptop.id, phone.id);
    world
        .write(move |tx| {
            tx.insert_key(home, &laptop, &[7; 32])?;
            tx.insert_key(home, &phone, &[8; 32])?;
            tx.revoke_key(home, first, Some(second), moment(1))
        })
        .await;
    assert_eq!(world.db.read(|rows| rows.count_active_keys(home, alice)).unwrap(), 1);
    assert_eq!(world.db.read(|rows| rows.count_active_keys(other, alice)).unwrap(), 0);
    assert!(world.db.read(|rows| rows.key(home, second)).unwrap().is_some());
    assert_eq!(world.db.read(|rows| rows.key(other, second)).unwrap(), None);
}

#[tokio::test]
async fn a_name_is_free_in_another_workspace_and_taken_in_its_own() {
    let world = World::new().await;
    let (home, other) = (world.home, world.other);
    world.write(move |tx| tx.insert_principal(other, &principal("alice"))).await;
    let again = world.db.write(move |tx| tx.insert_principal(home, &principal("alice"))).await;
    let text = again.unwrap_err().to_string();
    assert_eq!(text, "name `alice` is already used by another principal; choose another");
}

#[tokio::test]
async fn nothing_of_access_is_found_from_another_workspace() {
    let world = World::new().await;
    let (home, other, alice) = (world.home, world.other, world.alice);
    let given = grant(alice, Privilege::Usage, ObjectRef::Workspace(home));
    let grant_id = given.id;
    world
        .write(move |tx| {
            tx.insert_key(home, &key(alice), &[7; 32])?;
            tx.insert_grant(home, &given)
        })
        .await;
    for (workspace, there) in [(home, true), (other, false)] {
        let db = &world.db;
        assert_eq!(db.read(|r| r.principal(workspace, alice)).unwrap().is_some(), there);
        assert_eq!(db.read(|r| r.principal_by_name(workspace, "alice")).unwrap().is_some(), there);
        let keys = db.read(|r| r.keys(workspace, Some(alice), ALL)).unwrap().items;
        assert_eq!(!keys.is_empty(), there);
        assert_eq!(db.read(|r| r.grant(workspace, grant_id)).unwrap().is_some(), there);
        let filter =
            GrantFilter { principal: Some(alice), object: Some(ObjectRef::Workspace(home)) };
        let grants = db.read(|r| r.grants(workspace, filter, ALL)).unwrap().items;
        assert_eq!(!grants.is_empty(), there);
        let held = db.read(|r| r.grants_held(workspace, &[alice], &[ObjectRef::Workspace(home)]));
        assert_eq!(!held.unwrap().is_empty(), there);
    }
    assert!(!world.write(move |tx| tx.delete_grant(other, grant_id)).await);
    assert!(!world.write(move |tx| tx.delete_principal(other, alice)).await);
    let foreign = world.db.write(move |tx| tx.insert_key(other, &key(alice), &[7; 32])).await;
    assert!(matches!(foreign, Err(DatabaseError::Sqlite(_))), "a key for somebody of elsewhere");
}

#[tokio::test]
async fn pages_go_through_everything_once_newest_first() {
    let world = World::new().await;
    let home = world.home;
    world
        .write(move |tx| {
            (0..7).try_for_each(|n| tx.insert_principal(home, &principal(&format!("p{n}"))))
        })
        .await;
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let page = PageRequest { after, limit: 3 };
        let listed = world.db.read(|reader| reader.principals(home, page)).unwrap();
        names.extend(listed.items.into_iter().map(|principal| principal.name));
        let Some(next) = listed.next else { break };
        after = Some(next.to_string().parse().unwrap());
    }
    assert_eq!(names, ["p6", "p5", "p4", "p3", "p2", "p1", "p0", "alice"]);
    let owned = world.db.read(|reader| reader.count_owned(home, world.alice)).unwrap();
    assert_eq!(owned, OwnedCounts::default());
}
