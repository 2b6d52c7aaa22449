//! The configured models. The operator configures them when the server starts; callers choose one
//! by name. A caller can never set a URL, and a key is sent only to the provider that it belongs
//! to.

mod endpoint;
mod frame_observer;
mod listing;
mod provider;
mod provider_error;
mod recorder;
mod request;
mod response_reader;
mod script;
mod tool_calls;

pub(crate) use endpoint::ProviderSettingNames;
pub use listing::{ModelApi, ModelFeature, ModelView};
pub use provider::ProviderRetryPolicy;
pub use script::{ModelScript, ScriptError, ScriptTurn, ScriptedCall, ScriptedModel};

use crate::model::Model;
use endpoint::{Endpoint, ProviderEntry};
use provider::ProviderModel;
use recorder::RecordingModel;
use service::Clock;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use types::{Error, ErrorCode};
use url::Url;

/// Prefix of a default model that is a script file instead of a provider.
const SCRIPT_PREFIX: &str = "script:";
/// The longest names in use have about eighty bytes.
const NAME_BYTES_MAX: usize = 200;
const PROVIDER_CHARS_MAX: usize = 40;

/// Model settings of the operator.
#[derive(Clone, Default)]
pub struct ModelSettings {
    /// `provider/model`, or `script:PATH`.
    pub default: Option<String>,
    /// OpenAI-compatible servers, under names that the operator chooses.
    pub endpoints: Vec<(String, Url)>,
    /// Keys and URLs from the environment of the server.
    pub variables: BTreeMap<String, String>,
    /// Directory for recordings of providers' responses, as scripts.
    pub record: Option<PathBuf>,
    pub retry_policy: ProviderRetryPolicy,
    /// The clock for a `Retry-After` that is a date; that of the service.
    pub clock: Clock,
}

impl fmt::Debug for ModelSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelSettings")
            .field("default", &self.default)
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    #[error(
        "invalid endpoint name {0:?}: use a-z, 0-9 and -, and not the name of a built-in provider"
    )]
    EndpointName(String),
    #[error(
        "the URL of {name} must start with http:// or https:// and have no user name: {reason}"
    )]
    Address { name: String, reason: String },
    #[error(
        "{0} is not a valid key: it contains a quote, a backslash, a space, or a character that is \
         not ASCII"
    )]
    Key(String),
    #[error("--model: {}{}", .0.message, hint_suffix(.0.hint.as_deref()))]
    Default(Box<Error>),
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error("cannot use the directory of recordings {path}: {error}")]
    Record { path: PathBuf, error: std::io::Error },
    #[error("the HTTP client for model providers cannot be created: {0}")]
    Client(String),
}

#[derive(Debug, Clone)]
enum DefaultModel {
    Named(String),
    Script(ModelScript),
}

#[derive(Debug)]
pub struct Models {
    default: Option<DefaultModel>,
    providers: BTreeMap<String, ProviderEntry>,
    client: genai::Client,
    record: Option<PathBuf>,
    retry_policy: ProviderRetryPolicy,
    clock: Clock,
}

impl Models {
    pub fn new(settings: ModelSettings) -> Result<Self, ModelsError> {
        let default = settings.default.as_deref();
        let places = endpoint::providers(&settings.variables, &settings.endpoints, default)?;
        let default = match default {
            Some(text) => Some(match text.strip_prefix(SCRIPT_PREFIX) {
                Some(path) => DefaultModel::Script(ModelScript::read(path.as_ref())?),
                None => DefaultModel::Named(text.to_owned()),
            }),
            None => None,
        };
        if let Some(DefaultModel::Named(name)) = &default {
            find_provider(&places, name).map_err(|error| ModelsError::Default(Box::new(error)))?;
        }
        if let Some(path) = &settings.record {
            recorder::prepare_directory(path)
                .map_err(|error| ModelsError::Record { path: path.clone(), error })?;
        }
        let client = provider::genai_client().map_err(ModelsError::Client)?;
        let ModelSettings { record, retry_policy, clock, .. } = settings;
        Ok(Self { default, providers: places, client, record, retry_policy, clock })
    }

    /// Whether any model can be chosen.
    pub fn has_any(&self) -> bool {
        self.default.is_some()
            || self.providers.values().any(|place| matches!(place, ProviderEntry::Ready(_)))
    }

    /// Returns the named model or the default; each run gets its own value.
    pub fn choose(&self, name: Option<&str>) -> Result<Arc<dyn Model>, Error> {
        let name = match (name, &self.default) {
            (Some(name), _) => name,
            (None, Some(DefaultModel::Named(name))) => name,
            (None, Some(DefaultModel::Script(script))) => {
                return Ok(Arc::new(ScriptedModel::new(script.clone())));
            }
            (None, None) => return Err(no_model_error()),
        };
        match find_provider(&self.providers, name)? {
            (ProviderEntry::Ready(endpoint), model) => Ok(self.provider(endpoint, model)),
            (ProviderEntry::MissingVariable(variable), _) => Err(unavailable_error(format!(
                "model {name:?} is not available: {variable} is not set"
            ))
            .hint(format!(
                "set {variable} in the environment of the server, or choose another model, see \
                     `belljar model ls`"
            ))),
        }
    }

    fn provider(&self, endpoint: &Endpoint, model: &str) -> Arc<dyn Model> {
        let (client, clock) = (self.client.clone(), self.clock.clone());
        let provider = ProviderModel::new(endpoint, model, client, self.retry_policy, clock);
        match &self.record {
            Some(directory) => {
                Arc::new(RecordingModel::new(provider, directory.clone(), endpoint.key.clone()))
            }
            None => Arc::new(provider),
        }
    }
}

/// The provider of a model name, and the name of the model there.
fn find_provider<'a, 'n>(
    places: &'a BTreeMap<String, ProviderEntry>,
    name: &'n str,
) -> Result<(&'a ProviderEntry, &'n str), Error> {
    let excerpt: String = name.chars().take(NAME_BYTES_MAX).collect();
    let known = places.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let Some((provider, model)) = name.split_once('/') else {
        return Err(unavailable_error(format!("model name {excerpt:?} has no provider")).hint(
            format!("use provider/model, such as openai/{excerpt}; the providers are {known}"),
        ));
    };
    let Some(place) = places.get(provider) else {
        let provider: String = provider.chars().take(PROVIDER_CHARS_MAX).collect();
        return Err(unavailable_error(format!("model {excerpt:?}: unknown provider {provider:?}"))
            .hint(format!("use one of these providers: {known}")));
    };
    if !is_model_name(model) {
        return Err(unavailable_error(format!("invalid model name {excerpt:?}"))
            .hint("use the name that the provider documents, such as openai/gpt-4.1"));
    }
    Ok((place, model))
}

/// Providers put the name into a URL path, where it must stay one segment.
fn is_model_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@+-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(plain)
        && name.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

fn hint_suffix(hint: Option<&str>) -> String {
    hint.map(|hint| format!("; {hint}")).unwrap_or_default()
}

fn no_model_error() -> Error {
    unavailable_error("no model selected, and the server has no default model").hint(
        "set preferences.code_model, such as openai/gpt-4.1, or BELLJAR_MODEL in the environment \
         of the server (without a server: --model openai/gpt-4.1)",
    )
}

fn unavailable_error(message: impl Into<String>) -> Error {
    // Retrying does not help until the operator changes the configuration.
    Error { retryable: false, ..Error::new(ErrorCode::ModelUnavailable, message) }
}

#[cfg(test)]
mod tests;
