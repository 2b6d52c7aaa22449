//! The stdio transport, for one client. Nothing else may write to standard output.
//!
//! A client that closes its end still gets the responses to its earlier requests, within a time
//! limit. A client that reads no more is gone, which the caller of this module detects.

use crate::server::McpServer;
use rmcp::model::{ClientNotification, ClientRequest, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::{StdioReader, StdioWriter, Transport, stdio_pipes};
use rmcp::{RoleServer, ServiceExt};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, Chain};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Returns when the client has closed its end and has its responses, or when `patience` has passed.
pub async fn serve_stdio(server: McpServer, answer_timeout: Duration) -> Result<(), String> {
    let (input, output) = stdio_pipes();
    let is_closing = CancellationToken::new();
    let client = StdioTransport {
        // The end of the input terminates the last line.
        lines: AsyncRwTransport::new(input.chain(b"\n"), output),
        pending_requests: Arc::default(),
        drain_timeout: answer_timeout,
        drain_deadline: None,
        cancelled: is_closing.clone(),
    };
    let running =
        server.serve_with_ct(client, is_closing).await.map_err(|error| error.to_string())?;
    running.waiting().await.map(drop).map_err(|error| error.to_string())
}

struct StdioTransport {
    lines: AsyncRwTransport<RoleServer, Chain<StdioReader, &'static [u8]>, StdioWriter>,
    /// Requests that are not answered yet.
    pending_requests: Arc<watch::Sender<HashSet<RequestId>>>,
    drain_timeout: Duration,
    /// Set when the client closes its end: that time plus the time limit.
    drain_deadline: Option<Instant>,
    /// Cancels requests in flight.
    cancelled: CancellationToken,
}

impl StdioTransport {
    fn track_request(&self, message: &RxJsonRpcMessage<RoleServer>) {
        match message {
            JsonRpcMessage::Request(call) if expects_answer(&call.request) => {
                self.pending_requests.send_modify(|open| {
                    open.insert(call.id.clone());
                });
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(it) = &notification.notification
                    && let Some(id) = &it.params.request_id
                {
                    mark_answered(&self.pending_requests, id);
                }
            }
            _ => {}
        }
    }
}

fn mark_answered(open: &watch::Sender<HashSet<RequestId>>, id: &RequestId) {
    open.send_modify(|open| {
        open.remove(id);
    });
}

/// A subscription is answered only when the client is gone.
fn expects_answer(request: &ClientRequest) -> bool {
    !matches!(request, ClientRequest::SubscriptionsListenRequest(_))
}

impl Transport<RoleServer> for StdioTransport {
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered_id = match &message {
            JsonRpcMessage::Response(answer) => Some(answer.id.clone()),
            JsonRpcMessage::Error(answer) => answer.id.clone(),
            _ => None,
        };
        let (sent, open) = (self.lines.send(message), Arc::clone(&self.pending_requests));
        async move {
            let sent = sent.await;
            if let Some(id) = answered_id {
                mark_answered(&open, &id);
            }
            sent
        }
    }

    /// Cancel-safe: may be dropped and called again.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let until = match self.drain_deadline {
            Some(until) => until,
            None => match self.lines.receive().await {
                Some(message) => {
                    self.track_request(&message);
                    return Some(message);
                }
                None => *self.drain_deadline.insert(Instant::now() + self.drain_timeout),
            },
        };
        let mut open = self.pending_requests.subscribe();
        // With or without all responses, the connection ends.
        let _ = timeout_at(until, open.wait_for(HashSet::is_empty)).await;
        // The service would wait for a closed client, so cancel it.
        self.cancelled.cancel();
        std::future::pending().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.lines.close().await
    }
}
