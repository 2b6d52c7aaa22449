//! The tools of a server.

use super::Strictness;
use super::file::Definition;
use crate::cli::listing::Column;
use crate::cli::named::Noun;
use crate::cli::remote::{ListArgs, RemoteArgs};
use crate::cli::{Failure, agent};
use crate::client::Call;
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
pub(super) struct Add {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(flatten)]
    strictness: Strictness,

    /// How it is called [default: as in the JSON, or the name of the file]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// What it is for, in words for a model [default: as in the JSON]
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// Where it runs [default: as in the JSON, or the server's usual environment]
    #[arg(long = "env", value_name = "NAME")]
    environment: Option<String>,

    /// Whether a call runs, is refused, or waits for a person: allow, deny or review
    #[arg(long, value_name = "ACTION", value_parser = agent::action)]
    approval: Option<ApprovalAction>,

    /// Python with a function `handle`, or the JSON of a tool
    #[arg(value_name = "FILE.py | FILE.json")]
    file: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(super) struct Ls {
    #[command(flatten)]
    remote: RemoteArgs,

    /// Only those with this text in their name or description
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,

    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Named {
    #[command(flatten)]
    remote: RemoteArgs,

    #[arg(value_name = "NAME | ID")]
    tool: String,
}

pub(super) fn add(args: &Add) -> Result<ExitCode, Failure> {
    let call = new(args)?;
    args.remote.run(async |remote| remote.made(call, "configuration").await)
}

fn new(args: &Add) -> Result<Call, Failure> {
    let call = Call::post(Noun::Tool.path());
    let mut said = said(args);
    match Definition::read(&args.file)? {
        Definition::Json(mut tool) => {
            tool.extend(said);
            Ok(call.json(&Value::Object(tool)))
        }
        Definition::Python { name, source } => {
            said.entry("name").or_insert(name.into());
            let text = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
            let call =
                said.iter().fold(call, |call, (name, value)| call.query(name, Some(text(value))));
            Ok(call.bytes("text/x-python", source))
        }
    }
}

/// What the options say, which goes before what the file says.
fn said(args: &Add) -> Map<String, Value> {
    let extended = args.strictness.extended.then_some(true);
    let fields = [
        ("name", json!(args.name)),
        ("description", json!(args.description)),
        ("environment", json!(args.environment)),
        ("approval_action", json!(args.approval)),
        ("extended_annotations", json!(extended)),
    ];
    let said = fields.into_iter().filter(|(_, value)| !value.is_null());
    said.map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(super) fn ls(args: Ls) -> Result<ExitCode, Failure> {
    let call = Call::get(Noun::Tool.path()).query("search", args.search);
    args.remote.run(async |remote| remote.list(call, args.list, COLUMNS).await)
}

pub(super) fn show(args: &Named) -> Result<ExitCode, Failure> {
    args.remote.run(async |remote| {
        remote.show(Call::get(remote.client.path(Noun::Tool, &args.tool).await?)).await
    })
}

pub(super) fn rm(args: &Named) -> Result<ExitCode, Failure> {
    args.remote.run(async |remote| {
        let call = Call::delete(remote.client.path(Noun::Tool, &args.tool).await?);
        remote.done(call, &format!("{} is gone", args.tool)).await
    })
}
