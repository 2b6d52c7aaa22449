//! Model settings of a server or a command, from its options and its environment variables.

use super::CliError;
use agent::ModelSettings;
use std::path::PathBuf;
use url::Url;

/// Model options of commands with an embedded engine; a server has them in its configuration.
#[derive(Debug, clap::Args)]
pub(super) struct ModelArgs {
    /// Model to use without a server: PROVIDER/MODEL, or script:FILE [default: none]
    #[arg(long, value_name = "MODEL", env = "BELLJAR_MODEL", hide_env_values = true)]
    model: Option<String>,

    /// OpenAI-compatible endpoint as NAME=URL; its models are NAME/MODEL. Repeatable
    #[arg(
        long,
        value_name = "NAME=URL",
        env = "BELLJAR_MODEL_ENDPOINT",
        value_delimiter = ',',
        hide_env_values = true
    )]
    model_endpoint: Vec<String>,

    /// Record the responses of models in this directory, as scripts that can be replayed [default:
    /// off]
    #[arg(long, value_name = "DIR", env = "BELLJAR_RECORD", hide_env_values = true)]
    record: Option<PathBuf>,
}

impl ModelArgs {
    /// A warning and not an error, because the variable may be meant for other commands.
    pub(super) fn warn_if_server(&self) {
        if self.model.is_some() {
            eprintln!(
                "belljar: warning: --model and BELLJAR_MODEL are ignored with --server; the server uses the model of the agent, preferences.code_model, or its own default"
            );
        }
    }

    pub(super) fn settings(self) -> Result<ModelSettings, CliError> {
        model_settings(self.model, self.model_endpoint, self.record)
    }
}

/// Builds the model settings. API keys come from environment variables only, because all users of the
/// machine can see arguments.
pub(super) fn model_settings(
    default: Option<String>,
    endpoints: Vec<String>,
    record: Option<PathBuf>,
) -> Result<ModelSettings, CliError> {
    let endpoints = endpoints.iter().map(|text| parse_endpoint(text)).collect::<Result<_, _>>()?;
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Ok(ModelSettings { default, endpoints, variables, record, ..ModelSettings::default() })
}

fn parse_endpoint(text: &str) -> Result<(String, Url), CliError> {
    let usage_error = |reason: String| {
        CliError::usage(format!(
            "--model-endpoint {text}: {reason} (such as vllm=http://host:8000/v1)"
        ))
    };
    let (name, url) =
        text.split_once('=').ok_or_else(|| usage_error("must be NAME=URL".to_owned()))?;
    let url = url.parse().map_err(|error| usage_error(format!("invalid URL {url:?}: {error}")))?;
    Ok((name.to_owned(), url))
}
