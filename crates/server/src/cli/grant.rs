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
use types::{GrantId, Privilege};

const COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("principal", "/principal"),
    ("privilege", "/privilege"),
    ("on", "/on"),
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
    /// Let somebody do something; OWNERSHIP of anything but a workspace is handed over
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
        Verb::Ls { principal, list } => show(remote, principal, list).await,
        Verb::Rm { id } => {
            let call = Call::delete(format!("/v1/grants/{id}"));
            remote.done(call, "it holds no longer").await
        }
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

async fn show(remote: &Remote, whose: Option<String>, list: ListArgs) -> Result<(), Failure> {
    let mut call = Call::get("/v1/grants");
    if let Some(whose) = whose {
        call = call.query("principal", Some(remote.client.id(Noun::Principal, &whose).await?));
    }
    if remote.json {
        return remote.list(call, list, COLUMNS).await;
    }
    let (mut grants, _) = remote.client.list(&call.path, &call.query, list.limit as usize).await?;
    let mut names = HashMap::new();
    for noun in [Noun::Principal].into_iter().chain(GRANTED) {
        names.extend(remote.client.names(noun).await?);
    }
    grants.iter_mut().for_each(|grant| name(grant, &names));
    remote.table(grants, COLUMNS)
}

/// Names in the place of ids, where they can be seen.
fn name(grant: &mut Value, names: &HashMap<String, String>) {
    put_names(grant, &["principal"], names);
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
