//! A client on standard input and output, a server over HTTP, and messages from one to the other,
//! unread but for what HTTP has to know of them. A server that hangs must not keep it from ending.

mod upstream;

use super::{PATIENCE, reader};
use crate::cli::{Failure, serve};
use crate::client::Client;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use upstream::{Unanswered, Upstream};

/// Messages that wait to be written; the server waits when the client does not read.
const WAITING: usize = 64;
/// For what a server answers without any work. The next line is read after it.
const AT_ONCE: Duration = Duration::from_secs(5);
/// To take leave of a server and of a reader. Clients kill what has not ended after two seconds.
const LEAVING: Duration = Duration::from_secs(1);

struct Bridge {
    server: Upstream,
    /// Nothing is the end.
    out: mpsc::Sender<Option<String>>,
    /// Requests that are not answered, by their ids.
    open: watch::Sender<HashMap<String, Open>>,
}

struct Open {
    request: AbortHandle,
    /// Whether it will be: a subscription lasts as long as its client does.
    is_answered: bool,
}

pub(super) async fn run(client: Client) -> Result<(), Failure> {
    let (out, lines) = mpsc::channel(WAITING);
    let server = Upstream::new(client);
    let bridge = Arc::new(Bridge { server, out, open: watch::Sender::default() });
    let writing = tokio::spawn(write(lines));
    tokio::spawn(Arc::clone(&bridge).listen(bridge.server.agreements()));
    tokio::select! {
        () = bridge.serve() => {}
        () = reader::gone() => {}
        () = serve::told_to_stop() => {}
    }
    let _ = timeout(LEAVING, bridge.leave()).await;
    let written = async {
        let _ = bridge.out.send(None).await;
        writing.await
    };
    let _ = timeout(LEAVING, written).await;
    Ok(())
}

async fn write(mut lines: mpsc::Receiver<Option<String>>) {
    let mut out = tokio::io::stdout();
    while let Some(Some(line)) = lines.recv().await {
        let whole = format!("{line}\n");
        if out.write_all(whole.as_bytes()).await.is_err() || out.flush().await.is_err() {
            return;
        }
    }
}

impl Bridge {
    /// Until the client says no more, and has its answers or the patience is over.
    async fn serve(self: &Arc<Self>) {
        let mut lines = BufReader::new(tokio::io::stdin()).split(b'\n');
        while let Ok(Some(line)) = lines.next_segment().await {
            self.take(line).await;
        }
        let mut open = self.open.subscribe();
        let answered = open.wait_for(|open| open.values().all(|one| !one.is_answered));
        let _ = timeout(PATIENCE, answered).await;
    }

    /// Requests are sent side by side; everything else in its order.
    async fn take(self: &Arc<Self>, line: Vec<u8>) {
        // What is not JSON has no number that could be answered.
        let Ok(message) = serde_json::from_slice::<Value>(&line) else { return };
        let method = message["method"].as_str().unwrap_or_default();
        if method == "notifications/cancelled" {
            // Over HTTP, a request is given up by hanging up.
            let given_up = self.close(&message["params"]["requestId"]);
            given_up.into_iter().for_each(|open| open.request.abort());
        }
        match (message.get("id"), method) {
            // All that follows is said in what it begins.
            (Some(_), "initialize") => {
                let answered = timeout(AT_ONCE, self.pass_on(line, &message)).await;
                self.tell_problem(&message, answered.unwrap_or(Err(Unanswered::Late))).await;
            }
            (Some(_), method) if !method.is_empty() => self.begin(line, message),
            // Nobody waits for an answer to it.
            _ => drop(timeout(AT_ONCE, self.server.tell(line, &message)).await),
        }
    }

    fn begin(self: &Arc<Self>, line: Vec<u8>, message: Value) {
        let id = message["id"].to_string();
        let is_answered = message["method"] != "subscriptions/listen";
        let bridge = Arc::clone(self);
        // It cannot be removed before it is there.
        self.open.send_modify(|open| {
            let request = tokio::spawn(bridge.request(line, message)).abort_handle();
            open.insert(id, Open { request, is_answered });
        });
    }

    async fn request(self: Arc<Self>, line: Vec<u8>, message: Value) {
        let passed = self.pass_on(line, &message).await;
        self.tell_problem(&message, passed).await;
        self.close(&message["id"]);
    }

    /// What runs for an older client ends with its session, but only after some seconds that a server
    /// gives it to answer; so it is told first that nobody waits.
    async fn leave(&self) {
        let open: Vec<String> = self.open.borrow().keys().cloned().collect();
        for id in open {
            let params = json!({"requestId": serde_json::from_str::<Value>(&id).ok()});
            let method = "notifications/cancelled";
            let given_up = json!({"jsonrpc": "2.0", "method": method, "params": params});
            // It may have gone before us.
            let _ = self.server.tell(given_up.to_string().into_bytes(), &given_up).await;
        }
        self.server.leave().await;
    }

    fn close(&self, id: &Value) -> Option<Open> {
        let mut closed = None;
        self.open.send_modify(|open| closed = open.remove(&id.to_string()));
        closed
    }

    async fn pass_on(&self, line: Vec<u8>, message: &Value) -> Result<(), Unanswered> {
        let mut answer = self.server.ask(line, message).await?;
        let mut is_answered = false;
        while let Some(said) = answer.next().await? {
            is_answered |= said.get("method").is_none() && said["id"] == message["id"];
            self.say(&said).await;
        }
        if is_answered { Ok(()) } else { Err(Unanswered::Silent) }
    }

    async fn tell_problem(&self, message: &Value, passed: Result<(), Unanswered>) {
        let Err(reason) = passed else { return };
        let mut answer = json!({"jsonrpc": "2.0", "id": message["id"]});
        if message["method"] == "tools/call" {
            // What a model can be told is no error of the protocol.
            answer["result"] = mcp::undelivered(reason.fault());
        } else {
            answer["error"] = json!({"code": -32603, "message": reason.to_string()});
        }
        self.say(&answer).await;
    }

    /// What the server says to an older client without being asked.
    async fn listen(self: Arc<Self>, mut agreements: upstream::Agreements) {
        while agreements.changed().await.is_ok() {
            tokio::select! {
                () = self.hear() => {}
                _ = agreements.changed() => agreements.mark_changed(),
            }
        }
    }

    async fn hear(&self) {
        let Ok(mut answer) = self.server.listen().await else { return };
        while let Ok(Some(said)) = answer.next().await {
            self.say(&said).await;
        }
    }

    /// A line of its own, whatever it was on the way.
    async fn say(&self, message: &Value) {
        // Nobody may be reading any more.
        let _ = self.out.send(Some(message.to_string())).await;
    }
}
