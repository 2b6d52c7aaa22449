//! The target of a secret, where its value is sent: parsed from a request, validated, and converted
//! to the text that the value is encrypted for.

use crate::error::{RequestError, invalid_field};
use crate::serde_helpers::optional;
use contract::{is_reserved_variable, is_variable_name};
use serde::Deserialize;
use std::fmt;
use std::net::IpAddr;
use types::{ClientInjection, ClientKind, HeaderInjection, SecretInjection};
use url::{Host, Url};
use utoipa::ToSchema;
use vault::Plaintext;

const VALUE_BYTES_MAX: usize = 64 * 1024;
/// The maximum that servers accept as one header.
const HEADER_VALUE_BYTES_MAX: usize = 8 * 1024;
const PREFIX_BYTES_MAX: usize = 64;
const PROJECT_CHARS_MAX: usize = 200;
/// Variables that a sandbox sets itself and does not work without.
const RESERVED_VARIABLES: [&str; 10] = [
    "USER",
    "LOGNAME",
    "SHELL",
    "TZ",
    "VIRTUAL_ENV",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
];
const RESERVED_PREFIXES: [&str; 3] = ["BELLJAR_", "PYTHON", "LD_"];
const RESERVED_SUFFIXES: [&str; 1] = ["_PROXY"];
/// Headers that control how a request is parsed, and do not authenticate it.
const FORBIDDEN_HEADERS: [&str; 11] = [
    "host",
    "connection",
    "content-length",
    "content-type",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "keep-alive",
    "expect",
    "location",
];
/// Suffixes of names that are not on the public internet.
const INTERNAL_SUFFIXES: [&str; 4] = [".local", ".internal", ".lan", ".home.arpa"];
const LOOPBACK: &str = "refers to the sandbox itself; for a host beside the server use another \
                        name, which `serve --resolve` can define";

/// How code uses a secret: one of `env`, `client` and `header`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretInjectionRequest {
    /// In this environment variable. Code can read the value.
    pub env: Option<String>,
    /// As the credential of this client. Code has a placeholder, and only the service receives the
    /// value.
    pub client: Option<ClientKind>,
    /// URL of the service; default: that of the provider.
    pub base_url: Option<String>,
    /// Required for a `cognite` client.
    pub project: Option<String>,
    /// In this header of requests to this host. Code has a placeholder.
    #[serde(default, deserialize_with = "optional")]
    pub header: Option<HeaderInjection>,
}

/// The only target that a credential is sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InjectionTarget {
    /// Plain http is only allowed inside the operator's network.
    pub(crate) https: bool,
    /// In lower case, and without brackets if it is an IP address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// In lower case.
    pub(crate) header: String,
    pub(crate) prefix: String,
}

impl InjectionTarget {
    /// The form for users.
    pub(crate) fn origin(&self) -> String {
        let Self { https, host, port, .. } = self;
        let scheme = if *https { "https" } else { "http" };
        match host.contains(':') {
            true => format!("{scheme}://[{host}]:{port}"),
            false => format!("{scheme}://{host}:{port}"),
        }
    }
}

/// Values are encrypted for this text; a change makes them unreadable.
impl fmt::Display for InjectionTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { https, host, port, header, prefix } = self;
        let scheme = if *https { "https" } else { "http" };
        write!(f, "{scheme}://{host}:{port} {header}: {prefix}")
    }
}

impl SecretInjectionRequest {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// `name` is the default name of the variable.
    pub(super) fn validate(self, name: Option<&str>) -> Result<SecretInjection, RequestError> {
        let Self { env, client, base_url, project, header } = self;
        if client.is_none() {
            for (field, given) in [("base_url", &base_url), ("project", &project)] {
                if given.is_some() {
                    let message = "requires `client`, the client that uses the secret";
                    return Err(invalid_field(&format!("/inject/{field}"), message));
                }
            }
        }
        match (env, client, header) {
            (None, None, None) => {
                let env = name.unwrap_or_default().to_owned();
                check_variable("/name", &env)?;
                Ok(SecretInjection::Env { env })
            }
            (Some(env), None, None) => {
                check_variable("/inject/env", &env)?;
                Ok(SecretInjection::Env { env })
            }
            (None, Some(client), None) => check_client(client, base_url, project),
            (None, None, Some(header)) => check_header(header),
            _ => Err(invalid_field(
                "/inject",
                "must have exactly one of `env`, `client` and `header`",
            )),
        }
    }
}

