//! `belljar agent`: agents of a server, and the tools that they have.

pub(super) mod run;
mod show;

use super::CliError;
use super::display::Column;
use super::remote::{ListArgs, Remote, RemoteArgs};
use super::request_args::read_bounded;
use super::resource_names::ResourceKind;
use crate::client::ApiRequest;
use serde_json::json;
use show::ShowAgentArgs;
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
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make an agent of its specification
    Add(AddAgentArgs),
    /// List agents
    Ls {
        /// Only those with this text in their name
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,

        #[command(flatten)]
        list: ListArgs,
    },
    /// Show an agent, its tools, and what its specification leads to; or what a run has done
    Show(ShowAgentArgs),
    /// Have a request carried out with code that a model writes, or by an agent of a server
    Run(Box<run::Args>),
    /// Delete an agent; its tools stay
    Rm {
        #[arg(value_name = "AGENT")]
        agent: String,
    },
    /// Give a tool to an agent
    Attach(AgentToolArgs),
    /// Take a tool from an agent
    Detach(AgentToolArgs),
    /// Say whether calls of a tool by an agent run, are refused, or wait for a person
    Approval {
        #[command(flatten)]
        binding: AgentToolArgs,

        /// allow, deny or review
        #[arg(value_name = "ACTION", value_parser = parse_action)]
        action: ApprovalAction,
    },
}

/// An agent and a tool, each by name or id.
#[derive(Debug, clap::Args)]
struct AgentToolArgs {
    #[arg(value_name = "AGENT")]
    agent: String,

    #[arg(value_name = "TOOL")]
    tool: String,
}

#[derive(Debug, clap::Args)]
struct AddAgentArgs {
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

pub(super) fn parse_action(text: &str) -> Result<ApprovalAction, String> {
    let known = ApprovalAction::ALL.into_iter().find(|one| one.name() == text);
    let names = ApprovalAction::ALL.map(ApprovalAction::name).join(", ");
    known.ok_or_else(|| format!("there are {names}"))
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    if let Command::Run(run) = args.verb {
        return run::main(*run, &args.remote);
    }
    args.remote.run(async |remote| match args.verb {
        Command::Add(add) => remote.show_created(create_request(&add)?, "specification").await,
        Command::Ls { search, list } => {
            remote
                .list(
                    ApiRequest::get(ResourceKind::Agent.path()).query("search", search),
                    list,
                    COLUMNS,
                )
                .await
        }
        Command::Show(args) => show::show(remote, args).await,
        Command::Rm { agent } => {
            let call =
                ApiRequest::delete(remote.client.resolve_path(ResourceKind::Agent, &agent).await?);
            remote.send_and_report(call, &format!("{agent} is gone")).await
        }
        Command::Attach(binding) => {
            let call = ApiRequest::post(tool_path(remote, &binding).await?);
            remote.send_and_report(call, &format!("{} has {}", binding.agent, binding.tool)).await
        }
        Command::Detach(binding) => {
            let call = ApiRequest::delete(tool_path(remote, &binding).await?);
            remote
                .send_and_report(call, &format!("{} has {} no more", binding.agent, binding.tool))
                .await
        }
        // It can do without a server, and has begun above.
        Command::Run(_) => Ok(()),
        Command::Approval { binding, action } => set_approval(remote, &binding, action).await,
    })
}

async fn tool_path(remote: &Remote, binding: &AgentToolArgs) -> Result<String, CliError> {
    let agent = remote.client.resolve_path(ResourceKind::Agent, &binding.agent).await?;
    Ok(format!(
        "{agent}/tools/{}",
        remote.client.resolve_id(ResourceKind::Tool, &binding.tool).await?
    ))
}

async fn set_approval(
    remote: &Remote,
    binding: &AgentToolArgs,
    action: ApprovalAction,
) -> Result<(), CliError> {
    let call = ApiRequest::patch(tool_path(remote, binding).await?);
    let call = call.json(&json!({"approval_action": action}));
    remote.send_and_report(call, &format!("{} by {}: {action}", binding.tool, binding.agent)).await
}

fn create_request(add: &AddAgentArgs) -> Result<ApiRequest, CliError> {
    let failed = |reason: String| CliError::usage(format!("{}: {reason}", add.file.display()));
    let read = File::open(&add.file).and_then(|file| read_bounded(file, SPECIFICATION_BYTES_MAX));
    let bytes = read.map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| failed("is not UTF-8".to_owned()))?;
    let stem = |path: &Path| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
    let name = add.name.clone().or_else(|| service::agent_name(&text));
    let name = name.or_else(|| stem(&add.file));
    let body = json!({"name": name, "specification": text, "run_as": add.run_as});
    Ok(ApiRequest::post(ResourceKind::Agent.path()).json(&body))
}
