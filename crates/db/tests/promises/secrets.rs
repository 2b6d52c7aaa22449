//! Encrypted secrets: each in its workspace, and deleted with their owner.

use crate::world::{ALL, World, grant, id, moment};
use belljar_db::{DatabaseError, ObjectFilter, OwnedCounts};
use types::{
    ObjectRef, PrincipalId, Privilege, SealContext, SealedValue, Secret, SecretId, SecretInjection,
    SecretScope, WorkspaceId,
};

fn secret(owner: PrincipalId, scope: SecretScope, name: &str) -> Secret {
    Secret {
        id: SecretId::new(id()),
        name: name.into(),
        owner,
        set_by: owner,
        scope,
        inject: SecretInjection::Env { env: name.into() },
        exposed: true,
        version: 1,
        comment: None,
        created_at: moment(0),
        updated_at: moment(0),
    }
}

fn label(workspace: WorkspaceId, secret: &Secret) -> SealContext {
    SealContext {
        workspace,
        holder: secret.id.uuid(),
        name: secret.name.clone(),
        version: secret.version,
        destination: "env TOKEN".into(),
    }
}

fn sealed(key: u8) -> SealedValue {
    SealedValue { key: [key; 8], bytes: vec![1, 2, 3, 0, 255] }
}

#[tokio::test]
async fn a_secret_is_in_its_workspace_and_its_name_is_that_of_one_for_each_of_whom_it_is() {
    let world = World::new().await;
    let (home, other, alice) = (world.home, world.other, world.alice);
    let [of_all, own] =
        [SecretScope::Workspace, SecretScope::Caller].map(|scope| secret(alice, scope, "TOKEN"));
    let twice =
        [of_all.clone(), own.clone()].map(|kept| Secret { id: SecretId::new(id()), ..kept });
    let kept = [of_all.clone(), own.clone()];
    world.write(move |tx| kept.iter().try_for_each(|one| tx.insert_secret(home, one))).await;
    for again in twice {
        let taken = world.db.write(move |tx| tx.insert_secret(home, &again)).await;
        assert!(matches!(taken, Err(DatabaseError::NameTaken { kind: "secret", .. })));
    }
    let found = |workspace| world.db.read(|r| r.secret(workspace, of_all.id)).unwrap();
    assert_eq!((found(home), found(other)), (Some(of_all.clone()), None));
    let owned = world.db.read(|r| r.count_owned(home, alice)).unwrap();
    assert_eq!(
        owned,
        OwnedCounts { secrets: 1, ..OwnedCounts::default() },
        "their own goes with them"
    );
    let mine = world.db.read(|r| r.private_secrets(home, alice)).unwrap();
    assert_eq!(mine, [own]);
    let seen = ObjectFilter { seen_by: Some(vec![alice]), ..ObjectFilter::default() };
    assert_eq!(world.db.read(|r| r.workspace_secrets(home, &seen)).unwrap(), []);
    let given = grant(alice, Privilege::Usage, ObjectRef::Secret(of_all.id));
    world.write(move |tx| tx.insert_grant(home, &given)).await;
    assert_eq!(world.db.read(|r| r.workspace_secrets(home, &seen)).unwrap(), [of_all]);
    assert_eq!(world.db.read(|r| r.secrets(home, &seen, ALL)).unwrap().items.len(), 1);
}

#[tokio::test]
async fn what_is_sealed_is_replaced_listed_by_its_key_and_gone_with_its_holder() {
    let world = World::new().await;
    let (home, other) = (world.home, world.other);
    let kept = secret(world.alice, SecretScope::Workspace, "TOKEN");
    let (first, second) = (label(home, &kept), label(other, &kept));
    let (id, labels) = (kept.id, [first.clone(), second.clone()]);
    world.write(move |tx| tx.insert_secret(home, &kept)).await;
    let written = labels.clone();
    world
        .write(move |tx| written.iter().try_for_each(|it| tx.upsert_sealed_value(it, &sealed(1))))
        .await;
    let newer = SealContext { version: 2, ..first.clone() };
    let put = newer.clone();
    world.write(move |tx| tx.upsert_sealed_value(&put, &sealed(2))).await;
    let of = |workspace| world.db.read(|r| r.sealed_values(workspace, id.uuid())).unwrap();
    assert_eq!(of(home), [(newer, sealed(2))]);
    assert_eq!(of(other), [(second, sealed(1))]);
    let keys = || world.db.read(|r| r.sealing_keys()).unwrap().into_iter().collect::<Vec<_>>();
    assert_eq!(keys(), [[1; 8], [2; 8]]);
    assert!(world.write(move |tx| tx.delete_secret(home, id)).await);
    assert_eq!((of(home), of(other).len()), (Vec::new(), 1));
    assert_eq!(keys(), [[1; 8]]);
}
