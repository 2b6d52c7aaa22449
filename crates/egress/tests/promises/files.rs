//! The result of a fetch: the bytes under a suitable name, or one sentence that says why not.

use crate::server::{Server, config, fetch, ok, redirect, say};
use belljar_egress::{FetchError, Fetcher};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use types::Error;

#[tokio::test]
async fn a_file_of_an_excepted_host_is_fetched_as_it_is() {
    let body: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
    let headers = "Content-Type: Text/CSV; charset=utf-8\r\n\
                   Content-Disposition: attachment; filename*=UTF-8''gr%C3%B6%C3%9Fe.csv\r\n";
    let server = Server::saying(ok(headers, &body)).await;
    let (fetched, bytes) = fetch(server.config(), &server.url("/a/b.bin?c#d")).await;
    let fetched = fetched.unwrap();
    assert!(bytes == body);
    assert_eq!(fetched.name, "größe.csv");
    assert_eq!(fetched.mime, "text/csv");
    assert_eq!(fetched.size, 1_000_000);
    assert_eq!(fetched.final_url, server.url("/a/b.bin?c"));
    let hash: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(fetched.sha256, hash);
}

#[tokio::test]
async fn a_file_without_a_name_or_a_type_gets_harmless_ones() {
    let server = Server::saying(ok("Content-Type: <script>\r\n", b"x")).await;
    let (fetched, _) = fetch(server.config(), &server.url("/")).await;
    let fetched = fetched.unwrap();
    assert_eq!(
        (fetched.name.as_str(), fetched.mime.as_str()),
        ("download", "application/octet-stream")
    );
}

#[tokio::test]
async fn a_chunked_file_and_one_that_ends_with_its_connection_arrive_whole() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    for answer in [chunked, "HTTP/1.0 200 OK\r\n\r\nabcde"] {
        let server = Server::saying(answer).await;
        let (fetched, bytes) = fetch(server.config(), &server.url("/")).await;
        assert_eq!(fetched.unwrap().size, 5);
        assert_eq!(bytes, b"abcde");
    }
}

#[tokio::test]
async fn redirects_are_followed_and_carry_nothing_along() {
    let server = Server::start(|path, stream| {
        let answer = match path.as_str() {
            "/short" => [
                "HTTP/1.1 307 Temporary Redirect\r\nSet-Cookie: id=1\r\n".as_bytes(),
                "Location: ../long/data.json\r\nContent-Length: 0\r\n\r\n".as_bytes(),
            ]
            .concat(),
            _ => ok("", b"{}"),
        };
        say(stream, answer)
    })
    .await;
    let (fetched, bytes) = fetch(server.config(), &server.url("/short")).await;
    let fetched = fetched.unwrap();
    assert_eq!((fetched.name.as_str(), bytes.as_slice()), ("data.json", b"{}".as_slice()));
    assert_eq!(fetched.final_url, server.url("/long/data.json"));
    let heads = server.heads.lock().unwrap();
    assert_eq!(heads.len(), 2);
    for head in heads.iter().map(|head| head.to_lowercase()) {
        assert!(head.contains("accept-encoding: identity\r\n"), "{head}");
        let fields = head.lines().skip(1).filter_map(|line| line.split(':').next());
        let mut fields: Vec<&str> = fields.filter(|field| !field.is_empty()).collect();
        fields.sort_unstable();
        assert_eq!(fields, ["accept", "accept-encoding", "host", "user-agent"]);
    }
}

