//! Clients from the package index that people use, in sandboxes: they reach allowed hosts with unchanged code, and
//! a credential reaches its host only. The hosts are on this machine and record all requests.

mod answers;
mod caller_token;
mod coderunner;
mod host;

use crate::harness::{self, wait};
use crate::principals::{Person, grant, id, on, workspace};
use crate::test_server::{Api, World};
use host::{Answer, Host, Journal, Seen, Vouching};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use tempfile::TempDir;

const OPENAI: &str = "sk-openai-canary-4711";
const ANTHROPIC: &str = "sk-anthropic-canary-4712";
const GEMINI: &str = "gemini-canary-4713";
const SHOP: &str = "shop-canary-4714";
/// How every placeholder begins.
const PLACEHOLDER: &str = "belljar-0";

/// A server, the hosts that code talks to, and an integration for each part of them.
struct Setting {
    world: World,
    hosts: Vec<Host>,
    journal: Journal,
    _files: TempDir,
}

impl Setting {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(more: &[&str]) -> Self {
        let more = more.iter().map(|it| (*it).to_owned()).collect();
        Self::with_options(|_| more).await
    }

    /// With options of the server that depend on the hosts.
    async fn with_options(more: impl FnOnce(&[Host]) -> Vec<String>) -> Self {
        build_environment();
        let (files, journal, vouching) =
            (tempfile::tempdir().unwrap(), Journal::default(), Vouching::new());
        let hosts = hosts(&vouching, &journal, files.path());
        let roots = files.path().join("roots.pem");
        std::fs::write(&roots, vouching.pem()).unwrap();
        let trusting = format!("SSL_CERT_FILE={}", roots.display());
        let names = hosts.iter().flat_map(|host| ["--resolve".to_owned(), resolved(host)]);
        let options: Vec<String> = names.chain(more(&hosts)).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let world = World::under(&["env", &trusting], &options).await;
        let setting = Self { world, hosts, journal, _files: files };
        setting.open_up().await;
        setting
    }

    fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).unwrap()
    }

    /// `machine` allows these hosts to be on this machine, and opens nothing by it; `sites` opens some, and
    /// `platform` one that people have credentials of their own for.
    async fn open_up(&self) {
        let open = |host: &&Host| host.name != "closed.test";
        let addresses = self.hosts.iter().filter(open);
        let addresses: Vec<String> = addresses.map(|it| format!("127.0.0.1:{}", it.port)).collect();
        let names = ["site.test", "other.test", "expired.test"].map(|it| self.host(it).place());
        let platform = [self.host("cognite.test").place()];
        for (name, values) in
            [("machine", json!(addresses)), ("sites", json!(names)), ("platform", json!(platform))]
        {
            let rule = json!({"name": name, "value_list": values});
            self.world.owner.post("/v1/network-rules", rule).await;
            let integration = json!({"name": name, "allowed_network_rules": [name]});
            self.world.owner.post("/v1/integrations", integration).await;
        }
    }

    async fn client_secret(&self, who: &Api, client: &str, value: &str, host: &str) {
        let inject = match client {
            "cognite" => {
                json!({"client": client, "base_url": self.host(host).url(), "project": "mine"})
            }
            _ => json!({"client": client, "base_url": self.host(host).url()}),
        };
        let scope = if client == "cognite" { "caller" } else { "workspace" };
        let secret = json!({"name": client, "value": value, "inject": inject, "scope": scope});
        who.post("/v1/secrets", secret).await;
    }

    async fn header_secret(&self, host: &str) {
        let header =
            json!({"host": self.host(host).place(), "name": "X-Api-Key", "env": "SHOP_KEY"});
        let secret = json!({"name": host, "value": SHOP, "inject": {"header": header}});
        self.world.owner.post("/v1/secrets", secret).await;
    }

    /// Runs a program of this directory, which finds the URLs of the hosts by their first names.
    async fn run(&self, who: &Api, session: &str, program: &str) -> Value {
        let urls = self.hosts.iter().map(|host| {
            let name = host.name.trim_end_matches(".test").to_uppercase();
            format!("{name} = {:?}\n", host.url())
        });
        let path = here().join(program);
        let code = urls.collect::<String>() + &std::fs::read_to_string(path).unwrap();
        who.run(session, &code).await
    }

    async fn value_of(&self, session: &str, program: &str) -> Value {
        let execution = self.run(&self.world.owner, session, program).await;
        assert_eq!(execution["status"], "succeeded", "{program}: {execution:#}");
        execution["value"].clone()
    }

    fn reached(&self, host: &str) -> Vec<Seen> {
        self.journal.lock().unwrap().iter().filter(|seen| seen.host == host).cloned().collect()
    }

    /// That the value has arrived in requests to this host, and in no other, nor its placeholder.
    fn only_at(&self, value: &str, host: &str) {
        let journal = self.journal.lock().unwrap();
        let at: Vec<&str> = journal.iter().filter(|it| it.has(value)).map(|it| it.host).collect();
        assert!(!at.is_empty() && at.iter().all(|it| *it == host), "{value} arrived at {at:?}");
        let placeholders = journal.iter().filter(|it| it.has(PLACEHOLDER));
        assert_eq!(placeholders.map(|it| it.host).collect::<Vec<_>>(), [""; 0]);
    }
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/server/clients")
}

