//! `belljar agent`: manages the agents of a server and their tools.

mod capability;
pub(super) mod run;
mod show;

use super::CliError;
use super::api::encode_path_segment;
use super::display::Column;
use super::remote::{ListArgs, Remote, RemoteArgs};
use super::request_args::read_bounded;
use super::resource_names::ResourceKind;
use crate::client::ApiRequest;
use capability::CapabilityCommand;
use serde_json::json;
use show::ShowAgentArgs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use types::ApprovalAction;

const COLUMNS: &[Column] =
    &[("id", "/id"), ("name", "/name"), ("runs as", "/run_as"), ("changed", "/updated_at")];
/// Larger than the server accepts, so that the server reports the error.
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
    /// Create an agent from a specification
    ///
    /// Use it with a YAML or JSON file that names the model, the instructions and the tools of the
    /// agent.
    #[command(after_help = "Examples:\n  \
        belljar agent add sales.yaml\n  \
        belljar agent add helper.yaml --name helper --run-as caller")]
    Add(AddAgentArgs),
    /// List agents
    ///
    /// Use it to find the name or id of an agent.
    #[command(after_help = "Examples:\n  \
        belljar agent ls\n  \
        belljar agent ls --search sales --json")]
    Ls {
        /// List only agents whose name contains this text
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,

        #[command(flatten)]
        list: ListArgs,
    },
    /// Show an agent or the trace of a run
    ///
    /// Use it to check the tools and the resolved specification of an agent, or to see every
    /// request to the model, all code and all results of a run.
    #[command(after_help = "Examples:\n  \
        belljar agent show sales\n  \
        belljar agent show 0198c0de-0000-7000-8000-000000000000 --format html --out run.html")]
    Show(ShowAgentArgs),
    /// Carry out a request with code that a model writes
    ///
    /// Use it with an agent of a server, or without one: then it runs code_execution, on this
    /// machine unless --server is set.
    #[command(after_help = "Examples:\n  \
        belljar agent run --request 'Chart revenue per region' --file sales.csv --out charts\n  \
        belljar agent run sales --request 'How much did we sell in March?'")]
    Run(Box<run::Args>),
    /// Delete an agent
    ///
    /// Use it when an agent is no longer needed. Its tools are not deleted.
    #[command(after_help = "Examples:\n  \
        belljar agent rm sales")]
    Rm {
        /// Name or id of the agent
        #[arg(value_name = "AGENT")]
        agent: String,
    },
    /// Attach a tool to an agent
    ///
    /// Use it to let an agent call a tool that its specification does not list.
    #[command(after_help = "Examples:\n  \
        belljar agent attach helper media_probe")]
    Attach(AgentToolArgs),
    /// Detach a tool from an agent
    ///
    /// Use it to stop an agent from calling a tool. The tool is not deleted.
    #[command(after_help = "Examples:\n  \
        belljar agent detach helper media_probe")]
    Detach(AgentToolArgs),
    /// List, add and remove what an agent can use
    ///
    /// Use it for the tools, functions and skills of an agent, and for its Code Interpreter.
    #[command(after_help = "Examples:\n  \
        belljar agent capability ls sales\n  \
        belljar agent capability add sales 'Code Interpreter'")]
    #[command(subcommand)]
    Capability(CapabilityCommand),
    /// Set the approval action for calls of a tool by an agent
    ///
    /// Use it with an attached tool, a tool of the specification or code_execution: to let calls run
    /// (allow), to have the user of the agent confirm each (confirm), to require an approval for
    /// each (review), or to refuse them (deny).
    #[command(after_help = "Examples:\n  \
        belljar agent approval helper media_probe review\n  \
        belljar agent approval helper code_execution confirm")]
    Approval {
        #[command(flatten)]
        binding: AgentToolArgs,

        /// Approval action: allow, confirm, review or deny
        #[arg(value_name = "ACTION", value_parser = parse_action)]
        action: ApprovalAction,
    },
}

/// An agent and a tool, each by name or id.
#[derive(Debug, clap::Args)]
struct AgentToolArgs {
    /// Name or id of the agent
    #[arg(value_name = "AGENT")]
    agent: String,

    /// Name or id of the tool
    #[arg(value_name = "TOOL")]
    tool: String,
}

#[derive(Debug, clap::Args)]
struct AddAgentArgs {
    /// Specification of the agent, in YAML or JSON
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Name of the agent [default: `name` in the specification, or the file name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Principal whose privileges the code of the agent has: owner or caller [default: owner]
    #[arg(long, value_name = "WHO")]
    run_as: Option<String>,
}

pub(super) fn parse_action(text: &str) -> Result<ApprovalAction, String> {
    let known = ApprovalAction::ALL.into_iter().find(|one| one.name() == text);
    let names = ApprovalAction::ALL.map(ApprovalAction::name).join(", ");
    known.ok_or_else(|| format!("must be one of {names}"))
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
            remote.send_and_report(call, &format!("agent {agent} deleted")).await
        }
        Command::Attach(binding) => {
            let call = ApiRequest::post(tool_path(remote, &binding).await?);
            remote.send_and_report(call, &format!("{} has {}", binding.agent, binding.tool)).await
        }
        Command::Detach(binding) => {
            let call = ApiRequest::delete(tool_path(remote, &binding).await?);
            remote
                .send_and_report(
                    call,
                    &format!("tool {} detached from {}", binding.tool, binding.agent),
                )
                .await
        }
        Command::Capability(command) => capability::run(remote, command).await,
        // Handled above, because it also works without a server.
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
    // The tool may be one of the specification, which only the agent knows by its name.
    let agent = remote.client.resolve_path(ResourceKind::Agent, &binding.agent).await?;
    let call = ApiRequest::patch(format!("{agent}/tools/{}", encode_path_segment(&binding.tool)));
    let call = call.json(&json!({"approval_action": action}));
    remote.send_and_report(call, &format!("{} by {}: {action}", binding.tool, binding.agent)).await
}

fn create_request(add: &AddAgentArgs) -> Result<ApiRequest, CliError> {
    let failed = |reason: String| CliError::usage(format!("{}: {reason}", add.file.display()));
    let read = File::open(&add.file).and_then(|file| read_bounded(file, SPECIFICATION_BYTES_MAX));
    let bytes = read.map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| failed("not UTF-8 text".to_owned()))?;
    let stem = |path: &Path| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
    let name = add.name.clone().or_else(|| service::agent_name(&text));
    let name = name.or_else(|| stem(&add.file));
    let body = json!({"name": name, "specification": text, "run_as": add.run_as});
    Ok(ApiRequest::post(ResourceKind::Agent.path()).json(&body))
}
