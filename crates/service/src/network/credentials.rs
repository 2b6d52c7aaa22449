//! Secrets of code: a placeholder in the variable where a client reads its credential, and the
//! value, which only the proxy sees.

use crate::secrets::UsableSecret;
use egress::{Credential, HeaderName, Scheme};
use policy::Destination;
use redact::{SecretText, SecretVersion};
use std::collections::{BTreeMap, BTreeSet};
use types::{ClientInjection, ClientKind, SecretId, SecretInjection};

/// What code has instead of a value. It is not secret, and has no use anywhere else.
fn placeholder(secret: &UsableSecret) -> String {
    format!("belljar-{}", secret.id.uuid().simple())
}

/// The environment variables for the secrets of code.
pub(super) fn variables(secrets: &[UsableSecret]) -> BTreeMap<String, String> {
    secrets.iter().flat_map(secret_variables).collect()
}

fn secret_variables(secret: &UsableSecret) -> Vec<(String, String)> {
    match &secret.inject {
        SecretInjection::Env { env } => vec![(env.clone(), secret.value.reveal().to_owned())],
        SecretInjection::Client(client) => client_variables(client, placeholder(secret)),
        SecretInjection::Header { header } => {
            header.env.iter().map(|env| (env.clone(), placeholder(secret))).collect()
        }
    }
}

/// The variables that the client of each service reads.
pub(super) fn client_variables(
    client: &ClientInjection,
    placeholder: String,
) -> Vec<(String, String)> {
    let base_url = client.base_url().trim_end_matches('/').to_owned();
    let kind = client.client;
    let second = kind.second_key_variable().map(|variable| (variable, placeholder.clone()));
    let mut variables: Vec<_> = second.into_iter().collect();
    variables.push((kind.key_variable(), placeholder));
    if client.base_url.is_some() {
        // Only this client expects the API version in its base URL.
        let versioned = kind == ClientKind::Openai && has_no_path(&base_url);
        let base_url = if versioned { base_url + "/v1" } else { base_url };
        variables.push((kind.base_url_variable(), base_url));
    }
    if kind == ClientKind::Cognite {
        variables.push(("COGNITE_PROJECT", client.project.clone().unwrap_or_default()));
        variables.push(("COGNITE_FUSION_NOTEBOOK", "1".to_owned()));
    }
    variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn has_no_path(url: &str) -> bool {
    url.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'))
}

/// The versions of the secrets that code can read.
pub(super) fn exposed_versions(secrets: &[UsableSecret]) -> BTreeSet<(SecretId, u64)> {
    let readable = secrets.iter().filter(|secret| secret.target().is_none());
    readable.map(|secret| (secret.id, secret.version)).collect()
}

/// The secrets to redact in output: those that code can read. Credentials are not among them, since
/// code does not have them and could find them out by guessing what is redacted.
pub(super) fn redacted_versions(secrets: &[UsableSecret]) -> Vec<SecretVersion> {
    let readable = secrets.iter().filter(|secret| secret.target().is_none());
    readable.map(secret_version).collect()
}

fn secret_version(secret: &UsableSecret) -> SecretVersion {
    let value = SecretText::new(secret.value.reveal().to_owned());
    SecretVersion { id: secret.id, version: secret.version, name: secret.name.clone(), value }
}

/// The credentials that the proxy injects into requests. A credential with an invalid target is not
/// injected.
pub(super) fn credentials(secrets: Vec<UsableSecret>) -> Vec<Credential> {
    secrets.iter().filter_map(header_credentials).flatten().collect()
}

fn header_credentials(secret: &UsableSecret) -> Option<Vec<Credential>> {
    let target = secret.target()?;
    let to = Destination::new(&target.host, target.port).ok()?;
    let mut places = vec![(target.header.as_str(), target.prefix.as_str())];
    if let SecretInjection::Client(ClientInjection { client: ClientKind::Anthropic, .. }) =
        secret.inject
    {
        // Newer clients send the key as a bearer token, which the service also accepts.
        places.push(("authorization", "Bearer "));
    }
    let credential = |(header, prefix): (&str, &str)| {
        Some(Credential {
            secret: secret_version(secret),
            placeholder: placeholder(secret),
            destination: to.clone(),
            grants_access: secret.opens_host,
            scheme: if target.https { Scheme::Https } else { Scheme::Http },
            header: header.parse::<HeaderName>().ok()?,
            prefix: prefix.to_owned(),
            unavailable: None,
        })
    };
    places.into_iter().map(credential).collect()
}