/// Once for all; it is kept between runs, as those that ship are.
fn build_environment() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let definition = here().join("clients.toml");
        let build = harness::belljar(&["env", "build", definition.to_str().unwrap()]).output();
        let build = build.unwrap();
        assert!(build.status.success(), "{}", harness::stderr(&build));
    });
}

fn resolved(host: &Host) -> String {
    format!("{}=127.0.0.1", host.name)
}

fn hosts(vouching: &Vouching, journal: &Journal, files: &Path) -> Vec<Host> {
    let repository = repository(files);
    let site = move || -> Answer {
        let repository = repository.clone();
        Box::new(move |seen, line| answers::site(&repository, seen, line))
    };
    let answers: [(&str, Answer); 12] = [
        ("openai.test", Box::new(answers::openai)),
        ("anthropic.test", Box::new(answers::anthropic)),
        ("gemini.test", Box::new(answers::gemini)),
        ("groq.test", Box::new(answers::groq)),
        ("cohere.test", Box::new(answers::cohere)),
        ("mistral.test", Box::new(answers::mistral)),
        ("together.test", Box::new(answers::together)),
        ("cognite.test", Box::new(answers::cognite)),
        ("shop.test", Box::new(answers::shop)),
        ("site.test", site()),
        ("other.test", site()),
        ("closed.test", site()),
    ];
    let start = |(name, answer)| Host::start(name, vouching.for_host(name), journal, answer);
    let mut hosts: Vec<Host> = answers.into_iter().map(start).collect();
    let (expired, lapsed) = ("expired.test", "lapsed.test");
    hosts.push(Host::start(expired, vouching.long_ago(expired), journal, site()));
    hosts.push(Host::start(lapsed, vouching.long_ago(lapsed), journal, site()));
    hosts
}

/// With one commit, and the files by which it can be read as files.
fn repository(files: &Path) -> PathBuf {
    let (work, bare) = (files.join("work"), files.join("repository.git"));
    let git = |words: &[&str]| {
        let who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"];
        let ran = Command::new("git").args(who).args(words).output().unwrap();
        assert!(ran.status.success(), "{words:?}: {}", harness::stderr(&ran));
    };
    let (work, there) = (work.to_str().unwrap(), bare.to_str().unwrap());
    git(&["init", "--quiet", work]);
    std::fs::write(Path::new(work).join("readme.txt"), "cloned").unwrap();
    git(&["-C", work, "add", "readme.txt"]);
    git(&["-C", work, "commit", "--quiet", "-m", "first"]);
    git(&["clone", "--quiet", "--bare", work, there]);
    git(&["-C", there, "update-server-info"]);
    bare
}

async fn session(who: &Api, environment: &str, integrations: Value) -> String {
    let asked = json!({"environment": environment, "integrations": integrations});
    who.post("/v1/sessions", asked).await["sandbox_id"].as_str().unwrap().to_owned()
}

