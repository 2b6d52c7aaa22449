//! Measures the overhead of egress: a Python client sends requests to a host on this machine, in
//! turns without isolation and from a session of a real server through its proxy.
//!
//! `open` is a host that a network rule allows, whose TLS the proxy forwards; `keyed` is one with a
//! credential, whose TLS the proxy terminates and re-encrypts.

use super::super::CliError;
use super::measure::percentile;
use super::report::{Figure, FigureTarget, format_ms};
use super::server::{BenchServer, cli_error};
use bytes::Bytes;
use engine::UnsandboxedPython;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

const CLIENT: &str = include_str!("../../../../../bench/network.py");
/// Names of the host as sandboxes know it; outside it is `localhost`.
const OPEN: &str = "open.bench.internal";
const KEYED: &str = "keyed.bench.internal";
const ROUNDS: usize = 5;
const DOWNLOAD_BYTES: usize = 1 << 30;
const DOWNLOADS: usize = 3;
const AT_ONCE: usize = 200;
static TEXT: [u8; 64 * 1024] = filler_text();
/// A value as long as a typical API key.
const KEY: &str = "sk-bench-Zm9yIG5vYm9keSBhdCBhbGwgYW5kIG5vdGhpbmc";
/// The slowest machine downloads for less than this.
const WALL_MS: u64 = 300_000;

pub(super) async fn measure(
    outside: &UnsandboxedPython,
    environment: &str,
    data: &Path,
    samples: usize,
    report: &mut (dyn FnMut(&str) + Send),
) -> Result<Vec<Figure>, CliError> {
    let both = ProxyBench::start(outside, environment, data).await?;
    let mut figures = Vec::new();
    for (name, keeps_connection, host) in
        [("open_small", "open_kept", OPEN), ("keyed_small", "keyed_kept", KEYED)]
    {
        report(name);
        figures.push(both.requests(name, "small", host, samples).await?);
        figures.push(both.requests(keeps_connection, "kept", host, samples).await?);
    }
    for (name, host) in [("open_1_gib", OPEN), ("keyed_1_gib", KEYED)] {
        report(name);
        figures.push(both.download(name, host).await?);
    }
    for (name, host) in [("open_200_errors", OPEN), ("keyed_200_errors", KEYED)] {
        report(name);
        figures.push(both.concurrent_requests(name, host).await?);
    }
    Ok(figures)
}

/// The client, outside and inside a sandbox.
struct ProxyBench {
    outside: UnsandboxedPython,
    server: BenchServer,
    session: String,
    target: BenchHost,
}

impl ProxyBench {
    async fn start(
        outside: &UnsandboxedPython,
        environment: &str,
        data: &Path,
    ) -> Result<Self, CliError> {
        let host = BenchHost::start().await?;
        let names = [OPEN, KEYED].map(|name| format!("{name}=127.0.0.1"));
        let options = ["--resolve", &names[0], "--resolve", &names[1]];
        let trusting = [("SSL_CERT_FILE", host.certificate_path())];
        let served = BenchServer::start(data, environment, &options, &trusting).await?;
        let (open, keyed) = (format!("{OPEN}:{}", host.port), format!("{KEYED}:{}", host.port));
        let values = [open, format!("127.0.0.1:{}", host.port)];
        let header = json!({"host": keyed, "name": "X-Api-Key"});
        for (path, body) in [
            ("network-rules", json!({"name": "bench", "value_list": values})),
            ("integrations", json!({"name": "bench", "allowed_network_rules": ["bench"]})),
            ("secrets", json!({"name": "bench", "value": KEY, "inject": {"header": header}})),
        ] {
            let (status, answer) = served.post(&format!("/v1/{path}"), &body).await?;
            if !status.is_success() {
                return Err(CliError::internal(format!("{path}: {answer}")));
            }
        }
        let session = served.open_session(&json!({"integrations": ["bench"]})).await?;
        Ok(Self { outside: outside.clone(), server: served, session, target: host })
    }

    /// Calls a function of the client without isolation.
    async fn direct(&self, call: &str, size: usize) -> Result<Vec<f64>, CliError> {
        let url = format!("https://localhost:{}", self.target.port);
        let code = format!("{CLIENT}\nimport json\nprint(json.dumps({call}({url:?}, {size})))");
        let ran = Command::new(&self.outside.interpreter)
            .args(["-I", "-c", &code])
            .env("SSL_CERT_FILE", self.target.certificate_path())
            .output();
        let ran = ran.await.map_err(|error| cli_error(&error))?;
        let result = serde_json::from_slice(&ran.stdout);
        result.map_err(|_| CliError::internal(String::from_utf8_lossy(&ran.stderr)))
    }

    /// Calls a function of the client in a sandbox.
    async fn proxied(&self, call: &str, host: &str, size: usize) -> Result<Vec<f64>, CliError> {
        let url = format!("https://{host}:{}", self.target.port);
        let code = format!("{CLIENT}\n{call}({url:?}, {size})");
        let path = format!("/v1/sessions/{}/execute", self.session);
        let body = json!({"code": code, "limits": {"wall_ms": WALL_MS}});
        let (_, mut record) = self.server.post(&path, &body).await?;
        let result = serde_json::from_value(record["value"].take());
        result.map_err(|_| CliError::internal(format!("unexpected record: {}", record["error"])))
    }

