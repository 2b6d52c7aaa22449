//! `belljar key`: API keys of a server.

use super::Failure;
use super::listing::Column;
use super::named::Noun;
use super::remote::{ListArgs, Remote, RemoteArgs};
use crate::client::Call;
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
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make a key, and print it this once
    New(New),
    /// List keys, without their secrets
    Ls(Ls),
    /// Make a key worthless, from the next request on
    Revoke {
        #[arg(value_name = "NAME | ID")]
        key: String,
    },
}

#[derive(Debug, clap::Args)]
struct New {
    /// What it is for
    #[arg(value_name = "NAME")]
    name: String,

    /// Whose key it is: a name or an id [default: your own]
    #[arg(long, value_name = "PRINCIPAL")]
    principal: Option<String>,

    /// When it ends, as 2027-01-31T00:00:00Z [default: never]
    #[arg(long, value_name = "TIME", value_parser = time)]
    expires_at: Option<DateTime<Utc>>,

    /// Requests a second [default: as the server has it]
    #[arg(long, value_name = "N")]
    rate: Option<u32>,

    /// Requests at once [default: as the server has it]
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
}

#[derive(Debug, clap::Args)]
struct Ls {
    /// Whose: a name or an id [default: all that you may see]
    #[arg(long, value_name = "PRINCIPAL")]
    principal: Option<String>,

    #[command(flatten)]
    list: ListArgs,
}

fn time(text: &str) -> Result<DateTime<Utc>, &'static str> {
    text.parse().map_err(|_| "must be a time, such as 2027-01-31T00:00:00Z")
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |remote| match args.verb {
        Verb::New(new) => make(remote, new).await,
        Verb::Ls(Ls { principal, list }) => {
            let id = id_of(remote, principal).await?;
            let call = Call::get(Noun::Key.path()).query("principal", id);
            remote.list_named(call, list, COLUMNS, &["principal"]).await
        }
        Verb::Revoke { key } => {
            let call = Call::delete(remote.client.path(Noun::Key, &key).await?);
            remote.done(call, "the key is refused from now on").await
        }
    })
}

async fn make(remote: &Remote, new: New) -> Result<(), Failure> {
    let body = json!({
        "name": new.name,
        "principal": id_of(remote, new.principal).await?,
        "expires_at": new.expires_at,
        "rate_per_second": new.rate,
        "concurrency": new.concurrency,
    });
    remote.issue(Call::post(Noun::Key.path()).json(&body), "/secret").await
}

async fn id_of(remote: &Remote, given: Option<String>) -> Result<Option<String>, Failure> {
    match given {
        Some(given) => Ok(Some(remote.client.id(Noun::Principal, &given).await?)),
        None => Ok(None),
    }
}
