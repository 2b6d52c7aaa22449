//! Every route that the server lists: closed without a key, closed to principals without grants, and blind to other
//! workspaces.

use crate::document::{Document, Fill, Operation, Request, Slot, Things};
use crate::harness::wait;
use crate::principals::{NOTHING, Person, id};
use crate::test_server::{Api, World};
use reqwest::Response;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Operations that every key may use, because they are about the caller.
const FOR_ANYBODY: [&str; 12] = [
    "createKey",
    "explain",
    "getMe",
    "getPreferences",
    // What ships with the program, the same for all.
    "listCatalog",
    "listGrants",
    "listKeys",
    // What the operator has configured, the same for all.
    "listModels",
    // Each statement checks what it needs.
    "runStatements",
    "setPreferences",
    // Only of those that one may see.
    "streamApprovals",
    "updatePreferences",
];

/// Lists that show each caller their own objects: none, for a caller without objects.
const LISTS: [&str; 14] = [
    "listAiAgents",
    "listAiTools",
    "listApprovals",
    "listDocuments",
    "listExecutions",
    "listFunctions",
    "listIntegrations",
    "listNetworkLog",
    "listNetworkRules",
    "listOwnershipOffers",
    "listSecrets",
    "listSessions",
    "listSkills",
    "listVolumes",
];

/// Of a body that can have different ids in it, such as a grant on different objects.
const FORMS: usize = 3;

async fn send(who: &Api, method: &str, request: &Request) -> Response {
    let mut sent = who.request(method.parse().unwrap(), &request.path);
    if let Some((kind, body)) = &request.body {
        sent = sent.header("content-type", kind).body(body.clone());
    }
    sent.send().await.unwrap()
}

async fn items(response: Response) -> Vec<Value> {
    let answer: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    answer["items"].as_array().unwrap_or_else(|| panic!("{answer} is not a list")).clone()
}

/// Unknown ids.
pub(crate) fn nothing() -> Things {
    let ids = [
        "AgentId",
        "ApprovalId",
        "ExecutionId",
        "FileId",
        "FunctionId",
        "GrantId",
        "IntegrationId",
        "KeyId",
        "NetworkRuleId",
        "OfferId",
        "PrincipalId",
        "SandboxId",
        "SecretId",
        "SkillId",
        "VolumeId",
        "ToolId",
        "WorkspaceId",
    ];
    let mut things: Things = ids.into_iter().map(|name| (name, NOTHING.to_owned())).collect();
    things.extend(
        [
            ("filename", "out.txt"),
            ("path", "note.txt"),
            ("name", "bare"),
            ("kind", "skill"),
            ("tool_id", "one"),
        ]
        .map(|(name, value)| (name, value.to_owned())),
    );
    things
}

