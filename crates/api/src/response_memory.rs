//! The memory of responses until the client has taken them: a body of known size is counted as a
//! whole before it is sent, a stream frame by frame.

use super::extract::SMALL_BYTES_MAX;
use super::rate_limit::BodyMemoryPermit;
use super::response_body::{PieceBody, PieceHolder, hold_bytes};
use axum::body::Bytes;
use axum::response::Response;
use std::sync::Arc;
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
    let memory = ResponseMemory { frame: None, is_counted, response_permits: Arc::new(permits) };
    PieceBody::respond(response, memory)
}

/// Counts the frames of a response.
struct ResponseMemory<T> {
    /// Of the frame whose pieces are being sent.
    frame: Option<Arc<FramePermits<T>>>,
    is_counted: bool,
    response_permits: Arc<ResponsePermits<T>>,
}

/// Held until all pieces of a frame are sent. They share its memory.
struct FramePermits<T> {
    _memory: Option<BodyMemoryPermit>,
    _response: Arc<ResponsePermits<T>>,
}

impl<T: Send + Sync + 'static> PieceHolder for ResponseMemory<T> {
    fn begin_frame(&mut self, bytes: usize) -> Result<(), Error> {
        let is_counted = self.is_counted || bytes <= SMALL_BYTES_MAX;
        let memory = match is_counted {
            true => None,
            false => Some(self.response_permits.memory.add_apart(bytes)?),
        };
        let response = Arc::clone(&self.response_permits);
        self.frame = Some(Arc::new(FramePermits { _memory: memory, _response: response }));
        Ok(())
    }

    fn hold(&mut self, piece: Bytes, is_last: bool) -> Bytes {
        hold_bytes(piece, if is_last { self.frame.take() } else { self.frame.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate_limit::{BodyKind, RateLimiter, RequestLimits};
    use axum::body::{Body, HttpBody};
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
