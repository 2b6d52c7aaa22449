//! Requests that get a response before their body was read. The connection can be reused only if
//! the rest of the body was read; otherwise the response must tell the client that it closes.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// An unread rest up to this size is read to its end, since most of it was already sent.
const DRAINED_BYTES_MAX: u64 = 64 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// A body that the handler may leave unread.
struct TrackedBody(Arc<Mutex<TrackedBodyState>>);

struct TrackedBodyState {
    body: Body,
    is_read: bool,
}

/// The rest of a body after the response was made.
pub(super) struct UnreadBody(Arc<Mutex<TrackedBodyState>>);

pub(super) fn track_body(request: Request) -> (Request, UnreadBody) {
    let (parts, body) = request.into_parts();
    let rest = Arc::new(Mutex::new(TrackedBodyState { body, is_read: false }));
    (Request::from_parts(parts, Body::new(TrackedBody(Arc::clone(&rest)))), UnreadBody(rest))
}

fn lock_state(rest: &Mutex<TrackedBodyState>) -> MutexGuard<'_, TrackedBodyState> {
    rest.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UnreadBody {
    /// Returns whether the body was read to its end. Reads the rest of a small body now, unless the
    /// client waits for `100 Continue`.
    pub(super) async fn drain(self, expects: bool) -> bool {
        let rest = {
            let mut rest = lock_state(&self.0);
            if rest.is_read || rest.body.is_end_stream() {
                return true;
            }
            std::mem::take(&mut rest.body)
        };
        let is_small = rest.size_hint().upper().is_some_and(|most| most <= DRAINED_BYTES_MAX);
        is_small && !expects && drain_body(rest).await
    }
}

async fn drain_body(mut rest: Body) -> bool {
    let read = async {
        loop {
            match rest.frame().await {
                Some(Ok(_)) => {}
                Some(Err(_)) => return false,
                None => return true,
            }
        }
    };
    tokio::time::timeout(DRAIN_TIME, read).await.unwrap_or(false)
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut rest = lock_state(&self.0);
        let frame = ready!(Pin::new(&mut rest.body).poll_frame(context));
        rest.is_read |= frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        lock_state(&self.0).body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        lock_state(&self.0).body.size_hint()
    }
}
