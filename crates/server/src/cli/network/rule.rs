//! `belljar network rule`.

use super::at;
use crate::cli::Failure;
use crate::cli::listing::Column;
use crate::cli::named::Noun;
use crate::cli::remote::{ListArgs, Remote};
use crate::client::Call;
use serde_json::json;

const COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("name", "/name"),
    ("values", "/value_list"),
    ("comment", "/comment"),
    ("changed", "/updated_at"),
];

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Make a rule, which opens nothing until an integration has it
    New(Values),
    /// Give a rule other values
    Set(Values),
    /// List rules
    Ls(ListArgs),
    /// Show a rule
    Show {
        #[arg(value_name = "NAME | ID")]
        rule: String,
    },
    /// Delete a rule that no integration has
    Rm {
        #[arg(value_name = "NAME | ID")]
        rule: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Values {
    #[arg(value_name = "NAME")]
    name: String,

    /// `api.github.com`, `*.github.com:443`, `db.example.org:5432`, `10.0.0.5:8000-8100`
    #[arg(value_name = "HOST[:PORT]", required = true)]
    values: Vec<String>,

    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

pub(super) async fn run(remote: &Remote, verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::New(Values { name, values, comment }) => {
            let rule = json!({"name": name, "value_list": values, "comment": comment});
            remote.show(Call::post(Noun::NetworkRule.path()).json(&rule)).await
        }
        Verb::Set(Values { name, values, comment }) => {
            let place = at(remote, Noun::NetworkRule, &name).await?;
            let before = remote.client.json(Call::get(place.clone())).await?;
            let comment = comment.map_or_else(|| before["comment"].clone(), Into::into);
            let rule = json!({"name": before["name"], "value_list": values, "comment": comment});
            remote.show(Call::put(place).json(&rule)).await
        }
        Verb::Ls(list) => remote.list(Call::get(Noun::NetworkRule.path()), list, COLUMNS).await,
        Verb::Show { rule } => {
            remote.show(Call::get(at(remote, Noun::NetworkRule, &rule).await?)).await
        }
        Verb::Rm { rule } => {
            let call = Call::delete(at(remote, Noun::NetworkRule, &rule).await?);
            remote.done(call, &format!("{rule} is gone")).await
        }
    }
}