#[tokio::test(flavor = "multi_thread")]
async fn t51_every_route_is_closed_without_a_good_key() {
    let world = World::start().await;
    let document = Document::of(&world).await;
    let good = world.owner.key.as_str();
    let (front, secret) = good.split_at(good.len() - 43);
    let bad = [
        String::new(),
        format!("{front}{}", secret.chars().rev().collect::<String>()),
        format!("bj_{}_{secret}", NOTHING.replace('-', "")),
        good[..good.len() - 1].to_owned(),
    ];
    let bad = bad.map(|key| world.api(&key));
    for operation in document.operations() {
        let request = document.request(&operation, &Fill::own(&nothing()));
        for who in &bad {
            let answer = send(who, &operation.method, &request).await;
            assert_eq!(answer.status(), 401, "{}", operation.id);
            assert_eq!(answer.headers()["www-authenticate"], "Bearer");
        }
        // The twin: with the good one, the same request means something.
        let answer = send(&world.owner, &operation.method, &request).await;
        assert_ne!(answer.status(), 401, "{}", operation.id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t51_no_other_method_or_spelling_of_a_path_is_open() {
    let world = World::start().await;
    let nobody = world.api("");
    let document = Document::of(&world).await;
    let fill = nothing();
    let known = document.operations();
    let mut paths: BTreeSet<String> =
        known.iter().map(|known| document.request(known, &Fill::own(&fill)).path).collect();
    paths.insert("/metrics".to_owned());
    let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"];
    for path in paths {
        let plain = |path: String| Request { path, body: None };
        for method in methods {
            let status = send(&nobody, method, &plain(path.clone())).await.status();
            assert!([401, 405].contains(&status.as_u16()), "{method} {path}: {status}");
        }
        let encoded = path.replacen("v1", "%76%31", 1);
        for other in [format!("{path}/"), format!("/{path}"), path.to_uppercase(), encoded] {
            let status = send(&nobody, "GET", &plain(other.clone())).await.status();
            assert!([401, 404, 405].contains(&status.as_u16()), "GET {other}: {status}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t51_a_principal_without_grants_reaches_only_its_own_objects() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let document = Document::of(&world).await;
    let mut open = BTreeSet::new();
    for operation in document.operations() {
        let request = document.request(&operation, &Fill::own(&nothing()));
        let answer = send(&ann, &operation.method, &request).await;
        let name = operation.id.as_str();
        match answer.status().as_u16() {
            403 | 404 if !LISTS.contains(&name) && !FOR_ANYBODY.contains(&name) => {}
            200 if LISTS.contains(&name) => {
                assert_eq!(items(answer).await, Vec::<Value>::new(), "{name}");
                open.insert(operation.id);
            }
            _ if FOR_ANYBODY.contains(&name) => drop(open.insert(operation.id)),
            status => {
                panic!("{name} answered {status}: {}", answer.text().await.unwrap_or_default())
            }
        }
    }
    // A name that is not there any more is not kept for whatever may have it next.
    let named: BTreeSet<String> = LISTS.into_iter().chain(FOR_ANYBODY).map(str::to_owned).collect();
    assert_eq!(open, named);
}

/// A model that has nothing to say, for everything that `furnish` makes.
pub(crate) const MODEL: [&str; 2] = [
    "--model",
    concat!("script:", env!("CARGO_MANIFEST_DIR"), "/../../tests/server/model_script.yaml"),
];

/// One of everything that has an id; runs of a model by the operations that they are for.
pub(crate) async fn furnish(world: &World, owner: &Api) -> Things {
    let me = owner.get("/v1/principals/me").await;
    let here = json!({"kind": "workspace", "id": me["workspace"]});
    let new = json!({"name": "somebody", "kind": "user"});
    let somebody = id(&owner.post("/v1/principals", new).await);
    let key = owner.post("/v1/keys", json!({"name": "k", "principal": somebody})).await;
    let usage = json!({"principal": somebody, "privilege": "USAGE", "object": here});
    let grant = owner.post("/v1/grants", usage).await;
    let session = owner.session().await;
    owner.run(&session, "open('note.txt', 'w').write('a note')").await;
    let (function, execution) = call_of_function(owner).await;
    let code = "def handle() -> int:\n    \"\"\"One.\"\"\"\n    return 1\n";
    let tool = json!({"type": "runPythonCode", "name": "one", "description": "Gives the number one.",
        "configuration": {"pythonCode": code}, "approval_action": "review"});
    let tool = id(&owner.post("/v1/tools", tool).await);
    let runs_code = "tools:\n  - tool_spec: {type: code_execution, name: code_execution}\n\
                     tool_resources: {code_execution: {}}\n";
    let agent = json!({"name": "helper", "specification": runs_code});
    let agent = id(&owner.post("/v1/agents", agent).await);
    owner.call("POST", &format!("/v1/agents/{agent}/tools/{tool}"), None).await;
    let waiting = owner.post(&format!("/v1/tools/{tool}/call"), json!({"arguments": {}})).await;
    let document = upload(world, owner).await;
    let volume = id(&owner.post("/v1/volumes", json!({"name": "notes"})).await);
    let at = format!("/v1/volumes/{volume}/files/note.txt");
    let kept = owner.request(reqwest::Method::PUT, &at).body("a note").send().await.unwrap();
    assert_eq!(kept.status(), 201);
    let skill = skill(owner).await;
    let secret = json!({"name": "TOKEN", "value": "sk-furnished"});
    let secret = id(&owner.post("/v1/secrets", secret).await);
    let rule = json!({"name": "web", "value_list": ["example.com"]});
    let rule = id(&owner.post("/v1/network-rules", rule).await);
    let integration = json!({"name": "out", "allowed_network_rules": ["web"]});
    let integration = id(&owner.post("/v1/integrations", integration).await);
    let offered = json!({"principal": somebody, "object": {"kind": "volume", "id": volume}});
    let offer = id(&owner.post("/v1/ownership-offers", offered).await);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let answer = owner.post(&format!("/v1/agents/{agent}/run"), json!({"message": "hello"})).await;
    let coded = owner.post("/v1/code_execution", json!({"request": "nothing"})).await;
    BTreeMap::from([
        ("getAiAgentRun", text(&answer["execution_id"])),
        ("getTrace", text(&answer["execution_id"])),
        ("getCodeExecution", text(&coded["execution_id"])),
        ("WorkspaceId", text(&me["workspace"])),
        ("PrincipalId", somebody),
        ("KeyId", id(&key)),
        ("GrantId", id(&grant)),
        ("SandboxId", session),
        ("path", "note.txt".to_owned()),
        ("name", "bare".to_owned()),
        // By its name, where the tool may be one of the specification.
        ("tool_id", "one".to_owned()),
        ("kind", "skill".to_owned()),
        ("FunctionId", function),
        ("ExecutionId", execution),
        ("filename", "out.txt".to_owned()),
        ("ToolId", tool),
        ("AgentId", agent),
        ("ApprovalId", text(&waiting["approval_id"])),
        ("FileId", document),
        ("VolumeId", volume),
        ("SecretId", secret),
        ("SkillId", skill),
        ("NetworkRuleId", rule),
        ("IntegrationId", integration),
        ("OfferId", offer),
    ])
}

/// A function, and an execution that is a call of it and has left a file.
async fn call_of_function(owner: &Api) -> (String, String) {
    let code = "def handle(): return open('out.txt', 'w').write('left')";
    let files = json!([{"name": "handler.py", "text": code}]);
    let function = id(&owner.post("/v1/functions", json!({"name": "leave", "files": files})).await);
    let called = owner.post(&format!("/v1/functions/{function}/call"), json!({})).await;
    let call = format!("/v1/functions/{function}/calls/{}", id(&called));
    wait::until("the call is complete", async || owner.get(&call).await["status"] == "Completed")
        .await;
    (function, id(&called))
}

/// A skill with a file of the path that the volume has.
async fn skill(owner: &Api) -> String {
    let text = "---\r\nname: tea\r\ndescription: Tea.\r\n---\r\nWarm the pot.";
    let part = |name: &str, text: &str| {
        format!(
            "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{text}\r\n"
        )
    };
    let body = part("SKILL.md", text) + &part("note.txt", "a note") + "--b--\r\n";
    let request = owner.request(reqwest::Method::POST, "/v1/skills");
    let request = request.header("content-type", "multipart/form-data; boundary=b").body(body);
    let sent = request.send().await.unwrap();
    assert_eq!(sent.status(), 201);
    id(&serde_json::from_slice(&sent.bytes().await.unwrap()).unwrap())
}

async fn upload(world: &World, owner: &Api) -> String {
    assert_eq!(world.address(), owner.address);
    let body = "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n\
                text\r\n--b--\r\n";
    let request = owner.request(reqwest::Method::POST, "/v1/documents");
    let request = request.header("content-type", "multipart/form-data; boundary=b").body(body);
    id(&items(request.send().await.unwrap()).await[0])
}

/// Everything that can be read in a workspace, as its owner sees it.
pub(crate) async fn seen(
    document: &Document,
    owner: &Api,
    things: &Things,
) -> BTreeMap<String, (u16, String)> {
    let mut seen = BTreeMap::new();
    for operation in document.operations() {
        // Environments are those of all servers here, and others use them meanwhile.
        let shared = ["listEnvironments", "getEnvironment"].contains(&operation.id.as_str());
        if operation.method != "GET" || operation.streams || shared {
            continue;
        }
        let mut request = document.request(&operation, &Fill::own(things));
        if operation.id != "explain" {
            // A filter would hide what was added.
            request.path.truncate(request.path.find('?').unwrap_or(request.path.len()));
        }
        let answer = send(owner, "GET", &request).await;
        let status = answer.status().as_u16();
        seen.insert(operation.id, (status, without_expiry(&answer.bytes().await.unwrap())));
    }
    seen
}

/// Without the time when a session will be closed, since reading its files here counts as use, and
/// without signed URLs, each of which is valid from now on.
fn without_expiry(body: &[u8]) -> String {
    fn is_signed_url(text: &str) -> bool {
        text.starts_with("http") && text.contains("signature=")
    }
    fn forget(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("expires_at");
                fields.retain(|_, value| !value.as_str().is_some_and(is_signed_url));
                fields.values_mut().for_each(forget);
            }
            Value::Array(items) => items.iter_mut().for_each(forget),
            _ => {}
        }
    }
    match serde_json::from_slice(body) {
        Ok(mut value) => {
            forget(&mut value);
            value.to_string()
        }
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t53_an_id_of_another_workspace_is_not_there() {
    let world = World::with(&MODEL).await;
    let made = world.owner.post("/v1/workspaces", json!({"name": "elsewhere"})).await;
    let theirs = world.api(made["key"]["secret"].as_str().unwrap());
    let document = Document::of(&world).await;
    let own = furnish(&world, &theirs).await;
    let foreign = furnish(&world, &world.owner).await;
    let before = seen(&document, &world.owner, &foreign).await;
    let mut tried = 0;
    for operation in document.operations() {
        for form in 0..FORMS {
            tried += every_place(&document, &operation, &theirs, (&own, &foreign), form).await;
        }
    }
    assert!(tried > 100, "{tried}");
    let after = seen(&document, &world.owner, &foreign).await;
    for (operation, answer) in &before {
        // The twin: their owner finds every one of these things, as they were.
        assert_eq!(answer.0, 200, "{operation}");
        assert_eq!(&after[operation], answer, "{operation}");
    }
}

/// Puts a foreign id in one place after the other, among ids of one's own; tells how many there
/// were.
async fn every_place(
    document: &Document,
    operation: &Operation,
    who: &Api,
    (own, foreign): (&Things, &Things),
    form: usize,
) -> usize {
    for place in 0.. {
        let fill = Fill::foreign(own, foreign, place, form);
        let request = document.request(operation, &fill);
        let slot = fill.slot();
        if slot == Slot::None {
            return place;
        }
        let answer = send(who, &operation.method, &request).await;
        let body = request.body.map(|(_, body)| String::from_utf8(body).unwrap());
        let context = format!("{} {} {body:?}", operation.method, request.path);
        match (slot, answer.status().as_u16()) {
            (_, 404) => {}
            (Slot::Query, 200) => assert_eq!(items(answer).await, Vec::<Value>::new(), "{context}"),
            (_, status) => panic!("{context}: {status} {}", answer.text().await.unwrap()),
        }
    }
    0
}
