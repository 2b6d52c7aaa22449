//! Whom code may talk to. Rules list hosts, integrations are made of rules, specifications and
//! requests name integrations, and the rights of whoever the code runs as say whether they hold.

mod integrations;
mod leave;
mod log;
mod rules;
mod trail;

pub(crate) use integrations::{INTERNET, built_in};
pub use integrations::{IntegrationChange, IntegrationRequest};
pub(crate) use leave::{Grounds, Leave, asked};
pub use log::NetworkQuery;
pub use rules::NetworkRuleRequest;
pub(crate) use trail::{Line, Trail, keep};

use crate::refused::{Refused, invalid};
use egress::{Ca, Proxy, ProxyConfig};
use std::path::{Path, PathBuf};

/// Beside the records: the key and the certificate by which hosts of credentials are impersonated to
/// code, and the certificates that code trusts.
const CA: &str = "ca";
const TRUSTED: &str = "trusted.pem";

#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("{0}")]
    Ca(#[from] egress::CaError),
    #[error("the certificates that code trusts cannot be written to {path}: {cause}")]
    Trusted { path: PathBuf, cause: std::io::Error },
}

/// The proxy of all sandboxes, and a file with the certificates that code has to trust.
pub(crate) fn proxy(data: &Path) -> Result<(Proxy, PathBuf), ProxyError> {
    let directory = data.join(CA);
    let ca = Ca::load_or_make(&directory)?;
    let roots = egress::platform_certificates();
    let path = directory.join(TRUSTED);
    let trusted = egress::pem(&roots) + ca.certificate_pem();
    replace_file(&path, trusted.as_bytes())
        .map_err(|cause| ProxyError::Trusted { path: path.clone(), cause })?;
    Ok((Proxy::new(ProxyConfig::new(ca, roots)), path))
}

/// Of one workspace, of rules and of integrations each.
const OBJECTS_MAX: u64 = 1_000;
const COMMENT_CHARS_MAX: usize = 1_000;

fn check_comment(comment: Option<&str>) -> Result<(), Refused> {
    if comment.is_some_and(|text| text.chars().count() > COMMENT_CHARS_MAX) {
        return Err(invalid("/comment", format!("has at most {COMMENT_CHARS_MAX} characters")));
    }
    Ok(())
}
