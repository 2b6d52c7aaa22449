//! `belljar network integration`.

use super::at;
use crate::cli::Failure;
use crate::cli::listing::Column;
use crate::cli::named::Noun;
use crate::cli::remote::{ListArgs, Remote};
use crate::client::Call;
use serde_json::{Value, json};

const COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("name", "/name"),
    ("rules", "/allowed_network_rules"),
    ("secrets", "/allowed_secrets"),
    ("enabled", "/enabled"),
    ("comment", "/comment"),
];

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Make an integration of rules
    New {
        #[arg(value_name = "NAME")]
        name: String,

        #[command(flatten)]
        content: Content,
    },
    /// Give an integration other rules, secrets or another comment
    Set {
        #[arg(value_name = "NAME | ID")]
        integration: String,

        #[command(flatten)]
        content: Content,
    },
    /// List integrations
    Ls(ListArgs),
    /// Show an integration
    Show {
        #[arg(value_name = "NAME | ID")]
        integration: String,
    },
    /// Delete an integration
    Rm {
        #[arg(value_name = "NAME | ID")]
        integration: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Content {
    /// Of a network rule; can be given several times
    #[arg(long = "rule", value_name = "NAME", conflicts_with = "no_rules")]
    rules: Vec<String>,

    /// It has no rules
    #[arg(long)]
    no_rules: bool,

    /// A secret that code may use by it; can be given several times
    #[arg(long = "secret", value_name = "NAME", conflicts_with_all = ["all_secrets", "no_secrets"])]
    secrets: Vec<String>,

    /// Code may use every secret of the workspace by it
    #[arg(long, conflicts_with = "no_secrets")]
    all_secrets: bool,

    /// Code may use no secret by it but those that need no integration
    #[arg(long)]
    no_secrets: bool,

    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

impl Content {
    /// What was not given is not in it.
    fn body(self) -> Value {
        let secrets = match (self.all_secrets, self.no_secrets) {
            (true, _) => Some(json!("all")),
            (_, true) => Some(json!("none")),
            _ => (!self.secrets.is_empty()).then(|| json!(self.secrets)),
        };
        let rules = (self.no_rules || !self.rules.is_empty()).then(|| json!(self.rules));
        let mut body = json!({"comment": self.comment});
        for (key, value) in [("allowed_network_rules", rules), ("allowed_secrets", secrets)] {
            if let Some(value) = value {
                body[key] = value;
            }
        }
        body
    }
}

pub(super) async fn run(remote: &Remote, verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::New { name, content } => {
            let mut body = content.body();
            body["name"] = name.into();
            if body["allowed_network_rules"].is_null() {
                body["allowed_network_rules"] = json!([]);
            }
            remote.show(Call::post(Noun::Integration.path()).json(&body)).await
        }
        Verb::Set { integration, content } => change(remote, &integration, content.body()).await,
        Verb::Ls(list) => remote.list(Call::get(Noun::Integration.path()), list, COLUMNS).await,
        Verb::Show { integration } => {
            remote.show(Call::get(at(remote, Noun::Integration, &integration).await?)).await
        }
        Verb::Rm { integration } => {
            let call = Call::delete(at(remote, Noun::Integration, &integration).await?);
            remote.done(call, &format!("{integration} is gone")).await
        }
    }
}

pub(super) async fn change(remote: &Remote, name: &str, change: Value) -> Result<(), Failure> {
    let place = at(remote, Noun::Integration, name).await?;
    remote.show(Call::patch(place).json(&change)).await
}
