//! The transport over the pipes of a process: one message per line.

use crate::error::McpClientError;
use crate::inbox::Inbox;
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use std::io;
use std::mem::take;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

/// What is read at once.
const PIECE_BYTES: usize = 64 * 1024;

pub(crate) struct StdioTransport {
    inbox: Arc<Inbox>,
    /// Absent once the transport is closed.
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    receiver: mpsc::Receiver<ServerJsonRpcMessage>,
    reader: JoinHandle<()>,
}

impl StdioTransport {
    pub(crate) fn new(stdin: ChildStdin, stdout: ChildStdout, inbox: Arc<Inbox>) -> Self {
        let (sender, receiver) = Inbox::channel();
        let of_reader = Arc::clone(&inbox);
        // The end of the task closes the channel, which ends the connection.
        let reader = tokio::spawn(async move {
            if let Err(error) = read_lines(stdout, &of_reader, &sender).await {
                of_reader.fail(error);
            }
        });
        Self { inbox, stdin: Arc::new(Mutex::new(Some(stdin))), receiver, reader }
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.inbox.note_sent(&message);
        let stdin = Arc::clone(&self.stdin);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut stdin = stdin.lock().await;
            let pipe = stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
            pipe.write_all(&line).await?;
            pipe.flush().await
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.receiver.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.reader.abort();
        drop(self.stdin.lock().await.take());
        Ok(())
    }
}

async fn read_lines(
    mut stdout: ChildStdout,
    inbox: &Inbox,
    sender: &mpsc::Sender<ServerJsonRpcMessage>,
) -> Result<(), McpClientError> {
    let (mut piece, mut line) = (vec![0; PIECE_BYTES], Vec::new());
    loop {
        let count = stdout.read(&mut piece).await.unwrap_or_default();
        if count == 0 {
            return Err(McpClientError::Closed(inbox.refused()));
        }
        inbox.count_bytes(count)?;
        for part in piece[..count].split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if !part.ends_with(b"\n") || line.trim_ascii().is_empty() {
                continue;
            }
            if let Some(message) = inbox.accept(take(&mut line)).await? {
                // The SDK has gone if there is no receiver.
                let _ = sender.try_send(message);
            }
        }
    }
}
