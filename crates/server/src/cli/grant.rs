//! `belljar grant`: who may do what on a server.

use super::Failure;
use super::listing::Column;
use super::named::{Noun, put_names};
use super::remote::{ListArgs, Remote, RemoteArgs};
use crate::client::Call;
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
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Grant a privilege; an owner of the workspace hands over OWNERSHIP of anything by it
    Add {
        #[arg(value_name = "PRINCIPAL")]
        principal: String,

        /// USAGE, MODIFY, OWNERSHIP or INSTALL
        #[arg(value_name = "PRIVILEGE", value_parser = privilege)]
        privilege: Privilege,

        /// What it is on: `workspace`, or the kind and the name of a thing, such as `tool:NAME`
        #[arg(value_name = "workspace | KIND:NAME", default_value = "workspace")]
        on: On,
    },
    /// List grants: your own, and all on what you own
    Ls {
        /// Whose: a name or an id
        #[arg(long, value_name = "PRINCIPAL")]
        principal: Option<String>,

        #[command(flatten)]
        list: ListArgs,
    },
    /// Take a grant away
    Rm {
        #[arg(value_name = "ID")]
        id: GrantId,
    },
    /// Offer OWNERSHIP of something that you own; its recipient has to accept
    Offer {
        #[arg(value_name = "PRINCIPAL")]
        principal: String,

        /// The kind and the name of a thing, such as `tool:NAME`
        #[arg(value_name = "KIND:NAME")]
        on: On,
    },
    /// List offers of OWNERSHIP: those to you and those of you
    Offers {
        #[command(flatten)]
        list: ListArgs,
    },
    /// Accept OWNERSHIP that you were offered; the other grants on the thing end
    Accept {
        #[arg(value_name = "OFFER")]
        id: OfferId,
    },
    /// Decline an offer that was made to you, or withdraw one that you made
    #[command(visible_alias = "withdraw")]
    Decline {
        #[arg(value_name = "OFFER")]
        id: OfferId,
    },
    /// Confirm the code of an agent, a tool or a function that you own and have read: it may then use
    /// what you may use
    Confirm {
        /// Such as `agent:NAME`
        #[arg(value_name = "KIND:NAME")]
        on: On,
    },
}

fn privilege(text: &str) -> Result<Privilege, String> {
    let known = Privilege::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(text));
    known.ok_or_else(|| format!("there are {}", Privilege::ALL.map(Privilege::name).join(", ")))
}

/// What a grant can be on besides the workspace.
const GRANTED: [Noun; 7] = [
    Noun::Tool,
    Noun::Agent,
    Noun::Store,
    Noun::Secret,
    Noun::Function,
    Noun::NetworkRule,
    Noun::Integration,
];
const ON: &str = "a grant is on `workspace`, `tool:NAME`, `agent:NAME`, `store:NAME`, \
                  `secret:NAME`, `function:NAME`, `network_rule:NAME` or `integration:NAME`";

/// What a grant is on, in the words of people.
#[derive(Debug, Clone, PartialEq, Eq)]
enum On {
    Workspace,
    Named(Noun, String),
}

impl FromStr for On {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "workspace" => Ok(Self::Workspace),
            Some((kind, name)) if !name.is_empty() => {
                let noun = GRANTED.into_iter().find(|noun| noun.word() == kind).ok_or(ON)?;
                Ok(Self::Named(noun, name.into()))
            }
            _ => Err(ON),
        }
    }
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |remote| match args.verb {
        Verb::Add { principal, privilege, on } => {
            let principal = remote.client.id(Noun::Principal, &principal).await?;
            let object = object(remote, &on).await?;
            let body = json!({"principal": principal, "privilege": privilege, "object": object});
            remote.done(Call::post("/v1/grants").json(&body), "it is granted").await
        }
        Verb::Ls { principal, list } => {
            let mut call = Call::get("/v1/grants");
            if let Some(whose) = principal {
                let whose = remote.client.id(Noun::Principal, &whose).await?;
                call = call.query("principal", Some(whose));
            }
            show(remote, call, list, COLUMNS).await
        }
        Verb::Rm { id } => {
            let call = Call::delete(format!("/v1/grants/{id}"));
            remote.done(call, "it holds no longer").await
        }
        Verb::Offer { principal, on } => {
            let principal = remote.client.id(Noun::Principal, &principal).await?;
            let body = json!({"principal": principal, "object": object(remote, &on).await?});
            let call = Call::post("/v1/ownership-offers").json(&body);
            remote.done(call, "it is offered; its recipient accepts it: belljar grant accept").await
        }
        Verb::Offers { list } => {
            show(remote, Call::get("/v1/ownership-offers"), list, OFFER_COLUMNS).await
        }
        Verb::Accept { id } => {
            let call = Call::post(format!("/v1/ownership-offers/{id}/accept"));
            remote.done(call, "it is yours").await
        }
        Verb::Decline { id } => {
            let call = Call::delete(format!("/v1/ownership-offers/{id}"));
            remote.done(call, "the offer has ended").await
        }
        Verb::Confirm { on } => confirm(remote, &on).await,
    })
}

async fn object(remote: &Remote, on: &On) -> Result<Value, Failure> {
    Ok(match on {
        On::Named(noun, name) => {
            json!({"kind": noun.word(), "id": remote.client.id(*noun, name).await?})
        }
        On::Workspace => {
            let me = remote.client.json(Call::get("/v1/principals/me")).await?;
            json!({"kind": "workspace", "id": me["workspace"]})
        }
    })
}

/// Confirms the version that the server has now.
async fn confirm(remote: &Remote, on: &On) -> Result<(), Failure> {
    let noun = match on {
        On::Named(noun @ (Noun::Agent | Noun::Tool | Noun::Function), _) => *noun,
        _ => {
            return Err(Failure::usage(
                "only `agent:NAME`, `tool:NAME` and `function:NAME` have code",
            ));
        }
    };
    let object = object(remote, on).await?;
    let path = format!("{}/{}", noun.path(), object["id"].as_str().unwrap_or_default());
    let now = remote.client.json(Call::get(path.clone())).await?;
    let body = json!({"updated_at": now["updated_at"]});
    let call = Call::post(format!("{path}/confirm")).json(&body);
    remote.done(call, "it is confirmed: you are its author from now on").await
}

async fn show(
    remote: &Remote,
    call: Call,
    list: ListArgs,
    columns: &[Column],
) -> Result<(), Failure> {
    if remote.json {
        return remote.list(call, list, columns).await;
    }
    let (mut grants, _) = remote.client.list(&call.path, &call.query, list.limit as usize).await?;
    let mut names = HashMap::new();
    for noun in [Noun::Principal].into_iter().chain(GRANTED) {
        names.extend(remote.client.names(noun).await?);
    }
    grants.iter_mut().for_each(|grant| name(grant, &names));
    remote.table(grants, columns)
}

/// Names in the place of ids, where they can be seen.
fn name(grant: &mut Value, names: &HashMap<String, String>) {
    put_names(grant, &["principal", "offered_by"], names);
    let object = &mut grant["object"];
    put_names(object, &["id"], names);
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
        assert_eq!("workspace".parse(), Ok(On::Workspace));
        assert_eq!("tool:a:b".parse(), Ok(On::Named(Noun::Tool, "a:b".into())));
        for wrong in ["", "tool", "tool:", "principal:ann", "Workspace"] {
            assert!(wrong.parse::<On>().is_err(), "{wrong}");
        }
    }
}
