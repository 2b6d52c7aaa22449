//! MCP servers that are wrong on purpose, over HTTP and as commands. Each is a script for `python3`,
//! so that a test can say in a few lines what the server does.

use crate::harness::wait;
use crate::test_server::Api;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Reads and answers messages. `answer` is the part that a test replaces: it gets a request, and
/// returns the lines that are sent, without their ends.
const SERVER: &str = r#"
import json, os, sys, http.server, socketserver, time
notes = open(sys.argv[1], "a", buffering=1)
TOOL = {"name": "find", "description": "Finds a thing.", "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}}}}
def result(request, value):
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": value})
def text(request, text, **more):
    return result(request, {"content": [{"type": "text", "text": text}], **more})
def tools(request):
    return result(request, {"tools": [TOOL]})
def initialize(request):
    return result(request, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "test", "version": "1"}})
def call(request):
    return [text(request, "found " + str(request["params"]["arguments"].get("what")))]
REDIRECT = None
@REPLACED@
def answer(request):
    notes.write(request.get("method", "reply") + " " + json.dumps(request) + "\n")
    if "id" not in request or "method" not in request:
        return []
    if request["method"] == "initialize":
        return [initialize(request)]
    if request["method"] == "tools/list":
        return [tools(request)]
    return call(request)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def do_POST(self):
        notes.write("headers " + json.dumps(dict(self.headers)) + "\n")
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if REDIRECT:
            self.send_response(307); self.send_header("location", REDIRECT)
            self.send_header("content-length", "0"); self.end_headers()
            return
        lines = list(answer(request))
        if "id" not in request or "method" not in request:
            self.send_response(202); self.send_header("content-length", "0"); self.end_headers()
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("mcp-session-id", "of-this-server")
        self.send_header("connection", "close")
        self.end_headers()
        for line in lines:
            self.wfile.write(b"data: " + line.encode() + b"\n\n")
        self.close_connection = True
    def do_DELETE(self):
        notes.write("deleted\n")
        self.send_response(204); self.send_header("content-length", "0"); self.end_headers()
if sys.argv[2] == "http":
    class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
notes.write(f"started {os.getpid()} {json.dumps(dict(os.environ))}\n")
for line in sys.stdin:
    for out in answer(json.loads(line)):
        sys.stdout.write(out + "\n")
        sys.stdout.flush()
"#;

/// A script and what it has noted.
pub(crate) struct Script {
    directory: TempDir,
}

impl Script {
    /// `replaced` is Python that replaces functions of the server.
    pub(crate) fn new(replaced: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script = SERVER.replace("@REPLACED@", replaced);
        std::fs::write(directory.path().join("server.py"), script).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The command as an option of the operator: `NAME=COMMAND`.
    pub(crate) fn command(&self, name: &str) -> String {
        let (script, notes) = (self.path("server.py"), self.path("notes"));
        format!("{name}=python3 -I {} {} stdio", script.display(), notes.display())
    }

    /// What the server has noted, line by line.
    pub(crate) fn notes(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("notes")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The noted messages of one method.
    pub(crate) fn asked(&self, method: &str) -> Vec<Value> {
        let prefix = format!("{method} ");
        let notes = self.notes();
        let rest = notes.iter().filter_map(|note| note.strip_prefix(&prefix));
        rest.map(|json| serde_json::from_str(json).unwrap()).collect()
    }

    /// The processes that were started as this command.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let notes = self.notes();
        let started = notes.iter().filter_map(|note| note.strip_prefix("started "));
        started.map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect()
    }

    /// Waits until none of them, and none of their children, runs.
    pub(crate) async fn leaves_nothing(&self) {
        let processes = self.processes();
        assert!(!processes.is_empty(), "nothing was started");
        let ended = async || processes.iter().all(|pid| !group_lives(*pid));
        wait::until("the processes of the server have ended", ended).await;
    }
}

/// Whether a process group has a process that is not a zombie.
fn group_lives(group: u32) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let stats =
        processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stats.into_iter().any(|stat| {
        // After the name: state, parent, group.
        let rest: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        rest.len() > 2 && rest[0] != "Z" && rest[2] == group.to_string()
    })
}

/// The script as an HTTP server on loopback.
pub(crate) struct HttpScript {
    pub(crate) script: Script,
    pub(crate) port: u16,
    process: Child,
}

impl HttpScript {
    pub(crate) fn start(replaced: &str) -> Self {
        let script = Script::new(replaced);
        let mut process = Command::new("python3")
            .arg("-I")
            .args([script.path("server.py"), script.path("notes")])
            .arg("http")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = process.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        Self { script, port: line.trim().parse().unwrap(), process }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// The value of a rule that opens exactly this server.
    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for HttpScript {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The name of this machine for secrets, which are not sent to loopback by its own names.
pub(crate) const NAMED: &str = "docs.internal";

/// The option of the operator that gives this machine that name.
pub(crate) const RESOLVED: [&str; 2] = ["--resolve", "docs.internal=127.0.0.1"];

/// A reverse proxy before a server of this machine, as operators have one: it sets the Host header.
/// Returns its port.
pub(crate) async fn reverse_proxy(to: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let to = to.clone();
            tokio::spawn(async move {
                let (mut head, named) = (Vec::new(), format!("{NAMED}:{port}"));
                while !head.ends_with(b"\r\n\r\n") && client.read_buf(&mut head).await.unwrap() > 0
                {
                    // A body may have come with the head.
                    if head.windows(4).any(|end| end == b"\r\n\r\n") {
                        break;
                    }
                }
                let head = String::from_utf8(head).unwrap().replacen(&named, &to, 1);
                let mut server = TcpStream::connect(&to).await.unwrap();
                server.write_all(head.as_bytes()).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

/// An integration of this name that opens hosts.
pub(crate) async fn open_host(api: &Api, name: &str, hosts: &[&str]) {
    let rule = json!({"name": name, "value_list": hosts});
    api.post("/v1/network-rules", rule).await;
    let integration = json!({"name": name, "allowed_network_rules": [name]});
    api.post("/v1/integrations", integration).await;
}

/// A specification with one server that needs no approval.
pub(crate) fn allowed(address: Value) -> Value {
    with_action(address, "allow")
}

pub(crate) fn with_action(address: Value, action: &str) -> Value {
    let mut entry = json!({"name": "docs", "approval_action": action});
    let fields = address.as_object().unwrap().clone();
    entry.as_object_mut().unwrap().extend(fields);
    json!({ "mcp_servers": [entry] })
}
