//! `belljar approvals`: lists pending approvals and decides them.

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
    /// List approvals that you requested or may decide
    ///
    /// Use it to see what waits for a decision, and past decisions.
    #[command(after_help = "Examples:\n  \
        belljar approvals ls\n  \
        belljar approvals ls --state pending")]
    Ls {
        /// List only approvals in this state: `pending`, `allowed`, `used`, `denied`, `expired` or
        /// `void`
        #[arg(long)]
        state: Option<String>,

        #[command(flatten)]
        list: ListArgs,
    },
    /// Show an approval with the exact call
    ///
    /// Use it before you decide: it shows the code or the arguments that would run, and as whom.
    #[command(after_help = "Examples:\n  \
        belljar approvals show 0198c0de-0000-7000-8000-000000000000")]
    Show {
        /// Id of the approval
        #[arg(value_name = "ID")]
        id: ApprovalId,
    },
    /// Allow a pending call
    ///
    /// Use it after `belljar approvals show`. By default the approval is valid for this call only.
    #[command(after_help = "Examples:\n  \
        belljar approvals allow 0198c0de-0000-7000-8000-000000000000\n  \
        belljar approvals allow 0198c0de-0000-7000-8000-000000000000 --scope session")]
    Allow {
        /// Id of the approval
        #[arg(value_name = "ID")]
        id: ApprovalId,

        /// Calls that the approval is valid for
        #[arg(long, value_enum, default_value_t = ApprovalScopeArg::Once)]
        scope: ApprovalScopeArg,

        /// Reason, which the requester sees
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Deny a pending call
    ///
    /// Use it to reject a call. The requester sees the reason.
    #[command(after_help = "Examples:\n  \
        belljar approvals deny 0198c0de-0000-7000-8000-000000000000 --reason 'wrong host'")]
    Deny {
        /// Id of the approval
        #[arg(value_name = "ID")]
        id: ApprovalId,

        /// Reason, which the requester sees
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Print approvals as they are requested and decided
    ///
    /// Use it in a terminal that stays open while agents work. Ctrl-C ends it.
    #[command(after_help = "Examples:\n  \
        belljar approvals watch")]
    Watch,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ApprovalScopeArg {
    /// This call only
    Once,
    /// Further calls of the same tool in this session; for submitted code, all later code of the
    /// session
    Session,
    /// Further calls of the same tool; for submitted code, exactly this code in a fresh sandbox
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
                    "approved; the execution starts",
                )
                .await
        }
        Command::Deny { id, reason } => {
            let body = json!({"decision": "deny", "reason": reason});
            remote.send_and_report(ApiRequest::post(approval_path(id)).json(&body), "denied").await
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
    let unexpected =
        |_| ClientError::Interrupted { reason: "the response is not an event stream".to_owned() };
    let mut events = EventStream::from_response(answer).map_err(unexpected)?;
    while let Some(data) = events.next_data().await? {
        if remote.json {
            print_record(&terminal::for_stdout(&data))?;
        } else if let Ok(mut approval) = serde_json::from_str::<Value>(&data) {
            // Read each time, since there may be new principals.
            remote.replace_ids(std::slice::from_mut(&mut approval), PRINCIPAL_FIELDS).await?;
            print_record(&display::format_row(&approval, COLUMNS))?;
        }
    }
    Ok(())
}
