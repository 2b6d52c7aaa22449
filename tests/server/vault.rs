//! Secrets: written and never read again, encrypted on the disk, and re-encrypted without a loss.

use crate::harness::{self, wait};
use crate::principals::{
    FORBIDDEN, ME, NOT_THERE, Person, change, grant, id, invalid, items, on, refused, workspace,
};
use crate::test_server::{Api, World};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const CANARY: &str = "sk-canary-4711-0815-abcdef";

async fn secret(who: &Api, name: &str, value: &str) -> Value {
    who.post("/v1/secrets", json!({"name": name, "value": value})).await
}

fn at(secret: &Value) -> String {
    format!("/v1/secrets/{}", id(secret))
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, found) } else { found.push(path) }
    }
}

/// Every file of the server that has the text in it, be it records, their log or a log of requests.
fn files_with(world: &World, text: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    files_below(world.data.path(), &mut files);
    assert!(files.contains(&world.database()) && world.log().contains("/v1/secrets"));
    let has = |file: &PathBuf| {
        let bytes = fs::read(file).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    files.into_iter().filter(has).collect()
}

fn database(world: &World) -> rusqlite::Connection {
    rusqlite::Connection::open(world.database()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_kept_shown_without_its_value_changed_and_deleted() {
    let world = World::start().await;
    let owner = &world.owner;
    let made = secret(owner, "TOKEN", CANARY).await;
    assert_eq!(made["inject"], json!({"env": "TOKEN"}));
    assert_eq!((&made["exposed"], &made["scope"]), (&json!(true), &json!("workspace")));
    assert_eq!(
        (&made["version"], &made["warnings"][0]["code"]),
        (&json!(1), &json!("secret.not_allowed"))
    );
    let allowing = json!({"name": "i", "allowed_network_rules": [], "allowed_secrets": ["TOKEN"]});
    let allowing = owner.post("/v1/integrations", allowing).await;
    let (status, replaced) = owner
        .call("PUT", &format!("{}/value", at(&made)), Some(json!({"value": "another-value"})))
        .await;
    assert_eq!((status, &replaced["version"]), (200, &json!(2)));
    assert_eq!(replaced["warnings"], Value::Null);
    let commented = change(owner, &at(&made), json!({"comment": "of the shop"})).await;
    assert_eq!((&commented["comment"], &commented["version"]), (&json!("of the shop"), &json!(2)));
    let short = json!({"name": "PIN", "value": "1234"});
    let short = owner.post("/v1/secrets", short).await;
    assert_eq!(short["warnings"][0]["code"], "secret.not_redacted");
    for inject in [
        json!({"header": {"host": "api.example.com", "name": "X-Api-Key"}}),
        json!({"client": "openai"}),
    ] {
        let short = json!({"name": "short", "value": "pin-123", "inject": inject});
        let short = owner.post("/v1/secrets", short).await;
        assert_eq!(short["warnings"][0]["code"], "secret.not_redacted");
        let said = short["warnings"][0]["message"].as_str().unwrap();
        assert!(said.contains("responses of its host"), "{said}");
        let longer = Some(json!({"value": "pin-1234"}));
        let (_, longer) = owner.call("PUT", &format!("{}/value", at(&short)), longer).await;
        assert_eq!(longer["warnings"], Value::Null);
        owner.delete(&at(&short)).await;
    }
    let shown = format!("{} {}", owner.get("/v1/secrets").await, owner.get(&at(&made)).await);
    assert!(shown.contains("TOKEN") && !shown.contains("another-value") && !shown.contains(CANARY));
    let taken = json!({"name": "TOKEN", "value": "x"});
    let taken = owner.refused("POST", "/v1/secrets", Some(taken)).await;
    assert_eq!(taken, (409, "name.taken".into()));
    owner.delete(&format!("/v1/integrations/{}", id(&allowing))).await;
    owner.delete(&at(&made)).await;
    refused(owner, "GET", &at(&made), None, NOT_THERE).await;
    secret(owner, "TOKEN", CANARY).await;
    let audit = owner.get("/v1/audit?limit=100").await;
    for action in ["secret.create", "secret.replace", "secret.change", "secret.delete"] {
        let lines = audit["items"].as_array().unwrap();
        assert!(lines.iter().any(|line| line["action"] == action), "{action}: {audit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t66_a_value_is_in_no_record_no_log_no_backup_and_no_answer() {
    let world = World::start().await;
    let owner = &world.owner;
    let made = secret(owner, "TOKEN", CANARY).await;
    let own = json!({"name": "MINE", "value": CANARY, "scope": "caller"});
    owner.post("/v1/secrets", own).await;
    let header = json!({"header": {"host": "api.example.com", "name": "X-Api-Key"}});
    let other = json!({"name": "shop", "value": CANARY, "inject": header, "comment": "c"});
    let other = owner.post("/v1/secrets", other).await;
    let value = Some(json!({"value": CANARY}));
    owner.call("PUT", &format!("{}/value", at(&other)), value.clone()).await;
    // What is wrong with a request is told without what was in it.
    let wrong = [
        json!({"name": "A", "value": CANARY, "colour": 1}),
        json!({"name": "A", "value": [CANARY]}),
        json!({"name": "A", "value": {CANARY: CANARY}}),
        json!({"name": "no variable", "value": CANARY}),
        json!({"name": "A", "value": format!("{CANARY}\0")}),
        json!({"name": "A", "value": CANARY.repeat(4_000)}),
        json!({"name": "A", "value": CANARY, "scope": "nobody"}),
    ];
    for body in wrong {
        let (status, answer) = owner.call("POST", "/v1/secrets", Some(body)).await;
        assert!(status == 400 && !answer.to_string().contains(CANARY), "{status} {answer}");
    }
    let key = owner.request(reqwest::Method::POST, "/v1/secrets").header("idempotency-key", "k");
    let once = json!({"name": "ONCE", "value": CANARY}).to_string();
    let once = key.header("content-type", "application/json").body(once).send().await.unwrap();
    assert_eq!(once.status(), 201);
    let backup = world.data.path().join("backup.sqlite3");
    database(&world).execute("VACUUM INTO ?1", [backup.to_str().unwrap()]).unwrap();
    assert!(fs::metadata(&backup).unwrap().len() > 10_000);
    assert_eq!(files_with(&world, CANARY), Vec::<PathBuf>::new());
    // The twin: what is not secret is found there.
    assert!(files_with(&world, "TOKEN").contains(&backup));
    let responses = [owner.get("/v1/secrets").await, owner.get(&at(&made)).await];
    assert!(!format!("{responses:?}").contains(CANARY));
    // A copy of the records has no key in it.
    let key = fs::read(world.data.path().join("secrets.key")).unwrap();
    let mut files = Vec::new();
    files_below(&world.data.path().join("db"), &mut files);
    for file in files {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(32).any(|window| window == key), "{}", file.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_goes_only_where_it_was_given_for() {
    let world = World::start().await;
    let owner = &world.owner;
    let openai = json!({"name": "openai", "value": CANARY, "inject": {"client": "openai"}});
    let openai = owner.post("/v1/secrets", openai).await;
    assert_eq!(
        (&openai["exposed"], &openai["inject"]["client"]),
        (&json!(false), &json!("openai"))
    );
    let elsewhere = [
        json!({"env": "SEEN"}),
        json!({"client": "openai", "base_url": "https://evil.example.com"}),
        json!({"client": "anthropic"}),
        json!({"header": {"host": "api.openai.com", "name": "X-Other"}}),
    ];
    for inject in elsewhere {
        invalid(owner, "PATCH", &at(&openai), json!({"inject": inject}), "/value").await;
        let again = json!({"inject": inject, "value": "a-new-value"});
        change(owner, &at(&openai), again).await;
        let back = json!({"inject": {"client": "openai"}, "value": CANARY});
        change(owner, &at(&openai), back).await;
    }
    // The same place in other words.
    let same = json!({"client": "openai", "base_url": "https://api.openai.com/v1"});
    let same = change(owner, &at(&openai), json!({"inject": same})).await;
    assert_eq!(same["inject"]["base_url"], "https://api.openai.com/v1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_secret_is_refused_by_its_field() {
    let world = World::start().await;
    let owner = &world.owner;
    let with = |field: &str, value: Value| {
        let mut body = json!({"name": "A", "value": "a-value"});
        body[field] = value;
        body
    };
    let cases = [
        (with("name", json!("two words")), "/name"),
        (with("name", json!("PATH")), "/name"),
        (with("name", json!("OPENAI_API_KEY")), "/name"),
        (with("value", json!("")), "/value"),
        (with("value", json!("a\0b")), "/value"),
        (with("value", json!("x".repeat(65_537))), "/value"),
        (with("value", json!(5)), "/value"),
        (with("inject", json!({"env": "LD_PRELOAD"})), "/inject/env"),
        (with("inject", json!({"env": "https_proxy"})), "/inject/env"),
        (with("inject", json!({"env": "1A"})), "/inject/env"),
        (with("inject", json!({"env": "A", "client": "openai"})), "/inject"),
        (with("inject", json!({"env": "A", "base_url": "https://a.example"})), "/inject/base_url"),
        (with("inject", json!({"client": "cognite", "project": "p"})), "/inject/base_url"),
        (
            with("inject", json!({"client": "cognite", "base_url": "https://api.cognitedata.com"})),
            "/inject/project",
        ),
        (with("inject", json!({"client": "openai", "project": "p"})), "/inject/project"),
        (with("comment", json!("x".repeat(1_001))), "/comment"),
    ];
    for (body, field) in cases {
        invalid(owner, "POST", "/v1/secrets", body, field).await;
    }
    for url in [
        "http://api.example.com",
        "http://8.8.8.8",
        "http://169.254.169.254",
        "http://127.0.0.1:8080/v1",
        "https://localhost:8080",
        "https://[::ffff:127.0.0.1]",
        "ftp://localhost",
        "https://user:pass@api.example.com",
        "https://api.example.com/?a=b",
        "https://*.example.com",
        "api.example.com",
        "",
    ] {
        let inject = json!({"client": "openai", "base_url": url});
        invalid(owner, "POST", "/v1/secrets", with("inject", inject), "/inject/base_url").await;
    }
    for (host, name, field) in [
        ("https://api.example.com", "X-Key", "host"),
        ("api.example.com/v1", "X-Key", "host"),
        ("*.example.com", "X-Key", "host"),
        ("user@api.example.com", "X-Key", "host"),
        ("localhost:8443", "X-Key", "host"),
        ("api.example.com:70000", "X-Key", "host"),
        ("", "X-Key", "host"),
        ("api.example.com", "X Key", "name"),
        ("api.example.com", "Host", "name"),
        ("api.example.com", "Proxy-Authorization", "name"),
    ] {
        let inject = json!({"header": {"host": host, "name": name}});
        let field = format!("/inject/header/{field}");
        invalid(owner, "POST", "/v1/secrets", with("inject", inject), &field).await;
    }
    let mut broken = with("inject", json!({"header": {"host": "a.example", "name": "X-Key"}}));
    broken["value"] = json!("two\r\nX-Other: lines");
    invalid(owner, "POST", "/v1/secrets", broken, "/value").await;
    assert_eq!(items(owner, "/v1/secrets").await, Vec::<Value>::new());
    // The twins.
    let good = [
        json!({"client": "openai", "base_url": "http://10.0.0.5:8080/v1"}),
        json!({"client": "gemini", "base_url": "http://llm.internal"}),
        json!({"client": "cognite", "base_url": "https://api.cognitedata.com", "project": "p"}),
        json!({"header": {"host": "API.Example.com.:8443", "name": "X-Api-Key", "prefix": "Bearer ", "env": "KEY"}}),
    ];
    for (number, inject) in good.into_iter().enumerate() {
        let mut body = with("inject", inject);
        body["name"] = json!(format!("secret {number}"));
        owner.post("/v1/secrets", body).await;
    }
    let last = &items(owner, "/v1/secrets").await[0]["inject"]["header"];
    assert_eq!(
        (&last["host"], &last["name"]),
        (&json!("api.example.com:8443"), &json!("x-api-key"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_has_a_thousand_secrets_and_no_more() {
    let world = World::start().await;
    for number in 0..1_000 {
        secret(&world.owner, &format!("S{number}"), "a-value").await;
    }
    let one_more = json!({"name": "MORE", "value": "x"});
    let full = world.owner.refused("POST", "/v1/secrets", Some(one_more)).await;
    assert_eq!(full, (413, "quota.exceeded".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_right_on_a_secret_lets_do_what_it_says() {
    let world = World::start().await;
    let owner = &world.owner;
    let (ann, here) = (Person::new(&world, "ann").await, workspace(owner).await);
    let made = secret(owner, "TOKEN", CANARY).await;
    let value = Some(json!({"value": "another-value"}));
    let put = format!("{}/value", at(&made));
    refused(&ann, "POST", "/v1/secrets", Some(json!({"name": "X", "value": "x"})), FORBIDDEN).await;
    refused(&ann, "GET", &at(&made), None, NOT_THERE).await;
    refused(&ann, "PUT", &put, value.clone(), NOT_THERE).await;
    grant(owner, &ann.id, "USAGE", &on("secret", &made)).await;
    assert_eq!(ann.get(&at(&made)).await["name"], "TOKEN");
    refused(&ann, "PUT", &put, value.clone(), FORBIDDEN).await;
    refused(&ann, "PATCH", &at(&made), Some(json!({"comment": "x"})), FORBIDDEN).await;
    grant(owner, &ann.id, "MODIFY", &on("secret", &made)).await;
    assert_eq!(ann.call("PUT", &put, value).await.0, 200);
    refused(&ann, "DELETE", &at(&made), None, FORBIDDEN).await;
    refused(&ann, "POST", "/v1/secrets/rotate", None, FORBIDDEN).await;
    grant(owner, &ann.id, "OWNERSHIP", &on("secret", &made)).await;
    assert_eq!(ann.get(&at(&made)).await["owner"], ann.id);
    let leaving = refused(owner, "DELETE", &ann.path(), None, (409, "owner.needed")).await;
    assert!(leaving.contains("1 secret"), "{leaving}");
    ann.delete(&at(&made)).await;
    grant(owner, &ann.id, "MODIFY", &here).await;
    secret(&ann, "HERS", CANARY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_personal_secret_is_used_by_its_owner_alone() {
    let world = World::start().await;
    let owner = &world.owner;
    let (ann, bob) = (Person::new(&world, "ann").await, Person::new(&world, "bob").await);
    let here = workspace(owner).await;
    let own = |value: &str| json!({"name": "TOKEN", "value": value, "scope": "caller"});
    refused(&ann, "POST", "/v1/secrets", Some(own("a-value")), FORBIDDEN).await;
    for person in [&ann, &bob] {
        grant(owner, &person.id, "USAGE", &here).await;
    }
    // Each principal has one of the same name.
    let (hers, _) = (
        ann.post("/v1/secrets", own("of-ann")).await,
        bob.post("/v1/secrets", own("of-bob")).await,
    );
    owner.post("/v1/secrets", own("of-the-owner")).await;
    secret(owner, "TOKEN", "of-the-workspace").await;
    refused(&bob, "GET", &at(&hers), None, NOT_THERE).await;
    assert_eq!(items(&bob, "/v1/secrets").await.len(), 1);
    // An owner of the workspace sees that it is there, and can neither take, give nor redirect it.
    assert_eq!(owner.get(&at(&hers)).await["owner"], ann.id);
    let evil = json!({"inject": {"env": "OTHER"}, "value": "x"});
    refused(owner, "PATCH", &at(&hers), Some(evil), FORBIDDEN).await;
    let value = Some(json!({"value": "x"}));
    refused(owner, "PUT", &format!("{}/value", at(&hers)), value, FORBIDDEN).await;
    let me = owner.get(ME).await["id"].clone();
    for privilege in ["USAGE", "MODIFY", "OWNERSHIP"] {
        let give = json!({"principal": me, "privilege": privilege, "object": on("secret", &hers)});
        invalid(owner, "POST", "/v1/grants", give.clone(), "/object").await;
        invalid(&ann, "POST", "/v1/grants", give, "/object").await;
    }
    // It goes with whom it is of.
    owner.delete(&ann.path()).await;
    refused(owner, "GET", &at(&hers), None, NOT_THERE).await;
    let left: u64 =
        database(&world).query_row("SELECT count(*) FROM sealed", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_owner_of_the_workspace_opens_an_address_of_the_inner_network_by_a_secret() {
    let world = World::start().await;
    let (ann, bob) = (
        world.principal("ann", &["USAGE", "MODIFY"]).await,
        world.principal("bob", &["OWNERSHIP"]).await,
    );
    let own = |host: &str| {
        let inject = json!({"header": {"host": host, "name": "X-Key"}});
        json!({"name": "mine", "value": "a-value", "scope": "caller", "inject": inject})
    };
    for host in ["10.0.0.5", "[fd00::5]:8443", "[::ffff:10.0.0.5]", "0xa000005", "100.64.0.1"] {
        refused(&ann, "POST", "/v1/secrets", Some(own(host)), FORBIDDEN).await;
    }
    let hers = ann.post("/v1/secrets", own("api.example.com")).await;
    refused(
        &ann,
        "PATCH",
        &at(&hers),
        Some(json!({"inject": own("10.0.0.5")["inject"], "value": "a-value"})),
        FORBIDDEN,
    )
    .await;
    bob.post("/v1/secrets", own("10.0.0.5")).await;
}

async fn rotate(world: &World) -> Value {
    world.owner.post("/v1/secrets/rotate", json!({})).await
}

fn sealed(world: &World) -> Vec<(Vec<u8>, Vec<u8>)> {
    let database = database(world);
    let mut rows =
        database.prepare("SELECT sealing_key, bytes FROM sealed ORDER BY holder, name").unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn t66_a_rotation_seals_everything_again_with_another_key() {
    let mut world = World::start().await;
    let made = world.owner.post("/v1/workspaces", json!({"name": "elsewhere"})).await;
    let theirs = world.api(made["key"]["secret"].as_str().unwrap());
    for number in 0..10 {
        secret(&world.owner, &format!("S{number}"), CANARY).await;
        secret(&theirs, &format!("S{number}"), CANARY).await;
    }
    refused(&theirs, "POST", "/v1/secrets/rotate", None, FORBIDDEN).await;
    let (before, key) = (sealed(&world), fs::read(world.data.path().join("secrets.key")).unwrap());
    assert_eq!(rotate(&world).await["values"], 20);
    let (after, new) = (sealed(&world), fs::read(world.data.path().join("secrets.key")).unwrap());
    assert_eq!((before.len(), after.len()), (20, 20));
    assert_ne!(key, new);
    for ((old_key, old), (new_key, new)) in before.iter().zip(&after) {
        assert!(old_key != new_key && old[..60] != new[..60] && old[60..] != new[60..]);
    }
    assert!(!world.data.path().join("secrets.key.next").exists());
    world.kill();
    world.again().await;
    assert_eq!(rotate(&world).await["values"], 20, "all of them can be opened");
}

/// All can be read: a rotation opens each of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_moment_of_a_rotation_leaves_every_value_readable() {
    let mut world = World::start().await;
    for number in 0..200 {
        secret(&world.owner, &format!("S{number}"), &CANARY.repeat(1_000)).await;
    }
    let began = std::time::Instant::now();
    rotate(&world).await;
    let takes = began.elapsed();
    let (mut rotated, mut interrupted) = (0, 0);
    for round in 0..12_u32 {
        let (owner, before) = (world.owner.clone(), sealed(&world)[0].0.clone());
        let asked = tokio::spawn(async move {
            owner.request(reqwest::Method::POST, "/v1/secrets/rotate").send().await.is_ok()
        });
        // From before it has begun to just after it was answered.
        let answered = match round {
            11 => asked.await.unwrap(),
            round => {
                wait::any_moment(takes * round / 10).await;
                world.kill();
                asked.await.unwrap()
            }
        };
        world.kill();
        world.again().await;
        let now = sealed(&world);
        let is_new = now[0].0 != before;
        assert!(now.iter().all(|(key, _)| *key == now[0].0), "all of them or none");
        assert!(is_new || !answered, "what was acknowledged is kept");
        if is_new {
            rotated += 1
        } else {
            interrupted += 1
        }
        assert_eq!(rotate(&world).await["values"], 200);
    }
    assert!(rotated > 0 && interrupted > 0, "{rotated} {interrupted}");
}

/// The same at the two moments that matter, found by what is on the disk: when the new key is kept and
/// nothing is sealed with it yet, and when it has just taken the place of the old one.
#[tokio::test(flavor = "multi_thread")]
async fn t66_a_kill_when_the_new_key_appears_and_when_it_takes_its_place_loses_nothing() {
    let mut world = World::start().await;
    for number in 0..200 {
        secret(&world.owner, &format!("S{number}"), &CANARY.repeat(1_000)).await;
    }
    let next = next_of(&world);
    for round in 0..8 {
        let owner = world.owner.clone();
        let asked = tokio::spawn(async move {
            owner.request(reqwest::Method::POST, "/v1/secrets/rotate").send().await.is_ok()
        });
        let (next, until_it_goes) = (next.clone(), round % 2 == 1);
        let seen = tokio::task::spawn_blocking(move || {
            let began = std::time::Instant::now();
            let wait = |there: bool| {
                while next.exists() != there && began.elapsed().as_secs() < 30 {
                    std::hint::spin_loop();
                }
            };
            wait(true);
            if until_it_goes {
                wait(false);
            }
        });
        seen.await.unwrap();
        world.kill();
        let _ = asked.await.unwrap();
        world.again().await;
        assert!(!next_of(&world).exists(), "what was interrupted is brought to an end");
        let now = sealed(&world);
        assert!(now.iter().all(|(key, _)| *key == now[0].0), "all of them or none");
        assert_eq!(rotate(&world).await["values"], 200, "round {round}");
    }
}

fn next_of(world: &World) -> std::path::PathBuf {
    world.data.path().join("secrets.key.next")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_during_a_rotation_is_readable_after_it() {
    let world = World::start().await;
    for number in 0..50 {
        secret(&world.owner, &format!("S{number}"), CANARY).await;
    }
    let owner = world.owner.clone();
    let writing = tokio::spawn(async move {
        for number in 0..100 {
            secret(&owner, &format!("T{number}"), CANARY).await;
        }
    });
    for _ in 0..10 {
        rotate(&world).await;
    }
    writing.await.unwrap();
    assert_eq!(rotate(&world).await["values"], 150);
}

/// The ciphertexts of the two values that there are, as an attacker who can write to the records could.
pub(crate) fn exchange(database: &rusqlite::Connection) {
    database
        .execute_batch(
            "CREATE TEMP TABLE before AS SELECT holder, bytes FROM sealed; \
             UPDATE sealed SET bytes = \
             (SELECT bytes FROM before WHERE before.holder <> sealed.holder)",
        )
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn t66_ciphertexts_that_were_exchanged_are_not_opened() {
    let mut world = World::start().await;
    let (one, other) = (
        secret(&world.owner, "ONE", CANARY).await,
        secret(&world.owner, "OTHER", "of-another").await,
    );
    world.kill();
    exchange(&database(&world));
    world.again().await;
    let error = world.owner.refused("POST", "/v1/secrets/rotate", None).await;
    assert_eq!(error, (503, "database.unavailable".into()));
    // Each is good again with a value of its own.
    for secret in [one, other] {
        let value = Some(json!({"value": CANARY}));
        world.owner.call("PUT", &format!("{}/value", at(&secret)), value).await;
    }
    assert_eq!(rotate(&world).await["values"], 2);
}

/// What a server says that does not start.
fn does_not_start(world: &World) -> String {
    let mut serve =
        harness::belljar(&["serve", "--listen", "127.0.0.1:0", "--environment", "bare"]);
    let output = serve.env("BELLJAR_RECORDS", world.data.path()).output().unwrap();
    assert!(!output.status.success());
    harness::stderr(&output)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_its_key_does_not_start() {
    let mut world = World::start().await;
    secret(&world.owner, "TOKEN", CANARY).await;
    world.kill();
    let path = world.data.path().join("secrets.key");
    let key = fs::read(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert!(does_not_start(&world).contains("is readable by other users"));
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, &key[..20]).unwrap();
    assert!(does_not_start(&world).contains("has 20 bytes"));
    fs::write(&path, [7; 32]).unwrap();
    assert!(does_not_start(&world).contains("is not the master key"));
    fs::remove_file(&path).unwrap();
    assert!(does_not_start(&world).contains("is missing"));
    assert!(!path.exists());
    fs::write(&path, key).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    world.again().await;
    assert_eq!(rotate(&world).await["values"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_the_environment_is_used_and_rotates_to_the_one_before_it() {
    let keys = [
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",
    ];
    let script = format!(
        "BELLJAR_SECRETS_KEY=$(cat $BELLJAR_RECORDS/given 2>/dev/null || echo {}); \
         export BELLJAR_SECRETS_KEY; exec \"$0\" \"$@\"",
        keys[0]
    );
    let mut world = World::under(&["sh", "-c", &script], &[]).await;
    secret(&world.owner, "TOKEN", CANARY).await;
    assert!(!world.data.path().join("secrets.key").exists());
    let (status, refused) = world.owner.call("POST", "/v1/secrets/rotate", None).await;
    assert_eq!(status, 503);
    assert!(refused["hint"].as_str().unwrap().contains("BELLJAR_SECRETS_KEY"), "{refused}");
    world.kill();
    assert!(does_not_start(&world).contains("is missing"), "the key of the environment is missed");
    for given in [format!("{},{}", keys[1], keys[0]), keys[1].to_owned()] {
        fs::write(world.data.path().join("given"), given).unwrap();
        world.again().await;
        world.owner.call("POST", "/v1/secrets/rotate", None).await;
        assert_eq!(items(&world.owner, "/v1/secrets").await.len(), 1);
        world.kill();
    }
    for key in keys {
        assert!(!world.log().contains(key));
    }
}
