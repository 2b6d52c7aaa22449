//! `belljar key`: API keys of a server.

use super::CliError;
use super::display::Column;
use super::remote::{ListArgs, Remote, RemoteArgs};
use super::resource_names::ResourceKind;
use crate::client::ApiRequest;
use chrono::{DateTime, Utc};
use serde_json::json;
use std::process::ExitCode;

const COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("name", "/name"),
    ("principal", "/principal"),
    ("created", "/created_at"),
    ("expires", "/expires_at"),
    ("revoked", "/revoked_at"),
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
    /// Create an API key and print it
    ///
    /// Use it for each client that connects to the server. The key is printed once and cannot be
    /// shown again.
    #[command(after_help = "Examples:\n  \
        belljar key new laptop\n  \
        belljar key new ci --principal agent --expires-at 2027-01-31T00:00:00Z")]
    New(NewKeyArgs),
    /// List API keys
    ///
    /// Use it to see which keys exist and when they expire. The list does not contain the keys
    /// themselves.
    #[command(after_help = "Examples:\n  \
        belljar key ls\n  \
        belljar key ls --principal agent")]
    Ls(ListKeysArgs),
    /// Revoke an API key
    ///
    /// Use it when a key is lost or no longer needed. The server rejects it from the next request
    /// on.
    #[command(after_help = "Examples:\n  \
        belljar key revoke ci")]
    Revoke {
        /// Name or id of the key
        #[arg(value_name = "NAME | ID")]
        key: String,
    },
}

#[derive(Debug, clap::Args)]
struct NewKeyArgs {
    /// Name of the key, such as its purpose
    #[arg(value_name = "NAME")]
    name: String,

    /// Principal that the key authenticates (name or id) [default: yourself]
    #[arg(long, value_name = "PRINCIPAL")]
    principal: Option<String>,

    /// Expiry time, such as 2027-01-31T00:00:00Z [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    expires_at: Option<DateTime<Utc>>,

    /// Maximum requests per second [default: that of the server]
    #[arg(long, value_name = "N")]
    rate: Option<u32>,

    /// Maximum concurrent requests [default: that of the server]
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
}

#[derive(Debug, clap::Args)]
struct ListKeysArgs {
    /// List only keys of this principal (name or id) [default: all that you may see]
    #[arg(long, value_name = "PRINCIPAL")]
    principal: Option<String>,

    #[command(flatten)]
    list: ListArgs,
}

fn parse_time(text: &str) -> Result<DateTime<Utc>, &'static str> {
    text.parse().map_err(|_| "must be a time, such as 2027-01-31T00:00:00Z")
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| match args.verb {
        Command::New(new) => create_key(remote, new).await,
        Command::Ls(ListKeysArgs { principal, list }) => {
            let id = principal_id(remote, principal).await?;
            let call = ApiRequest::get(ResourceKind::Key.path()).query("principal", id);
            remote.list_named(call, list, COLUMNS, &["principal"]).await
        }
        Command::Revoke { key } => {
            let call =
                ApiRequest::delete(remote.client.resolve_path(ResourceKind::Key, &key).await?);
            remote.send_and_report(call, &format!("key {key} revoked")).await
        }
    })
}

async fn create_key(remote: &Remote, new: NewKeyArgs) -> Result<(), CliError> {
    let body = json!({
        "name": new.name,
        "principal": principal_id(remote, new.principal).await?,
        "expires_at": new.expires_at,
        "rate_per_second": new.rate,
        "concurrency": new.concurrency,
    });
    remote.print_secret(ApiRequest::post(ResourceKind::Key.path()).json(&body), "/secret").await
}

async fn principal_id(
    remote: &Remote,
    principal: Option<String>,
) -> Result<Option<String>, CliError> {
    match principal {
        Some(principal) => {
            Ok(Some(remote.client.resolve_id(ResourceKind::Principal, &principal).await?))
        }
        None => Ok(None),
    }
}
