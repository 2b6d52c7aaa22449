//! Accepts connections up to a limit, serves them with deadlines, and shuts down gracefully.
//!
//! A client keeps its connection while the server answers a request, and for a short time before
//! and after. A client that sends slowly, or nothing, occupies one connection for that time and no
//! other resource.

use super::idle_connections::IdleConnections;
use super::response_body::ConnectionUse;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt::set_tcp_user_timeout;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::{ServiceExt, service_fn};

/// Far more than the sandboxes of one machine need.
const CONNECTIONS_MAX: usize = 4_096;
/// A working client sends its headers at once, and its next request soon after a response.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer that acknowledges nothing for this long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// A client that takes nothing of one of its responses for this long will not read the rest. Longer
/// than a pause of a program between two parts of a stream.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(300);
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Streams of one HTTP/2 connection. Each can be a running execution.
const STREAMS_MAX: u32 = 256;
/// Pause after `accept` fails for lack of file descriptors; only waiting helps.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop` completes, then finishes the requests in flight, for at most `responses`. Uses
/// at most half of the process's `descriptors`; sandboxes and files need the rest.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()>,
    responses: Duration,
    descriptors: usize,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX.min(descriptors / 2)));
    let graceful = GracefulShutdown::new();
    let idle = Arc::new(IdleConnections::default());
    let builder = builder();
    let mut stop = pin!(stop);
    loop {
        let (stream, from, permit) = tokio::select! {
            accepted = accept(&listener, &slots, &idle) => accepted,
            () = &mut stop => break,
        };
        let (requests, in_flight) = ConnectionUse::new();
        let served = service(&router, Arc::clone(&requests));
        let connection = builder.serve_connection(TokioIo::new(stream), served);
        let connection = graceful.watch(connection.into_owned());
        let idle = Arc::clone(&idle);
        tokio::spawn(async move {
            tokio::select! {
                // Connection errors are the client's concern; the request log has what was done.
                _ = connection => {}
                () = until_unused(&requests, in_flight, &idle, from) => {}
            }
            drop(permit);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(responses, graceful.shutdown()).await;
}

/// Accepts the next connection. At the limit, it evicts an idle connection first.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    idle: &IdleConnections,
) -> (TcpStream, IpAddr, OwnedSemaphorePermit) {
    loop {
        let (stream, from) = match listener.accept().await {
            Ok((stream, from)) => (stream, from.ip()),
            Err(error) => {
                pause_after_accept_error(&error).await;
                continue;
            }
        };
        if slots.available_permits() == 0 {
            idle.evict_one();
        }
        match Arc::clone(slots).acquire_owned().await {
            Ok(permit) => return (configure_socket(stream), from, permit),
            Err(_) => return std::future::pending().await,
        }
    }
}

async fn pause_after_accept_error(error: &io::Error) {
    tracing::warn!(%error, "accepting a connection failed");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_headers(HEADERS_MAX).max_buf_size(HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX as u32)
        .keep_alive_interval(IDLE_TIMEOUT);
    builder
}

/// Wraps the router to count the requests in flight of one connection.
fn service(
    router: &Router,
    requests: Arc<ConnectionUse>,
) -> TowerToHyperService<
    impl tower::Service<
        Request<Incoming>,
        Response = axum::response::Response,
        Error = std::convert::Infallible,
        Future: Send,
    > + Clone
    + Send
    + 'static,
> {
    let (router, numbers) = (router.clone(), Arc::new(AtomicU64::new(0)));
    TowerToHyperService::new(service_fn(move |request: Request<Incoming>| {
        let begun = requests.begin(numbers.fetch_add(1, Ordering::Relaxed));
        let response = router.clone().oneshot(request.map(Body::new));
        async move { response.await.map(|response| begun.respond(response)) }
    }))
}

/// Returns when no request was in flight for [`IDLE_TIMEOUT`], when a response was left unread for
/// [`UNREAD_TIMEOUT`], or earlier if the idle connection is evicted.
async fn until_unused(
    requests: &ConnectionUse,
    mut in_flight: watch::Receiver<u64>,
    idle: &Arc<IdleConnections>,
    from: IpAddr,
) {
    loop {
        if *in_flight.borrow_and_update() > 0 {
            tokio::select! {
                changed = in_flight.changed() => if changed.is_err() { return },
                () = until_unread(requests) => return,
            }
            continue;
        }
        let registered = idle.register(from);
        tokio::select! {
            changed = in_flight.changed() => if changed.is_err() { return },
            () = registered.evicted() => return,
            () = tokio::time::sleep(IDLE_TIMEOUT) => return,
        }
    }
}

/// Returns when the client has taken nothing of some response for [`UNREAD_TIMEOUT`].
async fn until_unread(requests: &ConnectionUse) {
    while !requests.has_unread_for(UNREAD_TIMEOUT) {
        tokio::time::sleep(IDLE_TIMEOUT).await;
    }
}

fn configure_socket(stream: TcpStream) -> TcpStream {
    // Send small responses at once. On failure the connection is only slower.
    let _ = stream.set_nodelay(true);
    let untaken = u32::try_from(WRITE_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    // On failure a dead connection only lasts longer.
    let _ = set_tcp_user_timeout(&stream, untaken);
    stream
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Bytes;
    use axum::response::Response;
    use futures_util::StreamExt;
    use std::net::Ipv4Addr;
    use tokio::time::timeout;

    const BODY_BYTES: usize = 1024 * 1024;
    const FROM: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// One request of a connection: the connection, and how many are in flight.
    struct OneRequest {
        connection: Arc<ConnectionUse>,
        in_flight: watch::Receiver<u64>,
    }

    impl OneRequest {
        /// Whether the connection is still open after a time.
        async fn is_open_after(&self, time: Duration) -> bool {
            let idle = Arc::new(IdleConnections::default());
            let closed = until_unused(&self.connection, self.in_flight.clone(), &idle, FROM);
            timeout(time, closed).await.is_err()
        }
    }

    fn respond() -> (OneRequest, Body) {
        let (connection, in_flight) = ConnectionUse::new();
        let response = Response::new(Body::from(vec![b'x'; BODY_BYTES]));
        let response = connection.begin(0).respond(response);
        (OneRequest { connection, in_flight }, response.into_body())
    }

    #[tokio::test(start_paused = true)]
    async fn t203_a_connection_ends_when_a_response_was_left_unread_for_five_minutes() {
        let (request, body) = respond();
        assert!(request.is_open_after(UNREAD_TIMEOUT - Duration::from_secs(1)).await);
        assert!(!request.is_open_after(2 * IDLE_TIMEOUT).await);
        drop(body);
    }

    #[tokio::test(start_paused = true)]
    async fn t203_a_connection_stays_open_while_the_client_reads_or_waits_for_the_server() {
        let (request, body) = respond();
        let mut pieces = body.into_data_stream();
        while let Some(piece) = pieces.next().await {
            let _unread: Bytes = piece.unwrap();
            assert!(request.is_open_after(UNREAD_TIMEOUT - Duration::from_secs(1)).await);
        }
        let (connection, in_flight) = ConnectionUse::new();
        let _running = connection.begin(0);
        let running = OneRequest { connection, in_flight };
        assert!(running.is_open_after(10 * UNREAD_TIMEOUT).await, "it has no response yet");
    }

    #[tokio::test(start_paused = true)]
    async fn t203_a_client_that_pauses_before_the_last_piece_keeps_its_connection() {
        let (request, body) = respond();
        let mut pieces: Vec<_> = body.into_data_stream().collect().await;
        let last = pieces.pop();
        drop(pieces);
        assert!(request.is_open_after(3 * IDLE_TIMEOUT).await);
        drop(last);
        assert!(!request.is_open_after(3 * IDLE_TIMEOUT).await, "nothing is in flight");
    }
}
