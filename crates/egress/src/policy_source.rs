//! Whom the proxy asks what a sandbox may reach, and as whom.
//!
//! The answer is a value that holds for one decision. Nothing in it was said by the sandbox.

use chrono::{DateTime, Utc};
use http::HeaderName;
use policy::{Destination, IntegrationRules};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use types::{SecretId, WorkspaceId};
use zeroize::Zeroizing;

/// What is open to a sandbox at this moment.
#[derive(Debug, Default)]
pub struct EgressPolicy {
    pub openings: Vec<IntegrationRules>,
    /// What its integrations that are switched off would open. It opens nothing, and code is told why.
    pub disabled: Vec<IntegrationRules>,
    pub integrations_field: IntegrationsField,
    /// Each is for exactly its destination.
    pub credentials: Vec<Credential>,
}

/// Where the integrations of a sandbox are listed, as its code is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IntegrationsField {
    /// What has asked for the sandbox, or was called: a request, a tool, a function.
    #[default]
    Request,
    /// The specification of an agent.
    Specification,
}

impl fmt::Display for IntegrationsField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "integrations",
            Self::Specification => "external_access_integrations",
        })
    }
}

/// A secret that is put into requests to one host, and never into the sandbox. Several of the same
/// secret, one after the other, are the headers that clients of that host use for it.
#[derive(Debug)]
pub struct Credential {
    /// Its name, for the log.
    pub secret: String,
    /// By which it is told from others, and from the values that it had before.
    pub id: SecretId,
    pub version: u64,
    pub destination: Destination,
    /// Whether it opens its destination by itself. Otherwise an integration has to, and it is put
    /// into what that lets through.
    pub grants_access: bool,
    pub scheme: Scheme,
    pub header: HeaderName,
    /// What the header has before the value, such as `Bearer `.
    pub prefix: String,
    /// What the sandbox has in the place of the value. No two secrets have the same.
    pub placeholder: String,
    pub value: SecretText,
}

/// How a request is sent. A credential goes over plain HTTP only to an address inside of the
/// operator's own network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    #[default]
    Https,
    Http,
}

/// A text that is shown to nobody, and wiped when it is dropped.
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

/// One attempt to reach something, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressAttempt {
    pub at: DateTime<Utc>,
    pub host: String,
    pub port: u16,
    /// The integration that opened it, or `secret:NAME`.
    pub integration: Option<String>,
    pub allowed: bool,
    /// Why it was not allowed, or why it was and did not succeed.
    pub reason: Option<String>,
}

/// The answer to what is open, or for the log why it cannot be told.
pub type EgressPolicyFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Arc<EgressPolicy>, String>> + Send + 'a>>;

/// Speaks for one sandbox. The socket that its connections arrive on says which.
pub trait EgressPolicySource: Send + Sync + 'static {
    /// Asked for each decision, so that a change holds from the next one on.
    fn current_policy(&self) -> EgressPolicyFuture<'_>;

    fn record_attempt(&self, attempt: EgressAttempt);

    /// Whose sandbox it is: workspaces share out the connections of the proxy.
    fn workspace(&self) -> WorkspaceId;
}
