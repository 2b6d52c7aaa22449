//! Response bodies on their way to the client: what stays reserved until the last byte is sent, and
//! how long a client has left one unread.

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use types::Error;

/// HTTP/2 keeps a whole frame in memory until the client has taken it.
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

/// Bytes that keep something else until HTTP has sent them. The body that they are from can be gone
/// by then: HTTP/2 takes the last frame before the client has a window for it.
struct HeldBytes<T> {
    bytes: Bytes,
    _held: T,
}

impl<T> AsRef<[u8]> for HeldBytes<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same bytes, which keep `held` until they are sent.
pub(crate) fn hold_bytes<T: Send + 'static>(bytes: Bytes, held: T) -> Bytes {
    Bytes::from_owner(HeldBytes { bytes, _held: held })
}

/// What holds the pieces of a body until HTTP has sent them.
pub(crate) trait PieceHolder: Send + Unpin + 'static {
    /// HTTP waits for the next frame of the body.
    fn wait_for_frame(&mut self) {}

    /// The body has a frame of this many bytes; an error ends the response early.
    fn begin_frame(&mut self, _bytes: usize) -> Result<(), Error> {
        Ok(())
    }

    /// Ties a piece of the frame to what it holds.
    fn hold(&mut self, piece: Bytes, is_last: bool) -> Bytes;
}

/// A body in small pieces. HTTP asks for at most one piece that the client has no window for yet.
pub(crate) struct PieceBody<H> {
    body: Body,
    /// The bytes of a frame of the body that were not given to HTTP yet.
    unsent: Bytes,
    holder: H,
}

impl<H: PieceHolder> PieceBody<H> {
    /// The same response, whose body is given to HTTP piece by piece.
    pub(crate) fn respond(response: Response, holder: H) -> Response {
        response.map(|body| Body::new(Self { body, unsent: Bytes::new(), holder }))
    }

    fn take_piece(&mut self) -> Bytes {
        let piece = self.unsent.split_to(self.unsent.len().min(FRAME_BYTES_MAX));
        self.holder.hold(piece, self.unsent.is_empty())
    }
}

impl<H: PieceHolder> HttpBody for PieceBody<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.unsent.is_empty() {
            self.holder.wait_for_frame();
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        if let Err(error) = self.holder.begin_frame(data.len()) {
                            tracing::info!(error = error.message, "a response ends early");
                            let ended = axum::Error::new(io::Error::other(error.message));
                            return Poll::Ready(Some(Err(ended)));
                        }
                        self.unsent = data;
                    }
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        Poll::Ready(Some(Ok(Frame::data(self.take_piece()))))
    }

    fn is_end_stream(&self) -> bool {
        self.unsent.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (unsent, body) = (self.unsent.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + unsent);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + unsent);
        }
        hint
    }
}

/// The requests in flight of one connection, each from its headers until the last byte of its
/// response is sent.
#[derive(Debug)]
pub(crate) struct ConnectionUse {
    requests: watch::Sender<u64>,
    responses: Mutex<HashMap<u64, ResponseProgress>>,
}

/// How far the client has read a response.
#[derive(Debug)]
struct ResponseProgress {
    /// Pieces that HTTP has and the client has not taken.
    pieces: usize,
    /// Whether HTTP waits for the next bytes of the response.
    waits_for_server: bool,
    /// When the last piece was given to HTTP, or taken by the client.
    changed: Instant,
}

impl ResponseProgress {
    fn is_unread_for(&self, time: Duration) -> bool {
        (self.pieces > 0 || !self.waits_for_server) && self.changed.elapsed() >= time
    }
}

impl ConnectionUse {
    pub(crate) fn new() -> (Arc<Self>, watch::Receiver<u64>) {
        let (requests, in_flight) = watch::channel(0);
        (Arc::new(Self { requests, responses: Mutex::default() }), in_flight)
    }

