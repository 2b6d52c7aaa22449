//! The client of a platform in an agent's run, with the access token with which the caller has called the server.
//! The platform is a host on this machine, which shows each caller what the token is for.

use super::{Setting, answers, here};
use crate::issuer::{Issuer, SigningKey};
use crate::principals::{Person, grant, id, on, refused, workspace};
use crate::test_server::{Api, World};
use crate::variables::files_with;
use serde_json::{Value, json};
use std::io::Write;

/// Acts as the caller, and tells what it has of the token.
const CODE: &str = r#"
import os, urllib.request
from cognite.client import CogniteClient
from cognite.client.data_classes.data_modeling.cdm.v1 import CogniteAsset

found = CogniteClient().data_modeling.instances.list(sources=[CogniteAsset.get_source()])
echo = urllib.request.Request(os.environ["COGNITE_BASE_URL"] + "/echo")
echo.add_header("Authorization", "Bearer " + os.environ["COGNITE_TOKEN"])
print(found[0].external_id, urllib.request.urlopen(echo).read(), dict(os.environ))
"#;
/// Calls the platform until it is told that it cannot.
const UNTIL_REFUSED: &str = r#"
import time
from cognite.client import CogniteClient
from cognite.client.data_classes.data_modeling.cdm.v1 import CogniteAsset

client, said = CogniteClient(), None
while said is None:
    try:
        client.data_modeling.instances.list(sources=[CogniteAsset.get_source()])
        time.sleep(0.2)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
said
"#;
const KNOWN: &str = "external_access_integrations: [cdf, machine]";

/// A server that passes tokens on to the platform, an agent, and those who may use it.
struct Platform {
    setting: Setting,
    issuer: Issuer,
    key: SigningKey,
    agent: String,
    tool: Value,
    _script: tempfile::NamedTempFile,
}

fn specification() -> String {
    format!(
        "tools:\n  - tool_spec: {{type: code_execution, name: code_execution}}\n\
         tool_resources:\n  code_execution:\n    environment: atlas\n    {KNOWN}\n"
    )
}

impl Platform {
    async fn start() -> Self {
        let key = SigningKey::ed("first");
        let issuer = Issuer::with(&[&key]).await;
        let turns = json!([
            {"calls": [{"name": "assets", "arguments": {}}]},
            {"calls": [{"name": "code_execution", "arguments": {"code": CODE}}]},
            {"say": "There is a pump."},
        ]);
        let mut script = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        script.write_all(turns.to_string().as_bytes()).unwrap();
        let model = format!("script:{}", script.path().display());
        let address = issuer.address.clone();
        let setting = Setting::with_options(|hosts| {
            let platform = hosts.iter().find(|host| host.name == "cognite.test").unwrap().url();
            let passed = format!("{platform}={}", answers::AUDIENCE);
            let options =
                ["--oauth-issuer", &address, "--pass-caller-token", &passed, "--model", &model];
            options.map(str::to_owned).to_vec()
        })
        .await;
        let owner = &setting.world.owner;
        owner.post("/v1/integrations", marked("cdf")).await;
        let code = std::fs::read_to_string(here().join("assets.py")).unwrap();
        let tool = json!({"type": "runPythonCode", "name": "assets", "description": "Lists assets.",
            "environment": "atlas", "approval_action": "allow",
            "configuration": {"pythonCode": code, "integrations": ["cdf", "machine"]}});
        let tool = owner.post("/v1/tools", tool).await;
        let agent = json!({"name": "pumps", "specification": specification(), "run_as": "caller"});
        let agent = format!("/v1/agents/{}", id(&owner.post("/v1/agents", agent).await));
        owner.post(&format!("{agent}/tools/{}", id(&tool)), json!({})).await;
        Self { setting, issuer, key, agent, tool, _script: script }
    }

    fn world(&self) -> &World {
        &self.setting.world
    }

