//! `belljar grant`: manages the privileges of principals.

use super::CliError;
use super::display::Column;
use super::remote::{ListArgs, Remote, RemoteArgs};
use super::resource_names::{ResourceKind, replace_ids};
use crate::client::ApiRequest;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::process::ExitCode;
use std::str::FromStr;
use types::{GrantId, OfferId, Privilege};

const COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("principal", "/principal"),
    ("privilege", "/privilege"),
    ("on", "/on"),
    ("since", "/created_at"),
];

const OFFER_COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("to", "/principal"),
    ("on", "/on"),
    ("from", "/offered_by"),
    ("since", "/created_at"),
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
    /// Grant a privilege to a principal
    ///
    /// Use it to let a principal use (USAGE), change (MODIFY) or own (OWNERSHIP) an object or the
    /// workspace, or install packages (INSTALL). An owner of the workspace can transfer the
    /// ownership of any object with it.
    #[command(after_help = "Examples:\n  \
        belljar grant add ann USAGE workspace\n  \
        belljar grant add agent USAGE tool:media_probe")]
    Add {
        /// Name or id of the principal
        #[arg(value_name = "PRINCIPAL")]
        principal: String,

        /// Privilege: USAGE, MODIFY, OWNERSHIP or INSTALL
        #[arg(value_name = "PRIVILEGE", value_parser = parse_privilege)]
        privilege: Privilege,

        /// Target of the grant: `workspace`, or kind and name of an object, such as `tool:NAME`
        #[arg(value_name = "workspace | KIND:NAME", default_value = "workspace")]
        on: GrantTarget,
    },
    /// List grants
    ///
    /// Use it to see your own grants, and all grants on objects that you own.
    #[command(after_help = "Examples:\n  \
        belljar grant ls\n  \
        belljar grant ls --principal ann")]
    Ls {
        /// List only grants of this principal (name or id)
        #[arg(long, value_name = "PRINCIPAL")]
        principal: Option<String>,

        #[command(flatten)]
        list: ListArgs,
    },
    /// Revoke a grant
    ///
    /// Use it with an id that `belljar grant ls` prints.
    #[command(after_help = "Examples:\n  \
        belljar grant rm 0198c0de-0000-7000-8000-000000000000")]
    Rm {
        /// Id of the grant
        #[arg(value_name = "ID")]
        id: GrantId,
    },
    /// Offer the ownership of an object to a principal
    ///
    /// Use it to transfer an object that you own. You stay the owner until the recipient accepts.
    #[command(after_help = "Examples:\n  \
        belljar grant offer ann agent:helper")]
    Offer {
        /// Name or id of the principal
        #[arg(value_name = "PRINCIPAL")]
        principal: String,

        /// Kind and name of the object, such as `tool:NAME`
        #[arg(value_name = "KIND:NAME")]
        on: GrantTarget,
    },
    /// List offers of ownership
    ///
    /// Use it to see the offers that you received or made.
    #[command(after_help = "Examples:\n  \
        belljar grant offers")]
    Offers {
        #[command(flatten)]
        list: ListArgs,
    },
    /// Accept an offer of ownership
    ///
    /// Use it to become the owner of an object. All other grants on the object end.
    #[command(after_help = "Examples:\n  \
        belljar grant accept 0198c0de-0000-7000-8000-000000000000")]
    Accept {
        /// Id of the offer
        #[arg(value_name = "OFFER")]
        id: OfferId,
    },
    /// Decline or withdraw an offer of ownership
    ///
    /// Use it to decline an offer that you received, or to withdraw one that you made.
    #[command(after_help = "Examples:\n  \
        belljar grant decline 0198c0de-0000-7000-8000-000000000000")]
    #[command(visible_alias = "withdraw")]
    Decline {
        /// Id of the offer
        #[arg(value_name = "OFFER")]
        id: OfferId,
    },
    /// Confirm the code of an object that you own
    ///
    /// Use it after you received an agent, a tool or a function, and reviewed its code: the code
    /// then runs with your rights.
    #[command(after_help = "Examples:\n  \
        belljar grant confirm agent:helper")]
    Confirm {
        /// Kind and name of the object, such as `agent:NAME`
        #[arg(value_name = "KIND:NAME")]
        on: GrantTarget,
    },
}

fn parse_privilege(text: &str) -> Result<Privilege, String> {
    let known = Privilege::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(text));
    known
        .ok_or_else(|| format!("must be one of {}", Privilege::ALL.map(Privilege::name).join(", ")))
}

/// Kinds of objects that a grant can apply to, besides the workspace.
const GRANTABLE_KINDS: [ResourceKind; 8] = [
    ResourceKind::Tool,
    ResourceKind::Agent,
    ResourceKind::Volume,
    ResourceKind::Secret,
    ResourceKind::Function,
    ResourceKind::NetworkRule,
    ResourceKind::Integration,
    ResourceKind::Skill,
];
const TARGET_USAGE: &str = "must be `workspace`, `tool:NAME`, `agent:NAME`, `volume:NAME`, `secret:NAME`, `function:NAME`, `network_rule:NAME`, `integration:NAME` or `skill:NAME`";

/// Target of a grant, as written on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum GrantTarget {
    Workspace,
    Named(ResourceKind, String),
}