fn check_variable(path: &str, name: &str) -> Result<(), RequestError> {
    if !is_variable_name(name) {
        let message = match path {
            "/name" => {
                "is not a valid variable name; set `inject` to define how code uses the secret"
            }
            _ => "must consist of letters, digits and _, and must not start with a digit",
        };
        return Err(invalid_field(path, message));
    }
    let client = ClientKind::ALL
        .into_iter()
        .find(|client| name == client.key_variable() || client.second_key_variable() == Some(name));
    if let Some(client) = client {
        let message = format!(
            "variable {name} is reserved for the client {}; use `inject: {{\"client\": \"{}\"}}`: \
             code then never sees the value",
            client.name(),
            client.name()
        );
        return Err(invalid_field(path, message));
    }
    let upper = name.to_uppercase();
    let own = is_reserved_variable(name)
        || RESERVED_VARIABLES.contains(&upper.as_str())
        || RESERVED_PREFIXES.iter().any(|own| upper.starts_with(own))
        || RESERVED_SUFFIXES.iter().any(|own| upper.ends_with(own));
    if own {
        let message = format!("Environment variable '{name}' is reserved and cannot be overridden");
        return Err(invalid_field(path, message));
    }
    Ok(())
}

fn check_client(
    client: ClientKind,
    base_url: Option<String>,
    project: Option<String>,
) -> Result<SecretInjection, RequestError> {
    let base_url = base_url.map(|text| check_base_url(&text)).transpose()?;
    if client == ClientKind::Cognite {
        if base_url.is_none() {
            let message = "is required for cognite, such as https://api.cognitedata.com";
            return Err(invalid_field("/inject/base_url", message));
        }
        check_project("/inject/project", project.as_ref())?;
    } else if project.is_some() {
        return Err(invalid_field("/inject/project", "is only allowed for cognite"));
    }
    Ok(SecretInjection::Client(ClientInjection { client, base_url, project }))
}

/// Checks the name of a project of Cognite Data Fusion.
pub(crate) fn check_project(path: &str, project: Option<&String>) -> Result<(), RequestError> {
    let is_named = |project: &String| {
        let short = project.chars().count() <= PROJECT_CHARS_MAX;
        short && !project.trim().is_empty() && !project.chars().any(char::is_control)
    };
    if project.is_some_and(is_named) {
        return Ok(());
    }
    let message = format!(
        "must be the name of a project, with 1 to {PROJECT_CHARS_MAX} characters, for the client \
         cognite"
    );
    Err(invalid_field(path, message))
}

fn check_base_url(text: &str) -> Result<String, RequestError> {
    let error = |message: &str| Err(invalid_field("/inject/base_url", message));
    let Ok(url) = Url::parse(text) else {
        return error("must be a URL, such as https://api.example.com");
    };
    let Some(host) = url.host() else { return error("must have a host") };
    let extra = !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some();
    if extra {
        return error("must have only a scheme, a host and a path");
    }
    match url.scheme() {
        "https" => {}
        "http" if is_internal_host(&host) => {}
        "http" => {
            return error(
                "must be https, because plain http would expose the value on the network",
            );
        }
        _ => return error("must be https"),
    }
    if has_wildcard(&host) {
        return error("must name one host, without *");
    }
    if is_loopback(&host) {
        return error(LOOPBACK);
    }
    Ok(url.to_string().trim_end_matches('/').to_owned())
}

/// Whether the host is in an internal network, by its name or address. Other names are checked when
/// their addresses are known.
fn is_internal_host(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => {
            !name.contains('.') || INTERNAL_SUFFIXES.iter().any(|inner| name.ends_with(inner))
        }
        Host::Ipv4(address) => is_internal_address(IpAddr::V4(*address)),
        Host::Ipv6(address) => is_internal_address(IpAddr::V6(*address)),
    }
}

fn is_internal_address(address: IpAddr) -> bool {
    policy::check_public(address).is_err_and(|special| special.is_internal())
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.to_canonical().is_loopback(),
    }
}

fn has_wildcard(host: &Host<&str>) -> bool {
    matches!(host, Host::Domain(name) if name.contains('*'))
}

