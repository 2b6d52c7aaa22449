//! Network access of code. Rules list hosts, integrations combine rules, specifications and
//! requests name integrations, and the rights of the principal that the code runs as decide whether
//! they apply.

mod access;
mod caller_token;
mod credentials;
mod egress_log;
mod egress_log_query;
mod egress_log_queue;
mod egress_policy;
mod integrations;
mod rules;
mod sandbox_grants;

pub(crate) use access::SandboxAccess;
pub use egress_log_query::NetworkQuery;
pub(crate) use egress_log_queue::{EgressLogQueue, flush_loop};
pub(crate) use integrations::{INTERNET, internet_integration, missing_integration_error};
pub use integrations::{IntegrationChange, IntegrationRequest};
pub use rules::NetworkRuleRequest;
pub(crate) use sandbox_grants::{IntegrationSource, requested_integrations, tool_integrations};

use crate::config::Config;
use egress::{Ca, Proxy, ProxyConfig, ProxyLimits, Resolver, Roots};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory beside the records, with the key and the certificate for intercepted TLS of hosts with
/// credentials, and the certificates that code trusts.
const CA: &str = "ca";
const TRUSTED: &str = "trusted.pem";

#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("{0}")]
    Ca(#[from] egress::CaError),
    #[error("cannot configure TLS: {0}")]
    Tls(#[from] egress::TlsError),
    #[error("cannot write the certificates that code trusts to {path}: {cause}")]
    Trusted { path: PathBuf, cause: std::io::Error },
}

/// Creates the proxy of all sandboxes, and a file with the certificates that code must trust.
pub(crate) fn new_proxy(config: &Config) -> Result<(Proxy, PathBuf), ProxyError> {
    let directory = config.data.join(CA);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .map_err(|cause| ProxyError::Trusted { path: directory.clone(), cause })?;
    let ca = Ca::load_or_create(&directory)?;
    let roots = Roots::load_native().unwrap_or_default();
    let path = directory.join(TRUSTED);
    let trusted = roots.to_pem() + &ca.certificate_pem();
    replace_file(&path, trusted.as_bytes())
        .map_err(|cause| ProxyError::Trusted { path: path.clone(), cause })?;
    let resolver = Resolver::WithHosts(Arc::new(config.static_hosts.clone()));
    let proxy = Proxy::new(ProxyConfig { ca, roots, resolver, limits: ProxyLimits::default() })?;
    Ok((proxy, path))
}

/// Replaces a file atomically, because every sandbox reads it: a concurrent reader gets either the
/// old or the new content.
fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, content)?;
    fs::set_permissions(&new, Permissions::from_mode(0o644))?;
    fs::rename(new, path)
}

/// Maximum number of rules in a workspace, and of integrations.
const OBJECTS_MAX: u64 = 1_000;
