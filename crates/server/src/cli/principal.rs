//! `belljar principal`: who is in a workspace of a server.

use super::Failure;
use super::listing::Column;
use super::named::Noun;
use super::remote::{ListArgs, RemoteArgs};
use crate::client::Call;
use serde_json::json;
use std::process::ExitCode;

const COLUMNS: &[Column] =
    &[("id", "/id"), ("name", "/name"), ("kind", "/kind"), ("roles", "/roles")];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Add somebody, who may do nothing until it is granted
    New(New),
    /// List who is there
    Ls(ListArgs),
    /// Show one; `me` is whoever has the key
    Show {
        #[arg(value_name = "NAME | ID | me")]
        name: String,
    },
    /// Remove one, with all keys and grants
    Rm {
        #[arg(value_name = "NAME | ID")]
        name: String,
    },
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Kind {
    User,
    Role,
    Service,
}

#[derive(Debug, clap::Args)]
struct New {
    #[arg(value_name = "NAME")]
    name: String,

    #[arg(long, value_enum, default_value_t = Kind::User)]
    kind: Kind,

    /// The name of a role to be a member of; may be repeated
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,

    /// What another system calls it
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |remote| match args.verb {
        Verb::New(new) => remote.show(Call::post(Noun::Principal.path()).json(&body(&new))).await,
        Verb::Ls(list) => remote.list(Call::get(Noun::Principal.path()), list, COLUMNS).await,
        Verb::Show { name } if name == "me" => {
            remote.show(Call::get(format!("{}/me", Noun::Principal.path()))).await
        }
        Verb::Show { name } => {
            remote.show(Call::get(remote.client.path(Noun::Principal, &name).await?)).await
        }
        Verb::Rm { name } => {
            let call = Call::delete(remote.client.path(Noun::Principal, &name).await?);
            remote.done(call, &format!("{name} is gone")).await
        }
    })
}

fn body(new: &New) -> serde_json::Value {
    let kind = match new.kind {
        Kind::User => "user",
        Kind::Role => "role",
        Kind::Service => "service",
    };
    json!({"name": new.name, "kind": kind, "roles": new.roles, "external_id": new.external_id})
}
