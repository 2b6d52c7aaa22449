//! `belljar preference`: gets and sets the preferences of the caller.

use super::CliError;
use super::one_shot::print_record;
use super::remote::{RemoteArgs, print_json};
use super::terminal;
use crate::client::ApiRequest;
use serde_json::{Value, json};
use std::process::ExitCode;

const PREFERENCES: &str = "/v1/preferences";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List your preferences
    ///
    /// Use it to see the preferences that are set.
    #[command(after_help = "Examples:\n  \
        belljar preference ls")]
    Ls,
    /// Print a preference
    ///
    /// Use it in scripts. It fails if the preference is not set.
    #[command(after_help = "Examples:\n  \
        belljar preference get code_model")]
    Get {
        /// Name of the preference
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Set a preference
    ///
    /// Use it to choose the model that writes code for you (code_model), unless a request or an
    /// agent names one.
    #[command(after_help = "Examples:\n  \
        belljar preference set code_model openai/gpt-4.1")]
    Set {
        /// Name of the preference
        #[arg(value_name = "NAME")]
        name: String,

        /// Its value
        #[arg(value_name = "VALUE")]
        value: String,
    },
    /// Remove a preference
    ///
    /// Use it to return to the default of the server.
    #[command(after_help = "Examples:\n  \
        belljar preference unset code_model")]
    Unset {
        /// Name of the preference
        #[arg(value_name = "NAME")]
        name: String,
    },
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| {
        let change =
            |name: &str, value: Value| ApiRequest::patch(PREFERENCES).json(&json!({name: value}));
        match args.verb {
            Command::Ls => remote.show(ApiRequest::get(PREFERENCES)).await,
            Command::Get { name } => {
                let preferences = remote.client.json(ApiRequest::get(PREFERENCES)).await?;
                print_preference(&preferences, &name, remote.json)
            }
            Command::Set { name, value } => {
                let message = format!("{name} set to {value}");
                remote.send_and_report(change(&name, value.into()), &message).await
            }
            Command::Unset { name } => {
                let message = format!("{name} unset");
                remote.send_and_report(change(&name, Value::Null), &message).await
            }
        }
    })
}

fn print_preference(preferences: &Value, name: &str, as_json: bool) -> Result<(), CliError> {
    match preferences.get(name) {
        Some(value) if as_json => print_json(value),
        Some(value) => print_record(&terminal::for_stdout(value.as_str().unwrap_or_default())),
        None => Err(CliError::rejected(format!("preference {name:?} is not set"))),
    }
}
