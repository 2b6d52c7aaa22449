//! `belljar network`: manages network access of sandboxes, and lists attempted connections.

mod integration;
mod rule;

use super::CliError;
use super::display::Column;
use super::remote::{ListArgs, RemoteArgs};
use super::resource_names::ResourceKind;
use crate::client::ApiRequest;
use serde_json::json;
use std::process::ExitCode;
use types::{ExecutionId, SandboxId};

const LOG_COLUMNS: &[Column] = &[
    ("at", "/at"),
    ("host", "/host"),
    ("port", "/port"),
    ("allowed", "/allowed"),
    ("by", "/integration"),
    ("reason", "/reason"),
    ("execution", "/execution_id"),
];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Manage network rules (lists of hosts and ports)
    ///
    /// Use it to define which hosts an integration can allow. A rule has no effect until an
    /// integration uses it.
    #[command(after_help = "Examples:\n  \
        belljar network rule new github api.github.com\n  \
        belljar network rule ls")]
    #[command(subcommand)]
    Rule(rule::Command),
    /// Manage egress integrations (named sets of network rules)
    ///
    /// Use it to make rules and secrets available to code. Sessions, executions and agents name the
    /// integrations that they use.
    #[command(after_help = "Examples:\n  \
        belljar network integration new github_integration --rule github\n  \
        belljar network integration ls")]
    #[command(subcommand)]
    Integration(integration::Command),
    /// Enable an integration
    ///
    /// Use it to restore the network access that `belljar network disable` removed.
    #[command(after_help = "Examples:\n  \
        belljar network enable internet")]
    Enable(IntegrationArgs),
    /// Disable an integration
    ///
    /// Use it to stop all network access through an integration without deleting it.
    #[command(after_help = "Examples:\n  \
        belljar network disable internet")]
    Disable(IntegrationArgs),
    /// List attempted connections, newest first
    ///
    /// Use it to find out which hosts code tried to reach, and why a connection was denied.
    #[command(after_help = "Examples:\n  \
        belljar network log --denied\n  \
        belljar network log --host api.github.com --limit 20")]
    Log(NetworkLogArgs),
}

#[derive(Debug, clap::Args)]
struct IntegrationArgs {
    /// Name or id of the integration
    #[arg(value_name = "INTEGRATION")]
    integration: String,
}

#[derive(Debug, clap::Args)]
struct NetworkLogArgs {
    /// List only connections of this execution
    #[arg(long, value_name = "ID")]
    execution: Option<ExecutionId>,

    /// List only connections of this session
    #[arg(long, value_name = "ID")]
    session: Option<SandboxId>,

    /// List only connections to this host
    #[arg(long, value_name = "HOST")]
    host: Option<String>,

    /// List only denied connections
    #[arg(long)]
    denied: bool,

    #[command(flatten)]
    list: ListArgs,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| match args.verb {
        Command::Rule(verb) => rule::run(remote, verb).await,
        Command::Integration(verb) => integration::run(remote, verb).await,
        Command::Enable(IntegrationArgs { integration }) => {
            integration::update_integration(remote, &integration, json!({"enabled": true})).await
        }
        Command::Disable(IntegrationArgs { integration }) => {
            integration::update_integration(remote, &integration, json!({"enabled": false})).await
        }
        Command::Log(log) => {
            let call = ApiRequest::get("/v1/network/log")
                .query("execution_id", log.execution)
                .query("sandbox_id", log.session)
                .query("host", log.host)
                .query("allowed", log.denied.then_some(false));
            remote.list(call, log.list, LOG_COLUMNS).await
        }
    })
}

/// Returns the API path of the object with this name or id.
async fn resource_path(
    remote: &super::remote::Remote,
    noun: ResourceKind,
    name: &str,
) -> Result<String, CliError> {
    remote.client.resolve_path(noun, name).await
}
