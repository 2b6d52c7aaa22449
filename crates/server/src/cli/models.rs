//! Which models a server or a command has: what its options and its environment say.

use super::Failure;
use agent::ModelSettings;
use std::path::PathBuf;
use url::Url;

/// Keys come from the environment alone: an argument is seen by everybody on the machine.
pub(super) fn settings(
    default: Option<String>,
    endpoints: Vec<String>,
    record: Option<PathBuf>,
) -> Result<ModelSettings, Failure> {
    let endpoints = endpoints.iter().map(|text| endpoint(text)).collect::<Result<_, _>>()?;
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Ok(ModelSettings { default, endpoints, variables, record, ..ModelSettings::default() })
}

fn endpoint(text: &str) -> Result<(String, Url), Failure> {
    let wrong = |reason: String| {
        Failure::usage(format!(
            "--model-endpoint {text}: {reason} (such as vllm=http://host:8000/v1)"
        ))
    };
    let (name, url) = text.split_once('=').ok_or_else(|| wrong("must be NAME=URL".to_owned()))?;
    let url = url.parse().map_err(|error| wrong(format!("{url:?} is no URL: {error}")))?;
    Ok((name.to_owned(), url))
}