fn check_header(header: HeaderInjection) -> Result<SecretInjection, RequestError> {
    let HeaderInjection { host, name, prefix, env } = header;
    let host = check_host(&host)?;
    let name = name.to_lowercase();
    if !is_header_name(&name) {
        return Err(invalid_field("/inject/header/name", "is not a valid header name"));
    }
    if FORBIDDEN_HEADERS.contains(&name.as_str()) || name.starts_with("proxy-") {
        return Err(invalid_field(
            "/inject/header/name",
            format!("{name} cannot carry a credential"),
        ));
    }
    if prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(is_printable) {
        let message = format!("must be at most {PREFIX_BYTES_MAX} printable ASCII characters");
        return Err(invalid_field("/inject/header/prefix", message));
    }
    if let Some(env) = &env {
        check_variable("/inject/header/env", env)?;
    }
    Ok(SecretInjection::Header { header: HeaderInjection { host, name, prefix, env } })
}

/// Normalizes a host with an optional port, such as `api.example.com`.
fn check_host(text: &str) -> Result<String, RequestError> {
    let plain = !text.contains(['/', '\\', '?', '#', '@', '*']) && !text.trim().is_empty();
    let url = Url::parse(&format!("https://{text}")).ok().filter(|_| plain);
    let url = url.filter(|url| url.host().is_some() && url.port() != Some(0));
    let url = url.ok_or_else(|| {
        invalid_field(
            "/inject/header/host",
            "must be one host, such as api.example.com or api.example.com:8443",
        )
    })?;
    if url.host().is_some_and(|host| is_loopback(&host)) {
        return Err(invalid_field("/inject/header/host", LOOPBACK));
    }
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    Ok(match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

fn is_header_name(name: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(token)
}

fn is_printable(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte)
}

pub(super) fn check_value(inject: &SecretInjection, value: &Plaintext) -> Result<(), RequestError> {
    let text = value.reveal();
    let error = |message: String| Err(invalid_field("/value", message));
    if text.is_empty() {
        return error("must not be empty".to_owned());
    }
    if text.len() > VALUE_BYTES_MAX {
        return error(format!("must have at most {VALUE_BYTES_MAX} bytes"));
    }
    match inject {
        SecretInjection::Env { .. } if text.contains('\0') => {
            error("must not contain NUL".to_owned())
        }
        SecretInjection::Env { .. } => Ok(()),
        SecretInjection::Client(_) | SecretInjection::Header { .. } => {
            if text.len() > HEADER_VALUE_BYTES_MAX {
                return error(format!(
                    "must have at most {HEADER_VALUE_BYTES_MAX} bytes for a header"
                ));
            }
            if !text.bytes().all(is_printable) || text.trim() != text {
                let message = "must be valid in a header: printable ASCII, without line ends, and \
                               without spaces at the start or end";
                return error(message.to_owned());
            }
            Ok(())
        }
    }
}

/// Absent for a variable. A stored secret always has a valid target.
pub(crate) fn injection_target(inject: &SecretInjection) -> Option<InjectionTarget> {
    let (url, header, prefix) = match inject {
        SecretInjection::Env { .. } => return None,
        SecretInjection::Client(client) => (
            client.base_url().to_owned(),
            client.client.header().to_owned(),
            client.client.prefix().to_owned(),
        ),
        SecretInjection::Header { header } => {
            (format!("https://{}", header.host), header.name.clone(), header.prefix.clone())
        }
    };
    let url = Url::parse(&url).ok()?;
    let host = match url.host()? {
        Host::Domain(name) => name.trim_end_matches('.').to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    };
    let port = url.port_or_known_default()?;
    Some(InjectionTarget { https: url.scheme() == "https", host, port, header, prefix })
}

/// Whether the target is given as an IP address that is not public.
pub(super) fn targets_internal_address(inject: &SecretInjection) -> bool {
    let address = injection_target(inject).and_then(|target| target.host.parse().ok());
    address.is_some_and(is_internal_address)
}

/// The text that a value is encrypted for. If it changes, all stored values become unreadable.
pub(super) fn seal_destination(inject: &SecretInjection) -> String {
    match (inject, injection_target(inject)) {
        (SecretInjection::Env { env }, _) => variable_destination(env),
        (_, Some(target)) => format!("header {target}"),
        // No value is encrypted for this text.
        (SecretInjection::Client(_) | SecretInjection::Header { .. }, None) => String::new(),
    }
}

pub(crate) fn variable_destination(name: &str) -> String {
    format!("env {name}")
}