    async fn requests(
        &self,
        name: &'static str,
        call: &str,
        host: &str,
        samples: usize,
    ) -> Result<Figure, CliError> {
        let (mut direct, mut proxied) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            direct.extend(self.direct(call, samples.div_ceil(ROUNDS)).await?);
            proxied.extend(self.proxied(call, host, samples.div_ceil(ROUNDS)).await?);
        }
        let (direct, proxied) = (p50(&direct), p50(&proxied));
        Ok(Figure {
            name,
            value: proxied.as_secs_f64() / direct.as_secs_f64(),
            unit: "x direct",
            target: FigureTarget::AtMost(3.0),
            raw: format!("{} against {}", format_ms(proxied), format_ms(direct)),
        })
    }

    async fn download(&self, name: &'static str, host: &str) -> Result<Figure, CliError> {
        let (mut direct, mut proxied) = (Vec::new(), Vec::new());
        for _ in 0..DOWNLOADS {
            direct.extend(self.direct("download", DOWNLOAD_BYTES).await?);
            proxied.extend(self.proxied("download", host, DOWNLOAD_BYTES).await?);
        }
        let (direct, proxied) = (p50(&direct).as_secs_f64(), p50(&proxied).as_secs_f64());
        let rate = |seconds: f64| (DOWNLOAD_BYTES >> 20) as f64 / seconds;
        Ok(Figure {
            name,
            value: direct / proxied,
            unit: "of direct",
            target: FigureTarget::AtLeast(0.5),
            raw: format!("{:.0} against {:.0} MiB/s", rate(proxied), rate(direct)),
        })
    }

    async fn concurrent_requests(
        &self,
        name: &'static str,
        host: &str,
    ) -> Result<Figure, CliError> {
        let (direct, proxied) =
            (self.direct("at_once", AT_ONCE).await?, self.proxied("at_once", host, AT_ONCE).await?);
        let [seconds, errors] = proxied[..] else {
            return Err(CliError::internal("the client printed no result"));
        };
        let seconds = [seconds, direct.first().copied().unwrap_or_default()];
        let [proxied, direct] = seconds.map(|it| format_ms(Duration::from_secs_f64(it)));
        Ok(Figure {
            name,
            value: errors,
            unit: "errors",
            target: FigureTarget::AtMost(0.0),
            raw: format!("{AT_ONCE} at once: {proxied} against {direct}"),
        })
    }
}

fn p50(seconds: &[f64]) -> Duration {
    let times: Vec<Duration> = seconds.iter().copied().map(Duration::from_secs_f64).collect();
    percentile(&times, 50)
}

/// A host that responds with `hello`, or with as much text as requested, over HTTP/1.1 or HTTP/2.
struct BenchHost {
    port: u16,
    files: TempDir,
    serving: JoinHandle<()>,
}

impl Drop for BenchHost {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl BenchHost {
    async fn start() -> Result<Self, CliError> {
        let names = ["localhost", OPEN, KEYED].map(str::to_owned);
        let certificate = generate_simple_self_signed(names).map_err(|error| cli_error(&error))?;
        let files = tempfile::tempdir().map_err(|error| cli_error(&error))?;
        let tls = TlsAcceptor::from(Arc::new(server_config(&certificate)?));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| cli_error(&error))?;
        let port = listener.local_addr().map_err(|error| cli_error(&error))?.port();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(tls.clone(), stream));
            }
        });
        let host = Self { port, files, serving };
        std::fs::write(host.certificate_path(), certificate.cert.pem())
            .map_err(|error| cli_error(&error))?;
        Ok(host)
    }

    /// The certificate is self-signed, so clients trust it directly.
    fn certificate_path(&self) -> std::path::PathBuf {
        self.files.path().join("host.pem")
    }
}

fn server_config(certificate: &CertifiedKey<rcgen::KeyPair>) -> Result<ServerConfig, CliError> {
    let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            let chain = vec![certificate.cert.der().clone()];
            builder.with_no_client_auth().with_single_cert(chain, key.into())
        });
    let mut config = config.map_err(|error| cli_error(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

async fn serve(tls: TlsAcceptor, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    // The client detects and counts failed connections.
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(async |request: Request<Incoming>| {
        Ok::<_, Infallible>(text_response(request.uri().path()))
    });
    let server = auto::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// Returns pseudo-random letters and digits. The proxy searches responses for keys, and zeros would
/// be faster to search than most responses.
const fn filler_text() -> [u8; 64 * 1024] {
    let signs = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut text, mut at, mut number) = ([0; 64 * 1024], 0, 1_u32);
    while at < text.len() {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text[at] = signs[(number >> 26) as usize];
        at += 1;
    }
    text
}

fn text_response(path: &str) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let size = path.strip_prefix("/text/").and_then(|size| size.parse().ok());
    let Some(size) = size else {
        return Response::new(Full::from("hello").boxed_unsync());
    };
    let text = stream::unfold(size, async |left: usize| {
        let part = left.min(TEXT.len());
        let frame = Frame::data(Bytes::from_static(&TEXT[..part]));
        (part > 0).then_some((Ok(frame), left - part))
    });
    let mut response = Response::new(StreamBody::new(text).boxed_unsync());
    response.headers_mut().insert(hyper::header::CONTENT_LENGTH, size.into());
    response
}
