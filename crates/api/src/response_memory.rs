//! The memory of responses until the client has taken them: a body of known size is counted as a
//! whole before it is sent, a stream frame by frame.

use super::extract::SMALL_BYTES_MAX;
use super::rate_limit::BodyMemoryPermit;
use super::response_body::{hold_bytes, size_with_rest, take_piece};
use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use types::Error;

/// The reservation for the response of this request, as an extension of the request.
#[derive(Debug, Clone)]
pub(crate) struct ReservedResponse(pub(crate) Arc<BodyMemoryPermit>);

/// Held until the last byte of a response is sent.
pub(crate) struct ResponsePermits<T> {
    memory: Arc<BodyMemoryPermit>,
    /// What counts as one concurrent request.
    _request: T,
}

impl<T> ResponsePermits<T> {
    pub(crate) fn new(memory: Arc<BodyMemoryPermit>, request: T) -> Self {
        Self { memory, _request: request }
    }
}

/// Keeps the permits until HTTP has sent the last byte, and counts the frames of a response that is
/// not counted as a whole. A stream ends early if a frame exceeds the limit of unread responses.
pub(crate) fn hold_until_taken<T: Send + Sync + 'static>(
    response: Response,
    permits: ResponsePermits<T>,
) -> Response {
    let is_counted = !permits.memory.is_empty();
    let response_permits = Arc::new(permits);
    response.map(|body| {
        Body::new(CountedBody {
            body,
            rest: Bytes::new(),
            frame: None,
            is_counted,
            response_permits,
        })
    })
}

struct CountedBody<T> {
    body: Body,
    /// What is left of a frame of the body.
    rest: Bytes,
    /// Of that frame.
    frame: Option<Arc<FramePermits<T>>>,
    is_counted: bool,
    response_permits: Arc<ResponsePermits<T>>,
}

/// Held until all pieces of a frame are sent. They share its memory.
struct FramePermits<T> {
    _memory: Option<BodyMemoryPermit>,
    _response: Arc<ResponsePermits<T>>,
}

impl<T> CountedBody<T> {
    fn begin_frame(&mut self, data: Bytes) -> Result<(), Error> {
        let is_counted = self.is_counted || data.len() <= SMALL_BYTES_MAX;
        let memory = match is_counted {
            true => None,
            false => Some(self.response_permits.memory.add_apart(data.len())?),
        };
        let response = Arc::clone(&self.response_permits);
        self.frame = Some(Arc::new(FramePermits { _memory: memory, _response: response }));
        self.rest = data;
        Ok(())
    }
}

impl<T: Send + Sync + 'static> CountedBody<T> {
    fn next_piece(&mut self) -> Bytes {
        let piece = take_piece(&mut self.rest);
        let frame = if self.rest.is_empty() { self.frame.take() } else { self.frame.clone() };
        hold_bytes(piece, frame)
    }
}

impl<T: Send + Sync + 'static> HttpBody for CountedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        if let Err(error) = self.begin_frame(data) {
                            tracing::info!(error = error.message, "a response ends early");
                            let ended = axum::Error::new(io::Error::other(error.message));
                            return Poll::Ready(Some(Err(ended)));
                        }
                    }
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        Poll::Ready(Some(Ok(Frame::data(self.next_piece()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        size_with_rest(&self.body, &self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate_limit::{BodyKind, RateLimiter, RequestLimits};
    use futures_util::stream;
    use http_body_util::BodyExt;
    use service::RateLimitSubject;
    use std::convert::Infallible;
    use types::{KeyId, WorkspaceId};
    use uuid::Uuid;

    const MIB: usize = 1024 * 1024;

    fn limiter() -> RateLimiter {
        RateLimiter::new(RequestLimits { rate_per_second: 5, concurrency: 100, mcp_sessions: 1 })
    }

    fn permit(limiter: &RateLimiter) -> Arc<BodyMemoryPermit> {
        let (subject, workspace) =
            (RateLimitSubject::Key(KeyId::new(Uuid::nil())), WorkspaceId::new(Uuid::nil()));
        Arc::new(limiter.body_permit(BodyKind::Response, subject, workspace))
    }

    /// A stream of frames with these sizes.
    fn stream_of(limiter: &RateLimiter, sizes: &'static [usize]) -> Body {
        let frames = sizes.iter().map(|size| Ok::<_, Infallible>(Bytes::from(vec![b'x'; *size])));
        let response = Response::new(Body::from_stream(stream::iter(frames)));
        hold_until_taken(response, ResponsePermits::new(permit(limiter), ())).into_body()
    }

    async fn take(body: &mut Body, mut bytes: usize) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        while bytes > 0 {
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            bytes -= piece.len();
            pieces.push(piece);
        }
        pieces
    }

    #[tokio::test]
    async fn t211_a_frame_of_a_stream_counts_until_all_of_its_pieces_are_taken() {
        let limiter = limiter();
        let mut body = stream_of(&limiter, &[2 * MIB, 100, 3 * MIB]);
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(first.len() < MIB && limiter.response_bytes() == 2 * MIB);
        let mut rest = take(&mut body, 2 * MIB - first.len()).await;
        let last = rest.pop();
        drop((first, rest));
        assert_eq!(limiter.response_bytes(), 2 * MIB, "a piece pins the whole frame");
        drop(last);
        assert_eq!(limiter.response_bytes(), 0);
        assert_eq!(take(&mut body, 100).await.len(), 1);
        assert_eq!(limiter.response_bytes(), 0, "small frames are not counted");
        let pieces = take(&mut body, 3 * MIB).await;
        assert!(body.frame().await.is_none());
        drop(body);
        assert_eq!(limiter.response_bytes(), 3 * MIB, "HTTP has the pieces, not the client");
        drop(pieces);
        assert_eq!(limiter.response_bytes(), 0);
    }

    #[tokio::test]
    async fn t211_a_stream_ends_early_if_its_key_leaves_too_much_unread() {
        let limiter = limiter();
        let mut unread = Vec::new();
        for _ in 0..16 {
            let mut body = stream_of(&limiter, &[4 * MIB]);
            unread.push((body.frame().await.unwrap().unwrap(), body));
        }
        let mut refused = stream_of(&limiter, &[4 * MIB]);
        assert!(refused.frame().await.unwrap().is_err());
        unread.pop();
        let mut next = stream_of(&limiter, &[4 * MIB]);
        assert!(next.frame().await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn t203_a_whole_body_counts_once_and_until_its_last_piece_is_taken() {
        let limiter = limiter();
        let memory = permit(&limiter);
        memory.add(2 * MIB).unwrap();
        let response = Response::new(Body::from(vec![b'x'; 2 * MIB]));
        let permits = ResponsePermits::new(memory, ());
        let mut body = hold_until_taken(response, permits).into_body();
        assert_eq!(body.size_hint().exact(), Some(2 * MIB as u64));
        let mut pieces = take(&mut body, 2 * MIB).await;
        drop(body);
        pieces.drain(1..);
        assert_eq!(limiter.response_bytes(), 2 * MIB);
        drop(pieces);
        assert_eq!(limiter.response_bytes(), 0);
    }
}
