//! `belljar principal`: manages the principals of a workspace.

use super::CliError;
use super::display::Column;
use super::remote::{ListArgs, RemoteArgs};
use super::resource_names::ResourceKind;
use crate::client::ApiRequest;
use serde_json::json;
use std::process::ExitCode;

const COLUMNS: &[Column] =
    &[("id", "/id"), ("name", "/name"), ("kind", "/kind"), ("roles", "/roles")];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create a principal
    ///
    /// Use it for each user, service or role. A new principal has no rights until you grant them.
    #[command(after_help = "Examples:\n  \
        belljar principal new ann --external-id auth0-4711\n  \
        belljar principal new agent --kind service")]
    New(NewPrincipalArgs),
    /// List principals
    ///
    /// Use it to see the users, services and roles of the workspace.
    #[command(after_help = "Examples:\n  \
        belljar principal ls")]
    Ls(ListArgs),
    /// Show a principal
    ///
    /// Use it to check the roles of a principal; `me` is the owner of the API key.
    #[command(after_help = "Examples:\n  \
        belljar principal show me")]
    Show {
        /// Name or id of the principal, or `me`
        #[arg(value_name = "NAME | ID | me")]
        name: String,
    },
    /// Delete a principal
    ///
    /// Use it when a user or service leaves. It also deletes the keys and grants of the principal.
    #[command(after_help = "Examples:\n  \
        belljar principal rm ann")]
    Rm {
        /// Name or id of the principal
        #[arg(value_name = "NAME | ID")]
        name: String,
    },
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PrincipalKindArg {
    User,
    Role,
    Service,
}

#[derive(Debug, clap::Args)]
struct NewPrincipalArgs {
    /// Name of the principal
    #[arg(value_name = "NAME")]
    name: String,

    /// Kind of the principal
    #[arg(long, value_enum, default_value_t = PrincipalKindArg::User)]
    kind: PrincipalKindArg,

    /// Role that the principal is a member of; repeatable
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,

    /// Id in another system; for OAuth, the `sub` claim of its access tokens
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| match args.verb {
        Command::New(new) => {
            remote
                .show(ApiRequest::post(ResourceKind::Principal.path()).json(&request_body(&new)))
                .await
        }
        Command::Ls(list) => {
            remote.list(ApiRequest::get(ResourceKind::Principal.path()), list, COLUMNS).await
        }
        Command::Show { name } if name == "me" => {
            remote.show(ApiRequest::get(format!("{}/me", ResourceKind::Principal.path()))).await
        }
        Command::Show { name } => {
            remote
                .show(ApiRequest::get(
                    remote.client.resolve_path(ResourceKind::Principal, &name).await?,
                ))
                .await
        }
        Command::Rm { name } => {
            let call = ApiRequest::delete(
                remote.client.resolve_path(ResourceKind::Principal, &name).await?,
            );
            remote.send_and_report(call, &format!("principal {name} deleted")).await
        }
    })
}

fn request_body(new: &NewPrincipalArgs) -> serde_json::Value {
    let kind = match new.kind {
        PrincipalKindArg::User => "user",
        PrincipalKindArg::Role => "role",
        PrincipalKindArg::Service => "service",
    };
    json!({"name": new.name, "kind": kind, "roles": new.roles, "external_id": new.external_id})
}
