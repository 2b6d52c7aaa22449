//! The source of the egress policy of a sandbox.
//!
//! The policy is a value that holds for one decision. No part of it comes from the sandbox.

use chrono::{DateTime, Utc};
use http::HeaderName;
use policy::{Destination, IntegrationRules};
use redact::SecretVersion;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use types::WorkspaceId;

/// The hosts and credentials that a sandbox may use at this moment.
#[derive(Debug, Default)]
pub struct EgressPolicy {
    pub openings: Vec<IntegrationRules>,
    /// Integrations that are disabled. They allow nothing; error messages name them.
    pub disabled: Vec<IntegrationRules>,
    pub integrations_field: IntegrationsField,
    /// Each applies to exactly its destination.
    pub credentials: Vec<Credential>,
}

/// The field that lists the integrations of a sandbox, for error messages to its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IntegrationsField {
    /// The request, tool or function that the sandbox runs for.
    #[default]
    Request,
    /// The specification of an agent.
    Specification,
}

impl fmt::Display for IntegrationsField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "`integrations`",
            Self::Specification => "`external_access_integrations` of the agent",
        })
    }
}

/// A secret that the proxy puts into requests to one host and that never enters the sandbox.
/// Consecutive entries of one secret are the headers that clients of the host use for it.
#[derive(Debug)]
pub struct Credential {
    pub secret: SecretVersion,
    pub destination: Destination,
    /// Whether it allows access to its destination by itself. If not, an integration must, and the
    /// secret is only injected.
    pub grants_access: bool,
    pub scheme: Scheme,
    pub header: HeaderName,
    /// Text before the value in the header, such as `Bearer `.
    pub prefix: String,
    /// The text that the sandbox has instead of the value. Unique per secret.
    pub placeholder: String,
    /// Why it has no value now. Then no request is sent to its destination.
    pub unavailable: Option<String>,
}

/// The scheme of a request. A credential is sent over plain HTTP only to an address in the
/// operator's own network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    #[default]
    Https,
    Http,
}

/// One attempt to connect, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressAttempt {
    pub at: DateTime<Utc>,
    pub host: String,
    pub port: u16,
    /// The integration that allowed it, or `secret:NAME`.
    pub integration: Option<String>,
    pub allowed: bool,
    /// Why it was denied, or why it failed although it was allowed.
    pub reason: Option<String>,
}

/// The current policy, or why it is unavailable, for the log.
pub type EgressPolicyFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Arc<EgressPolicy>, String>> + Send + 'a>>;

/// The policy of one sandbox. The socket on which a connection arrives identifies the sandbox.
pub trait EgressPolicySource: Send + Sync + 'static {
    /// Called for each decision, so that a change applies from the next one on.
    fn current_policy(&self) -> EgressPolicyFuture<'_>;

    fn record_attempt(&self, attempt: EgressAttempt);

    /// The owner of the sandbox: connection limits apply per workspace.
    fn workspace(&self) -> WorkspaceId;
}