    /// A principal who may use the agent, its tool and its integrations.
    async fn person(&self, name: &str) -> Person {
        let owner = &self.world().owner;
        let new = json!({"name": name, "kind": "user", "external_id": name});
        let person = id(&owner.post("/v1/principals", new).await);
        let key = owner.post("/v1/keys", json!({"name": name, "principal": person})).await;
        let agent = owner.get(&self.agent).await;
        let integrations = owner.get("/v1/integrations").await;
        let named = |name: &str| {
            let all = integrations["items"].as_array().unwrap();
            on("integration", all.iter().find(|it| it["name"] == name).unwrap())
        };
        for object in [
            workspace(owner).await,
            named("cdf"),
            named("machine"),
            on("tool", &self.tool),
            on("agent", &agent),
        ] {
            grant(owner, &person, "USAGE", &object).await;
        }
        let api = self.world().api(key["secret"].as_str().unwrap());
        Person { id: person, key, api }
    }

    /// A token of this subject for the server, and for the platform if it says so.
    fn token(&self, subject: &str, audiences: &[&str], change: Value) -> String {
        let mut claims = self.issuer.claims(self.world().address(), subject);
        let here = claims["aud"].clone();
        claims["aud"] = [here].into_iter().chain(audiences.iter().map(|it| json!(it))).collect();
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        self.key.sign(&claims)
    }

    fn good_token(&self, subject: &str, serial: u64) -> String {
        let exp = chrono::Utc::now().timestamp() + 300 + i64::try_from(serial).unwrap();
        self.token(subject, &[answers::AUDIENCE], json!({"jti": serial, "exp": exp}))
    }

    /// What the tool and the code of the agent have found, as its model was told.
    async fn run(&self, who: &Api) -> [String; 2] {
        let done = who.post(&format!("{}/run", self.agent), json!({"message": "Pumps?"})).await;
        let reasoning = done["response"]["messages"][0]["reasoning"].as_array().unwrap();
        let results = reasoning.iter().map(|it| it["data"][0]["toolCall"]["result"].to_string());
        let results: Vec<String> = results.filter(|it| it != "null").collect();
        results.try_into().unwrap_or_else(|_| panic!("{done:#}"))
    }

    fn arrived(&self) -> Vec<String> {
        let reached = self.setting.reached("cognite.test");
        reached.iter().map(|seen| seen.header("authorization").to_owned()).collect()
    }
}

fn marked(name: &str) -> Value {
    json!({"name": name, "allowed_network_rules": [],
        "caller_token": {"client": "cognite", "project": "mine"}})
}

// proves C-176
#[tokio::test(flavor = "multi_thread")]
async fn t292_a_client_in_an_agents_run_acts_with_the_token_of_its_caller_and_never_has_it() {
    let platform = Platform::start().await;
    let mut told = Vec::new();
    for name in ["ann", "bob"] {
        platform.person(name).await;
        let token = platform.good_token(name, 1);
        let before = platform.arrived().len();
        let [tool, code] = platform.run(&platform.world().api(&token)).await;
        assert!(tool.contains(&format!("pump-of-{name}")), "{tool}");
        assert!(code.contains(&format!("pump-of-{name}")), "{code}");
        let arrived = &platform.arrived()[before..];
        assert_eq!(arrived, vec![format!("Bearer {token}"); 3], "tool, code and echo");
        assert!(code.contains("****") && code.contains("COGNITE_TOKEN': 'belljar-"), "{code}");
        let signature = token.rsplit('.').next().unwrap();
        assert!(!tool.contains(signature) && !code.contains(signature));
        assert!(!platform.world().log().contains(signature));
        assert_eq!(files_with(platform.world().data.path(), signature).len(), 0);
        told.push(token);
    }
    for token in told {
        platform.setting.only_at(&token, "cognite.test");
    }
    let network = platform.world().owner.get("/v1/network/log?host=cognite.test").await;
    let by: Vec<&Value> =
        network["items"].as_array().unwrap().iter().map(|it| &it["integration"]).collect();
    assert!(!by.is_empty() && by.iter().all(|it| **it == "cdf"), "{network}");
}

