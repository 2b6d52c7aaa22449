//! `belljar approvals`: questions that wait for a person, and the answers to them.

use super::display::{self, Column};
use super::one_shot::print_record;
use super::remote::{ListArgs, Remote, RemoteArgs, print_json};
use super::{CliError, terminal};
use crate::client::{ApiRequest, ClientError, EventStream};
use serde_json::{Value, json};
use std::process::ExitCode;
use types::ApprovalId;

const COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("state", "/state"),
    ("tool", "/tool_name"),
    ("by", "/requester"),
    ("agent", "/agent_id"),
    ("arguments", "/arguments"),
    ("asked", "/created_at"),
];

/// Fields that are ids of principals and agents.
const PRINCIPAL_FIELDS: &[&str] = &["requester", "run_as", "agent_id", "decided_by"];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List questions that you have asked or may answer
    Ls {
        /// Only those that are `pending`, `allowed`, `used`, `denied`, `expired` or `void`
        #[arg(long)]
        state: Option<String>,

        #[command(flatten)]
        list: ListArgs,
    },
    /// Show exactly what would run
    Show {
        #[arg(value_name = "ID")]
        id: ApprovalId,
    },
    /// Let it run
    Allow {
        #[arg(value_name = "ID")]
        id: ApprovalId,

        /// What the answer is good for
        #[arg(long, value_enum, default_value_t = ApprovalScopeArg::Once)]
        scope: ApprovalScopeArg,

        /// For whoever has asked
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Refuse it
    Deny {
        #[arg(value_name = "ID")]
        id: ApprovalId,

        /// For whoever has asked
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Tell of each question as it is asked or answered, until Ctrl-C
    Watch,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ApprovalScopeArg {
    /// This call
    Once,
    /// Further calls of the same tool in the same session; for sent code, all later code of the session
    Session,
    /// Further calls of the same tool; for sent code, exactly this code in a sandbox of its own
    Always,
}

impl ApprovalScopeArg {
    fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Always => "always",
        }
    }
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| match args.verb {
        Command::Ls { state, list } => {
            let call = ApiRequest::get("/v1/approvals").query("state", state);
            remote.list_named(call, list, COLUMNS, PRINCIPAL_FIELDS).await
        }
        Command::Show { id } => show(remote, id).await,
        Command::Allow { id, scope, reason } => {
            let body = json!({"decision": "allow", "scope": scope.name(), "reason": reason});
            remote
                .send_and_report(
                    ApiRequest::post(approval_path(id)).json(&body),
                    "it is allowed, and begins",
                )
                .await
        }
        Command::Deny { id, reason } => {
            let body = json!({"decision": "deny", "reason": reason});
            remote
                .send_and_report(ApiRequest::post(approval_path(id)).json(&body), "it is denied")
                .await
        }
        Command::Watch => watch(remote).await,
    })
}

fn approval_path(id: ApprovalId) -> String {
    format!("/v1/approvals/{id}")
}

async fn show(remote: &Remote, id: ApprovalId) -> Result<(), CliError> {
    let mut approval = remote.client.json(ApiRequest::get(approval_path(id))).await?;
    remote.replace_ids(std::slice::from_mut(&mut approval), PRINCIPAL_FIELDS).await?;
    if remote.json { print_json(&approval) } else { display::print_fields(&approval) }
}

async fn watch(remote: &Remote) -> Result<(), CliError> {
    let answer = remote.client.send(ApiRequest::get("/v1/approvals/events")).await?;
    let strange = |_| ClientError::Interrupted { reason: "it is not a stream".to_owned() };
    let mut events = EventStream::from_response(answer).map_err(strange)?;
    while let Some(data) = events.next_data().await? {
        if remote.json {
            print_record(&terminal::for_stdout(&data))?;
        } else if let Ok(mut approval) = serde_json::from_str::<Value>(&data) {
            // Each time, since somebody may be new.
            remote.replace_ids(std::slice::from_mut(&mut approval), PRINCIPAL_FIELDS).await?;
            print_record(&display::format_row(&approval, COLUMNS))?;
        }
    }
    Ok(())
}
