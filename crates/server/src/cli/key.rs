//! `belljar key`: API keys of a server.

use super::Failure;
use super::listing::Column;
use super::named::Noun;
use super::remote::{ListArgs, Remote, RemoteArgs};
use crate::client::Call;
use serde_json::json;
use std::process::ExitCode;
use types::KeyId;

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
        #[arg(value_name = "ID")]
        id: KeyId,
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
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,

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

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |remote| match args.verb {
        Verb::New(new) => make(remote, new).await,
        Verb::Ls(Ls { principal, list }) => {
            let id = id_of(remote, principal).await?;
            remote.list(Call::get("/v1/keys").query("principal", id), list, COLUMNS).await
        }
        Verb::Revoke { id } => {
            let call = Call::delete(format!("/v1/keys/{id}"));
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
    remote.issue(Call::post("/v1/keys").json(&body), "/secret").await
}

async fn id_of(remote: &Remote, given: Option<String>) -> Result<Option<String>, Failure> {
    match given {
        Some(given) => Ok(Some(remote.client.id(Noun::Principal, &given).await?)),
        None => Ok(None),
    }
}
