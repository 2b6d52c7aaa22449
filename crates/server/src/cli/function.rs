//! `belljar function`: what is deployed on a server, and its calls. `belljar tool deploy` deploys.

use super::listing::Column;
use super::named::Noun;
use super::once::print_record;
use super::remote::{ListArgs, Remote, RemoteArgs};
use super::tool::arguments;
use super::{Failure, terminal};
use crate::client::Call;
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
const LINES: &[Column] = &[("time", "/time"), ("stream", "/stream"), ("message", "/message")];
/// Short beside what is worth a function.
const POLL: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List functions
    Ls(ListArgs),
    /// Show a function
    Show(One),
    /// Call a function, and print what it returns as JSON and what it prints on standard error
    Call {
        #[command(flatten)]
        one: One,

        /// What it is given as `data`: JSON, @FILE that has it, or - for standard input
        #[arg(
            short = 'a',
            long = "args",
            visible_alias = "data",
            value_name = "JSON | @FILE | -",
            default_value = "{}"
        )]
        data: String,

        /// Print the call, and leave
        #[arg(long)]
        no_wait: bool,
    },
    /// List the calls of a function
    Calls {
        #[command(flatten)]
        one: One,

        #[command(flatten)]
        list: ListArgs,
    },
    /// Show what a call has printed
    Logs {
        #[command(flatten)]
        one: One,

        /// Which call [default: the newest]
        #[arg(value_name = "CALL")]
        call: Option<String>,
    },
    /// Delete a function
    Rm(One),
}

#[derive(Debug, clap::Args)]
struct One {
    #[arg(value_name = "NAME | ID")]
    function: String,
}

const CALLS: &[Column] = &[
    ("id", "/id"),
    ("status", "/status"),
    ("started", "/started_at"),
    ("ended", "/ended_at"),
    ("error", "/error/message"),
];

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |remote| match args.verb {
        Verb::Ls(list) => remote.list(Call::get(Noun::Function.path()), list, COLUMNS).await,
        Verb::Show(one) => remote.show(Call::get(at(remote, &one).await?)).await,
        Verb::Call { one, data, no_wait } => call(remote, &one, &data, no_wait).await,
        Verb::Calls { one, list } => {
            let calls = format!("{}/calls", at(remote, &one).await?);
            remote.list(Call::get(calls), list, CALLS).await
        }
        Verb::Logs { one, call } => logs(remote, &one, call).await,
        Verb::Rm(one) => {
            let said = format!("{} is gone", one.function);
            remote.done(Call::delete(at(remote, &one).await?), &said).await
        }
    })
}

async fn at(remote: &Remote, one: &One) -> Result<String, Failure> {
    remote.client.path(Noun::Function, &one.function).await
}

async fn call(remote: &Remote, one: &One, data: &str, no_wait: bool) -> Result<(), Failure> {
    let function = at(remote, one).await?;
    let body = json!({"data": arguments(data)?});
    let begin = Call::post(format!("{function}/call")).json(&body);
    if no_wait {
        return remote.show(begin).await;
    }
    let mut call = remote.client.json(begin).await?;
    let place = format!("{function}/calls/{}", call["id"].as_str().unwrap_or_default());
    while call["status"] == "Running" {
        tokio::time::sleep(POLL).await;
        call = remote.client.json(Call::get(&place)).await?;
    }
    for line in lines(remote, &place).await? {
        let message = line["message"].as_str().unwrap_or_default();
        eprintln!("{}", terminal::for_stderr(message));
    }
    if call["status"] != "Completed" {
        if let Some(traceback) = call["error"]["traceback"].as_str() {
            eprint!("{}", terminal::for_stderr(traceback));
        }
        return Err(failed(&call));
    }
    let answer = remote.client.json(Call::get(format!("{place}/response"))).await?;
    print_record(&terminal::for_stdout(&answer["response"].to_string()))
}

fn failed(call: &Value) -> Failure {
    let status = call["status"].as_str().unwrap_or_default().to_lowercase();
    let text = |key: &str| call["error"][key].as_str().unwrap_or_default();
    let hint = Some(text("hint")).filter(|hint| !hint.is_empty());
    let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    Failure::refused(format!("{status}: {}: {}{hint}", text("code"), text("message")))
}

async fn logs(remote: &Remote, one: &One, call: Option<String>) -> Result<(), Failure> {
    let calls = format!("{}/calls", at(remote, one).await?);
    let call = match call {
        Some(call) => call,
        None => {
            let (newest, _) = remote.client.list(&calls, &[], 1).await?;
            let newest = newest.first().and_then(|call| call["id"].as_str());
            newest.ok_or_else(|| Failure::refused("it was never called"))?.to_owned()
        }
    };
    remote.table(lines(remote, &format!("{calls}/{call}")).await?, LINES)
}

async fn lines(remote: &Remote, call: &str) -> Result<Vec<Value>, Failure> {
    let mut answer = remote.client.json(Call::get(format!("{call}/logs"))).await?;
    Ok(answer["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}