    /// Counts a request; `number` is unique in the connection.
    pub(crate) fn begin(self: &Arc<Self>, number: u64) -> InFlightRequest {
        self.requests.send_modify(|count| *count += 1);
        InFlightRequest { number, connection: Arc::clone(self) }
    }

    /// Whether the client has taken nothing of some response for this long.
    pub(crate) fn has_unread_for(&self, time: Duration) -> bool {
        self.lock_responses().values().any(|response| response.is_unread_for(time))
    }

    fn lock_responses(&self) -> MutexGuard<'_, HashMap<u64, ResponseProgress>> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
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
        let begun =
            ResponseProgress { pieces: 0, waits_for_server: false, changed: Instant::now() };
        self.connection.lock_responses().insert(self.number, begun);
        PieceBody::respond(response, TrackedRequest(Arc::new(self)))
    }

    /// Gives HTTP a piece, which counts as unread until the client has taken it.
    fn send_piece(self: Arc<Self>, bytes: Bytes) -> Bytes {
        self.update(|response| {
            response.pieces += 1;
            (response.waits_for_server, response.changed) = (false, Instant::now());
        });
        hold_bytes(bytes, SentPiece(self))
    }

    fn wait_for_server(&self) {
        self.update(|response| response.waits_for_server = true);
    }

    fn update(&self, change: impl FnOnce(&mut ResponseProgress)) {
        if let Some(response) = self.connection.lock_responses().get_mut(&self.number) {
            change(response);
        }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.connection.lock_responses().remove(&self.number);
        self.connection.requests.send_modify(|count| *count -= 1);
    }
}

/// A piece of a response that HTTP has. Its request is in flight as long as there is one.
struct SentPiece(Arc<InFlightRequest>);

impl Drop for SentPiece {
    fn drop(&mut self) {
        self.0.update(|response| {
            response.pieces -= 1;
            response.changed = Instant::now();
        });
    }
}

/// Notes the progress of a response.
struct TrackedRequest(Arc<InFlightRequest>);

impl PieceHolder for TrackedRequest {
    fn wait_for_frame(&mut self) {
        self.0.wait_for_server();
    }

    fn hold(&mut self, piece: Bytes, _is_last: bool) -> Bytes {
        Arc::clone(&self.0).send_piece(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt, stream};
    use http_body_util::BodyExt;
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

    #[tokio::test(start_paused = true)]
    async fn t203_a_request_is_in_flight_until_the_client_has_taken_the_last_piece() {
        let (connection, in_flight, mut body) = begun(Body::from(vec![b'x'; FRAME_BYTES_MAX + 1]));
        let frame = |frame: Option<Result<Frame<Bytes>, _>>| frame.unwrap().unwrap();
        let mut next = async || frame(body.frame().await).into_data().unwrap();
        let (first, last) = (next().await, next().await);
        // HTTP drops a body when it has its last piece, which the client may have no window for.
        drop((first, body));
        assert_eq!((last.len(), *in_flight.borrow()), (1, 1));
        tokio::time::advance(LONG).await;
        assert!(connection.has_unread_for(LONG));
        drop(last);
        assert!(*in_flight.borrow() == 0 && !connection.has_unread_for(LONG));
    }

    #[tokio::test(start_paused = true)]
    async fn t203_a_piece_that_is_left_unread_counts_though_the_server_has_no_more_yet() {
        let begin = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"begin"))]);
        let (connection, _in_flight, body) =
            begun(Body::from_stream(begin.chain(stream::pending())));
        let mut pieces = body.into_data_stream();
        let unread = pieces.next().await.unwrap().unwrap();
        assert!(futures_util::poll!(pieces.next()).is_pending());
        tokio::time::advance(LONG).await;
        assert!(connection.has_unread_for(LONG));
        drop(unread);
        tokio::time::advance(LONG).await;
        assert!(!connection.has_unread_for(LONG), "it waits for the server");
    }
}
