//! `belljar sql`: runs statements of Snowflake worksheets.

use super::CliError;
use super::display::{self, Column};
use super::engine_args;
use super::remote::{Remote, RemoteArgs, print_json};
use super::request_args::read_bounded;
use super::terminal;
use crate::client::{ApiRequest, ClientError};
use serde_json::{Value, json};
use statements::{StatementKind, TEXT_BYTES_MAX};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

const RULES: &[Column] = &[
    ("name", "/name"),
    ("mode", "/mode"),
    ("type", "/type"),
    ("values", "/entries_in_value_list"),
    ("comment", "/comment"),
];
const INTEGRATIONS: &[Column] = &[
    ("name", "/name"),
    ("rules", "/allowed_network_rules"),
    ("secrets", "/allowed_secrets"),
    ("enabled", "/enabled"),
    ("comment", "/comment"),
];
const SECRETS: &[Column] = &[
    ("name", "/name"),
    ("scope", "/scope"),
    ("exposed", "/exposed"),
    ("version", "/version"),
    ("comment", "/comment"),
];
const AGENTS: &[Column] =
    &[("name", "/name"), ("run as", "/run_as"), ("id", "/id"), ("changed", "/updated_at")];
const GRANTS: &[Column] = &[
    ("privilege", "/privilege"),
    ("kind", "/object/kind"),
    ("object", "/object/id"),
    ("principal", "/principal_name"),
    ("since", "/created_at"),
];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Statements, separated by `;`, or `-` for standard input [default: standard input]
    #[arg(value_name = "STATEMENTS")]
    statements: Option<String>,

    /// Read the statements from this file
    #[arg(long, value_name = "PATH", conflicts_with = "statements")]
    file: Option<PathBuf>,

    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    let text = read_statements(args.statements.as_deref(), args.file.as_ref())?;
    let remote = Remote { client: args.remote.connect()?, json: args.remote.json };
    engine_args::build_runtime()?.block_on(run(&remote, text))?;
    Ok(ExitCode::SUCCESS)
}

fn read_statements(argument: Option<&str>, file: Option<&PathBuf>) -> Result<String, CliError> {
    let max = TEXT_BYTES_MAX as u64;
    let (source, read) = match (argument, file) {
        (Some(text), _) if text != "-" => {
            refuse_secret(text)?;
            return Ok(text.to_owned());
        }
        (_, Some(path)) => {
            let read = File::open(path).and_then(|file| read_bounded(file, max));
            (format!("--file {}", path.display()), read)
        }
        (None, None) if io::stdin().is_terminal() => {
            return Err(CliError::usage("pass statements, --file PATH, or - to type them"));
        }
        _ => ("standard input".to_owned(), read_bounded(io::stdin(), max)),
    };
    let bytes = read.map_err(|error| CliError::usage(format!("{source}: {error}")))?;
    String::from_utf8(bytes).map_err(|_| CliError::usage(format!("{source}: not UTF-8 text")))
}

/// Refuses the value of a secret in an argument, which other users of the machine can read.
fn refuse_secret(text: &str) -> Result<(), CliError> {
    let read = statements::parse(text).unwrap_or_default();
    if read.iter().any(|it| matches!(it.kind, StatementKind::CreateSecret(_))) {
        return Err(CliError::usage(
            "CREATE SECRET is refused as an argument, because other users of this machine can read it; use --file or standard input",
        ));
    }
    Ok(())
}

async fn run(remote: &Remote, text: String) -> Result<(), CliError> {
    let call = ApiRequest::post("/v1/statements").bytes("application/sql", text.into_bytes());
    match remote.client.json(call).await {
        Ok(answer) => show(remote, answer["statements"].as_array().map_or(&[], Vec::as_slice)),
        Err(ClientError::Problem(problem)) => {
            if !problem.statements.is_empty() {
                show(remote, &problem.statements)?;
            }
            Err(ClientError::Problem(problem).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Prints the results of the statements that ran.
fn show(remote: &Remote, results: &[Value]) -> Result<(), CliError> {
    if remote.json {
        return print_json(&json!({"statements": results}));
    }
    results.iter().try_for_each(show_result)
}

fn show_result(result: &Value) -> Result<(), CliError> {
    let text = |pointer: &str| result.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let statement = text("/statement");
    let warnings = result["warnings"].as_array().map_or(&[][..], Vec::as_slice);
    for warning in warnings {
        let message = warning["message"].as_str().unwrap_or_default();
        eprintln!("belljar: {statement}: warning: {}", terminal::for_stderr(message));
    }
    if let Some(rows) = result["rows"].as_array() {
        return match rows.as_slice() {
            [row] if statement.starts_with("DESCRIBE") => display::print_fields(row),
            rows => display::print_table(rows, columns(statement)),
        };
    }
    let object = format!("{} {}", text("/object/kind").replace('_', " "), text("/object/name"));
    let done = format!("{statement}: {} {object}", text("/action"));
    eprintln!("belljar: {}", terminal::for_stderr(done.trim_end()));
    Ok(())
}

fn columns(statement: &str) -> &'static [Column] {
    match statement {
        "SHOW NETWORK RULES" => RULES,
        "SHOW EXTERNAL ACCESS INTEGRATIONS" => INTEGRATIONS,
        "SHOW SECRETS" => SECRETS,
        "SHOW AGENTS" => AGENTS,
        _ => GRANTS,
    }
}