// proves C-177
#[tokio::test(flavor = "multi_thread")]
async fn t293_each_request_brings_the_newest_token_and_an_expired_one_ends_in_a_clear_error() {
    let platform = Platform::start().await;
    let ann = platform.person("ann").await;
    let (first, second) = (platform.good_token("ann", 1), platform.good_token("ann", 2));
    platform.run(&platform.world().api(&first)).await;
    let before = platform.arrived().len();
    platform.run(&platform.world().api(&second)).await;
    assert_eq!(platform.arrived()[before..], vec![format!("Bearer {second}"); 3]);

    // Code that runs longer than its token: the server accepts a token for 30 seconds after its end.
    platform.person("dan").await;
    let exp = chrono::Utc::now().timestamp() - 20;
    let short = platform.token("dan", &[answers::AUDIENCE], json!({"exp": exp}));
    let call = json!({"code": UNTIL_REFUSED, "environment": "atlas",
        "integrations": ["cdf", "machine"]});
    let ran = platform.world().api(&short).post("/v1/execute", call.clone()).await;
    let said = ran["value"].as_str().unwrap_or_else(|| panic!("{ran:#}")).to_owned();
    assert!(said.contains("the access token of the caller has expired"), "{said}");
    assert!(said.contains("send a new request with a new access token"), "{said}");
    let denied =
        |it: &Value| it["allowed"] == false && it["reason"].to_string().contains("expired");
    assert!(ran["network"].as_array().unwrap().iter().any(denied), "{ran:#}");
    // And with the next one it works again.
    let again = platform.good_token("dan", 3);
    let [_, code] = platform.run(&platform.world().api(&again)).await;
    assert!(code.contains("pump-of-dan"), "{code}");

    // A secret of the caller for the same client comes first, as before.
    let owner = &platform.world().owner;
    let integrations = owner.get("/v1/integrations").await;
    let all = integrations["items"].as_array().unwrap();
    let open = all.iter().find(|it| it["name"] == "platform").unwrap();
    grant(owner, &ann.id, "USAGE", &on("integration", open)).await;
    platform.setting.client_secret(&ann, "cognite", "cdf-token-of-ann", "cognite.test").await;
    let before = platform.arrived().len();
    platform.run(&platform.world().api(&second)).await;
    assert_eq!(platform.arrived()[before..], vec!["Bearer cdf-token-of-ann"; 3]);
}

