//! The models that callers can choose, from the settings of the operator alone: no provider is asked.
//!
//! A listing has names and the variables that are not set. It never has a URL or a key.

use super::endpoint::{ProviderApi, ProviderEntry};
use super::{DefaultModel, Models};
use crate::model::Model;
use crate::models::ScriptedModel;
use serde::Serialize;
use utoipa::ToSchema;

/// A model that can be chosen by its name, or all models of a provider
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelView {
    /// Name for `model` of a specification or a request, and for the preference `code_model`; in
    /// `provider/*`, any model of the provider in the place of `*`
    #[schema(example = "openai/gpt-4.1")]
    pub name: String,
    pub provider: String,
    /// The API of the provider; absent for a script
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<ModelApi>,
    /// Whether runs use it if nothing else names a model
    #[serde(rename = "default")]
    pub is_default: bool,
    /// Whether its provider is configured; the provider is not asked
    pub usable: bool,
    /// What the operator has to set to make it usable
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Features that runs use
    pub supports: Vec<ModelFeature>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelApi {
    /// OpenAI's chat completions, which most other servers have too
    ChatCompletions,
    /// OpenAI's responses
    Responses,
    /// Anthropic's messages
    Messages,
    /// Gemini's content generation
    GenerateContent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelFeature {
    /// Its text is passed on while it is written
    Streaming,
    /// It calls tools
    Tools,
    /// It can be made to call a tool (`tool_choice`)
    ToolChoice,
}

impl Models {
    /// The default model first, then all models of each provider.
    pub(crate) fn list(&self) -> Vec<ModelView> {
        let default = self.default.as_ref().map(|default| self.default_view(default));
        let providers = self
            .providers
            .iter()
            .map(|(provider, entry)| view(format!("{provider}/*"), provider, Some(entry), false));
        default.into_iter().chain(providers).collect()
    }

    fn default_view(&self, default: &DefaultModel) -> ModelView {
        match default {
            DefaultModel::Named(name) => {
                let provider = name.split_once('/').map_or(name.as_str(), |(provider, _)| provider);
                view(name.clone(), provider, self.providers.get(provider), true)
            }
            DefaultModel::Script(script) => {
                let model = ScriptedModel::new(script.clone());
                ModelView {
                    supports: vec![ModelFeature::Streaming, ModelFeature::Tools],
                    ..view(model.name().to_owned(), model.name(), None, true)
                }
            }
        }
    }
}

fn view(
    name: String,
    provider: &str,
    entry: Option<&ProviderEntry>,
    is_default: bool,
) -> ModelView {
    let (api, reason) = match entry {
        Some(ProviderEntry::Ready(endpoint)) => (Some(model_api(endpoint.api)), None),
        Some(ProviderEntry::MissingVariable(variable)) => {
            (None, Some(format!("{variable} is not set in the environment of the server")))
        }
        None => (None, None),
    };
    ModelView {
        name,
        provider: provider.to_owned(),
        api,
        is_default,
        usable: reason.is_none(),
        reason,
        supports: vec![ModelFeature::Streaming, ModelFeature::Tools, ModelFeature::ToolChoice],
    }
}

fn model_api(api: ProviderApi) -> ModelApi {
    match api {
        ProviderApi::ChatCompletions => ModelApi::ChatCompletions,
        ProviderApi::Responses => ModelApi::Responses,
        ProviderApi::Anthropic => ModelApi::Messages,
        ProviderApi::Gemini => ModelApi::GenerateContent,
    }
}
