//! `belljar tool deploy`: deploys a directory as a function of a server.

use crate::cli::remote::{Remote, RemoteArgs, print_json};
use crate::cli::request_args::read_bounded;
use crate::cli::resource_names::ResourceKind;
use crate::cli::{CliError, display, terminal};
use crate::client::ApiRequest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const HANDLER: &str = "handler.py";
const SETTINGS: &str = "function.toml";
/// Maximum size of a file: more than the server accepts, so that the server reports the error.
const FILES_MAX: usize = 1_000;
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Poll interval, short enough to show progress.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    /// Name of the function [default: `name` in function.toml, or the directory name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Directory with handler.py and optional requirements.txt, function.toml, modules and data
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, CliError> {
    let files = read_files(&args.folder)?;
    let name = args.name.clone().or_else(|| default_name(&args.folder));
    let body = json!({"name": name, "files": files});
    args.remote.run(async |remote| deploy(remote, &body).await)
}

/// Sends the directory, and follows the deployment until it ends.
async fn deploy(remote: &Remote, body: &Value) -> Result<(), CliError> {
    let mut call = ApiRequest::post(ResourceKind::Function.path()).json(body);
    call.headers.insert("prefer", HeaderValue::from_static("respond-async"));
    let mut function = remote.client.json(call).await?;
    let id = function["id"].as_str().unwrap_or_default();
    let url_path = format!("{}/{id}", ResourceKind::Function.path());
    let mut last = Value::Null;
    while function["status"] == "deploying" {
        if last != function["progress"] {
            last = function["progress"].clone();
            eprintln!("belljar: {}", terminal::for_stderr(last.as_str().unwrap_or("deploying")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        function = remote.client.json(ApiRequest::get(&url_path)).await?;
    }
    if function["status"] == "failed" {
        let message = function["error"]["message"].as_str().unwrap_or("the deployment failed");
        return Err(CliError::rejected(terminal::for_stderr(message)));
    }
    if remote.json { print_json(&function) } else { display::print_fields(&function) }
}

/// Returns the name of the directory, unless function.toml has a name.
fn default_name(folder: &Path) -> Option<String> {
    let settings = fs::read_to_string(folder.join(SETTINGS)).unwrap_or_default();
    // The server rejects invalid TOML, with the line.
    if settings.parse::<toml::Table>().is_ok_and(|settings| settings.contains_key("name")) {
        return None;
    }
    let folder = folder.canonicalize().ok()?;
    Some(folder.file_name()?.to_str()?.to_owned())
}

/// Reads all files of the directory, except those of Python caches and version control.
fn read_files(folder: &Path) -> Result<Vec<Value>, CliError> {
    if !folder.join(HANDLER).is_file() {
        let message = format!("{} has no {HANDLER} with a function `handle`", folder.display());
        return Err(CliError::usage(message));
    }
    let (mut files, mut left) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(inner) = left.pop() {
        let directory = folder.join(&inner);
        for entry in fs::read_dir(&directory).map_err(read_error(&directory))? {
            let entry = entry.map_err(read_error(&directory))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(read_error(&path))?;
            let name = inner.join(entry.file_name());
            if is_ignored(&entry.file_name()) {
                continue;
            } else if kind.is_dir() {
                left.push(name);
            } else {
                files.push(file_json(&path, &name)?);
            }
        }
        if files.len() + left.len() > FILES_MAX {
            let message = format!("{} has more than {FILES_MAX} files", folder.display());
            return Err(CliError::usage(message));
        }
    }
    Ok(files)
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> CliError {
    let path = path.display().to_string();
    move |error| CliError::usage(format!("{path}: {error}"))
}

fn is_ignored(name: &OsStr) -> bool {
    name == "__pycache__" || name.as_encoded_bytes().starts_with(b".")
}

fn file_json(path: &Path, name: &Path) -> Result<Value, CliError> {
    let usage_error = |what: &str| CliError::usage(format!("{}: {what}", path.display()));
    let name = name.to_str().ok_or_else(|| usage_error("the file name is not UTF-8 text"))?;
    if !path.is_file() {
        return Err(usage_error("neither a file nor a directory"));
    }
    let bytes = File::open(path).and_then(|file| read_bounded(file, FILE_BYTES_MAX));
    Ok(match String::from_utf8(bytes.map_err(read_error(path))?) {
        Ok(text) => json!({"name": name, "text": text}),
        Err(error) => json!({"name": name, "base64": STANDARD.encode(error.as_bytes())}),
    })
}
