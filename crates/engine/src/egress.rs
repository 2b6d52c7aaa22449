//! The proxy socket of a sandbox: the only socket through which code inside can reach the network.
//!
//! An [`EgressHandler`] serves it, decides which hosts code can reach, and logs what code tried.
//! The engine hands it the socket once per sandbox, and the handler's guard never outlives the
//! sandbox. Without a handler the socket is closed before any code runs.

use crate::sandbox_grants::SandboxGrants;
use jail::PROXY_PORT;
use redact::OutputRedactor;
use sandbox::Sandbox;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::net::TcpListener;
use types::{ExecutionId, NetworkAttempt, SandboxId};

/// Path of the certificates of [`Config::certificates`](crate::Config::certificates) inside.
pub(crate) const INSIDE_CERTIFICATES: &str = "/etc/ssl/belljar.pem";

/// Variables that configure a proxy. Some clients read only one spelling, some only the other.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
const NO_PROXY_VARIABLES: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// Hosts inside the sandbox, which clients reach without the proxy.
const NO_PROXY: &str = "localhost,127.0.0.1,::1";
/// Variables that configure trusted certificates: OpenSSL and with it Python, requests, curl, git,
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

/// Serves the network access of the sandboxes of one session or command.
pub trait EgressHandler: fmt::Debug + Send + Sync {
    /// Serves the proxy socket of one sandbox. The engine calls it inside the runtime, with a
    /// non-blocking socket. It must not block.
    fn serve(&self, listener: TcpListener) -> EgressGuard;

    /// Assigns attempts from now on to this execution, redacted.
    fn begin_execution(
        &self,
        sandbox: SandboxId,
        execution: ExecutionId,
        redactor: &OutputRedactor,
    );

    /// The attempts of the execution, which has ended.
    fn end_execution(&self, execution: ExecutionId) -> Vec<NetworkAttempt>;
}

/// Held as long as the sandbox lives. Dropping it must close the proxy socket.
pub type EgressGuard = Box<dyn Any + Send>;

/// Hands the proxy socket of a fresh sandbox to the handler, or closes it.
pub(crate) fn serve_proxy_socket(
    sandbox: &mut Sandbox,
    grants: &SandboxGrants,
) -> Option<EgressGuard> {
    let listener = sandbox.take_proxy_socket()?;
    grants.egress.as_ref().map(|handler| handler.serve(listener))
}

/// Variables that tell programs inside a sandbox about its proxy.
pub(crate) fn proxy_variables() -> BTreeMap<String, String> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let proxies = PROXY_VARIABLES.map(|name| (name.to_owned(), proxy.clone()));
    let exceptions = NO_PROXY_VARIABLES.map(|name| (name.to_owned(), NO_PROXY.to_owned()));
    proxies.into_iter().chain(exceptions).collect()
}

/// Variables that tell programs about the certificates. They are set at the start: some programs
/// read them at import, possibly before a sandbox is leased.
pub(crate) fn certificate_variables() -> impl Iterator<Item = (String, String)> {
    CERTIFICATE_VARIABLES.into_iter().map(|name| (name.into(), INSIDE_CERTIFICATES.into()))
}
