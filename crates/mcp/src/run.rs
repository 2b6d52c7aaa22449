//! A run while somebody waits for it: its output is told as progress, and whoever goes away ends
//! it.

use futures_util::StreamExt;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use service::{Attached, Refused};
use std::time::Duration;
use types::{Event, Execution, ExecutionId};

/// How a run came back.
pub(crate) enum Came {
    Ended(Result<Execution, Refused>),
    /// It goes on, and is asked for by its id.
    Task(Execution),
    /// Nobody waits any more.
    Cancelled(ExecutionId),
}

/// Waits for the end. `task_after` is for clients that can ask again later.
pub(crate) async fn see(
    attached: Attached,
    context: &RequestContext<RoleServer>,
    task_after: Option<Duration>,
) -> Came {
    let id = attached.id();
    let telling = context
        .meta
        .get_progress_token()
        .map(|token| tokio::spawn(tell(attached.follow(), context.peer.clone(), token)));
    let came = tokio::select! {
        biased;
        () = context.ct.cancelled() => Came::Cancelled(id),
        came = wait(attached, task_after) => came,
    };
    if let Some(telling) = telling {
        match &came {
            // What was printed is told before the answer is.
            Came::Ended(_) => drop(telling.await),
            Came::Task(_) | Came::Cancelled(_) => telling.abort(),
        }
    }
    came
}

async fn wait(attached: Attached, task_after: Option<Duration>) -> Came {
    let Some(patience) = task_after else {
        return Came::Ended(attached.finished().await);
    };
    match tokio::time::timeout(patience, attached.over()).await {
        Ok(()) => Came::Ended(attached.finished().await),
        Err(_) => Came::Task(attached.let_go()),
    }
}

/// A line at a time, so that what is told can be shown.
async fn tell(
    events: impl futures_util::Stream<Item = service::Numbered>,
    peer: Peer<RoleServer>,
    token: ProgressToken,
) {
    let mut events = std::pin::pin!(events);
    let (mut told, mut rest) = (0.0, String::new());
    while let Some((_, event)) = events.next().await {
        match event {
            Event::Output(piece) => rest.push_str(&piece.text),
            Event::End { .. } if !rest.is_empty() => rest.push('\n'),
            _ => continue,
        }
        while let Some(end) = rest.find('\n') {
            let line: String = rest.drain(..=end).collect();
            told += 1.0;
            let message = line.trim_end_matches(['\n', '\r']);
            let progress =
                ProgressNotificationParam::new(token.clone(), told).with_message(message);
            if peer.notify_progress(progress).await.is_err() {
                return;
            }
        }
    }
}
