//! Which models there are. The operator decides it where the server starts; callers choose among
//! them by name. No address comes from a caller, and no key ever leaves for anything but the
//! provider that it belongs to.

mod calls;
mod endpoint;
mod failure;
mod hearing;
mod provider;
mod record;
mod request;
mod script;
mod wiretap;

pub(crate) use endpoint::Settings;
pub use provider::Patience;
pub use script::{Script, ScriptError, ScriptedCall, ScriptedModel, Turn};

use crate::model::Model;
use endpoint::{Endpoint, Place};
use provider::Provider;
use record::Recorded;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use types::{Code, Fault};
use url::Url;

/// As the default model: the file of a script instead of a provider.
const SCRIPT: &str = "script:";
/// The longest names in use have about eighty bytes.
const NAME_BYTES_MAX: usize = 200;

/// What the operator has set.
#[derive(Clone, Default)]
pub struct ModelSettings {
    /// `provider/model`, or `script:PATH`.
    pub default: Option<String>,
    /// OpenAI-compatible servers under names of the operator's own.
    pub endpoints: Vec<(String, Url)>,
    /// Of the environment in which the server starts: keys and addresses.
    pub variables: BTreeMap<String, String>,
    /// Where the answers of providers are kept as scripts.
    pub record: Option<PathBuf>,
    pub patience: Patience,
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
        "{0:?} cannot be the name of an endpoint: use a-z, 0-9 and -, and no name that is taken"
    )]
    EndpointName(String),
    #[error("the address of {name} must begin with http:// or https://, without a user: {reason}")]
    Address { name: String, reason: String },
    #[error("{0} is not a key: it has a quote, a backslash, a space, or a sign that is not ASCII")]
    Key(String),
    #[error("the default model: {}{}", .0.message, said(.0.hint.as_deref()))]
    Default(Box<Fault>),
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error("the directory of recordings {path} cannot be used: {error}")]
    Record { path: PathBuf, error: std::io::Error },
    #[error("the client for model providers cannot be made: {0}")]
    Client(String),
}

#[derive(Debug, Clone)]
enum DefaultModel {
    Named(String),
    Script(Script),
}

#[derive(Debug)]
pub struct Models {
    default: Option<DefaultModel>,
    places: BTreeMap<String, Place>,
    client: genai::Client,
    record: Option<PathBuf>,
    patience: Patience,
}

impl Models {
    pub fn new(settings: ModelSettings) -> Result<Self, ModelsError> {
        let default = settings.default.as_deref();
        let places = endpoint::places(&settings.variables, &settings.endpoints, default)?;
        let default = match default {
            Some(text) => Some(match text.strip_prefix(SCRIPT) {
                Some(path) => DefaultModel::Script(Script::read(path.as_ref())?),
                None => DefaultModel::Named(text.to_owned()),
            }),
            None => None,
        };
        if let Some(DefaultModel::Named(name)) = &default {
            place(&places, name).map_err(|fault| ModelsError::Default(Box::new(fault)))?;
        }
        if let Some(path) = &settings.record {
            record::prepare(path)
                .map_err(|error| ModelsError::Record { path: path.clone(), error })?;
        }
        let client = provider::client().map_err(ModelsError::Client)?;
        let ModelSettings { record, patience, .. } = settings;
        Ok(Self { default, places, client, record, patience })
    }

    /// Whether anything can be chosen at all.
    pub fn any(&self) -> bool {
        self.default.is_some() || self.places.values().any(|place| matches!(place, Place::Ready(_)))
    }

    /// The named one or the default, as a value of its own for each run.
    pub fn choose(&self, name: Option<&str>) -> Result<Arc<dyn Model>, Fault> {
        let name = match (name, &self.default) {
            (Some(name), _) => name,
            (None, Some(DefaultModel::Named(name))) => name,
            (None, Some(DefaultModel::Script(script))) => {
                return Ok(Arc::new(ScriptedModel::new(script.clone())));
            }
            (None, None) => return Err(nothing_chosen()),
        };
        match place(&self.places, name)? {
            (Place::Ready(endpoint), model) => Ok(self.provider(endpoint, model)),
            (Place::Needs(variable), _) => {
                Err(unavailable(format!("{name} is not set up")).hint(format!(
                    "set {variable} where the server starts, or choose another model: \
                     preferences.code_model"
                )))
            }
        }
    }

    fn provider(&self, endpoint: &Endpoint, model: &str) -> Arc<dyn Model> {
        let provider = Provider::new(endpoint, model, self.client.clone(), self.patience);
        match &self.record {
            Some(directory) => {
                Arc::new(Recorded::new(provider, directory.clone(), endpoint.key.clone()))
            }
            None => Arc::new(provider),
        }
    }
}

/// Where a name leads, and what the model is called there.
fn place<'a, 'n>(
    places: &'a BTreeMap<String, Place>,
    name: &'n str,
) -> Result<(&'a Place, &'n str), Fault> {
    let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
    let known = places.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let Some((provider, model)) = name.split_once('/') else {
        return Err(unavailable(format!("{shown:?} does not say whose model it is")).hint(
            format!("name it as provider/model, such as openai/{shown}; the providers are {known}"),
        ));
    };
    let Some(place) = places.get(provider) else {
        return Err(unavailable(format!("there is no model {shown:?} here"))
            .hint(format!("choose one of another provider; there are {known}")));
    };
    if !is_model_name(model) {
        return Err(unavailable(format!("{shown:?} is not a name that a model can have"))
            .hint("write it as the provider does, such as openai/gpt-4.1"));
    }
    Ok((place, model))
}

/// Providers write a name into the path of a request, where it must stay one name.
fn is_model_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@+-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(plain)
        && name.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

fn said(hint: Option<&str>) -> String {
    hint.map(|hint| format!("; {hint}")).unwrap_or_default()
}

fn nothing_chosen() -> Fault {
    unavailable("no model is chosen, and the server has no default").hint(
        "choose one in preferences.code_model, such as openai/gpt-4.1, or set BELLJAR_MODEL where \
         the server starts (without a server: --model openai/gpt-4.1)",
    )
}

fn unavailable(message: impl Into<String>) -> Fault {
    // Trying again changes nothing until somebody has set something.
    Fault { retryable: false, ..Fault::new(Code::ModelUnavailable, message) }
}

#[cfg(test)]
mod tests;