// proves W-037, W-038, W-040, W-043
#[tokio::test(flavor = "multi_thread")]
async fn clients_of_model_providers_are_ready_and_their_keys_arrive_at_the_provider_alone() {
    let setting = Setting::new().await;
    let owner = &setting.world.owner;
    setting.client_secret(owner, "openai", OPENAI, "openai.test").await;
    setting.client_secret(owner, "anthropic", ANTHROPIC, "anthropic.test").await;
    setting.client_secret(owner, "gemini", GEMINI, "gemini.test").await;
    let here = session(owner, "clients", json!(["machine"])).await;
    let execution = setting.run(owner, &here, "models.py").await;
    assert_eq!(execution["status"], "succeeded", "{execution:#}");
    let said = &execution["value"];
    for provider in ["openai", "anthropic", "gemini"] {
        let expected = json!(format!("from {provider}"));
        for way in ["global", "attribute", "own"] {
            assert_eq!(said[provider][way], expected, "{provider} {way}: {said}");
        }
    }
    for provider in ["openai", "anthropic"] {
        assert_eq!(said[provider]["streamed"], json!(["from ", provider]), "{said}");
        // What was said first was heard before the rest was said.
        let seconds = said[provider]["seconds"].as_f64().unwrap();
        assert!(seconds > answers::PAUSE.as_secs_f64() / 2.0, "{seconds}");
    }
    for attempt in execution["network"].as_array().unwrap() {
        assert!(attempt["integration"].as_str().unwrap().starts_with("secret:"), "{attempt}");
    }
    for (host, header, value) in [
        ("openai.test", "authorization", format!("Bearer {OPENAI}")),
        ("anthropic.test", "authorization", format!("Bearer {ANTHROPIC}")),
        ("gemini.test", "x-goog-api-key", GEMINI.to_owned()),
    ] {
        let reached = setting.reached(host);
        assert!(reached.iter().all(|seen| seen.header(header) == value), "{reached:?}");
    }
    for (value, host) in
        [(OPENAI, "openai.test"), (ANTHROPIC, "anthropic.test"), (GEMINI, "gemini.test")]
    {
        setting.only_at(value, host);
    }

    // Who may not use the secrets has neither variables nor clients, and the rest of a script runs.
    let bob = setting.world.principal("bob", &["USAGE"]).await;
    let session = bob.session().await;
    let response = setting.run(&bob, &session, "unconfigured.py").await;
    assert_eq!(response["status"], "succeeded", "{response:#}");
    assert_eq!(
        response["value"],
        json!({
            "variables": [],
            "openai": "OpenAI is not configured for this deployment",
            "anthropic": "Anthropic is not configured for this deployment",
            "gemini": "Gemini is not configured for this deployment",
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn common_clients_reach_what_is_open_as_they_are_and_are_told_at_once_what_is_not() {
    let setting = Setting::new().await;
    let session = session(&setting.world.owner, "clients", json!(["machine", "sites"])).await;
    let response = setting.value_of(&session, "ordinary.py").await;
    let response = response.as_object().unwrap();
    assert_eq!(response.len(), 10);
    for (way, outcome) in response {
        let expected = match way.as_str() {
            "of_boto3" => json!(["report.csv"]),
            "of_git" => json!("cloned"),
            _ => json!("here"),
        };
        assert_eq!(outcome["site"], expected, "{way}: {outcome}");
        let said = outcome["denied"].as_str().unwrap_or_else(|| panic!("{way}: {outcome}"));
        assert!(outcome["seconds"].as_f64().unwrap() < 2.0, "{way}: {outcome}");
        // git tells a status and no words.
        assert!(
            said.contains("closed.test") && said.contains("integration") || way == "of_git",
            "{way}: {said}"
        );
    }
    assert_eq!(setting.host("closed.test").knocks(), 0);
    let reached = setting.reached("site.test");
    assert!(reached.iter().any(|it| it.header("authorization").starts_with("AWS4-HMAC-SHA256")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_with_a_secret_arrives_at_its_host_and_never_comes_back() {
    let setting = Setting::new().await;
    let owner = &setting.world.owner;
    setting.header_secret("shop.test").await;
    let session = session(owner, "clients", json!(["machine", "sites"])).await;
    let heard = setting.value_of(&session, "shop.py").await;
    let covered = "*".repeat(SHOP.len());
    assert_eq!((&heard[0], &heard[1]), (&json!(covered), &json!(covered)), "{heard}");
    let reached = setting.reached("shop.test");
    assert_eq!(reached.len(), 3);
    assert!(reached.iter().all(|seen| seen.header("x-api-key") == SHOP), "{reached:?}");
    setting.only_at(SHOP, "shop.test");

    // Elsewhere code can send what it has, which is worth nothing.
    let send = format!(
        "import os, requests\nrequests.get({:?}, headers={{'X-Api-Key': os.environ['SHOP_KEY']}}).text",
        setting.host("site.test").url()
    );
    let execution = owner.run(&session, &send).await;
    assert_eq!(execution["value"], "here", "{execution}");
    let reached = setting.reached("site.test");
    assert!(reached[0].header("x-api-key").starts_with(PLACEHOLDER), "{reached:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_lie_hang_or_send_elsewhere_end_in_clear_errors_and_get_no_credential() {
    let setting = Setting::new().await;
    setting.header_secret("shop.test").await;
    setting.header_secret("lapsed.test").await;
    let session = session(&setting.world.owner, "clients", json!(["machine", "sites"])).await;
    let response = setting.value_of(&session, "troubles.py").await;
    for client in ["with_requests", "with_httpx"] {
        let outcome = |name: &str| {
            let outcome = &response[format!("{name}, {client}")];
            assert!(outcome["seconds"].as_f64().unwrap() < 4.0, "{name}: {outcome}");
            outcome
        };
        let error = |name: &str, words: &[&str]| {
            let outcome = outcome(name);
            let said = outcome["error"].as_str().unwrap_or_else(|| panic!("{name}: {outcome}"));
            assert!(words.iter().any(|word| said.contains(word)), "{name}: {said}");
        };
        error("expired", &["certificate has expired"]);
        let lapsed = outcome("lapsed");
        assert_eq!(lapsed["status"], 502, "{lapsed}");
        let words = "is not trusted: its certificate has expired";
        assert!(lapsed["text"].as_str().unwrap().contains(words), "{lapsed}");
        for host in ["site", "shop"] {
            error(&format!("silence of a {host}"), &["Timeout", "timed out"]);
            error(&format!("short of a {host}"), &["Incomplete", "peer closed", "RemoteProtocol"]);
            assert_eq!(outcome(&format!("long of a {host}"))["text"], "here");
        }
        assert_eq!(outcome("redirect to other")["text"], "here");
        error("redirect to closed", &["closed.test"]);
        error("redirect to loopback", &["refused", "127.0.0.1"]);
        let metadata = outcome("redirect to metadata");
        assert!(metadata.to_string().contains("169.254.169.254"), "{metadata}");
        let plain = outcome("redirect to plain");
        assert_eq!(plain["status"], 403, "{plain}");
        assert!(plain["text"].as_str().unwrap().contains("only over https"), "{plain}");
    }
    let plain = setting.reached("shop.test").into_iter().find(|it| it.path == "/plain");
    assert!(plain.is_none(), "{plain:?}");
    for host in ["lapsed.test", "expired.test", "closed.test"] {
        assert_eq!(setting.reached(host).len(), 0, "{host}");
    }
    assert_eq!(setting.host("closed.test").knocks(), 0);
    let journal = setting.journal.lock().unwrap();
    let at: Vec<&str> = journal.iter().filter(|it| it.has(SHOP)).map(|it| it.host).collect();
    assert!(at.iter().all(|host| *host == "shop.test"), "{at:?}");
    assert!(!response.to_string().contains(SHOP));
}

/// A principal who may call the tool, and acts with this token if there is one.
async fn caller(
    setting: &Setting,
    name: &str,
    tool: &Value,
    token: Option<&str>,
) -> (Person, Value) {
    let (world, person) = (&setting.world, Person::new(&setting.world, name).await);
    let integrations = world.owner.get("/v1/integrations").await;
    let integrations = integrations["items"].as_array().unwrap().iter();
    let named =
        |name: &str| on("integration", integrations.clone().find(|it| it["name"] == name).unwrap());
    let objects =
        [workspace(&world.owner).await, named("machine"), named("platform"), on("tool", tool)];
    for object in objects {
        grant(&world.owner, &person.id, "USAGE", &object).await;
    }
    if let Some(token) = token {
        setting.client_secret(&person, "cognite", token, "cognite.test").await;
    }
    let session = session(&person, "atlas", json!(["machine"])).await;
    let call = json!({"arguments": {}, "sandbox_id": session});
    let called = person.post(&format!("/v1/tools/{}/call", id(tool)), call).await;
    (person, called)
}

// proves C-116 to C-121
#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_platform_needs_no_arguments_and_acts_as_the_caller() {
    let setting = Setting::new().await;
    let code = std::fs::read_to_string(here().join("assets.py")).unwrap();
    let tool = json!({"type": "runPythonCode", "name": "assets", "description": "Lists assets.",
        "environment": "atlas", "configuration": {"pythonCode": code}});
    let tool = setting.world.owner.post("/v1/tools", tool).await;
    let mut records = vec![tool.clone()];
    for who in ["ann", "bob"] {
        let token = format!("cdf-token-of-{who}");
        let (_, called) = caller(&setting, who, &tool, Some(&token)).await;
        let asset = &called["value"];
        assert_eq!(asset["external_id"], format!("pump-of-{who}"), "{called:#}");
        assert_eq!(asset["name"], format!("Pump of {who}"));
        assert_eq!(asset["description"], "It pumps.");
        assert_eq!(asset["dump"]["externalId"], format!("pump-of-{who}"));
        records.push(called);
    }
    let reached = setting.reached("cognite.test");
    let tokens = reached.iter().map(|it| it.header("authorization"));
    let expected = ["Bearer cdf-token-of-ann", "Bearer cdf-token-of-bob"];
    assert_eq!(tokens.collect::<Vec<_>>(), expected);
    for request in &reached {
        assert_eq!(request.path, "/api/v1/projects/mine/models/instances/list");
    }

    let (_, none) = caller(&setting, "eve", &tool, Some("cdf-token-of-eve")).await;
    assert_eq!(none["value"], json!({"error": "No assets found"}), "{none:#}");
    let (_, expired) = caller(&setting, "old", &tool, Some("cdf-token-of-old")).await;
    let said = expired["error"].to_string();
    assert!(said.contains("The token may have expired or it was invalid"), "{said}");
    let (_, absent) = caller(&setting, "zoe", &tool, None).await;
    let said = absent["error"].to_string();
    assert!(
        said.contains("CogniteAuthError") && said.contains("no secret for the client"),
        "{said}"
    );
    let known = |it: &Seen| it.header("authorization").starts_with("Bearer cdf-token-of-");
    assert!(setting.reached("cognite.test").iter().all(known));

    records.extend([none, expired, absent, json!(setting.world.log())]);
    let all = format!("{records:?}");
    assert!(!all.contains("cdf-token-of"), "a token was told");
    for request in setting.reached("cognite.test") {
        assert!(!request.has(PLACEHOLDER));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_with_a_client_argument_gets_one_that_acts_as_the_caller() {
    let setting = Setting::with(&["--environment", "atlas"]).await;
    let owner = &setting.world.owner;
    setting.client_secret(owner, "cognite", "cdf-token-of-ann", "cognite.test").await;
    let handler = "from cognite.client.data_classes.data_modeling.cdm.v1 import CogniteAsset\n\n\
                   def handle(client, data):\n    \
                   found = client.data_modeling.instances.list(sources=[CogniteAsset.get_source()])\n    \
                   return [data['ask'], found[0].external_id]\n";
    let files = json!([
        {"name": "handler.py", "text": handler},
        {"name": "function.toml", "text": "name = \"assets\"\nintegrations = [\"machine\"]\n"},
    ]);
    let function = owner.post("/v1/functions", json!({"name": "assets", "files": files})).await;
    let path = format!("/v1/functions/{}", id(&function));
    let call = owner.post(&format!("{path}/call"), json!({"data": {"ask": "which"}})).await;
    let call_path = format!("{path}/calls/{}", id(&call));
    let is_over = async || owner.get(&call_path).await["status"] != "Running";
    wait::until("the call has ended", is_over).await;
    let response = owner.call("GET", &format!("{call_path}/response"), None).await.1;
    assert_eq!(response["response"], json!(["which", "pump-of-ann"]), "{response}");
    let reached = setting.reached("cognite.test");
    assert_eq!(reached[0].header("authorization"), "Bearer cdf-token-of-ann");
}

// proves C-132, C-133
#[tokio::test(flavor = "multi_thread")]
async fn code_reaches_the_platform_and_is_told_that_every_other_host_is_closed_in_one_run() {
    let setting = Setting::new().await;
    let ann = Person::new(&setting.world, "ann").await;
    let integrations = setting.world.owner.get("/v1/integrations").await;
    for integration in integrations["items"].as_array().unwrap() {
        if ["machine", "platform"].iter().any(|name| integration["name"] == *name) {
            let object = on("integration", integration);
            grant(&setting.world.owner, &ann.id, "USAGE", &object).await;
        }
    }
    grant(&setting.world.owner, &ann.id, "USAGE", &workspace(&setting.world.owner).await).await;
    setting.client_secret(&ann, "cognite", "cdf-token-of-ann", "cognite.test").await;
    let session = session(&ann, "atlas", json!(["machine"])).await;
    let run = setting.run(&ann, &session, "only_the_platform.py").await;
    let (found, refused) = (&run["value"][0], &run["value"][1]);
    assert_eq!(found, "pump-of-ann", "{run:#}");
    let refused = refused.as_object().unwrap();
    assert_eq!(refused.len(), 3, "{run:#}");
    for (host, said) in refused {
        let expected = format!("{host} is not allowed by any integration of this session");
        assert!(said.as_str().unwrap().contains(&expected), "{host}: {said}");
    }
    for host in ["site.test", "other.test"] {
        assert!(setting.reached(host).is_empty(), "{host}");
    }
}
