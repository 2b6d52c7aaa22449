//! `belljar function`: manages and calls the functions of a server. `belljar tool deploy` deploys
//! them.

use super::display::Column;
use super::one_shot::print_record;
use super::remote::{ListArgs, Remote, RemoteArgs};
use super::resource_names::ResourceKind;
use super::tool::read_arguments;
use super::{CliError, terminal};
use crate::client::ApiRequest;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

const COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("name", "/name"),
    ("status", "/status"),
    ("environment", "/deployed/environment"),
    ("changed", "/updated_at"),
    ("description", "/deployed/description"),
];
const LOG_COLUMNS: &[Column] = &[("time", "/time"), ("stream", "/stream"), ("message", "/message")];
/// Short compared to the duration of most calls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List functions
    ///
    /// Use it to see which functions are deployed, and their status.
    #[command(after_help = "Examples:\n  \
        belljar function ls")]
    Ls(ListArgs),
    /// Show a function
    ///
    /// Use it to check the status, the limits and the last error of a deployment.
    #[command(after_help = "Examples:\n  \
        belljar function show forecast")]
    Show(FunctionArgs),
    /// Call a function and print its return value as JSON
    ///
    /// Use it to run a deployed function. Output that the function prints goes to standard error.
    #[command(after_help = "Examples:\n  \
        belljar function call forecast --args '{\"asset\": \"pump\"}'\n  \
        belljar function call forecast --args @input.json --no-wait")]
    Call {
        #[command(flatten)]
        one: FunctionArgs,

        /// Value of `data`, the input of the function: JSON, @FILE, or - for standard input
        #[arg(
            short = 'a',
            long = "args",
            visible_alias = "data",
            value_name = "JSON | @FILE | -",
            default_value = "{}"
        )]
        data: String,

        /// Print the call and exit without waiting for the result
        #[arg(long)]
        no_wait: bool,
    },
    /// List the calls of a function
    ///
    /// Use it to find the id and the status of earlier calls.
    #[command(after_help = "Examples:\n  \
        belljar function calls forecast --limit 10")]
    Calls {
        #[command(flatten)]
        one: FunctionArgs,

        #[command(flatten)]
        list: ListArgs,
    },
    /// Show the output of a call
    ///
    /// Use it to find out why a call failed.
    #[command(after_help = "Examples:\n  \
        belljar function logs forecast")]
    Logs {
        #[command(flatten)]
        one: FunctionArgs,

        /// Id of the call [default: the newest]
        #[arg(value_name = "CALL")]
        call: Option<String>,
    },
    /// Delete a function
    ///
    /// Use it when a function is no longer needed. Deploying it again recreates it.
    #[command(after_help = "Examples:\n  \
        belljar function rm forecast")]
    Rm(FunctionArgs),
}

#[derive(Debug, clap::Args)]
struct FunctionArgs {
    /// Name or id of the function
    #[arg(value_name = "NAME | ID")]
    function: String,
}

const CALL_COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("status", "/status"),
    ("started", "/started_at"),
    ("ended", "/ended_at"),
    ("error", "/error/message"),
];

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| match args.verb {
        Command::Ls(list) => {
            remote.list(ApiRequest::get(ResourceKind::Function.path()), list, COLUMNS).await
        }
        Command::Show(one) => {
            remote.show(ApiRequest::get(function_path(remote, &one).await?)).await
        }
        Command::Call { one, data, no_wait } => call_function(remote, &one, &data, no_wait).await,
        Command::Calls { one, list } => {
            let calls = format!("{}/calls", function_path(remote, &one).await?);
            remote.list(ApiRequest::get(calls), list, CALL_COLUMNS).await
        }
        Command::Logs { one, call } => print_logs(remote, &one, call).await,
        Command::Rm(one) => {
            let message = format!("function {} deleted", one.function);
            remote
                .send_and_report(ApiRequest::delete(function_path(remote, &one).await?), &message)
                .await
        }
    })
}

async fn function_path(remote: &Remote, one: &FunctionArgs) -> Result<String, CliError> {
    remote.client.resolve_path(ResourceKind::Function, &one.function).await
}

async fn call_function(
    remote: &Remote,
    one: &FunctionArgs,
    data: &str,
    no_wait: bool,
) -> Result<(), CliError> {
    let function = function_path(remote, one).await?;
    let body = json!({"data": read_arguments(data)?});
    let begin = ApiRequest::post(format!("{function}/call")).json(&body);
    if no_wait {
        return remote.show(begin).await;
    }
    let mut call = remote.client.json(begin).await?;
    let call_path = format!("{function}/calls/{}", call["id"].as_str().unwrap_or_default());
    while call["status"] == "Running" {
        tokio::time::sleep(POLL_INTERVAL).await;
        call = remote.client.json(ApiRequest::get(&call_path)).await?;
    }
    for line in log_lines(remote, &call_path).await? {
        let message = line["message"].as_str().unwrap_or_default();
        eprintln!("{}", terminal::for_stderr(message));
    }
    if call["status"] != "Completed" {
        if let Some(traceback) = call["error"]["traceback"].as_str() {
            eprint!("{}", terminal::for_stderr(traceback));
        }
        return Err(call_error(&call));
    }
    let answer = remote.client.json(ApiRequest::get(format!("{call_path}/response"))).await?;
    print_record(&terminal::for_stdout(&answer["response"].to_string()))
}

fn call_error(call: &Value) -> CliError {
    let status = call["status"].as_str().unwrap_or_default().to_lowercase();
    let text = |key: &str| call["error"][key].as_str().unwrap_or_default();
    let hint = Some(text("hint")).filter(|hint| !hint.is_empty());
    let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    CliError::rejected(format!("{status}: {}: {}{hint}", text("code"), text("message")))
}

async fn print_logs(
    remote: &Remote,
    one: &FunctionArgs,
    call: Option<String>,
) -> Result<(), CliError> {
    let calls = format!("{}/calls", function_path(remote, one).await?);
    let call = match call {
        Some(call) => call,
        None => {
            let (newest, _) = remote.client.list(&calls, &[], 1).await?;
            let newest = newest.first().and_then(|call| call["id"].as_str());
            newest
                .ok_or_else(|| {
                    let name = &one.function;
                    CliError::rejected(format!(
                        "function {name:?} has no calls; call it with `belljar function call {name}`"
                    ))
                })?
                .to_owned()
        }
    };
    remote.table(log_lines(remote, &format!("{calls}/{call}")).await?, LOG_COLUMNS)
}

async fn log_lines(remote: &Remote, call: &str) -> Result<Vec<Value>, CliError> {
    let mut answer = remote.client.json(ApiRequest::get(format!("{call}/logs"))).await?;
    Ok(answer["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}
