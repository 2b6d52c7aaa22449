//! Forwards messages between a client on standard input and output and a server over HTTP. It reads
//! only what HTTP needs. A server that hangs must not prevent the bridge from ending.

mod upstream;

use super::{DRAIN_TIMEOUT, stdout_reader};
use crate::cli::{CliError, serve};
use crate::client::ApiClient;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use upstream::{McpUpstream, McpUpstreamError};

/// Maximum number of messages that wait to be written; the server waits if the client does not
/// read.
const QUEUE_MAX: usize = 64;
/// Timeout of requests that the server answers immediately. The next line is read after it.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for ending the session and the writer. Clients kill a process that has not ended after
/// two seconds.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

struct McpBridge {
    server: McpUpstream,
    /// `None` ends the writer.
    out: mpsc::Sender<Option<String>>,
    /// Unanswered requests by id.
    open_requests: watch::Sender<HashMap<String, OpenRequest>>,
}

struct OpenRequest {
    request: AbortHandle,
    /// False for a subscription, which lasts as long as its client.
    expects_answer: bool,
}

pub(super) async fn run(client: ApiClient) -> Result<(), CliError> {
    let (out, lines) = mpsc::channel(QUEUE_MAX);
    let server = McpUpstream::new(client);
    let bridge = Arc::new(McpBridge { server, out, open_requests: watch::Sender::default() });
    let writing = tokio::spawn(write_lines(lines));
    tokio::spawn(Arc::clone(&bridge).listen(bridge.server.watch_session()));
    tokio::select! {
        () = bridge.serve() => {}
        () = stdout_reader::stdout_closed() => {}
        () = serve::shutdown_signal() => {}
    }
    let _ = timeout(SHUTDOWN_TIMEOUT, bridge.shutdown()).await;
    let writer = async {
        let _ = bridge.out.send(None).await;
        writing.await
    };
    let _ = timeout(SHUTDOWN_TIMEOUT, writer).await;
    Ok(())
}

async fn write_lines(mut lines: mpsc::Receiver<Option<String>>) {
    let mut out = tokio::io::stdout();
    while let Some(Some(line)) = lines.recv().await {
        let whole = format!("{line}\n");
        if out.write_all(whole.as_bytes()).await.is_err() || out.flush().await.is_err() {
            return;
        }
    }
}

impl McpBridge {
    /// Serves until the client closes its input, and has its responses or the timeout is over.
    async fn serve(self: &Arc<Self>) {
        let mut lines = BufReader::new(tokio::io::stdin()).split(b'\n');
        while let Ok(Some(line)) = lines.next_segment().await {
            self.handle_line(line).await;
        }
        let mut open = self.open_requests.subscribe();
        let result = open.wait_for(|open| open.values().all(|one| !one.expects_answer));
        let _ = timeout(DRAIN_TIMEOUT, result).await;
    }

    /// Sends requests concurrently, and everything else in order.
    async fn handle_line(self: &Arc<Self>, line: Vec<u8>) {
        // Text that is not JSON has no id to respond to.
        let Ok(message) = serde_json::from_slice::<Value>(&line) else { return };
        let method = message["method"].as_str().unwrap_or_default();
        if method == "notifications/cancelled" {
            // Over HTTP, closing the connection cancels a request.
            let cancelled = self.close_request(&message["params"]["requestId"]);
            cancelled.into_iter().for_each(|open| open.request.abort());
        }
        match (message.get("id"), method) {
            // All later messages belong to the session that it opens.
            (Some(_), "initialize") => {
                let result = timeout(REPLY_TIMEOUT, self.forward(line, &message)).await;
                self.report_error(&message, result.unwrap_or(Err(McpUpstreamError::Timeout))).await;
            }
            (Some(_), method) if !method.is_empty() => self.spawn_request(line, message),
            // Notifications have no response.
            _ => drop(timeout(REPLY_TIMEOUT, self.server.notify(line, &message)).await),
        }
    }

    fn spawn_request(self: &Arc<Self>, line: Vec<u8>, message: Value) {
        let id = message["id"].to_string();
        let expects_answer = message["method"] != "subscriptions/listen";
        let bridge = Arc::clone(self);
        // Spawn while the map is locked: the task must not remove the entry before it exists.
        self.open_requests.send_modify(|open| {
            let request = tokio::spawn(bridge.forward_request(line, message)).abort_handle();
            open.insert(id, OpenRequest { request, expects_answer });
        });
    }

    async fn forward_request(self: Arc<Self>, line: Vec<u8>, message: Value) {
        let result = self.forward(line, &message).await;
        self.report_error(&message, result).await;
        self.close_request(&message["id"]);
    }

    /// Cancels open requests and ends the session. For a legacy client the server ends executions
    /// with the session, but only after a few seconds; therefore the requests are cancelled first.
    async fn shutdown(&self) {
        let open: Vec<String> = self.open_requests.borrow().keys().cloned().collect();
        for id in open {
            let params = json!({"requestId": serde_json::from_str::<Value>(&id).ok()});
            let method = "notifications/cancelled";
            let cancelled = json!({"jsonrpc": "2.0", "method": method, "params": params});
            // The server may have ended already.
            let _ = self.server.notify(cancelled.to_string().into_bytes(), &cancelled).await;
        }
        self.server.close_session().await;
    }

    fn close_request(&self, id: &Value) -> Option<OpenRequest> {
        let mut closed = None;
        self.open_requests.send_modify(|open| closed = open.remove(&id.to_string()));
        closed
    }

    async fn forward(&self, line: Vec<u8>, message: &Value) -> Result<(), McpUpstreamError> {
        let mut answer = self.server.request(line, message).await?;
        let mut expects_answer = false;
        while let Some(received) = answer.next_message().await? {
            expects_answer |= received.get("method").is_none() && received["id"] == message["id"];
            self.write_message(&received).await;
        }
        if expects_answer { Ok(()) } else { Err(McpUpstreamError::NoResponse) }
    }

    async fn report_error(&self, message: &Value, result: Result<(), McpUpstreamError>) {
        let Err(reason) = result else { return };
        let mut answer = json!({"jsonrpc": "2.0", "id": message["id"]});
        if message["method"] == "tools/call" {
            // An error that a model can act on is not a protocol error.
            answer["result"] = mcp::undelivered_result(reason.to_error());
        } else {
            answer["error"] = json!({"code": -32603, "message": reason.to_string()});
        }
        self.write_message(&answer).await;
    }

    /// Forwards unsolicited messages of the server to a legacy client.
    async fn listen(self: Arc<Self>, mut agreements: upstream::LegacySessionReceiver) {
        while agreements.changed().await.is_ok() {
            tokio::select! {
                () = self.relay_notifications() => {}
                _ = agreements.changed() => agreements.mark_changed(),
            }
        }
    }

    async fn relay_notifications(&self) {
        let Ok(mut answer) = self.server.listen().await else { return };
        while let Ok(Some(received)) = answer.next_message().await {
            self.write_message(&received).await;
        }
    }

    /// Writes a message as one line, however it was formatted by the server.
    async fn write_message(&self, message: &Value) {
        // The client may have disconnected.
        let _ = self.out.send(Some(message.to_string())).await;
    }
}
