//! Secrets: values that can be written but never read back, their use and their storage.

use crate::{PrincipalId, SecretId, WorkspaceId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Shorter values are not redacted from output: they would match in every second line.
pub const REDACTED_BYTES_MIN: usize = 8;

/// Maximum number of secret values in one sandbox, over all of its runs: each is searched for in
/// the output.
pub const SECRETS_PER_SANDBOX_MAX: usize = 256;
/// Their maximum bytes in total, twice the longest possible value.
pub const SECRET_BYTES_PER_SANDBOX_MAX: usize = 128 * 1024;

/// The scope of a secret: whose code may use it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SecretScope {
    /// All code that runs as a principal with USAGE on it.
    #[default]
    Workspace,
    /// The secret is for code that its owner runs.
    Caller,
}

/// Services whose clients work without further settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientKind {
    Openai,
    Anthropic,
    Gemini,
    Groq,
    Cohere,
    Mistral,
    Together,
    Cognite,
}

impl ClientKind {
    pub const ALL: [Self; 8] = [
        Self::Openai,
        Self::Anthropic,
        Self::Gemini,
        Self::Groq,
        Self::Cohere,
        Self::Mistral,
        Self::Together,
        Self::Cognite,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Groq => "groq",
            Self::Cohere => "cohere",
            Self::Mistral => "mistral",
            Self::Together => "together",
            Self::Cognite => "cognite",
        }
    }

    /// The variable from which its client reads a credential.
    pub fn key_variable(self) -> &'static str {
        match self {
            Self::Openai => "OPENAI_API_KEY",
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::Gemini => "GEMINI_API_KEY",
            Self::Groq => "GROQ_API_KEY",
            Self::Cohere => "CO_API_KEY",
            Self::Mistral => "MISTRAL_API_KEY",
            Self::Together => "TOGETHER_API_KEY",
            Self::Cognite => "COGNITE_TOKEN",
        }
    }

    /// Another variable with the credential, from which code reads it that passes it to its client.
    pub fn second_key_variable(self) -> Option<&'static str> {
        (self == Self::Cohere).then_some("COHERE_API_KEY")
    }

    /// The variable from which its client reads the base URL of the service.
    pub fn base_url_variable(self) -> &'static str {
        match self {
            Self::Openai => "OPENAI_BASE_URL",
            Self::Anthropic => "ANTHROPIC_BASE_URL",
            Self::Gemini => "GOOGLE_GEMINI_BASE_URL",
            Self::Groq => "GROQ_BASE_URL",
            Self::Cohere => "CO_API_URL",
            Self::Mistral => "MISTRAL_BASE_URL",
            Self::Together => "TOGETHER_BASE_URL",
            Self::Cognite => "COGNITE_BASE_URL",
        }
    }

    /// The header from which the service reads a credential.
    pub fn header(self) -> &'static str {
        match self {
            Self::Openai
            | Self::Groq
            | Self::Cohere
            | Self::Mistral
            | Self::Together
            | Self::Cognite => "authorization",
            Self::Anthropic => "x-api-key",
            Self::Gemini => "x-goog-api-key",
        }
    }

    /// The text before the credential in that header.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Openai
            | Self::Groq
            | Self::Cohere
            | Self::Mistral
            | Self::Together
            | Self::Cognite => "Bearer ",
            Self::Anthropic | Self::Gemini => "",
        }
    }

    /// Absent if each customer has a different one.
    pub fn default_base_url(self) -> Option<&'static str> {
        match self {
            Self::Openai => Some("https://api.openai.com"),
            Self::Anthropic => Some("https://api.anthropic.com"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com"),
            Self::Groq => Some("https://api.groq.com"),
            Self::Cohere => Some("https://api.cohere.com"),
            Self::Mistral => Some("https://api.mistral.ai"),
            Self::Together => Some("https://api.together.ai"),
            Self::Cognite => None,
        }
    }
}

/// How code uses a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum SecretInjection {
    /// As a variable that code can read.
    Env { env: String },
    /// As the credential of a client; code has a placeholder.
    Client(ClientInjection),
    /// In a header of requests to one host; code has a placeholder.
    Header { header: HeaderInjection },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientInjection {
    pub client: ClientKind,
    /// The service's default if absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub base_url: Option<String>,
    /// The project of Cognite Data Fusion.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub project: Option<String>,
}

impl ClientInjection {
    pub fn base_url(&self) -> &str {
        self.base_url.as_deref().or(self.client.default_base_url()).unwrap_or_default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeaderInjection {
    /// `api.example.com`, or with a port; https only.
    pub host: String,
    pub name: String,
    /// Text before the value, such as `Bearer `.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub prefix: String,
    /// The variable from which code reads the placeholder.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub env: Option<String>,
}

/// The metadata of a secret, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    pub id: SecretId,
    pub name: String,
    pub owner: PrincipalId,
    /// The principal who set the current value and its destination.
    pub set_by: PrincipalId,
    pub scope: SecretScope,
    pub inject: SecretInjection,
    /// Whether code can read the value, which is then redacted from its output.
    pub exposed: bool,
    /// Number of times that the value was set.
    pub version: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub comment: Option<String>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Identifies the key that sealed a value, and reveals nothing about that key.
pub type SealingKeyId = [u8; 8];

/// A value that cannot be read without the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedValue {
    pub key: SealingKeyId,
    pub bytes: Vec<u8>,
}

/// Identifies a value. A value that was sealed for one context cannot be opened for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealContext {
    pub workspace: WorkspaceId,
    /// The secret, or the tool whose variable it is.
    pub holder: Uuid,
    pub name: String,
    pub version: u64,
    /// The destination of the value: a variable, or a host and a header.
    pub destination: String,
}
