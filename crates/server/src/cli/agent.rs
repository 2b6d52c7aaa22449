//! `belljar agent`: agents of a server, and the tools that they have.

pub(super) mod run;
mod show;

use super::Failure;
use super::listing::Column;
use super::named::Noun;
use super::remote::{ListArgs, Remote, RemoteArgs};
use super::request::read_bounded;
use crate::client::Call;
use serde_json::json;
use show::Show;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use types::ApprovalAction;

const COLUMNS: &[Column] =
    &[("id", "/id"), ("name", "/name"), ("runs as", "/run_as"), ("changed", "/updated_at")];
/// More than a specification may have, so that the server says so.
const SPECIFICATION_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make an agent of its specification
    Add(Add),
    /// List agents
    Ls {
        /// Only those with this text in their name
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,

        #[command(flatten)]
        list: ListArgs,
    },
    /// Show an agent, its tools, and what its specification leads to; or what a run has done
    Show(Show),
    /// Have a request carried out with code that a model writes, or by an agent of a server
    Run(Box<run::Args>),
    /// Delete an agent; its tools stay
    Rm {
        #[arg(value_name = "AGENT")]
        agent: String,
    },
    /// Give a tool to an agent
    Attach(Binding),
    /// Take a tool from an agent
    Detach(Binding),
    /// Say whether calls of a tool by an agent run, are refused, or wait for a person
    Approval {
        #[command(flatten)]
        binding: Binding,

        /// allow, deny or review
        #[arg(value_name = "ACTION", value_parser = action)]
        action: ApprovalAction,
    },
}

/// An agent and a tool, each by name or id.
#[derive(Debug, clap::Args)]
struct Binding {
    #[arg(value_name = "AGENT")]
    agent: String,

    #[arg(value_name = "TOOL")]
    tool: String,
}

#[derive(Debug, clap::Args)]
struct Add {
    /// YAML or JSON, kept as it is
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// How it is called [default: the `name` in the file, or that of the file]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Whose rights its code has: owner or caller [default: owner]
    #[arg(long, value_name = "WHO")]
    run_as: Option<String>,
}

pub(super) fn action(text: &str) -> Result<ApprovalAction, String> {
    let known = ApprovalAction::ALL.into_iter().find(|one| one.name() == text);
    let names = ApprovalAction::ALL.map(ApprovalAction::name).join(", ");
    known.ok_or_else(|| format!("there are {names}"))
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    if let Verb::Run(run) = args.verb {
        return run::main(*run, &args.remote);
    }
    args.remote.run(async |remote| match args.verb {
        Verb::Add(add) => remote.made(new(&add)?, "specification").await,
        Verb::Ls { search, list } => {
            remote.list(Call::get(Noun::Agent.path()).query("search", search), list, COLUMNS).await
        }
        Verb::Show(args) => show::show(remote, args).await,
        Verb::Rm { agent } => {
            let call = Call::delete(remote.client.path(Noun::Agent, &agent).await?);
            remote.done(call, &format!("{agent} is gone")).await
        }
        Verb::Attach(binding) => {
            let call = Call::post(path(remote, &binding).await?);
            remote.done(call, &format!("{} has {}", binding.agent, binding.tool)).await
        }
        Verb::Detach(binding) => {
            let call = Call::delete(path(remote, &binding).await?);
            remote.done(call, &format!("{} has {} no more", binding.agent, binding.tool)).await
        }
        // It can do without a server, and has begun above.
        Verb::Run(_) => Ok(()),
        Verb::Approval { binding, action } => set(remote, &binding, action).await,
    })
}

async fn path(remote: &Remote, binding: &Binding) -> Result<String, Failure> {
    let agent = remote.client.path(Noun::Agent, &binding.agent).await?;
    Ok(format!("{agent}/tools/{}", remote.client.id(Noun::Tool, &binding.tool).await?))
}

async fn set(remote: &Remote, binding: &Binding, action: ApprovalAction) -> Result<(), Failure> {
    let call = Call::patch(path(remote, binding).await?);
    let call = call.json(&json!({"approval_action": action}));
    remote.done(call, &format!("{} by {}: {action}", binding.tool, binding.agent)).await
}

fn new(add: &Add) -> Result<Call, Failure> {
    let failed = |reason: String| Failure::usage(format!("{}: {reason}", add.file.display()));
    let read = File::open(&add.file).and_then(|file| read_bounded(file, SPECIFICATION_BYTES_MAX));
    let bytes = read.map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| failed("is not UTF-8".to_owned()))?;
    let stem = |path: &Path| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
    let name = add.name.clone().or_else(|| service::agent_name(&text));
    let name = name.or_else(|| stem(&add.file));
    let body = json!({"name": name, "specification": text, "run_as": add.run_as});
    Ok(Call::post(Noun::Agent.path()).json(&body))
}
