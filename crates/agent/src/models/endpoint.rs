//! URL and key of each provider, from the operator's settings. A key is never shown: neither by
//! `Debug`, nor in an error message that a provider sends.

use super::ModelsError;
use std::collections::BTreeMap;
use std::fmt;
use url::Url;

/// The API of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProviderApi {
    /// OpenAI's chat completions, which nearly all other servers support too.
    ChatCompletions,
    Responses,
    Anthropic,
    Gemini,
}

#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) provider: String,
    pub(super) api: ProviderApi,
    /// Ends with a slash, so that paths can be appended.
    pub(super) base_url: Url,
    pub(super) key: Option<ProviderKey>,
}

#[derive(Debug, Clone)]
pub(super) enum ProviderEntry {
    Ready(Endpoint),
    /// This variable is not set.
    MissingVariable(&'static str),
}

#[derive(Clone)]
pub(super) struct ProviderKey(String);

impl ProviderKey {
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    pub(super) fn redact_in(&self, text: &str) -> String {
        text.replace(&self.0, "[key]")
    }
}

impl fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

struct Vendor {
    name: &'static str,
    api: ProviderApi,
    /// Variables for the key; the first that is set counts.
    keys: &'static [&'static str],
    address: &'static str,
    default_url: &'static str,
    /// Path that the provider's own clients append to a URL without it.
    version: Option<&'static str>,
}

const VENDORS: [Vendor; 4] = [
    Vendor {
        name: "openai",
        api: ProviderApi::ChatCompletions,
        keys: &["OPENAI_API_KEY"],
        address: "OPENAI_BASE_URL",
        default_url: "https://api.openai.com/v1",
        version: None,
    },
    Vendor {
        name: "openai-responses",
        api: ProviderApi::Responses,
        keys: &["OPENAI_API_KEY"],
        address: "OPENAI_BASE_URL",
        default_url: "https://api.openai.com/v1",
        version: None,
    },
    Vendor {
        name: "anthropic",
        api: ProviderApi::Anthropic,
        keys: &["ANTHROPIC_API_KEY"],
        address: "ANTHROPIC_BASE_URL",
        default_url: "https://api.anthropic.com",
        version: Some("v1"),
    },
    Vendor {
        name: "gemini",
        api: ProviderApi::Gemini,
        keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        address: "GEMINI_BASE_URL",
        default_url: "https://generativelanguage.googleapis.com",
        version: Some("v1beta"),
    },
];

/// Names of a provider's settings: options and variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProviderSettingNames {
    pub(crate) key: String,
    pub(crate) address: String,
}

impl ProviderSettingNames {
    pub(crate) fn for_provider(provider: &str) -> Self {
        if let Some(vendor) = VENDORS.iter().find(|vendor| vendor.name == provider) {
            return Self { key: vendor.keys.join(" or "), address: vendor.address.to_owned() };
        }
        if provider == OLLAMA {
            let address = "OLLAMA_HOST or OLLAMA_BASE_URL".to_owned();
            return Self { key: OLLAMA_KEY.to_owned(), address };
        }
        let address = format!("--model-endpoint {provider}=URL, or BELLJAR_MODEL_ENDPOINT");
        Self { key: key_variable(provider), address }
    }
}

/// The variable for the key of a server that the operator named.
fn key_variable(name: &str) -> String {
    format!("{}_API_KEY", name.to_uppercase().replace('-', "_"))
}

const OLLAMA: &str = "ollama";
const OLLAMA_KEY: &str = "OLLAMA_API_KEY";
const OLLAMA_HOME: &str = "127.0.0.1";
const OLLAMA_PORT: u16 = 11434;

type EnvironmentVariables = BTreeMap<String, String>;

/// All providers that a model name can start with.
pub(super) fn providers(
    variables: &EnvironmentVariables,
    endpoints: &[(String, Url)],
    default: Option<&str>,
) -> Result<BTreeMap<String, ProviderEntry>, ModelsError> {
    let mut places = BTreeMap::new();
    for vendor in &VENDORS {
        places.insert(vendor.name.to_owned(), vendor.provider_entry(variables)?);
    }
    places.insert(OLLAMA.to_owned(), ollama(variables, default)?);
    for (name, address) in endpoints {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || !name.bytes().all(plain) || places.contains_key(name) {
            return Err(ModelsError::EndpointName(name.clone()));
        }
        let key = read_key(variables, &key_variable(name))?;
        let base = base_url(name, address.as_str(), None)?;
        let endpoint = Endpoint {
            provider: name.clone(),
            api: ProviderApi::ChatCompletions,
            base_url: base,
            key,
        };
        places.insert(name.clone(), ProviderEntry::Ready(endpoint));
    }
    Ok(places)
}