// proves C-178
#[tokio::test(flavor = "multi_thread")]
async fn t294_a_token_is_passed_on_only_if_operator_owner_author_and_caller_agree() {
    let platform = Platform::start().await;
    let (world, owner) = (platform.world(), &platform.world().owner);
    let ann = platform.person("ann").await;
    let token = platform.good_token("ann", 1);
    let with_token = world.api(&token);
    assert!(platform.run(&with_token).await[1].contains("pump-of-ann"), "the harmless twin");
    let arrived = platform.arrived().len();

    // With an API key there is no token, although the principal has presented one before.
    let [tool, code] = platform.run(&ann).await;
    for said in [tool, code] {
        assert!(said.contains("not requested with an access token"), "{said}");
    }
    // The issuer has not meant the token for the platform.
    platform.person("carl").await;
    let narrow = platform.token("carl", &[], json!({}));
    let [tool, _] = platform.run(&world.api(&narrow)).await;
    assert!(tool.contains("is not for this service"), "{tool}");
    // The agent runs with the rights of its owner and not with those of its caller.
    let borrowed = json!({"name": "borrowed", "specification": specification(), "run_as": "owner"});
    let borrowed = owner.post("/v1/agents", borrowed).await;
    grant(owner, &ann.id, "USAGE", &on("agent", &borrowed)).await;
    let session = json!({"agent_id": borrowed["id"]});
    let session = with_token.post("/v1/sessions", session).await;
    let ran = with_token.run(session["sandbox_id"].as_str().unwrap(), CODE).await;
    assert!(ran["error"].to_string().contains("Cognite is not configured"), "{ran:#}");
    // Another principal cannot use the session of ann, not even an owner of the workspace.
    let own = json!({"environment": "atlas", "integrations": ["cdf", "machine"]});
    let own = with_token.post("/v1/sessions", own).await;
    let own = own["sandbox_id"].as_str().unwrap();
    let path = format!("/v1/sessions/{own}/execute");
    let why = refused(owner, "POST", &path, Some(json!({"code": CODE})), (403, "grant.missing"));
    assert!(why.await.contains("access token of its owner"));
    assert_eq!(platform.arrived().len(), arrived, "nothing was sent meanwhile");
    assert_eq!(with_token.run(own, CODE).await["status"], "succeeded");

    // Neither caller nor author has it without USAGE on the integration.
    let without = Person::new(world, "mallory").await;
    for privilege in ["USAGE", "MODIFY"] {
        grant(owner, &without.id, privilege, &workspace(owner).await).await;
    }
    let code = json!({"code": "1", "integrations": ["cdf"]});
    let (status, _) = without.refused("POST", "/v1/execute", Some(code)).await;
    assert!([400, 403].contains(&status), "{status}");
    let one = "def handle() -> int:\n    \"\"\"Returns one.\"\"\"\n    return 1\n";
    let tool = json!({"type": "runPythonCode", "name": "stolen", "description": "Lists the assets.",
        "configuration": {"pythonCode": one, "integrations": ["cdf"]}});
    let (status, problem) = without.call("POST", "/v1/tools", Some(tool)).await;
    assert_eq!(status, 422, "{problem}");
    assert!(problem.to_string().contains("cdf"), "{problem}");
    // Only an owner of the workspace marks an integration.
    let (status, code) = without.refused("POST", "/v1/integrations", Some(marked("mine"))).await;
    assert_eq!((status, code.as_str()), (403, "grant.missing"));
    let plain = json!({"name": "mine", "allowed_network_rules": []});
    let plain = without.post("/v1/integrations", plain).await;
    let path = format!("/v1/integrations/{}", id(&plain));
    let mark = json!({"caller_token": {"client": "cognite", "project": "mine"}});
    let (status, code) = without.refused("PATCH", &path, Some(mark)).await;
    assert_eq!((status, code.as_str()), (403, "grant.missing"));
    // And only if the operator passes tokens on at all.
    let other = World::start().await;
    let (status, problem) = other.owner.call("POST", "/v1/integrations", Some(marked("cdf"))).await;
    assert_eq!(status, 400, "{problem}");
    assert!(problem["detail"].to_string().contains("--pass-caller-token"), "{problem}");
    // What is disabled passes nothing on.
    let integrations = owner.get("/v1/integrations").await;
    let all = integrations["items"].as_array().unwrap();
    let cdf = id(all.iter().find(|it| it["name"] == "cdf").unwrap());
    let off = Some(json!({"enabled": false}));
    assert_eq!(owner.call("PATCH", &format!("/v1/integrations/{cdf}"), off).await.0, 200);
    let arrived = platform.arrived().len();
    let read = "import os, urllib.request\nurllib.request.urlopen(os.environ['COGNITE_BASE_URL'])";
    assert_eq!(with_token.run(own, read).await["status"], "failed");
    assert_eq!(platform.arrived().len(), arrived);
}

// proves C-179
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_selected_by_its_external_id() {
    let platform = Platform::start().await;
    let ann = platform.person("ann").await;
    let message = |name: &str| json!({"agentExternalId": name, "message": "Pumps?"});
    let done = ann.post("/v1/agents/run", message("pumps")).await;
    assert_eq!(
        (&done["answer"], &done["agentExternalId"]),
        (&json!("There is a pump."), &json!("pumps"))
    );
    let error = ann.refused("POST", "/v1/agents/run", Some(message("valves"))).await;
    assert_eq!(error, (404, "object.not_found".to_owned()));
    let nameless = Some(json!({"message": "Pumps?"}));
    let (status, problem) = ann.call("POST", "/v1/agents/run", nameless).await;
    assert_eq!(status, 400);
    assert!(problem.to_string().contains("agentExternalId"), "{problem}");
    // Who may not see it is not told that it exists.
    let eve = Person::new(platform.world(), "eve").await;
    grant(&platform.world().owner, &eve.id, "USAGE", &workspace(&platform.world().owner).await)
        .await;
    let error = eve.refused("POST", "/v1/agents/run", Some(message("pumps"))).await;
    assert_eq!(error, (404, "object.not_found".to_owned()));
}
