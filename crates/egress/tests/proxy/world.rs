//! A proxy, its policy source, and clients that connect to it as a sandbox would.

use belljar_egress::{
    Ca, Credential, EgressAttempt, EgressPolicy, EgressPolicyFuture, EgressPolicySource,
    HeaderName, Proxy, ProxyConfig, ProxyLimits, Resolver, Roots, Scheme, SecretText,
    SecretVersion,
};
use policy::{Destination, IntegrationRules};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use types::{SecretId, WorkspaceId};
use uuid::Uuid;

/// A test that waits longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const SECRET: &str = "sk-live-3+q/Zm9vYmFyYmF6cXV4";
pub(crate) const PLACEHOLDER: &str = "belljar-placeholder-openai";

/// The policy of one sandbox, which a test changes, and the attempts under it.
#[derive(Default)]
pub(crate) struct Rules {
    pub(crate) policy: Mutex<Option<Arc<EgressPolicy>>>,
    pub(crate) attempts: Mutex<Vec<EgressAttempt>>,
    pub(crate) workspace: u128,
}

impl Rules {
    pub(crate) fn new(policy: EgressPolicy) -> Arc<Self> {
        Arc::new(Self { policy: Mutex::new(Some(Arc::new(policy))), ..Self::default() })
    }

    pub(crate) fn become_these(&self, policy: EgressPolicy) {
        *self.policy.lock().unwrap() = Some(Arc::new(policy));
    }

    /// Host, port, by what, allowed.
    pub(crate) fn log(&self) -> Vec<(String, u16, Option<String>, bool)> {
        let attempts = self.attempts.lock().unwrap();
        attempts
            .iter()
            .map(|it| (it.host.clone(), it.port, it.integration.clone(), it.allowed))
            .collect()
    }

    pub(crate) fn last(&self) -> EgressAttempt {
        self.attempts.lock().unwrap().last().unwrap().clone()
    }
}

impl EgressPolicySource for Rules {
    fn current_policy(&self) -> EgressPolicyFuture<'_> {
        let policy = self.policy.lock().unwrap().clone();
        Box::pin(async move { policy.ok_or_else(|| "the store is closed".to_owned()) })
    }

    fn record_attempt(&self, attempt: EgressAttempt) {
        self.attempts.lock().unwrap().push(attempt);
    }

    fn workspace(&self) -> WorkspaceId {
        WorkspaceId::new(Uuid::from_u128(self.workspace))
    }
}

/// What these values open, by an integration called `some`.
pub(crate) fn policy(values: &[&str]) -> EgressPolicy {
    let values = values.iter().map(|value| value.parse().unwrap()).collect();
    let openings = vec![IntegrationRules { integration: "some".to_owned(), values }];
    EgressPolicy { openings, ..EgressPolicy::default() }
}

pub(crate) fn credential(host: &str, port: u16) -> Credential {
    Credential {
        unavailable: None,
        secret: secret(SECRET),
        destination: Destination::new(host, port).unwrap(),
        grants_access: true,
        scheme: Scheme::Https,
        header: HeaderName::from_static("authorization"),
        prefix: "Bearer ".to_owned(),
        placeholder: PLACEHOLDER.to_owned(),
    }
}

/// The secret `openai` with this value.
pub(crate) fn secret(value: &str) -> SecretVersion {
    let (id, name) = (SecretId::new(Uuid::from_u128(1)), "openai".to_owned());
    SecretVersion { id, version: 1, name, value: SecretText::new(value.to_owned()) }
}

/// Names with one address each.
pub(crate) fn names(known: &[(&str, IpAddr)]) -> Resolver {
    let table: HashMap<String, IpAddr> =
        known.iter().map(|(name, address)| ((*name).to_owned(), *address)).collect();
    Resolver::Custom(Arc::new(move |name| {
        let found = table.get(name).map(|address| vec![*address]);
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such name"))
    }))
}

