//! A hostile server can cost only a limited number of bytes and amount of time.

use crate::server::{Server, fetch, ok, redirect, say};
use crate::wait;
use belljar_egress::{FetchConfig, FetchError, FetchedFile};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const CAP: u64 = 100_000;
const IDLE: Duration = Duration::from_secs(1);
const TIME: Duration = Duration::from_secs(3);
/// Extra time for a busy machine.
const SLACK: Duration = Duration::from_secs(2);

/// 64 KiB of zeros in 96 bytes. Members can be put behind one another.
const GZIP_MEMBER: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\xed\xc1\x01\x01\0\0\0\x80\x90\xfe\
    \xaf\xee\x08\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0j\xeb\x8e\x97\xd7\0\0\x01\0";

fn bounded(server: &Server) -> FetchConfig {
    FetchConfig { bytes_max: CAP, idle_max: IDLE, time_max: TIME, ..server.config() }
}

/// Fetches within the bounds, and takes no longer than they say.
async fn fetch_bounded(server: &Server) -> (Result<FetchedFile, FetchError>, Vec<u8>) {
    let start = Instant::now();
    let (fetched, bytes) = fetch(bounded(server), &server.url("/")).await;
    assert!(start.elapsed() < TIME + SLACK, "{:?}", start.elapsed());
    assert!(bytes.len() as u64 <= CAP);
    (fetched, bytes)
}

/// Sends something once, then something else without end.
async fn for_ever(mut stream: TcpStream, once: &str, again: &[u8], pause: Duration) {
    let mut written = stream.write_all(once.as_bytes()).await;
    while written.is_ok() {
        wait::slow_peer(pause).await;
        written = stream.write_all(again).await;
    }
}

#[tokio::test]
async fn t36_an_endless_body_is_cut_at_the_cap() {
    let plain = "HTTP/1.1 200 OK\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("2000\r\n{}\r\n", "x".repeat(0x2000));
    for (head, part) in [(plain, vec![b'x'; 8_192]), (chunked, chunk.into_bytes())] {
        let server = Server::start(move |_, stream| {
            let part = part.clone();
            async move { for_ever(stream, head, &part, Duration::ZERO).await }
        })
        .await;
        let (fetched, _) = fetch_bounded(&server).await;
        assert!(matches!(fetched, Err(FetchError::TooLarge { max: CAP })), "{fetched:?}");
    }
}

#[tokio::test]
async fn t36_a_body_that_is_announced_as_too_large_is_not_read() {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\nabc", CAP + 1);
    let (fetched, bytes) = fetch_bounded(&Server::saying(answer).await).await;
    assert!(matches!(fetched, Err(FetchError::TooLarge { max: CAP })), "{fetched:?}");
    assert!(bytes.is_empty());
}

#[tokio::test]
async fn t36_a_body_of_exactly_the_cap_arrives() {
    let body = vec![b'x'; usize::try_from(CAP).unwrap()];
    let (fetched, bytes) = fetch_bounded(&Server::saying(ok("", &body)).await).await;
    assert_eq!(fetched.unwrap().size, CAP);
    assert!(bytes == body);
}

#[tokio::test]
async fn t36_a_body_that_drips_is_left_when_its_time_is_over() {
    let server =
        Server::start(|_, stream| for_ever(stream, "HTTP/1.1 200 OK\r\n\r\n", b"x", IDLE / 4))
            .await;
    let (fetched, bytes) = fetch_bounded(&server).await;
    assert!(matches!(fetched, Err(FetchError::Timeout { max: TIME })), "{fetched:?}");
    assert!(!bytes.is_empty());
}

#[tokio::test]
async fn t36_a_server_that_stops_sending_is_disconnected() {
    let once_a_minute = Duration::from_secs(60);
    for sent in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"] {
        let server =
            Server::start(move |_, stream| for_ever(stream, sent, b"", once_a_minute)).await;
        let (fetched, _) = fetch_bounded(&server).await;
        assert!(
            matches!(fetched, Err(FetchError::IdleTimeout { max: IDLE })),
            "{sent:?}: {fetched:?}"
        );
    }
}