impl Vendor {
    fn provider_entry(
        &self,
        variables: &EnvironmentVariables,
    ) -> Result<ProviderEntry, ModelsError> {
        let named = self.keys.iter().find(|name| non_empty_variable(variables, name).is_some());
        let Some(key) = named.map(|name| read_key(variables, name)).transpose()?.flatten() else {
            return Ok(ProviderEntry::MissingVariable(self.keys[0]));
        };
        let address = non_empty_variable(variables, self.address).unwrap_or(self.default_url);
        Ok(ProviderEntry::Ready(Endpoint {
            provider: self.name.to_owned(),
            api: self.api,
            base_url: base_url(self.address, address, self.version)?,
            key: Some(key),
        }))
    }
}

/// Ollama needs no key, so it counts as configured only if its URL is set or it is the default.
fn ollama(
    variables: &EnvironmentVariables,
    default: Option<&str>,
) -> Result<ProviderEntry, ModelsError> {
    let address = match (
        non_empty_variable(variables, "OLLAMA_BASE_URL"),
        non_empty_variable(variables, "OLLAMA_HOST"),
    ) {
        (Some(address), _) => address.to_owned(),
        (None, Some(host)) if host.contains("://") => host.to_owned(),
        (None, Some(host)) => with_port(host),
        (None, None) if default.is_some_and(|name| name.starts_with("ollama/")) => {
            with_port(OLLAMA_HOME)
        }
        (None, None) => return Ok(ProviderEntry::MissingVariable("OLLAMA_HOST")),
    };
    Ok(ProviderEntry::Ready(Endpoint {
        provider: OLLAMA.to_owned(),
        api: ProviderApi::ChatCompletions,
        base_url: base_url("ollama", &address, Some("v1"))?,
        key: read_key(variables, OLLAMA_KEY)?,
    }))
}

/// Parses `OLLAMA_HOST` as Ollama does: a host, a port, or both.
fn with_port(host: &str) -> String {
    match host.rsplit_once(':') {
        Some(("", port)) => format!("http://{OLLAMA_HOME}:{port}"),
        Some((_, port)) if port.parse::<u16>().is_ok() => format!("http://{host}"),
        _ => format!("http://{host}:{OLLAMA_PORT}"),
    }
}

fn base_url(name: &str, address: &str, version: Option<&str>) -> Result<Url, ModelsError> {
    let invalid =
        |reason: &str| ModelsError::Address { name: name.to_owned(), reason: reason.to_owned() };
    let mut url = Url::parse(address).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("its scheme is not http or https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("pass a key in its own variable"));
    }
    let mut path = url.path().trim_end_matches('/').to_owned();
    let last = path.rsplit('/').next().unwrap_or_default();
    let versioned =
        last.strip_prefix('v').is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()));
    if let (Some(version), false) = (version, versioned) {
        path = format!("{path}/{version}");
    }
    url.set_path(&format!("{path}/"));
    Ok(url)
}

/// Accepts only characters that need no escape in headers, JSON and YAML, so that the key can be
/// found and masked in messages.
fn read_key(
    variables: &EnvironmentVariables,
    name: &str,
) -> Result<Option<ProviderKey>, ModelsError> {
    let Some(key) = non_empty_variable(variables, name) else {
        return Ok(None);
    };
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"'\\".contains(&byte);
    if key.bytes().all(plain) {
        Ok(Some(ProviderKey(key.to_owned())))
    } else {
        Err(ModelsError::Key(name.to_owned()))
    }
}

fn non_empty_variable<'a>(variables: &'a EnvironmentVariables, name: &str) -> Option<&'a str> {
    variables.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_to_be_set_is_named_for_each_provider() {
        for (provider, key, address) in [
            ("openai-responses", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
            ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
            ("gemini", "GEMINI_API_KEY or GOOGLE_API_KEY", "GEMINI_BASE_URL"),
            ("ollama", "OLLAMA_API_KEY", "OLLAMA_HOST or OLLAMA_BASE_URL"),
            ("my-lab", "MY_LAB_API_KEY", "--model-endpoint my-lab=URL, or BELLJAR_MODEL_ENDPOINT"),
        ] {
            let (key, address) = (key.to_owned(), address.to_owned());
            assert_eq!(
                ProviderSettingNames::for_provider(provider),
                ProviderSettingNames { key, address },
                "{provider}"
            );
        }
    }
}
