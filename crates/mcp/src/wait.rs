//! Waits for an execution: reports its output as progress, and cancels it when the client
//! disconnects.

use crate::run_elicitations::ElicitationFailure;
use futures_util::{FutureExt, StreamExt};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use service::{ExecutionHandle, RequestError};
use std::sync::Arc;
use std::time::Duration;
use types::{Event, Execution, ExecutionId};

/// Limit of one progress message: more than a person reads at once, and little memory per call.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Outcome of waiting for an execution.
pub(crate) enum WaitOutcome {
    Ended(Result<Box<Execution>, RequestError>),
    /// The execution continues; the client requests it by its id.
    Task(Arc<Execution>),
    /// The client no longer waits.
    Cancelled(ExecutionId),
    /// The execution needs an approval that cannot be elicited through this client.
    Blocked(RequestError),
}

/// The event that ended the wait.
enum WaitEnd {
    Ended,
    TaskTimeout,
    Cancelled,
    Blocked(ElicitationFailure),
}

/// Waits for the end of an execution, or until `stuck`. `task_after` is for clients that can ask
/// again later.
pub(crate) async fn wait_for_execution(
    handle: ExecutionHandle,
    context: &RequestContext<RoleServer>,
    task_after: Option<Duration>,
    elicitation: impl Future<Output = ElicitationFailure>,
) -> WaitOutcome {
    let id = handle.id();
    let progress_task = context.meta.get_progress_token().map(|token| {
        tokio::spawn(report_progress(handle.subscribe(), context.peer.clone(), token))
    });
    let end = tokio::select! {
        biased;
        () = context.ct.cancelled() => WaitEnd::Cancelled,
        () = handle.wait_until_ended() => WaitEnd::Ended,
        () = sleep_if_some(task_after) => WaitEnd::TaskTimeout,
        elicitation = elicitation => WaitEnd::Blocked(elicitation),
    };
    if let Some(progress_task) = progress_task {
        match &end {
            // Send the remaining output before the result.
            WaitEnd::Ended => drop(progress_task.await),
            WaitEnd::TaskTimeout | WaitEnd::Cancelled | WaitEnd::Blocked(_) => {
                progress_task.abort()
            }
        }
    }
    match end {
        WaitEnd::Ended => WaitOutcome::Ended(handle.wait().await.map(Box::new)),
        WaitEnd::TaskTimeout => WaitOutcome::Task(handle.detach()),
        WaitEnd::Cancelled => WaitOutcome::Cancelled(id),
        WaitEnd::Blocked(ElicitationFailure::Elsewhere(error)) => {
            handle.detach();
            WaitOutcome::Blocked(error.into())
        }
        WaitEnd::Blocked(ElicitationFailure::Unanswerable(error)) => WaitOutcome::Blocked(*error),
    }
}

async fn sleep_if_some(delay: Option<Duration>) {
    match delay {
        Some(delay) => tokio::time::sleep(delay).await,
        None => std::future::pending().await,
    }
}

/// Reports output in whole lines as it arrives. While the client reads a message, output collects
/// for the next one, so a slow client still gets everything.
async fn report_progress(
    events: impl futures_util::Stream<Item = service::NumberedEvent>,
    peer: Peer<RoleServer>,
    token: ProgressToken,
) {
    let mut events = std::pin::pin!(events.fuse());
    let (mut sent, mut buffer) = (0.0, String::new());
    while let Some((_, event)) = events.next().await {
        append_event(&mut buffer, &event);
        while buffer.len() < MESSAGE_BYTES_MAX
            && let Some(Some((_, event))) = events.next().now_or_never()
        {
            append_event(&mut buffer, &event);
        }
        while let Some(message) = next_message(&mut buffer) {
            sent += 1.0;
            let progress =
                ProgressNotificationParam::new(token.clone(), sent).with_message(message);
            if peer.notify_progress(progress).await.is_err() {
                return;
            }
        }
    }
}

fn append_event(buffer: &mut String, event: &Event) {
    match event {
        Event::Output(piece) => buffer.push_str(&piece.text),
        Event::Plan { steps } => buffer.push_str(&format!("plan: {}\n", steps.join("; "))),
        Event::Round(round) => {
            let ended = round.error.as_deref().unwrap_or("successful");
            buffer.push_str(&format!("round {}: {}: {ended}\n", round.number, round.step));
        }
        // The end of the output terminates the last line.
        Event::End { .. } if !buffer.is_empty() && !buffer.ends_with('\n') => buffer.push('\n'),
        _ => {}
    }
}

/// Takes as many whole lines as fit into a message; a longer line is split.
fn next_message(buffer: &mut String) -> Option<String> {
    let most = buffer.floor_char_boundary(MESSAGE_BYTES_MAX);
    let end = match buffer[..most].rfind('\n') {
        Some(end) => end + 1,
        None if most < buffer.len() => most,
        None => return None,
    };
    let lines: String = buffer.drain(..end).collect();
    Some(lines.lines().collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(mut buffer: String) -> (Vec<String>, String) {
        (std::iter::from_fn(|| next_message(&mut buffer)).collect(), buffer)
    }

    #[test]
    fn lines_that_are_there_are_one_message_and_one_that_is_not_whole_waits() {
        let (sent, left) = messages("one\r\n\ntwo\nthr".to_owned());
        assert_eq!((sent, left), (vec!["one\n\ntwo".to_owned()], "thr".to_owned()));
    }

    #[test]
    fn a_message_has_its_bound_and_nothing_is_lost() {
        let (short, long) = ("é".repeat(10), "é".repeat(MESSAGE_BYTES_MAX));
        let printed = format!("x{long}\n{}", format!("{short}\n").repeat(5_000));
        let (sent, left) = messages(printed.clone());
        assert_eq!(left, "");
        assert!(sent.iter().all(|message| message.len() <= MESSAGE_BYTES_MAX));
        assert!(sent.len() < 12, "{}", sent.len());
        assert_eq!(sent.concat().replace('\n', ""), printed.replace('\n', ""));
    }
}