#[tokio::test]
async fn t36_an_answer_that_never_begins_is_left() {
    let dripping_header = ("HTTP/1.1 200 OK\r\nX-Long: ", "x");
    let promises = ("", "HTTP/1.1 100 Continue\r\n\r\n");
    for (once, again) in [dripping_header, promises] {
        let server =
            Server::start(move |_, stream| for_ever(stream, once, again.as_bytes(), IDLE / 8))
                .await;
        let (fetched, _) = fetch_bounded(&server).await;
        assert!(matches!(fetched, Err(FetchError::IdleTimeout { max: IDLE })), "{fetched:?}");
    }
}

#[tokio::test]
async fn t36_a_bomb_stays_as_small_as_it_was_packed() {
    let bomb = GZIP_MEMBER.repeat(1_000);
    for coding in ["gzip", "x-gzip", "deflate", "br", "zstd", "gzip, gzip"] {
        let answer = ok(&format!("Content-Encoding: {coding}\r\n"), &bomb);
        let (fetched, bytes) = fetch_bounded(&Server::saying(answer).await).await;
        assert_eq!(fetched.unwrap().size, 96_000, "{coding}");
        assert!(bytes == bomb);
    }
}

#[tokio::test]
async fn t36_headers_are_bounded_in_number_and_in_bytes() {
    let many = |count: usize| -> String { (0..count).map(|n| format!("X-{n}: y\r\n")).collect() };
    let (fetched, _) = fetch_bounded(&Server::saying(ok(&many(90), b"abc")).await).await;
    assert_eq!(fetched.unwrap().size, 3);
    let long = format!("X-Long: {}\r\n", "x".repeat(1_000_000));
    for headers in [many(10_000), many(101), long] {
        let (fetched, _) = fetch_bounded(&Server::saying(ok(&headers, b"abc")).await).await;
        assert!(matches!(fetched, Err(FetchError::InvalidResponse(_))), "{fetched:?}");
    }
}

#[tokio::test]
async fn t36_a_redirect_loop_ends_and_a_chain_that_is_short_enough_arrives() {
    let server = Server::start(|path, stream| {
        let left: usize = path.trim_start_matches('/').parse().unwrap();
        let answer = match left {
            0 => ok("", b"abc"),
            left => redirect(&format!("/{}", left - 1)),
        };
        say(stream, answer)
    })
    .await;
    let config = FetchConfig { redirects_max: 3, ..server.config() };
    let (fetched, _) = fetch(config.clone(), &server.url("/3")).await;
    assert_eq!(fetched.unwrap().size, 3);
    let (fetched, _) = fetch(config.clone(), &server.url("/4")).await;
    assert!(matches!(fetched, Err(FetchError::TooManyRedirects { max: 3 })), "{fetched:?}");

    let endless = Server::saying(redirect("/")).await;
    let (fetched, _) = fetch_bounded(&endless).await;
    assert!(matches!(fetched, Err(FetchError::TooManyRedirects { max: 5 })), "{fetched:?}");
    assert_eq!(endless.requests(), 6);
}

#[tokio::test]
async fn t36_what_is_broken_or_no_http_is_an_error() {
    let broken = [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\n\
        Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\n\
        Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc",
    ];
    for answer in broken {
        let (fetched, _) = fetch_bounded(&Server::saying(answer).await).await;
        assert!(matches!(fetched, Err(FetchError::Incomplete(_))), "{answer:?}: {fetched:?}");
    }
    for answer in ["", "SSH-2.0-OpenSSH_9.9\r\n", "HTTP/1.1 200 OK\r\na b: c\r\n\r\n", "HTTP/9.9"] {
        let (fetched, _) = fetch_bounded(&Server::saying(answer).await).await;
        assert!(matches!(fetched, Err(FetchError::InvalidResponse(_))), "{answer:?}: {fetched:?}");
    }
    for answer in ["HTTP/1.1 302 X\r\n\r\n", "HTTP/1.1 302 X\r\nLocation: \u{80}\r\n\r\n"] {
        let bytes: Vec<u8> = answer.chars().map(|byte| byte as u8).collect();
        let (fetched, _) = fetch_bounded(&Server::saying(bytes).await).await;
        assert!(matches!(fetched, Err(FetchError::MissingLocation)), "{answer:?}: {fetched:?}");
    }
}
