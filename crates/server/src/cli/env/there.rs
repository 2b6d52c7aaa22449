//! Environments of a server.

use super::file::{self, Written};
use super::{Build, shown};
use crate::cli::remote::Remote;
use crate::cli::{Failure, terminal};
use crate::client::Call;
use engine::{PythonChoice, SourceKind};
use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};
use std::time::Duration;

const PATH: &str = "/v1/environments";
/// Often enough to follow what is being done.
const POLL: Duration = Duration::from_millis(300);

pub(super) async fn list(remote: &Remote) -> Result<(), Failure> {
    let answer = remote.client.json(Call::get(PATH)).await?;
    shown::table(answer["items"].as_array().map_or(&[][..], Vec::as_slice), remote.json)
}

pub(super) async fn show(remote: &Remote, name: &str) -> Result<(), Failure> {
    let answer = remote.client.json(Call::get(path(name))).await?;
    shown::record(&answer, remote.json)
}

pub(super) async fn remove(remote: &Remote, name: &str) -> Result<(), Failure> {
    let said = format!("the environment {name} is removed");
    remote.done(Call::delete(path(name)), &said).await
}

/// Sends what the file says, and follows the server until it is built.
pub(super) async fn build(remote: &Remote, args: &Build) -> Result<(), Failure> {
    if args.packages.wheels.is_some() || args.packages.offline {
        let message = "a server builds with its own packages: --wheels and --offline are for this \
                       machine (set BELLJAR_WHEELS where the server is started)";
        return Err(Failure::usage(message));
    }
    let Written { kind, text, draft, lock } = file::read(&args.file, args.name.as_deref())?;
    let field = match kind {
        SourceKind::Toml => "definition",
        SourceKind::Requirements => "requirements",
        SourceKind::Script => "script",
    };
    let python = match args.place.python() {
        Some(PythonChoice::At(_)) => {
            return Err(Failure::usage("a server takes --python as a version, such as 3.12"));
        }
        choice => choice.map(ToString::to_string),
    };
    let body = json!({field: text, "lock": lock, "python": python});
    let path = path(draft.name().as_str());
    let mut call = Call::new(Method::PUT, path.clone()).json(&body);
    call.headers.insert("prefer", HeaderValue::from_static("respond-async"));
    let mut answer = remote.client.json(call).await?;
    let mut last = Value::Null;
    while answer["status"] == "building" {
        if last != answer["progress"] {
            last = answer["progress"].clone();
            eprintln!("belljar: {}", terminal::for_stderr(last.as_str().unwrap_or_default()));
        }
        tokio::time::sleep(POLL).await;
        answer = remote.client.json(Call::get(path.clone())).await?;
    }
    if let Some(message) = answer["error"]["message"].as_str() {
        return Err(Failure::refused(terminal::for_stderr(message)));
    }
    shown::record(&answer, remote.json)
}

fn path(name: &str) -> String {
    let encoded: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    format!("{PATH}/{encoded}")
}
