//! The tools of a server.

use super::AnnotationArgs;
use super::file::ToolUpload;
use crate::cli::display::Column;
use crate::cli::remote::{ListArgs, RemoteArgs};
use crate::cli::resource_names::ResourceKind;
use crate::cli::{CliError, agent};
use crate::client::ApiRequest;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use types::ApprovalAction;

const COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("name", "/name"),
    ("entry", "/entry"),
    ("approval", "/approval_action"),
    ("environment", "/environment"),
    ("description", "/description"),
];

#[derive(Debug, clap::Args)]
pub(super) struct AddToolArgs {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(flatten)]
    strictness: AnnotationArgs,

    /// Name of the tool [default: `name` in the JSON file, or the file name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Description for models [default: that of the JSON file]
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// Environment that the tool runs in [default: that of the JSON file, or the server's for tools
    /// of this kind]
    #[arg(long = "env", value_name = "NAME")]
    environment: Option<String>,

    /// Approval action for calls: allow, confirm, review or deny [default: confirm for a function
    /// `handle`, otherwise allow]
    #[arg(long, value_name = "ACTION", value_parser = agent::parse_action)]
    approval: Option<ApprovalAction>,

    /// Python file with a function `handle`, or JSON file of a tool
    #[arg(value_name = "FILE.py | FILE.json")]
    file: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(super) struct ListToolsArgs {
    #[command(flatten)]
    remote: RemoteArgs,

    /// List only tools whose name or description contains this text
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,

    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct ToolNameArgs {
    #[command(flatten)]
    remote: RemoteArgs,

    /// Name or id of the tool
    #[arg(value_name = "NAME | ID")]
    tool: String,
}

pub(super) fn add(args: &AddToolArgs) -> Result<ExitCode, CliError> {
    let call = create_request(args)?;
    args.remote.run(async |remote| remote.show_created(call, "configuration").await)
}

fn create_request(args: &AddToolArgs) -> Result<ApiRequest, CliError> {
    let call = ApiRequest::post(ResourceKind::Tool.path());
    let mut options = options_json(args);
    match ToolUpload::read(&args.file)? {
        ToolUpload::Json(mut tool) => {
            tool.extend(options);
            Ok(call.json(&Value::Object(tool)))
        }
        ToolUpload::Python { name, source } => {
            options.entry("name").or_insert(name.into());
            let text = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
            let call = options
                .iter()
                .fold(call, |call, (name, value)| call.query(name, Some(text(value))));
            Ok(call.bytes("text/x-python", source))
        }
    }
}

/// Returns the values of the options, which override those of the file.
fn options_json(args: &AddToolArgs) -> Map<String, Value> {
    let extended = args.strictness.extended.then_some(true);
    let fields = [
        ("name", json!(args.name)),
        ("description", json!(args.description)),
        ("environment", json!(args.environment)),
        ("approval_action", json!(args.approval)),
        ("extended_annotations", json!(extended)),
    ];
    let set = fields.into_iter().filter(|(_, value)| !value.is_null());
    set.map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(super) fn ls(args: ListToolsArgs) -> Result<ExitCode, CliError> {
    let call = ApiRequest::get(ResourceKind::Tool.path()).query("search", args.search);
    args.remote.run(async |remote| remote.list(call, args.list, COLUMNS).await)
}

pub(super) fn show(args: &ToolNameArgs) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| {
        remote
            .show(ApiRequest::get(
                remote.client.resolve_path(ResourceKind::Tool, &args.tool).await?,
            ))
            .await
    })
}

pub(super) fn rm(args: &ToolNameArgs) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| {
        let call =
            ApiRequest::delete(remote.client.resolve_path(ResourceKind::Tool, &args.tool).await?);
        remote.send_and_report(call, &format!("tool {} deleted", args.tool)).await
    })
}
