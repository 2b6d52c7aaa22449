//! A server with a scripted model, and requests to both.

use crate::harness::wait;
use crate::model::{ModelServer, Request};
use crate::test_server::{Api, World};
use reqwest::multipart::{Form, Part};
use reqwest::{Method, Response};
use serde_json::{Value, json};

pub(crate) const CODE: &str = "/v1/code_execution";
/// A tool section that lets an agent run code.
pub(crate) const RUNS_CODE: &str = "tools:\n  - tool_spec:\n      type: code_execution\n      \
                                    name: code_execution\ntool_resources:\n  code_execution:\n";

pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) model: ModelServer,
}

impl Scene {
    pub(crate) async fn play(turns: Value) -> Self {
        Self::with(turns, &[]).await
    }

    pub(crate) async fn with(turns: Value, options: &[&str]) -> Self {
        Self::of("openai/gpt-test", turns, options).await
    }

    /// With this model as the server's default.
    pub(crate) async fn of(name: &str, turns: Value, options: &[&str]) -> Self {
        let model = ModelServer::start(&turns.to_string());
        let (openai, anthropic) = (model.url(), model.host());
        let variables = [
            "OPENAI_API_KEY=sk-test".to_owned(),
            format!("OPENAI_BASE_URL={openai}"),
            "ANTHROPIC_API_KEY=sk-ant-test".to_owned(),
            format!("ANTHROPIC_BASE_URL={anthropic}"),
            format!("BELLJAR_MODEL={name}"),
        ];
        let program: Vec<&str> =
            ["env"].into_iter().chain(variables.iter().map(String::as_str)).collect();
        Self { world: World::under(&program, options).await, model }
    }

    pub(crate) fn owner(&self) -> &Api {
        &self.world.owner
    }

    /// What the provider was asked, request by request.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.model.requests().into_iter().map(|Request { body, .. }| body).collect()
    }

    /// Everything that stands in one of these requests.
    pub(crate) fn messages(&self, request: usize) -> String {
        texts(&self.asked()[request])
    }

    /// Waits until the provider was asked so often.
    pub(crate) async fn asked_times(&self, times: usize) {
        let what = format!("the provider was asked {times} times");
        wait::until(&what, async || self.model.requests().len() >= times).await;
    }

    /// Waits until code of the model runs.
    pub(crate) async fn runs_code(&self) {
        let is_code = |run: &Value| run["entry"] == "cell";
        let runs = async || {
            let running = self.owner().get("/v1/executions?status=running").await;
            running["items"].as_array().unwrap().iter().any(is_code)
        };
        wait::until("its code runs", runs).await;
    }

    pub(crate) async fn code(&self, request: Value) -> Value {
        self.owner().post(CODE, request).await
    }

    pub(crate) async fn request(&self, request: &str) -> Value {
        self.code(json!({ "request": request })).await
    }

    /// Goes on in a session.
    pub(crate) async fn go_on(&self, before: &Value, request: &str) -> Value {
        let asked = json!({"request": request, "sandbox_id": before["sandbox_id"]});
        self.code(asked).await
    }

    pub(crate) async fn agent(&self, specification: impl Into<Value>) -> String {
        agent(self.owner(), "helper", specification).await
    }

    /// A principal who may use this agent.
    pub(crate) async fn friend(&self, name: &str, agent: &str) -> Api {
        let friend = self.world.principal(name, &["USAGE"]).await;
        let me = friend.get("/v1/principals/me").await["id"].clone();
        let object = json!({"kind": "agent", "id": agent.rsplit('/').next()});
        let grant = json!({"principal": me, "privilege": "USAGE", "object": object});
        self.owner().post("/v1/grants", grant).await;
        friend
    }

    /// An execution when it is over.
    pub(crate) async fn settled(&self, path: &str) -> Value {
        settled(self.owner(), path).await
    }
}

pub(crate) async fn agent(api: &Api, name: &str, specification: impl Into<Value>) -> String {
    let agent = json!({"name": name, "specification": specification.into()});
    format!("/v1/agents/{}", text(&api.post("/v1/agents", agent).await["id"]))
}

pub(crate) async fn chat(api: &Api, agent: &str, request: Value) -> Value {
    api.post(&format!("{agent}/run"), request).await
}

pub(crate) async fn say_to(api: &Api, agent: &str, message: &str) -> Value {
    chat(api, agent, json!({ "message": message })).await
}

pub(crate) async fn settled(api: &Api, path: &str) -> Value {
    let settled = async || {
        let now = api.get(path).await;
        let unsettled = ["waiting_approval", "queued", "running"];
        (!unsettled.contains(&now["status"].as_str().unwrap())).then_some(now)
    };
    wait::until_some("the run has ended", settled).await
}

/// Begins it without waiting; the path of its record.
pub(crate) async fn begin(api: &Api, path: &str, body: Value) -> String {
    let request = api.request(Method::POST, path).header("prefer", "respond-async");
    let request = request.header("content-type", "application/json").body(body.to_string());
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 202);
    answer.headers()["location"].to_str().unwrap().to_owned()
}

/// Hears it as it goes on.
pub(crate) async fn stream(api: &Api, path: &str, body: Value) -> Response {
    let request = api.request(Method::POST, path).header("accept", "text/event-stream");
    let request = request.header("content-type", "application/json").body(body.to_string());
    request.send().await.unwrap()
}

pub(crate) async fn upload(api: &Api, name: &str, content: &[u8]) -> Value {
    let part = Part::bytes(content.to_vec()).file_name(name.to_owned());
    let form = Form::new().part("file", part);
    let sent = api.request(Method::POST, "/v1/documents").multipart(form).send().await.unwrap();
    let kept: Value = serde_json::from_slice(&sent.bytes().await.unwrap()).unwrap();
    kept["items"][0]["id"].clone()
}

/// Status, MIME type and bytes.
pub(crate) async fn download(api: &Api, url: &Value) -> (u16, String, Vec<u8>) {
    let url = text(url);
    let path = url.strip_prefix(&api.address).unwrap_or(&url);
    let answer = api.request(Method::GET, path).send().await.unwrap();
    let status = answer.status().as_u16();
    let kind = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
    (status, kind.unwrap_or_default(), answer.bytes().await.unwrap().to_vec())
}

pub(crate) fn plan(steps: &[&str]) -> Value {
    call("plan", json!({ "steps": steps }))
}

pub(crate) fn code(code: &str) -> Value {
    call("run_python", json!({ "code": code }))
}

/// Code as an agent runs it.
pub(crate) fn agent_code(code: &str) -> Value {
    call("code_execution", json!({ "code": code }))
}

pub(crate) fn say(text: &str) -> Value {
    json!({ "say": text })
}

pub(crate) fn call(name: &str, arguments: Value) -> Value {
    calls(&[(name, arguments)])
}

pub(crate) fn calls(calls: &[(&str, Value)]) -> Value {
    let calls = calls.iter().map(|(name, arguments)| json!({"name": name, "arguments": arguments}));
    json!({ "calls": calls.collect::<Vec<_>>() })
}

/// The names of the tools that a model was offered.
pub(crate) fn offered(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.map(|tool| text(&tool["function"]["name"])).collect()
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// Every text in a value, without the escapes of JSON.
pub(crate) fn texts(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text}\n"),
        Value::Array(list) => list.iter().map(texts).collect(),
        Value::Object(map) => map.values().map(texts).collect(),
        _ => String::new(),
    }
}
