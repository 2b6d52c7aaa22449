//! Environments of a server.

use super::file::{self, EnvironmentFile};
use super::{BuildEnvironmentArgs, display};
use crate::cli::remote::Remote;
use crate::cli::{CliError, terminal};
use crate::client::ApiRequest;
use engine::{PythonChoice, SourceKind};
use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};
use std::time::Duration;

const ENVIRONMENTS_PATH: &str = "/v1/environments";
/// Poll interval, short enough to show progress.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

pub(super) async fn list(remote: &Remote) -> Result<(), CliError> {
    let answer = remote.client.json(ApiRequest::get(ENVIRONMENTS_PATH)).await?;
    display::print_environments(
        answer["items"].as_array().map_or(&[][..], Vec::as_slice),
        remote.json,
    )
}

pub(super) async fn show(remote: &Remote, name: &str) -> Result<(), CliError> {
    let answer = remote.client.json(ApiRequest::get(environment_path(name))).await?;
    display::print_environment(&answer, remote.json)
}

pub(super) async fn remove(remote: &Remote, name: &str) -> Result<(), CliError> {
    let message = format!("environment {name} removed");
    remote.send_and_report(ApiRequest::delete(environment_path(name)), &message).await
}

/// Sends the definition, and shows the progress until the server has built it.
pub(super) async fn build(remote: &Remote, args: &BuildEnvironmentArgs) -> Result<(), CliError> {
    if args.packages.wheels.is_some() || args.packages.offline {
        let message = "--wheels and --offline cannot be used with --server (set BELLJAR_WHEELS for the server instead)";
        return Err(CliError::usage(message));
    }
    let EnvironmentFile { kind, text, draft, lock } =
        file::read_with_lock(&args.file, args.name.as_deref())?;
    let field = match kind {
        SourceKind::Toml => "definition",
        SourceKind::Requirements => "requirements",
        SourceKind::Script => "script",
    };
    let python = match args.paths.python() {
        Some(PythonChoice::At(_)) => {
            return Err(CliError::usage("with --server, --python must be a version, such as 3.12"));
        }
        choice => choice.map(ToString::to_string),
    };
    let body = json!({field: text, "lock": lock, "python": python});
    let path = environment_path(draft.name().as_str());
    let mut call = ApiRequest::new(Method::PUT, path.clone()).json(&body);
    call.headers.insert("prefer", HeaderValue::from_static("respond-async"));
    let mut answer = remote.client.json(call).await?;
    let mut last = Value::Null;
    while answer["status"] == "building" {
        if last != answer["progress"] {
            last = answer["progress"].clone();
            eprintln!("belljar: {}", terminal::for_stderr(last.as_str().unwrap_or_default()));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        answer = remote.client.json(ApiRequest::get(path.clone())).await?;
    }
    if let Some(message) = answer["error"]["message"].as_str() {
        return Err(CliError::rejected(terminal::for_stderr(message)));
    }
    display::print_environment(&answer, remote.json)
}

fn environment_path(name: &str) -> String {
    let encoded: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    format!("{ENVIRONMENTS_PATH}/{encoded}")
}
