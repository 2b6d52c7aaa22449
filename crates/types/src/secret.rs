//! Values that are written and never read again: how they are used, and how they are kept.

use crate::{PrincipalId, SecretId, WorkspaceId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Shorter values are not taken out of what code prints: they would stand in every second line.
pub const REDACTED_BYTES_MIN: usize = 8;

/// Secret values that one sandbox is given, by all of its runs: each is looked for in what comes back.
pub const SECRETS_PER_SANDBOX_MAX: usize = 256;
/// Their bytes in total, twice the longest value that there is.
pub const SECRET_BYTES_PER_SANDBOX_MAX: usize = 128 * 1024;

/// Whose code may use a secret.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SecretScope {
    /// All that runs as somebody with USAGE on it.
    #[default]
    Workspace,
    /// What its owner runs, and nothing else.
    Caller,
}

/// Services whose clients are there without any settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientKind {
    Openai,
    Anthropic,
    Gemini,
    Cognite,
}

impl ClientKind {
    pub const ALL: [Self; 4] = [Self::Openai, Self::Anthropic, Self::Gemini, Self::Cognite];

    pub fn name(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Cognite => "cognite",
        }
    }

    /// The variable in which its client looks for a credential.
    pub fn key_variable(self) -> &'static str {
        match self {
            Self::Openai => "OPENAI_API_KEY",
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::Gemini => "GEMINI_API_KEY",
            Self::Cognite => "COGNITE_TOKEN",
        }
    }

    /// The variable in which its client looks for the place of the service.
    pub fn base_url_variable(self) -> &'static str {
        match self {
            Self::Openai => "OPENAI_BASE_URL",
            Self::Anthropic => "ANTHROPIC_BASE_URL",
            Self::Gemini => "GOOGLE_GEMINI_BASE_URL",
            Self::Cognite => "COGNITE_BASE_URL",
        }
    }

    /// The header that the service reads a credential from.
    pub fn header(self) -> &'static str {
        match self {
            Self::Openai | Self::Cognite => "authorization",
            Self::Anthropic => "x-api-key",
            Self::Gemini => "x-goog-api-key",
        }
    }

    /// What stands there before the credential.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Openai | Self::Cognite => "Bearer ",
            Self::Anthropic | Self::Gemini => "",
        }
    }

    /// Absent where everybody has their own.
    pub fn default_base_url(self) -> Option<&'static str> {
        match self {
            Self::Openai => Some("https://api.openai.com"),
            Self::Anthropic => Some("https://api.anthropic.com"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com"),
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
    /// Absent, it is the usual one of the service.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub base_url: Option<String>,
    /// Of Cognite Data Fusion.
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
    /// `api.example.com`, or with a port; spoken to with https alone.
    pub host: String,
    pub name: String,
    /// Before the value, such as `Bearer `.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub prefix: String,
    /// The variable in which code finds the placeholder.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub env: Option<String>,
}

/// Everything about a secret but its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    pub id: SecretId,
    pub name: String,
    pub owner: PrincipalId,
    /// The principal who set the current value and where it is sent.
    pub set_by: PrincipalId,
    pub scope: SecretScope,
    pub inject: SecretInjection,
    /// Whether code can read the value, which is then taken out of what it prints.
    pub exposed: bool,
    /// How often it was given a value.
    pub version: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub comment: Option<String>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Which key something was sealed with, and nothing about that key.
pub type SealingKeyId = [u8; 8];

/// A value that nobody can read without the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedValue {
    pub key: SealingKeyId,
    pub bytes: Vec<u8>,
}

/// Which value it is. A value that was sealed for one label cannot be opened for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealContext {
    pub workspace: WorkspaceId,
    /// The secret, or the tool whose variable it is.
    pub holder: Uuid,
    pub name: String,
    pub version: u64,
    /// Where it may go: a variable, or a host and a header.
    pub destination: String,
}

/// A text as writers of HTML put it into a page: each with the signs that it writes otherwise.
pub fn html_escaped(text: &str) -> impl Iterator<Item = String> + '_ {
    const WRITERS: [&[(char, &str)]; 8] = [
        // Text between tags.
        &[],
        &[('"', "&quot;")],
        // Python, and with its number in decimal Ruby, Java and JavaScript, and PHP.
        &[('"', "&quot;"), ('\'', "&#x27;")],
        &[('"', "&quot;"), ('\'', "&#39;")],
        &[('"', "&quot;"), ('\'', "&#039;")],
        &[('"', "&quot;"), ('\'', "&apos;")],
        // Go.
        &[('"', "&#34;"), ('\'', "&#39;"), ('+', "&#43;")],
        // Mustache.
        &[('"', "&quot;"), ('\'', "&#39;"), ('/', "&#x2F;"), ('`', "&#x60;"), ('=', "&#x3D;")],
    ];
    let write = |sign: char, writer: &[(char, &str)]| match sign {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        sign => {
            let found = writer.iter().find(|(other, _)| *other == sign);
            found.map_or_else(|| sign.to_string(), |(_, written)| (*written).to_owned())
        }
    };
    WRITERS.iter().map(move |writer| text.chars().map(|sign| write(sign, writer)).collect())
}
