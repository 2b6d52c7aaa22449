//! Hosts on this machine, with their own names and certificates. Each speaks TLS, sends the configured response to
//! one request on a connection, and records what it receives.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What one request was when it arrived.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) host: &'static str,
    /// With the query.
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(it, _)| it == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Whether the text is anywhere in it.
    pub(super) fn has(&self, text: &str) -> bool {
        let headers = self.headers.iter().map(|(name, value)| format!("{name}: {value}"));
        let body = String::from_utf8_lossy(&self.body).into_owned();
        [self.path.clone(), body].into_iter().chain(headers).any(|part| part.contains(text))
    }
}

/// All that has reached the hosts of a test.
pub(super) type Journal = Arc<Mutex<Vec<Seen>>>;
/// How a host answers: whatever it says on the connection, until it is closed.
pub(super) type Answer = Box<dyn Fn(&Seen, &mut Line) -> io::Result<()> + Send + Sync>;

#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) name: &'static str,
    pub(super) port: u16,
    /// The number of connections, also failed ones.
    knocks: Arc<AtomicUsize>,
}

impl Host {
    pub(super) fn start(
        name: &'static str,
        certificate: ServerConfig,
        journal: &Journal,
        answer: Answer,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let host = Self { name, port, knocks: Arc::default() };
        let (tls, answer, knocks) = (Arc::new(certificate), Arc::new(answer), host.knocks.clone());
        let journal = Arc::clone(journal);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                knocks.fetch_add(1, Ordering::Relaxed);
                let tls = ServerConnection::new(Arc::clone(&tls)).unwrap();
                let line = Line(BufReader::new(StreamOwned::new(tls, stream.unwrap())));
                let (journal, answer) = (Arc::clone(&journal), Arc::clone(&answer));
                // A client that goes away in the middle is a test's own matter.
                std::thread::spawn(move || line.serve(name, &journal, &answer));
            }
        });
        host
    }

    pub(super) fn knocks(&self) -> usize {
        self.knocks.load(Ordering::Relaxed)
    }

    /// `name:port`
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.name, self.port)
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}", self.place())
    }
}

/// A connection to a host, after its greeting.
pub(super) struct Line(BufReader<StreamOwned<ServerConnection, TcpStream>>);

impl Line {
    fn serve(mut self, host: &'static str, journal: &Journal, answer: &Answer) -> io::Result<()> {
        let seen = self.request(host)?;
        journal.lock().unwrap().push(seen.clone());
        answer(&seen, &mut self)?;
        let stream = self.0.get_mut();
        stream.conn.send_close_notify();
        stream.flush()
    }

    fn request(&mut self, host: &'static str) -> io::Result<Seen> {
        let line = self.line()?;
        let path = line.split(' ').nth(1).ok_or(io::ErrorKind::InvalidData)?.to_owned();
        let mut seen = Seen { host, path, headers: Vec::new(), body: Vec::new() };
        while let Some((name, value)) = self.line()?.split_once(':') {
            seen.headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        seen.body.resize(seen.header("content-length").parse().unwrap_or(0), 0);
        self.0.read_exact(&mut seen.body)?;
        Ok(seen)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    pub(super) fn hear<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).map(|()| bytes)
    }

    pub(super) fn say(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let stream = self.0.get_mut();
        stream.write_all(bytes.as_ref())?;
        stream.flush()
    }

    pub(super) fn head(&mut self, status: &str, headers: &str) -> io::Result<()> {
        self.say(format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n"))
    }

    pub(super) fn content(&mut self, kind: &str, body: impl AsRef<[u8]>) -> io::Result<()> {
        let body = body.as_ref();
        let headers = format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        self.head("200 OK", &headers)?;
        self.say(body)
    }

    pub(super) fn json(&mut self, body: &Value) -> io::Result<()> {
        self.content("application/json", body.to_string())
    }
}

/// Who vouches for the hosts, in the place of the authorities of the web.
pub(super) struct Vouching(CertifiedIssuer<'static, KeyPair>);

impl Vouching {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn for_host(&self, name: &str) -> ServerConfig {
        self.certificate(name, |_| {})
    }

    pub(super) fn long_ago(&self, name: &str) -> ServerConfig {
        self.certificate(name, |params| params.not_after = rcgen::date_time_ymd(2021, 1, 1))
    }

    fn certificate(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> ServerConfig {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.use_authority_key_identifier_extension = true;
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        ServerConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .unwrap()
    }
}
