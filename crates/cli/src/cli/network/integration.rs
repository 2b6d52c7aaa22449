//! `belljar network integration`.

use super::resource_path;
use crate::cli::CliError;
use crate::cli::display::Column;
use crate::cli::remote::{ListArgs, Remote};
use crate::cli::resource_names::ResourceKind;
use crate::client::ApiRequest;
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
pub(super) enum Command {
    /// Create an integration
    ///
    /// Use it to allow access to the hosts of rules, and to make secrets available to code.
    #[command(after_help = "Examples:\n  \
        belljar network integration new github_integration --rule github\n  \
        belljar network integration new db --rule db --secret DATABASE_PASSWORD")]
    New {
        /// Name of the integration
        #[arg(value_name = "NAME")]
        name: String,

        #[command(flatten)]
        content: IntegrationContentArgs,
    },
    /// Change the rules, the secrets or the comment of an integration
    ///
    /// Use it to replace a whole list; options that you do not pass stay as they are.
    #[command(after_help = "Examples:\n  \
        belljar network integration set db --no-secrets\n  \
        belljar network integration set github_integration --rule github --rule pypi")]
    Set {
        /// Name or id of the integration
        #[arg(value_name = "NAME | ID")]
        integration: String,

        #[command(flatten)]
        content: IntegrationContentArgs,

        /// Remove all rules
        #[arg(long, conflicts_with = "rules")]
        no_rules: bool,

        /// Remove all secrets (clients and headers need no integration)
        #[arg(long, conflicts_with_all = ["secrets", "all_secrets"])]
        no_secrets: bool,
    },
    /// List integrations
    ///
    /// Use it to see which integrations exist and whether they are enabled.
    #[command(after_help = "Examples:\n  \
        belljar network integration ls")]
    Ls(ListArgs),
    /// Show an integration
    ///
    /// Use it to check the rules and the secrets of an integration.
    #[command(after_help = "Examples:\n  \
        belljar network integration show github_integration")]
    Show {
        /// Name or id of the integration
        #[arg(value_name = "NAME | ID")]
        integration: String,
    },
    /// Delete an integration
    ///
    /// Use it when no code needs it any more. `belljar network disable` is the reversible
    /// alternative.
    #[command(after_help = "Examples:\n  \
        belljar network integration rm github_integration")]
    Rm {
        /// Name or id of the integration
        #[arg(value_name = "NAME | ID")]
        integration: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct IntegrationContentArgs {
    /// Network rule of the integration; repeatable
    #[arg(long = "rule", value_name = "NAME")]
    rules: Vec<String>,

    /// Secret that code may use through the integration; repeatable
    #[arg(long = "secret", value_name = "NAME", conflicts_with = "all_secrets")]
    secrets: Vec<String>,

    /// Let code use every secret of the workspace (owners only)
    #[arg(long)]
    all_secrets: bool,

    /// Let code act in this project of Cognite Data Fusion with the access token of its caller (owners
    /// only; requires `serve --pass-caller-token`)
    #[arg(long, value_name = "PROJECT")]
    caller_token: Option<String>,

    /// Comment for people
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

impl IntegrationContentArgs {
    /// Options that were not passed are absent.
    fn into_json(self) -> Value {
        let secrets = if self.all_secrets {
            Some(json!("all"))
        } else {
            (!self.secrets.is_empty()).then(|| json!(self.secrets))
        };
        let rules = (!self.rules.is_empty()).then(|| json!(self.rules));
        let caller_token =
            self.caller_token.map(|project| json!({"client": "cognite", "project": project}));
        let mut body = json!({"comment": self.comment});
        for (key, value) in [
            ("allowed_network_rules", rules),
            ("allowed_secrets", secrets),
            ("caller_token", caller_token),
        ] {
            if let Some(value) = value {
                body[key] = value;
            }
        }
        body
    }
}

pub(super) async fn run(remote: &Remote, verb: Command) -> Result<(), CliError> {
    match verb {
        Command::New { name, content } => {
            let mut body = content.into_json();
            body["name"] = name.into();
            if body["allowed_network_rules"].is_null() {
                body["allowed_network_rules"] = json!([]);
            }
            remote.show(ApiRequest::post(ResourceKind::Integration.path()).json(&body)).await
        }
        Command::Set { integration, content, no_rules, no_secrets } => {
            let mut body = content.into_json();
            if no_rules {
                body["allowed_network_rules"] = json!([]);
            }
            if no_secrets {
                body["allowed_secrets"] = json!("none");
            }
            update_integration(remote, &integration, body).await
        }
        Command::Ls(list) => {
            remote.list(ApiRequest::get(ResourceKind::Integration.path()), list, COLUMNS).await
        }
        Command::Show { integration } => {
            remote
                .show(ApiRequest::get(
                    resource_path(remote, ResourceKind::Integration, &integration).await?,
                ))
                .await
        }
        Command::Rm { integration } => {
            let call = ApiRequest::delete(
                resource_path(remote, ResourceKind::Integration, &integration).await?,
            );
            remote.send_and_report(call, &format!("integration {integration} deleted")).await
        }
    }
}

pub(super) async fn update_integration(
    remote: &Remote,
    name: &str,
    change: Value,
) -> Result<(), CliError> {
    let url_path = resource_path(remote, ResourceKind::Integration, name).await?;
    remote.show(ApiRequest::patch(url_path).json(&change)).await
}