impl FromStr for GrantTarget {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "workspace" => Ok(Self::Workspace),
            Some((kind, name)) if !name.is_empty() => {
                let noun = GRANTABLE_KINDS
                    .into_iter()
                    .find(|noun| noun.label() == kind)
                    .ok_or(TARGET_USAGE)?;
                Ok(Self::Named(noun, name.into()))
            }
            _ => Err(TARGET_USAGE),
        }
    }
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| match args.verb {
        Command::Add { principal, privilege, on } => {
            let principal = remote.client.resolve_id(ResourceKind::Principal, &principal).await?;
            let object = target_json(remote, &on).await?;
            let body = json!({"principal": principal, "privilege": privilege, "object": object});
            remote.send_and_report(ApiRequest::post("/v1/grants").json(&body), "granted").await
        }
        Command::Ls { principal, list } => {
            let mut call = ApiRequest::get("/v1/grants");
            if let Some(principal) = principal {
                let principal =
                    remote.client.resolve_id(ResourceKind::Principal, &principal).await?;
                call = call.query("principal", Some(principal));
            }
            print_list(remote, call, list, COLUMNS).await
        }
        Command::Rm { id } => {
            let call = ApiRequest::delete(format!("/v1/grants/{id}"));
            remote.send_and_report(call, &format!("grant {id} revoked")).await
        }
        Command::Offer { principal, on } => {
            let principal = remote.client.resolve_id(ResourceKind::Principal, &principal).await?;
            let body = json!({"principal": principal, "object": target_json(remote, &on).await?});
            let call = ApiRequest::post("/v1/ownership-offers").json(&body);
            remote
                .send_and_report(
                    call,
                    "ownership offered; the recipient accepts it with `belljar grant accept`",
                )
                .await
        }
        Command::Offers { list } => {
            print_list(remote, ApiRequest::get("/v1/ownership-offers"), list, OFFER_COLUMNS).await
        }
        Command::Accept { id } => {
            let call = ApiRequest::post(format!("/v1/ownership-offers/{id}/accept"));
            remote.send_and_report(call, &format!("ownership accepted (offer {id})")).await
        }
        Command::Decline { id } => {
            let call = ApiRequest::delete(format!("/v1/ownership-offers/{id}"));
            remote.send_and_report(call, &format!("offer {id} withdrawn")).await
        }
        Command::Confirm { on } => confirm_code(remote, &on).await,
    })
}

async fn target_json(remote: &Remote, on: &GrantTarget) -> Result<Value, CliError> {
    Ok(match on {
        GrantTarget::Named(noun, name) => {
            json!({"kind": noun.label(), "id": remote.client.resolve_id(*noun, name).await?})
        }
        GrantTarget::Workspace => {
            let me = remote.client.json(ApiRequest::get("/v1/principals/me")).await?;
            json!({"kind": "workspace", "id": me["workspace"]})
        }
    })
}

/// Confirms the version that the server has now.
async fn confirm_code(remote: &Remote, on: &GrantTarget) -> Result<(), CliError> {
    let noun = match on {
        GrantTarget::Named(
            noun @ (ResourceKind::Agent | ResourceKind::Tool | ResourceKind::Function),
            _,
        ) => *noun,
        _ => {
            return Err(CliError::usage(
                "must be `agent:NAME`, `tool:NAME` or `function:NAME`; only these have code",
            ));
        }
    };
    let object = target_json(remote, on).await?;
    let path = format!("{}/{}", noun.path(), object["id"].as_str().unwrap_or_default());
    let now = remote.client.json(ApiRequest::get(path.clone())).await?;
    let body = json!({"updated_at": now["updated_at"]});
    let call = ApiRequest::post(format!("{path}/confirm")).json(&body);
    remote.send_and_report(call, "confirmed; you are now the author of the code").await
}

async fn print_list(
    remote: &Remote,
    call: ApiRequest,
    list: ListArgs,
    columns: &[Column],
) -> Result<(), CliError> {
    if remote.json {
        return remote.list(call, list, columns).await;
    }
    let (mut grants, _) = remote.client.list(&call.path, &call.query, list.limit as usize).await?;
    let mut names = HashMap::new();
    for noun in [ResourceKind::Principal].into_iter().chain(GRANTABLE_KINDS) {
        names.extend(remote.client.list_names(noun).await?);
    }
    grants.iter_mut().for_each(|grant| replace_grant_ids(grant, &names));
    remote.table(grants, columns)
}

/// Replaces ids by names that the caller can see.
fn replace_grant_ids(grant: &mut Value, names: &HashMap<String, String>) {
    replace_ids(grant, &["principal", "offered_by"], names);
    let object = &mut grant["object"];
    replace_ids(object, &["id"], names);
    let on = match (object["kind"].as_str(), object["id"].as_str()) {
        (Some(kind), Some(name)) if kind != "workspace" => format!("{kind}:{name}"),
        _ => "workspace".to_owned(),
    };
    grant["on"] = on.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_grant_is_on_is_said_in_words() {
        assert_eq!("workspace".parse(), Ok(GrantTarget::Workspace));
        assert_eq!("tool:a:b".parse(), Ok(GrantTarget::Named(ResourceKind::Tool, "a:b".into())));
        for wrong in ["", "tool", "tool:", "principal:ann", "Workspace"] {
            assert!(wrong.parse::<GrantTarget>().is_err(), "{wrong}");
        }
    }
}
