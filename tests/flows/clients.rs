//! Network clients that people use, and the clients of model providers, with and without an integration.

use crate::egress::Beyond;
use crate::harness::{self, printed, run_with};
use engine::{Command, Config, Engine, SandboxGrants};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;
use types::{ExecutionStatus, OutputStream};

/// Those that read proxy variables and those that do not. With aiodns, aiohttp would rather ask a
/// name server.
const PACKAGES: &str = "aiodns\naiohttp\nhttpx\nrequests\ntrio\nurllib3\nwebsockets\n";

fn environment() -> TempDir {
    let data = harness::own_data();
    let file = data.path().join("clients.txt");
    std::fs::write(&file, PACKAGES).unwrap();
    let built = harness::belljar(&["env", "build"])
        .arg(file)
        .env("BELLJAR_DATA", data.path())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", harness::stderr(&built));
    data
}

fn config(data: &Path) -> Config {
    Config { data: data.into(), ..harness::config() }
}

/// Every client, each as `name: function(host)`.
const CLIENTS: &str = r#"
import asyncio, json, os, socket, time, urllib.request
import aiohttp, httpx, requests, trio, urllib3, websockets, websockets.sync.client

def of_socket(host):
    with socket.create_connection((host, 80)) as there:
        there.sendall(f"GET / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        return b"".join(iter(lambda: there.recv(100), b"")).partition(b"\r\n\r\n")[2].decode()

def of_asyncio(host):
    async def ask():
        reader, writer = await asyncio.open_connection(host, 80)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        return (await reader.read()).partition(b"\r\n\r\n")[2].decode()
    return asyncio.run(ask())

def of_aiohttp(host, **options):
    async def ask():
        async with aiohttp.ClientSession(**options) as session, session.get(f"http://{host}/") as answer:
            answer.raise_for_status()
            return await answer.text()
    return asyncio.run(ask())

def of_httpx(host, **options):
    return httpx.Client(**options).get(f"http://{host}/").raise_for_status().text

def of_async_httpx(host, **options):
    async def ask():
        async with httpx.AsyncClient(**options) as client:
            return (await client.get(f"http://{host}/")).raise_for_status().text
    return asyncio.run(ask())

def of_requests(host):
    answer = requests.get(f"http://{host}/")
    answer.raise_for_status()
    return answer.text

def without_variables(host):
    session = requests.Session()
    session.trust_env = False
    return session.get(f"http://{host}/").text

def of_trio(host):
    async def ask():
        stream = await trio.open_tcp_stream(host, 80)
        await stream.send_all(b"GET / HTTP/1.0\r\n\r\n")
        return b"".join([part async for part in stream]).partition(b"\r\n\r\n")[2].decode()
    return trio.run(ask)

def of_websockets(host):
    with websockets.sync.client.connect(f"ws://{host}/") as there:
        return there.recv()

def of_async_websockets(host, **options):
    async def ask():
        async with websockets.connect(f"ws://{host}/", **options) as there:
            return await there.recv()
    return asyncio.run(ask())

clients = {
    "socket": of_socket,
    "asyncio": of_asyncio,
    "urllib": lambda host: urllib.request.urlopen(f"http://{host}/").read().decode(),
    "urllib3": lambda host: urllib3.request("GET", f"http://{host}/", retries=False).data.decode(),
    "requests": of_requests,
    "requests without variables": without_variables,
    "httpx": of_httpx,
    "httpx without variables": lambda host: of_httpx(host, trust_env=False),
    "async httpx": of_async_httpx,
    "async httpx without variables": lambda host: of_async_httpx(host, trust_env=False),
    "aiohttp": of_aiohttp,
    "aiohttp with variables": lambda host: of_aiohttp(host, trust_env=True),
    "trio": of_trio,
    "websockets": of_websockets,
    "async websockets": of_async_websockets,
    "async websockets without a proxy": lambda host: of_async_websockets(host, proxy=None),
}

def attempt(client, host):
    began = time.monotonic()
    try:
        said = client(host)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        # Who tries several addresses tells no reason, even if there is only one.
        while "attempts" in f"{error}":
            error = error.__cause__ or error.__context__
            said += f" from {error!r}"
    return said, time.monotonic() - began
"#;

async fn report(data: &Path, beyond: Option<&Beyond>, code: &str) -> BTreeMap<String, Value> {
    let engine = Engine::start(config(data));
    let code = format!("{CLIENTS}\n{code}");
    let grants = beyond.map(Beyond::grants).unwrap_or_default();
    let command = Command { grants, ..harness::script("clients", &code) };
    let ran = run_with(&engine, command).await.execution;
    assert_eq!(ran.status, ExecutionStatus::Succeeded, "{:?}", ran.error);
    serde_json::from_str(&printed(&ran, OutputStream::Stdout)).unwrap()
}

// proves P-037, S-053
#[tokio::test(flavor = "multi_thread")]
async fn every_client_reaches_what_is_open_and_is_told_at_once_what_is_not() {
    let (data, beyond) = (environment(), Beyond::start().await);
    let code = "print(json.dumps({name: attempt(client, 'known.example')[0] for name, client in clients.items()}))";
    for (client, said) in report(data.path(), Some(&beyond), code).await {
        assert_eq!(said, "hello", "{client}");
    }
    let denied = "print(json.dumps({name: attempt(client, 'other.example')[0] for name, client in clients.items()}))";
    for (client, said) in report(data.path(), Some(&beyond), denied).await {
        let said = said.as_str().unwrap();
        assert!(
            said.contains("403") || said.contains("no integration opens it"),
            "{client}: {said}"
        );
    }
    // The quickest of three: the first one may have to read its modules.
    let alone = "
def quickest(client, host):
    return min((attempt(client, host) for _ in range(3)), key=lambda said: said[1])
print(json.dumps({f'{name} to {host}': quickest(client, host)
                  for name, client in clients.items() for host in ('far.example', '93.184.216.34')}))";
    for (client, outcome) in report(data.path(), None, alone).await {
        let (said, seconds) = (outcome[0].as_str().unwrap(), outcome[1].as_f64().unwrap());
        let host = client.rsplit(' ').next().unwrap();
        let expected = format!(
            "network access is not allowed: {host}:80 is not allowed by any integration of this \
             session; list one that allows this host in `integrations`, or in \
             `external_access_integrations` of the agent"
        );
        assert!(said.contains(&expected), "{client}: {said}");
        assert!(seconds < 0.1, "{client}: {seconds} s");
    }
}

// proves P-037, S-053
#[tokio::test(flavor = "multi_thread")]
async fn what_ends_for_lack_of_the_network_says_so_by_its_code() {
    let engine = Engine::start(harness::config());
    for code in [
        "import urllib.request\nurllib.request.urlopen('https://far.example')",
        "import socket\nsocket.getaddrinfo('far.example', 443)",
        "import socket\nsocket.socket().connect(('93.184.216.34', 443))",
    ] {
        let error = harness::run(&engine, code).await.error.unwrap();
        assert_eq!(error.code.to_string(), "network.denied");
        assert!(error.message.contains("network access is not allowed: "), "{}", error.message);
        assert!(error.message.contains("external_access_integrations"), "{}", error.message);
    }
    let inside = "import http.server, threading, urllib.request
server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.handle_request, daemon=True).start()
print(urllib.request.urlopen(f'http://localhost:{server.server_port}').status)";
    assert_eq!(printed(&harness::run(&engine, inside).await, OutputStream::Stdout), "200\n");
}

