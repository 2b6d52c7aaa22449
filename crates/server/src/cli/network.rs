//! `belljar network`: whom code of a server may talk to, and whom it has tried to reach.

mod integration;
mod rule;

use super::Failure;
use super::listing::Column;
use super::named::Noun;
use super::remote::{ListArgs, RemoteArgs};
use crate::client::Call;
use serde_json::json;
use std::process::ExitCode;
use types::{ExecutionId, SandboxId};

const LOG: &[Column] = &[
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
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Lists of hosts and ports
    #[command(subcommand)]
    Rule(rule::Verb),
    /// Permissions to leave sandboxes, made of rules
    #[command(subcommand)]
    Integration(integration::Verb),
    /// Let code leave by an integration again
    Enable(One),
    /// Let no code leave by an integration
    Disable(One),
    /// List whom code has tried to reach, newest first
    Log(Log),
}

#[derive(Debug, clap::Args)]
struct One {
    #[arg(value_name = "INTEGRATION")]
    integration: String,
}

#[derive(Debug, clap::Args)]
struct Log {
    #[arg(long, value_name = "ID")]
    execution: Option<ExecutionId>,

    #[arg(long, value_name = "ID")]
    session: Option<SandboxId>,

    #[arg(long, value_name = "HOST")]
    host: Option<String>,

    /// Only what was refused
    #[arg(long)]
    denied: bool,

    #[command(flatten)]
    list: ListArgs,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |remote| match args.verb {
        Verb::Rule(verb) => rule::run(remote, verb).await,
        Verb::Integration(verb) => integration::run(remote, verb).await,
        Verb::Enable(One { integration }) => {
            integration::change(remote, &integration, json!({"enabled": true})).await
        }
        Verb::Disable(One { integration }) => {
            integration::change(remote, &integration, json!({"enabled": false})).await
        }
        Verb::Log(log) => {
            let call = Call::get("/v1/network/log")
                .query("execution_id", log.execution)
                .query("sandbox_id", log.session)
                .query("host", log.host)
                .query("allowed", log.denied.then_some(false));
            remote.list(call, log.list, LOG).await
        }
    })
}

/// Where the API has what is called so.
async fn at(remote: &super::remote::Remote, noun: Noun, name: &str) -> Result<String, Failure> {
    remote.client.path(noun, name).await
}
