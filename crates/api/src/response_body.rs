//! Response bodies on their way to the client: what stays reserved until the last byte is sent, and
//! how long a client has left one unread.

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// HTTP/2 keeps a whole frame in memory until the client has taken it, even after this program
/// considers it sent.
const FRAME_BYTES_MAX: usize = 64 * 1024;

/// Keeps the guard until the last byte of the response: a stream counts as in flight until then.
pub(crate) fn hold_until_sent<T: Send + Unpin + 'static>(response: Response, guard: T) -> Response {
    response.map(|body| Body::new(GuardedBody { body, _guard: guard }))
}

struct GuardedBody<T> {
    body: Body,
    _guard: T,
}

impl<T: Unpin> HttpBody for GuardedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The requests in flight of one connection, each from its headers to the last byte of its
/// response.
#[derive(Debug)]
pub(crate) struct ConnectionUse {
    requests: watch::Sender<u64>,
    /// Responses with bytes that the client could take, and since when it has not.
    unread: Mutex<HashMap<u64, Instant>>,
}

impl ConnectionUse {
    pub(crate) fn new() -> (Arc<Self>, watch::Receiver<u64>) {
        let (requests, in_flight) = watch::channel(0);
        (Arc::new(Self { requests, unread: Mutex::default() }), in_flight)
    }

    /// Counts a request; `number` is unique in the connection.
    pub(crate) fn begin(self: &Arc<Self>, number: u64) -> InFlightRequest {
        self.requests.send_modify(|count| *count += 1);
        InFlightRequest { number, connection: Arc::clone(self) }
    }

    /// Whether the client has taken nothing of some response for this long.
    pub(crate) fn has_unread_for(&self, time: Duration) -> bool {
        self.lock_unread().values().any(|since| since.elapsed() >= time)
    }

    fn lock_unread(&self) -> MutexGuard<'_, HashMap<u64, Instant>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request in flight; dropping it ends the count.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    number: u64,
    connection: Arc<ConnectionUse>,
}

impl InFlightRequest {
    /// Sends the response in small frames, and notes how long the client leaves them unread.
    pub(crate) fn respond(self, response: Response) -> Response {
        self.wait_for_client();
        response.map(|body| Body::new(TrackedBody { body, rest: Bytes::new(), request: self }))
    }

    fn wait_for_client(&self) {
        self.connection.lock_unread().insert(self.number, Instant::now());
    }

    fn wait_for_server(&self) {
        self.connection.lock_unread().remove(&self.number);
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.wait_for_server();
        self.connection.requests.send_modify(|count| *count -= 1);
    }
}

/// A body that is asked for its next frame only if the client has taken the last one.
struct TrackedBody {
    body: Body,
    /// What is left of a frame of the body.
    rest: Bytes,
    request: InFlightRequest,
}

impl TrackedBody {
    fn next_piece(&mut self) -> Bytes {
        let bytes = self.rest.len().min(FRAME_BYTES_MAX);
        self.request.wait_for_client();
        self.rest.split_to(bytes)
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(self.next_piece()))));
        }
        self.request.wait_for_server();
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    self.rest = data;
                    Poll::Ready(Some(Ok(Frame::data(self.next_piece()))))
                }
                Err(trailers) => Poll::Ready(Some(Ok(trailers))),
            },
            ended_or_pending => ended_or_pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt, stream};
    use std::convert::Infallible;

    const LONG: Duration = Duration::from_secs(60);

    fn begun(body: Body) -> (Arc<ConnectionUse>, watch::Receiver<u64>, Body) {
        let (connection, in_flight) = ConnectionUse::new();
        let response = connection.begin(0).respond(Response::new(body));
        (connection, in_flight, response.into_body())
    }

    #[tokio::test(start_paused = true)]
    async fn t203_a_response_counts_as_unread_until_the_client_takes_the_next_piece() {
        let text = vec![b'x'; 3 * FRAME_BYTES_MAX + 1];
        let (connection, in_flight, body) = begun(Body::from(text.clone()));
        assert_eq!(*in_flight.borrow(), 1);
        let mut pieces = body.into_data_stream();
        let mut read = Vec::new();
        for _ in 0..4 {
            assert!(!connection.has_unread_for(LONG));
            tokio::time::advance(LONG).await;
            assert!(connection.has_unread_for(LONG));
            let piece = pieces.next().await.unwrap().unwrap();
            assert!(piece.len() <= FRAME_BYTES_MAX);
            read.extend_from_slice(&piece);
        }
        assert!(pieces.next().await.is_none());
        drop(pieces);
        tokio::time::advance(LONG).await;
        assert!(!connection.has_unread_for(LONG) && *in_flight.borrow() == 0 && read == text);
    }

    #[tokio::test(start_paused = true)]
    async fn t203_a_client_that_waits_for_the_server_has_left_nothing_unread() {
        let silent = stream::pending::<Result<Bytes, Infallible>>();
        let (connection, _in_flight, body) = begun(Body::from_stream(silent));
        let mut pieces = body.into_data_stream();
        assert!(futures_util::poll!(pieces.next()).is_pending());
        tokio::time::advance(LONG).await;
        assert!(!connection.has_unread_for(LONG));
    }
}