const PROVIDERS: [(&str, &str, &str); 3] = [
    ("OpenAI", "openai", "OPENAI_API_KEY"),
    ("Anthropic", "anthropic", "ANTHROPIC_API_KEY"),
    ("Gemini", "gemini", "GEMINI_API_KEY"),
];

// proves W-038, W-039, W-041, W-042
#[tokio::test(flavor = "multi_thread")]
async fn clients_of_providers_are_there_and_say_what_they_lack_when_they_are_used() {
    let engine = Engine::start(harness::config());
    let untouched = "import os
print([bool(it) for it in (openai_client, anthropic_client, gemini_client, client)])
print([name for name in os.environ if name.endswith('_API_KEY')], 'client' in globals())";
    let ran = run_with(&engine, harness::script("bare", untouched)).await.execution;
    assert_eq!(printed(&ran, OutputStream::Stdout), "[True, True, True, True]\n[] False\n");
    for (name, attribute, key) in PROVIDERS {
        let unset = format!("{name} is not configured for this deployment");
        let missing = format!("{name} is unavailable: Python SDK missing (No module named '");
        for code in [format!("{attribute}_client.models"), format!("client.{attribute}")] {
            let error_with = async |grants: SandboxGrants| {
                let as_cell = Command { grants, ..harness::command("bare", &code) };
                let error = run_with(&engine, as_cell).await.execution.error.unwrap();
                assert_eq!(error.exception.as_deref(), Some("RuntimeError"));
                error.message
            };
            assert_eq!(error_with(SandboxGrants::default()).await, unset);
            let message = error_with(harness::variables([(key, "placeholder")])).await;
            assert!(message.starts_with(&missing), "{message}");
        }
        let tool = harness::tool(&format!(
            "def handle() -> str:\n    \"\"\"Ask.\"\"\"\n    return str(client.{attribute})\n"
        ));
        let call = harness::call("bare", tool.validate_call(serde_json::json!({})).unwrap());
        assert_eq!(run_with(&engine, call).await.execution.error.unwrap().message, unset);
    }
}

// proves W-040
#[tokio::test(flavor = "multi_thread")]
async fn with_its_key_a_provider_has_a_ready_client_of_its_own_sdk() {
    let engine = Engine::start(harness::config());
    let grants = harness::variables(PROVIDERS.map(|(_, _, key)| (key, "placeholder")));
    let code = "import anthropic, openai
from google import genai
print(isinstance(openai_client, openai.OpenAI), openai_client.api_key, type(client.openai) is openai.OpenAI)
print(isinstance(anthropic_client, anthropic.Anthropic), anthropic_client.api_key)
print(isinstance(gemini_client, genai.Client), bool(gemini_client.models))";
    let command = Command { grants, ..harness::script("coderunner", code) };
    let ran = run_with(&engine, command).await.execution;
    let expected = "True placeholder True\nTrue placeholder\nTrue True\n";
    assert_eq!(printed(&ran, OutputStream::Stdout), expected, "{:?}", ran.error);
}
