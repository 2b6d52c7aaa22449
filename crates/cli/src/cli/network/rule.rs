//! `belljar network rule`.

use super::resource_path;
use crate::cli::CliError;
use crate::cli::display::Column;
use crate::cli::remote::{ListArgs, Remote};
use crate::cli::resource_names::ResourceKind;
use crate::client::ApiRequest;
use serde_json::json;

const COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("name", "/name"),
    ("values", "/value_list"),
    ("comment", "/comment"),
    ("changed", "/updated_at"),
];

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Create a rule
    ///
    /// Use it to name a list of hosts. The rule has no effect until an integration uses it.
    #[command(after_help = "Examples:\n  \
        belljar network rule new github api.github.com '*.github.com' github.com:80")]
    New(NetworkRuleArgs),
    /// Replace the hosts of a rule
    ///
    /// Use it to change the list for all integrations that use the rule.
    #[command(after_help = "Examples:\n  \
        belljar network rule set github api.github.com uploads.github.com")]
    Set(NetworkRuleArgs),
    /// List rules
    ///
    /// Use it to see which rules exist, with their hosts.
    #[command(after_help = "Examples:\n  \
        belljar network rule ls")]
    Ls(ListArgs),
    /// Show a rule
    ///
    /// Use it to check the hosts of a rule.
    #[command(after_help = "Examples:\n  \
        belljar network rule show github")]
    Show {
        /// Name or id of the rule
        #[arg(value_name = "NAME | ID")]
        rule: String,
    },
    /// Delete a rule
    ///
    /// Use it for rules that no integration uses; the server refuses to delete others.
    #[command(after_help = "Examples:\n  \
        belljar network rule rm github")]
    Rm {
        /// Name or id of the rule
        #[arg(value_name = "NAME | ID")]
        rule: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct NetworkRuleArgs {
    /// Name of the rule
    #[arg(value_name = "NAME")]
    name: String,

    /// Hosts with optional ports, such as `api.github.com`, `*.github.com:443`,
    /// `db.example.org:5432` or `10.0.0.5:8000-8100`
    #[arg(value_name = "HOST[:PORT]", required = true)]
    values: Vec<String>,

    /// Comment for people
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

pub(super) async fn run(remote: &Remote, verb: Command) -> Result<(), CliError> {
    match verb {
        Command::New(NetworkRuleArgs { name, values, comment }) => {
            let rule = json!({"name": name, "value_list": values, "comment": comment});
            remote.show(ApiRequest::post(ResourceKind::NetworkRule.path()).json(&rule)).await
        }
        Command::Set(NetworkRuleArgs { name, values, comment }) => {
            let url_path = resource_path(remote, ResourceKind::NetworkRule, &name).await?;
            let before = remote.client.json(ApiRequest::get(url_path.clone())).await?;
            let comment = comment.map_or_else(|| before["comment"].clone(), Into::into);
            let rule = json!({"name": before["name"], "value_list": values, "comment": comment});
            remote.show(ApiRequest::put(url_path).json(&rule)).await
        }
        Command::Ls(list) => {
            remote.list(ApiRequest::get(ResourceKind::NetworkRule.path()), list, COLUMNS).await
        }
        Command::Show { rule } => {
            remote
                .show(ApiRequest::get(
                    resource_path(remote, ResourceKind::NetworkRule, &rule).await?,
                ))
                .await
        }
        Command::Rm { rule } => {
            let call =
                ApiRequest::delete(resource_path(remote, ResourceKind::NetworkRule, &rule).await?);
            remote.send_and_report(call, &format!("network rule {rule} deleted")).await
        }
    }
}