#[tokio::test]
async fn an_answer_that_is_not_the_file_is_an_error_with_its_status() {
    for status in [201, 204, 206, 300, 304, 305, 401, 404, 418, 500, 503] {
        let server =
            Server::saying(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")).await;
        let (fetched, bytes) = fetch(server.config(), &server.url("/")).await;
        assert!(matches!(fetched, Err(FetchError::Status { status: seen }) if seen == status));
        assert!(bytes.is_empty());
    }
}

#[tokio::test]
async fn a_fault_tells_the_status_and_nothing_else_that_was_answered() {
    let server = Server::start(|path, stream| {
        let answer = match path.as_str() {
            "/redirect" => redirect("http://hidden.test/secret"),
            "/scheme" => redirect("secret://hidden.test/"),
            _ => {
                b"HTTP/1.1 500 secret\r\nX-Key: secret\r\nContent-Length: 6\r\n\r\nsecret".to_vec()
            }
        };
        say(stream, answer)
    })
    .await;
    let mut texts = Vec::new();
    for path in ["/", "/redirect", "/scheme"] {
        let (fetched, _) = fetch(server.config(), &server.url(path)).await;
        let error = Error::from(fetched.unwrap_err());
        assert_eq!(error.code.to_string(), "file.fetch_failed");
        texts.push(error.to_string());
    }
    assert!(texts[0].contains("500"));
    for text in texts {
        assert!(!text.contains("secret") && !text.contains("hidden"), "{text}");
    }
}

#[tokio::test]
async fn a_name_of_the_inner_network_reads_like_one_that_does_not_exist() {
    let known = config(&[("inside.test", "10.0.0.1:8080".parse().unwrap())]);
    let (inside, _) = fetch(known.clone(), "http://inside.test/").await;
    let (nowhere, _) = fetch(known, "http://nowhere.test/").await;
    let (inside, nowhere) = (inside.unwrap_err(), nowhere.unwrap_err());
    assert!(matches!(inside, FetchError::Route { .. }));
    assert!(matches!(nowhere, FetchError::Unresolved { .. }));
    assert_eq!(Error::from(inside), Error::from(nowhere));
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_an_error_of_its_own() {
    let server = Server::saying(ok("", b"abc")).await;
    let (mut into, reader) = tokio::io::duplex(1);
    drop(reader);
    let fetcher = Fetcher::new(server.config());
    let fetched = fetcher.fetch(&server.url("/"), &mut into).await;
    assert!(matches!(fetched, Err(FetchError::Write(_))), "{fetched:?}");
}

/// Serves one file over TLS with a self-signed certificate. Returns its address, the certificate,
/// and whether the file was requested.
async fn tls_server() -> (SocketAddr, String, JoinHandle<bool>) {
    let own = rcgen::generate_simple_self_signed(["docs.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handshake = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = acceptor.accept(stream).await else { return false };
        let handshake = stream.read_u8().await.is_ok();
        let _ = stream.write_all(&ok("", b"abc")).await;
        let _ = stream.shutdown().await;
        handshake
    });
    (address, own.cert.pem(), handshake)
}

#[tokio::test]
async fn a_server_with_an_untrusted_certificate_is_not_asked() {
    let (address, _, handshake) = tls_server().await;
    let url = format!("https://docs.test:{}/", address.port());
    let (fetched, _) = fetch(config(&[("docs.test", address)]), &url).await;
    let error = fetched.unwrap_err();
    assert!(matches!(error, FetchError::Connect(_)), "{error:?}");
    assert!(format!("{error:?}").contains("UnknownIssuer"), "{error:?}");
    assert!(!handshake.await.unwrap());
}

/// The trusted certificates come from the environment, so the counterpart runs in a process with
/// another one.
#[tokio::test]
async fn a_server_that_the_machine_trusts_is_asked() {
    let (address, certificate, handshake) = tls_server().await;
    let mut trusted = tempfile::NamedTempFile::new().unwrap();
    trusted.write_all(certificate.as_bytes()).unwrap();
    let mut inner = Command::new(std::env::current_exe().unwrap());
    inner.args(["--ignored", "--exact", "files::fetches_from_a_server_that_is_trusted"]);
    inner.env("SSL_CERT_FILE", trusted.path()).env("DOCS_TEST", address.to_string());
    let output = tokio::task::spawn_blocking(move || inner.output().unwrap()).await.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("1 passed"), "{printed}");
    assert!(handshake.await.unwrap());
}

#[tokio::test]
#[ignore = "the test above runs it where its server is trusted"]
async fn fetches_from_a_server_that_is_trusted() {
    let address: SocketAddr = std::env::var("DOCS_TEST").unwrap().parse().unwrap();
    let url = format!("https://docs.test:{}/", address.port());
    let (fetched, bytes) = fetch(config(&[("docs.test", address)]), &url).await;
    assert_eq!(fetched.unwrap().final_url, url);
    assert_eq!(bytes, b"abc");
}
