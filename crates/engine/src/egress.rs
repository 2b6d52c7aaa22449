//! The outlet of a sandbox: the one socket by which code inside can reach somebody outside.
//!
//! Who serves it, and whom they let code reach, is decided elsewhere. Here it is given to them once for
//! each sandbox, and never outlives it. Without somebody to serve it, it is closed before any code runs.

use jail::PROXY_PORT;
use sandbox::Sandbox;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;

/// Where code finds the certificates of [`Config::certificates`](crate::Config::certificates).
pub(crate) const INSIDE_CERTIFICATES: &str = "/etc/ssl/belljar.pem";

/// Variables by which clients are told of a proxy. Some read only the one spelling, some the other.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
const NO_PROXY_VARIABLES: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// What is inside is not asked for outside.
const NO_PROXY: &str = "localhost,127.0.0.1,::1";
/// Variables by which clients are told whom to trust: OpenSSL and with it Python, requests, curl, git,
/// the SDKs of AWS, Node.js, gRPC.
const CERTIFICATE_VARIABLES: [&str; 7] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
];

/// Serves the outlet of each sandbox that it is given, for somebody whose code runs there.
#[derive(Clone)]
pub struct EgressHandler(Arc<dyn Fn(TcpListener) -> EgressGuard + Send + Sync>);

/// Held as long as the sandbox lives: when it is dropped, the outlet must be closed.
pub type EgressGuard = Box<dyn Any + Send>;

impl EgressHandler {
    /// `serve` is called inside the runtime, with a socket that does not block, and must not wait.
    pub fn new(serve: impl Fn(TcpListener) -> EgressGuard + Send + Sync + 'static) -> Self {
        Self(Arc::new(serve))
    }
}

impl fmt::Debug for EgressHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outlet")
    }
}

/// Gives away the outlet of a sandbox that nothing has run in, or closes it.
pub(crate) fn serve_proxy_socket(
    sandbox: &mut Sandbox,
    outlet: Option<&EgressHandler>,
) -> Option<EgressGuard> {
    let listener = sandbox.take_proxy_socket()?;
    outlet.map(|EgressHandler(serve)| serve(listener))
}

/// What programs inside a sandbox with an outlet are told of it.
pub(crate) fn proxy_variables() -> BTreeMap<String, String> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let proxies = PROXY_VARIABLES.map(|name| (name.to_owned(), proxy.clone()));
    let exceptions = NO_PROXY_VARIABLES.map(|name| (name.to_owned(), NO_PROXY.to_owned()));
    proxies.into_iter().chain(exceptions).collect()
}

/// What programs are told of the certificates, from their start: some read them while they are
/// imported, and that may be before a sandbox is anybody's.
pub(crate) fn certificate_variables() -> impl Iterator<Item = (String, String)> {
    CERTIFICATE_VARIABLES.into_iter().map(|name| (name.into(), INSIDE_CERTIFICATES.into()))
}