/// All names of a test are on the hosts of the test.
pub(crate) fn all_names() -> Resolver {
    let known =
        ["good.test", "api.test", "other.test"].map(|it| (it, "127.0.0.2".parse().unwrap()));
    let evil = [("evil.test", "127.0.0.3".parse().unwrap())];
    names(&[known.as_slice(), evil.as_slice()].concat())
}

pub(crate) struct World {
    pub(crate) proxy: Proxy,
    pub(crate) ca: String,
    _directory: TempDir,
}

impl World {
    pub(crate) fn new(roots: &str, resolver: Resolver, limits: ProxyLimits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ca = Ca::load_or_create(directory.path()).unwrap();
        let pem = ca.certificate_pem();
        let roots = match roots {
            "" => Roots::default(),
            pem => Roots::from_pem(pem.as_bytes()).unwrap(),
        };
        let proxy = Proxy::new(ProxyConfig { ca, roots, resolver, limits }).unwrap();
        Self { proxy, ca: pem, _directory: directory }
    }

    pub(crate) fn usual() -> Self {
        Self::new("", all_names(), limits())
    }

    /// The proxy as one sandbox has it.
    pub(crate) fn sandbox(&self, rules: &Arc<Rules>) -> Sandbox {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (proxy, authority) = (self.proxy.clone(), rules.clone());
        let serving = tokio::spawn(async move {
            proxy.serve(listener, authority).await.unwrap();
        });
        Sandbox { address, ca: self.ca.clone(), serving }
    }
}

/// Short enough that a test sees them, and long enough for a slow machine.
pub(crate) fn limits() -> ProxyLimits {
    ProxyLimits {
        connect_timeout: Duration::from_secs(5),
        header_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(10),
        ..ProxyLimits::default()
    }
}

pub(crate) struct Sandbox {
    pub(crate) address: SocketAddr,
    ca: String,
    serving: JoinHandle<()>,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Sandbox {
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Says these bytes, and hears all that is answered until the end.
    pub(crate) async fn say(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_ref()).await.unwrap();
        hear_all(&mut stream).await
    }

    /// A client that knows of the proxy, and trusts its authority and another.
    pub(crate) fn client(&self, others: &str) -> reqwest::Client {
        let mut builder = reqwest::Client::builder()
            // Answers are looked at as they come.
            .no_gzip()
            .proxy(reqwest::Proxy::all(format!("http://{}", self.address)).unwrap())
            .read_timeout(PATIENCE);
        let roots = [self.ca.as_str(), others].into_iter().filter(|pem| !pem.is_empty());
        let roots = roots.map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()).unwrap());
        builder = builder.tls_certs_only(roots);
        builder.build().unwrap()
    }

    /// An open tunnel, or the answer that there is none.
    pub(crate) async fn tunnel(&self, to: &str) -> Result<TcpStream, String> {
        let mut stream = self.connect().await;
        let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut stream).await;
        if head.starts_with("HTTP/1.1 200") { Ok(stream) } else { Err(head) }
    }
}

/// The head of an answer.
pub(crate) async fn head(stream: &mut TcpStream) -> String {
    let reading = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&head).into_owned()
    };
    timeout(PATIENCE, reading).await.expect("an answer")
}

pub(crate) async fn hear_all(stream: &mut TcpStream) -> String {
    let mut received = Vec::new();
    // A connection that is reset has ended too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("an end");
    String::from_utf8_lossy(&received).into_owned()
}

/// The first line of an answer.
pub(crate) fn status(answer: &str) -> &str {
    answer.lines().next().unwrap_or_default()
}

/// A client that speaks TLS, and trusts this authority.
pub(crate) fn tls_connector(root: &str) -> TlsConnector {
    let mut store = RootCertStore::empty();
    store.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
    let provider = tokio_rustls::rustls::crypto::aws_lc_rs::default_provider();
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(store)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}
