//! Principals, keys, roles and grants: who is authenticated, and what they may do.

use crate::principals::{
    FORBIDDEN, ME, NOT_THERE, NOTHING, OWNER_NEEDED, Person, Problem, UNKNOWN, change, grant, id,
    invalid, items, refused, role, ungrant, workspace,
};
use crate::test_server::{Api, World};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Runs something, if it may.
async fn run(who: &Api) -> Result<(), Problem> {
    match who.call("POST", "/v1/execute", Some(json!({"code": "6 * 7"}))).await {
        (200, record) => {
            assert_eq!(record["value"], 42);
            Ok(())
        }
        (403, problem) if problem["code"] == FORBIDDEN.1 => Err(FORBIDDEN),
        answer => panic!("{answer:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_principal_may_do_nothing_until_it_is_granted() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    assert_eq!(ann.get(ME).await["name"], "ann");
    let body = Some(json!({"code": "1"}));
    let problem = refused(&ann, "POST", "/v1/execute", body, FORBIDDEN).await;
    assert!(problem.contains("USAGE on the workspace"), "{problem}");
    grant(&world.owner, &ann.id, "USAGE", &workspace(&world.owner).await).await;
    assert_eq!(run(&ann).await, Ok(()));
}

// proves S-037
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_taken_away_is_missed_by_the_next_request() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let here = workspace(&world.owner).await;
    for _ in 0..3 {
        let usage = grant(&world.owner, &ann.id, "USAGE", &here).await;
        assert_eq!(run(&ann).await, Ok(()));
        ungrant(&world.owner, &usage).await;
        assert_eq!(run(&ann).await, Err(FORBIDDEN));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_given_twice_is_one_grant() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let here = workspace(&world.owner).await;
    let first = grant(&world.owner, &ann.id, "USAGE", &here).await;
    assert_eq!(grant(&world.owner, &ann.id, "USAGE", &here).await, first);
    assert_eq!(items(&ann, "/v1/grants").await, [first]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_a_role_has_its_grants_and_loses_them_with_it() {
    let world = World::start().await;
    let owner = &world.owner;
    let (runners, ann) = (role(owner, "runners").await, Person::new(&world, "ann").await);
    let runners_path = format!("/v1/principals/{}", id(&runners));
    grant(owner, &id(&runners), "USAGE", &workspace(owner).await).await;
    assert_eq!(run(&ann).await, Err(FORBIDDEN));
    change(owner, &ann.path(), json!({"roles": ["runners"]})).await;
    assert_eq!(run(&ann).await, Ok(()));
    // Renamed, it is still the same role to its members.
    change(owner, &runners_path, json!({"name": "coders"})).await;
    assert_eq!(ann.get(ME).await["roles"], json!(["coders"]));
    assert_eq!(run(&ann).await, Ok(()));
    owner.delete(&runners_path).await;
    assert_eq!(run(&ann).await, Err(FORBIDDEN));
    // A later role of that name has no members that it was not given.
    let later = role(owner, "coders").await;
    grant(owner, &id(&later), "USAGE", &workspace(owner).await).await;
    assert_eq!(run(&ann).await, Err(FORBIDDEN));
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_roles_and_are_not_in_roles() {
    let world = World::start().await;
    let owner = &world.owner;
    let ann = Person::new(&world, "ann").await;
    role(owner, "runners").await;
    let wrong = [
        (json!(["nobody"]), "/roles/0"),
        (json!(["runners", "runners"]), "/roles/1"),
        // Of a user, and of all users the one who may everything.
        (json!(["owner"]), "/roles/0"),
    ];
    for (roles, place) in wrong {
        invalid(owner, "PATCH", &ann.path(), json!({"roles": roles}), place).await;
    }
    let inner = json!({"name": "inner", "kind": "role", "roles": ["runners"]});
    invalid(owner, "POST", "/v1/principals", inner, "/roles").await;
    let again = Some(json!({"name": "ann", "kind": "user"}));
    refused(owner, "POST", "/v1/principals", again, (409, "name.taken")).await;
    assert_eq!(ann.get(ME).await["roles"], json!([]));
    change(owner, &ann.path(), json!({"roles": ["runners"]})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_is_refused_at_once_and_another_one_is_not() {
    let world = World::start().await;
    let (ann, bob) = (Person::new(&world, "ann").await, Person::new(&world, "bob").await);
    let spare = ann.post("/v1/keys", json!({"name": "spare"})).await;
    let spare_path = format!("/v1/keys/{}", id(&spare));
    let with_spare = world.api(spare["secret"].as_str().unwrap());
    assert_eq!(with_spare.get(ME).await["name"], "ann");
    ann.delete(&spare_path).await;
    refused(&with_spare, "GET", ME, None, UNKNOWN).await;
    // Once more is the same; another principal's is not found.
    ann.delete(&spare_path).await;
    refused(&bob, "DELETE", &ann.key_path(), None, NOT_THERE).await;
    assert_eq!(ann.get(ME).await["name"], "ann");
    world.owner.delete(&ann.key_path()).await;
    refused(&ann, "GET", ME, None, UNKNOWN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_has_no_keys_and_no_key_is_over_before_it_begins() {
    let world = World::start().await;
    let owner = &world.owner;
    let of_role = json!({"name": "k", "principal": role(owner, "runners").await["id"]});
    invalid(owner, "POST", "/v1/keys", of_role, "/principal").await;
    let past = json!({"name": "k", "expires_at": "2020-01-01T00:00:00Z"});
    invalid(owner, "POST", "/v1/keys", past, "/expires_at").await;
    for bound in ["rate_per_second", "concurrency"] {
        let none = json!({"name": "k", bound: 0});
        invalid(owner, "POST", "/v1/keys", none, &format!("/{bound}")).await;
    }
    owner.post("/v1/keys", json!({"name": "k", "expires_at": "2100-01-01T00:00:00Z"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn principals_make_keys_for_themselves_and_only_an_owner_for_others() {
    let world = World::start().await;
    let (ann, bob) = (Person::new(&world, "ann").await, Person::new(&world, "bob").await);
    let for_bob = json!({"name": "k", "principal": bob.id});
    let of_bob = format!("/v1/keys?principal={}", bob.id);
    refused(&ann, "POST", "/v1/keys", Some(for_bob.clone()), FORBIDDEN).await;
    refused(&ann, "GET", &of_bob, None, FORBIDDEN).await;
    assert_eq!(ann.post("/v1/keys", json!({"name": "laptop"})).await["principal"], ann.id);
    let own = items(&ann, "/v1/keys").await;
    assert_eq!(own.iter().map(|key| &key["principal"]).collect::<Vec<_>>(), [&*ann.id, &*ann.id]);
    world.owner.post("/v1/keys", for_bob).await;
    assert_eq!(items(&world.owner, &of_bob).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_no_key_that_can_do_more_or_lasts_longer() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let fast = json!({"name": "fast", "rate_per_second": 9});
    refused(&ann, "POST", "/v1/keys", Some(fast), FORBIDDEN).await;
    let bounded = json!({"name": "slow", "principal": ann.id, "rate_per_second": 20,
        "concurrency": 3, "expires_at": "2090-01-01T00:00:00Z"});
    let slow = world.owner.post("/v1/keys", bounded).await;
    let slow = world.api(slow["secret"].as_str().unwrap());
    let asked = [
        (json!({"name": "a"}), "2090"),
        (json!({"name": "b", "expires_at": "2095-01-01T00:00:00Z"}), "2090"),
        (json!({"name": "c", "expires_at": "2085-01-01T00:00:00Z"}), "2085"),
    ];
    for (request, ends) in asked {
        let made = slow.post("/v1/keys", request).await;
        assert_eq!((&made["rate_per_second"], &made["concurrency"]), (&json!(20), &json!(3)));
        assert!(made["expires_at"].as_str().unwrap().starts_with(ends), "{made}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limits_of_a_key_are_raised_only_by_the_operator() {
    let world = World::with(&["--key-rate", "100", "--key-concurrency", "10"]).await;
    let made = world.owner.post("/v1/workspaces", json!({"name": "other"})).await;
    let other = world.api(made["key"]["secret"].as_str().unwrap());
    for (name, most) in [("rate_per_second", 100), ("concurrency", 10)] {
        let (within, above) =
            (json!({"name": "k", name: most}), json!({"name": "k", name: most + 1}));
        other.post("/v1/keys", within).await;
        refused(&other, "POST", "/v1/keys", Some(above.clone()), FORBIDDEN).await;
        world.owner.post("/v1/keys", above).await;
    }
}

/// The bound of a key holds for it, and not for another key of the same principal.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_held_to_its_own_bound() {
    let world = World::start().await;
    let slow = world.owner.post("/v1/keys", json!({"name": "slow", "rate_per_second": 1})).await;
    let slow = world.api(slow["secret"].as_str().unwrap());
    let mut refusals = 0;
    for _ in 0..6 {
        let (status, answer) = slow.call("GET", ME, None).await;
        if status != 200 {
            assert_eq!((status, answer["code"].as_str()), (429, Some("rate.exceeded")));
            refusals += 1;
        }
        world.owner.get(ME).await;
    }
    assert!(refusals >= 2, "{refusals}");
}

async fn another_key(world: &World, with: &Api) -> (String, Api) {
    let made = with.post("/v1/keys", json!({"name": "another"})).await;
    (format!("/v1/keys/{}", id(&made)), world.api(made["secret"].as_str().unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn many_keys_of_ones_own_making_ask_no_more_often_than_one() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let slow = json!({"name": "slow", "principal": ann.id, "rate_per_second": 3});
    let slow = world.owner.post("/v1/keys", slow).await;
    let mut keys = vec![world.api(slow["secret"].as_str().unwrap())];
    for made in 0..3 {
        let (_, further) = another_key(&world, &keys[made]).await;
        keys.push(further);
    }
    let began = Instant::now();
    let mut answered = 0;
    for api in keys.iter().cycle().take(24) {
        answered += usize::from(api.call("GET", ME, None).await.0 == 200);
    }
    let refilled = 3 * (began.elapsed().as_secs() as usize + 1);
    assert!(answered <= 6 + refilled, "{answered}");
    // The key that an owner made for her is not held up by them.
    ann.get(ME).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_with_a_stolen_key_is_revoked_with_it() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let stolen = world.owner.post("/v1/keys", json!({"name": "a", "principal": ann.id})).await;
    let stolen_path = format!("/v1/keys/{}", id(&stolen));
    let stolen = world.api(stolen["secret"].as_str().unwrap());
    let (_, thief) = another_key(&world, &stolen).await;
    let (_, thief_too) = another_key(&world, &thief).await;
    let (_, next) = another_key(&world, &stolen).await;
    let (_, later) = another_key(&world, &next).await;
    next.delete(&stolen_path).await;
    for gone in [&stolen, &thief, &thief_too] {
        assert_eq!(gone.refused("GET", ME, None).await, (401, "auth.missing".into()));
    }
    for good in [&next, &later, &*ann] {
        good.get(ME).await;
    }
    let audit = items(&world.owner, "/v1/audit?action=key.revoke").await;
    assert_eq!(audit.len(), 3, "each is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_changes_keys_without_being_locked_out_or_locking_others_out() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let first = format!("/v1/keys/{}", id(items(&world.owner, "/v1/keys").await.last().unwrap()));
    let (next_path, next) = another_key(&world, &world.owner).await;
    let itself = world.owner.refused("DELETE", &first, None).await;
    assert_eq!(itself, (400, "args.invalid".into()), "it would take the next one along");
    next.delete(&first).await;
    assert_eq!(world.owner.refused("GET", ME, None).await.0, 401);
    ann.get(ME).await;
    next.get("/v1/keys").await;
    next.delete(&next_path).await;
    assert_eq!(next.refused("GET", ME, None).await.0, 401, "one that has made none may go");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_keys_of_a_principal_is_limited() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let another = || ann.call("POST", "/v1/keys", Some(json!({"name": "k"})));
    let mut made = 0;
    let refusal = loop {
        match another().await {
            (201, _) => made += 1,
            (_, problem) => break problem,
        }
        assert!(made < 100);
    };
    assert_eq!(refusal["code"], "quota.exceeded");
    ann.delete(&format!("/v1/keys/{}", id(&items(&ann, "/v1/keys?limit=1").await[0]))).await;
    assert_eq!(another().await.0, 201);
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, found) } else { found.push(path) }
    }
}

async fn post_once(who: &Api, path: &str, body: Value, key: &str) -> (bool, Value) {
    let request = who.request(reqwest::Method::POST, path).header("idempotency-key", key);
    let request = request.header("content-type", "application/json").body(body.to_string());
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 201);
    let replayed = response.headers().contains_key("idempotency-replayed");
    (replayed, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
}

/// Only the hash of a secret is kept, also of one that was made with an `Idempotency-Key`, whose
/// answers are remembered.
#[tokio::test(flavor = "multi_thread")]
async fn t52_a_secret_is_shown_once_and_is_nowhere_afterwards() {
    let world = World::start().await;
    let owner = &world.owner;
    let plain = owner.post("/v1/keys", json!({"name": "laptop"})).await;
    let (_, once) = post_once(owner, "/v1/keys", json!({"name": "once"}), "same").await;
    let (replayed, again) = post_once(owner, "/v1/keys", json!({"name": "once"}), "same").await;
    assert!(replayed);
    assert_eq!((&again["id"], &again["secret"]), (&once["id"], &Value::Null));
    let (_, other) = post_once(owner, "/v1/workspaces", json!({"name": "other"}), "other").await;
    let made = [&plain["secret"], &once["secret"], &other["key"]["secret"]];
    let secrets = made.map(|secret| secret.as_str().unwrap());
    for secret in secrets {
        world.api(secret).get(ME).await;
    }
    let listed = owner.get("/v1/keys").await.to_string();
    let mut files = Vec::new();
    files_below(world.data.path(), &mut files);
    assert!(world.log().contains("/v1/keys"), "the log is not told of requests");
    assert!(files.contains(&world.database()));
    for secret in secrets.into_iter().chain([owner.key.as_str()]) {
        // The part that is random; the id before it is no secret.
        let random = &secret.as_bytes()[secret.len() - 43..];
        let has_it = |bytes: &[u8]| bytes.windows(random.len()).any(|window| window == random);
        assert!(!has_it(listed.as_bytes()));
        for file in &files {
            assert!(!has_it(&fs::read(file).unwrap()), "{} has a secret in it", file.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn people_are_managed_by_owners_alone() {
    let world = World::start().await;
    let owner = &world.owner;
    let (ann, bob) = (Person::new(&world, "ann").await, Person::new(&world, "bob").await);
    let here = workspace(owner).await;
    // Everything but OWNERSHIP does not suffice.
    for privilege in ["USAGE", "MODIFY", "INSTALL"] {
        grant(owner, &ann.id, privilege, &here).await;
    }
    let of_bob = grant(owner, &bob.id, "USAGE", &here).await;
    let eve = || Some(json!({"name": "eve", "kind": "user"}));
    let all = json!({"principal": ann.id, "privilege": "OWNERSHIP", "object": here});
    let denied = [
        ("POST", "/v1/principals", eve()),
        ("GET", "/v1/principals", None),
        ("PATCH", &bob.path(), Some(json!({"name": "robert"}))),
        ("PATCH", &ann.path(), Some(json!({"roles": []}))),
        ("DELETE", &bob.path(), None),
        ("GET", "/v1/audit", None),
        ("GET", "/v1/workspaces", None),
        ("POST", "/v1/workspaces", Some(json!({"name": "mine"}))),
        ("POST", "/v1/grants", Some(all)),
        ("GET", &format!("/v1/grants?principal={}", bob.id), None),
    ];
    for (method, path, body) in denied {
        refused(&ann, method, path, body, FORBIDDEN).await;
    }
    refused(&ann, "GET", &bob.path(), None, NOT_THERE).await;
    let of_bob = format!("/v1/grants/{}", id(&of_bob));
    refused(&ann, "DELETE", &of_bob, None, NOT_THERE).await;
    refused(&bob, "DELETE", &of_bob, None, FORBIDDEN).await;
    // The twin: what is hers she sees, and as an owner she may all of it.
    assert_eq!(ann.get(&ann.path()).await["name"], "ann");
    assert_eq!(items(&ann, "/v1/grants").await.len(), 3);
    grant(owner, &ann.id, "OWNERSHIP", &here).await;
    ann.post("/v1/principals", eve().unwrap()).await;
    assert_eq!(items(&ann, "/v1/principals").await.len(), 4);
    ann.delete(&of_bob).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_always_has_an_owner_and_an_empty_role_is_none() {
    let world = World::start().await;
    let owner = &world.owner;
    let (me, here) = (owner.get(ME).await, workspace(owner).await);
    let my_path = format!("/v1/principals/{}", id(&me));
    let my_grant = format!("/v1/grants/{}", id(&items(owner, "/v1/grants").await[0]));
    refused(owner, "DELETE", &my_grant, None, OWNER_NEEDED).await;
    refused(owner, "DELETE", &my_path, None, OWNER_NEEDED).await;
    // A role without members owns nothing.
    let owners = role(owner, "owners").await;
    let owners_path = format!("/v1/principals/{}", id(&owners));
    grant(owner, &id(&owners), "OWNERSHIP", &here).await;
    refused(owner, "DELETE", &my_grant, None, OWNER_NEEDED).await;
    let ann = Person::new(&world, "ann").await;
    change(owner, &ann.path(), json!({"roles": ["owners"]})).await;
    owner.delete(&my_grant).await;
    refused(owner, "GET", "/v1/principals", None, FORBIDDEN).await;
    // Now ann is the last one, by her role alone.
    let none = Some(json!({"roles": []}));
    refused(&ann, "PATCH", &ann.path(), none, OWNER_NEEDED).await;
    refused(&ann, "DELETE", &owners_path, None, OWNER_NEEDED).await;
    refused(&ann, "DELETE", &ann.path(), None, OWNER_NEEDED).await;
    grant(&ann, &id(&me), "OWNERSHIP", &here).await;
    ann.delete(&owners_path).await;
    refused(&ann, "GET", "/v1/principals", None, FORBIDDEN).await;
    owner.delete(&ann.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_owners_who_remove_each_other_leave_one() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let here = workspace(&world.owner).await;
    let of_ann = grant(&world.owner, &ann.id, "OWNERSHIP", &here).await;
    let grants = items(&world.owner, "/v1/grants").await;
    let of_owner = grants.iter().find(|grant| grant["principal"] != ann.id.as_str()).unwrap();
    let paths = [&of_ann, of_owner].map(|grant| format!("/v1/grants/{}", id(grant)));
    let (one, other) = tokio::join!(
        world.owner.call("DELETE", &paths[0], None),
        ann.call("DELETE", &paths[1], None)
    );
    let mut statuses = [one.0, other.0];
    statuses.sort_unstable();
    // The later one is too late, or is no longer an owner when asked.
    assert!(statuses[0] == 204 && statuses[1] >= 400, "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_principal_leaves_no_key_and_no_session() {
    let world = World::start().await;
    let owner = &world.owner;
    let ann = Person::new(&world, "ann").await;
    grant(owner, &ann.id, "USAGE", &workspace(owner).await).await;
    let session = ann.session().await;
    owner.delete(&ann.path()).await;
    assert_eq!(owner.get(&format!("/v1/sessions/{session}")).await["status"], "closed");
    refused(&ann, "GET", ME, None, UNKNOWN).await;
    refused(owner, "GET", &ann.path(), None, NOT_THERE).await;
    let left = items(owner, &format!("/v1/grants?principal={}", ann.id)).await;
    assert_eq!(left, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_needs_an_existing_object_and_an_existing_principal() {
    let world = World::start().await;
    let owner = &world.owner;
    let ann = Person::new(&world, "ann").await;
    let here = workspace(owner).await;
    let on = |kind: &str| json!({"kind": kind, "id": NOTHING});
    let body =
        |to: &str, object: &Value| json!({"principal": to, "privilege": "USAGE", "object": object});
    let nowhere = [
        body(&ann.id, &on("workspace")),
        body(&ann.id, &on("tool")),
        body(&ann.id, &on("agent")),
        body(NOTHING, &here),
    ];
    for grant in nowhere {
        refused(owner, "POST", "/v1/grants", Some(grant), NOT_THERE).await;
    }
    let unknown = json!({"principal": ann.id, "privilege": "READ", "object": here});
    invalid(owner, "POST", "/v1/grants", unknown, "/privilege").await;
    let (status, _) = owner.call("GET", "/v1/grants?object_kind=tool", None).await;
    assert_eq!(status, 400);
    assert_eq!(items(&ann, "/v1/grants").await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn preferences_are_ones_own_and_replaced_as_a_whole() {
    const PATH: &str = "/v1/preferences";
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let small = json!({"code_model": "small"});
    assert_eq!(ann.call("PUT", PATH, Some(small.clone())).await, (200, small.clone()));
    assert_eq!(ann.get(PATH).await, small);
    assert_eq!(world.owner.get(PATH).await, json!({}));
    invalid(&ann, "PUT", PATH, json!({"code_modle": "small"}), "/code_modle").await;
    invalid(&ann, "PUT", PATH, json!({"code_model": 1}), "/code_model").await;
    assert_eq!(ann.get(PATH).await, small);
    assert_eq!(ann.call("PUT", PATH, Some(json!({}))).await, (200, json!({})));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preference_is_set_and_removed_without_naming_the_others() {
    const PATH: &str = "/v1/preferences";
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let small = json!({"code_model": "openai/small"});
    assert_eq!(ann.call("PATCH", PATH, Some(small.clone())).await, (200, small.clone()));
    assert_eq!(ann.call("PATCH", PATH, Some(json!({}))).await, (200, small.clone()));
    invalid(&ann, "PATCH", PATH, json!({"code_modle": "small"}), "/code_modle").await;
    invalid(&ann, "PATCH", PATH, json!({"code_modle": null}), "/code_modle").await;
    invalid(&ann, "PATCH", PATH, json!({"code_model": 1}), "/code_model").await;
    invalid(&ann, "PATCH", PATH, json!({"code_model": "a\nb"}), "/code_model").await;
    assert_eq!(ann.get(PATH).await, small);
    assert_eq!(world.owner.get(PATH).await, json!({}), "others have their own");
    let none = json!({"code_model": null});
    assert_eq!(ann.call("PATCH", PATH, Some(none.clone())).await, (200, json!({})));
    assert_eq!(ann.call("PATCH", PATH, Some(none)).await, (200, json!({})), "it stays removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_who_may_what_is_in_the_audit_log() {
    let world = World::start().await;
    let owner = &world.owner;
    let ann = Person::new(&world, "ann").await;
    let usage = grant(owner, &ann.id, "USAGE", &workspace(owner).await).await;
    ungrant(owner, &usage).await;
    ann.delete(&ann.key_path()).await;
    owner.delete(&ann.path()).await;
    // What was refused has changed nothing, and is not there.
    refused(owner, "DELETE", &ann.path(), None, NOT_THERE).await;
    let entries = items(owner, "/v1/audit").await;
    let actions: Vec<&str> =
        entries.iter().rev().map(|entry| entry["action"].as_str().unwrap()).collect();
    let expected = [
        "workspace.create",
        "principal.create",
        "key.create",
        "grant.create",
        "grant.delete",
        "key.revoke",
        "principal.delete",
    ];
    assert_eq!(actions, expected);
    let by_ann = items(owner, &format!("/v1/audit?principal={}", ann.id)).await;
    assert_eq!(by_ann.len(), 1);
    assert_eq!(by_ann[0]["key"], ann.key["id"]);
    let (first, rest) = (owner.get("/v1/audit?limit=3").await, "/v1/audit?limit=200&cursor=");
    let next = first["next_cursor"].as_str().unwrap();
    let pages =
        [first["items"].as_array().unwrap().clone(), items(owner, &format!("{rest}{next}")).await];
    assert_eq!(pages.concat(), entries);
}

#[tokio::test(flavor = "multi_thread")]
async fn t126_a_key_without_grants_writes_only_so_much_into_the_audit_log() {
    let world = World::start().await;
    let nobody = world.principal("nobody", &[]).await;
    let before = crate::principals::items(&world.owner, "/v1/audit?limit=200").await.len();
    let (mut done, mut refused) = (0, 0);
    for number in 0..150 {
        let (path, method, body) = match number % 4 {
            0 => ("/v1/preferences", "PUT", json!({})),
            2 => ("/v1/preferences", "PATCH", json!({})),
            _ => ("/v1/keys", "POST", json!({"name": "k"})),
        };
        let (status, response) = nobody.call(method, path, Some(body)).await;
        match status {
            200 | 201 => done += 1,
            429 => {
                assert_eq!(response["code"], "rate.exceeded", "{response}");
                refused += 1;
            }
            _ => panic!("{response}"),
        }
        if let Some(id) = response["id"].as_str() {
            assert_eq!(nobody.call("DELETE", &format!("/v1/keys/{id}"), None).await.0, 204);
        }
    }
    assert_eq!((done, refused), (60, 90));
    let after = crate::principals::items(&world.owner, "/v1/audit?limit=200").await.len();
    assert_eq!(after - before, 90, "60 changes, of which 30 keys were revoked again");
    // An owner, whose grants let them do everything, is not counted.
    for _ in 0..70 {
        assert_eq!(world.owner.call("PUT", "/v1/preferences", Some(json!({}))).await.0, 200);
    }
    assert_eq!(nobody.get("/v1/principals/me").await["name"], "nobody", "it is not shut out");
}
