//! Options of all commands that connect to a server: its URL and the API key.
//!
//! The key comes from an environment variable or a file. It is never an argument, because all users
//! of the machine can see arguments.

use super::display::{self, Column};
use super::one_shot::print_record;
use super::request_args::read_bounded;
use super::resource_names::{ResourceKind, replace_ids};
use super::{CliError, EXIT_INTERNAL, EXIT_REJECTED, engine_args, terminal};
use crate::client::{ApiClient, ApiProblem, ApiProblemDetail, ApiRequest, ClientError};
use serde_json::Value;
use std::env;
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const DEFAULT_SERVER: &str = "http://127.0.0.1:7117";
const KEY_VARIABLE: &str = "BELLJAR_API_KEY";
/// Much larger than a key and its line end.
const KEY_FILE_BYTES_MAX: u64 = 4096;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct ServerArgs {
    /// Server URL. Commands that can run locally do so when it is unset; others use
    /// http://127.0.0.1:7117
    #[arg(long, value_name = "URL", env = "BELLJAR_URL", hide_env_values = true, global = true)]
    server: Option<String>,

    /// File with the API key [default: the environment variable BELLJAR_API_KEY]
    #[arg(long, value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
}

/// Options of commands that print responses as text or JSON.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RemoteArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// Print the response as JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// Options of lists.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct ListArgs {
    /// Maximum number of entries, newest first
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(super) limit: u32,
}

impl ServerArgs {
    /// Returns whether a server is set. Otherwise commands use an embedded engine where possible.
    pub(super) fn is_named(&self) -> bool {
        self.server.as_ref().is_some_and(|server| !server.is_empty())
    }

    pub(super) fn connect(&self) -> Result<ApiClient, CliError> {
        let server = self.server.as_deref().filter(|server| !server.is_empty());
        Ok(ApiClient::new(server.unwrap_or(DEFAULT_SERVER), &self.key()?)?)
    }

    fn key(&self) -> Result<String, CliError> {
        let key = match &self.key_file {
            Some(path) => read_key(path)?,
            None => env::var(KEY_VARIABLE).unwrap_or_default(),
        };
        match key.trim() {
            "" => Err(CliError::usage(format!(
                "no API key: set {KEY_VARIABLE}, or use --key-file FILE (`belljar serve` prints the first key on its first start)"
            ))),
            key => Ok(key.to_owned()),
        }
    }
}

fn read_key(path: &Path) -> Result<String, CliError> {
    let failed =
        |reason: String| CliError::usage(format!("--key-file {}: {reason}", path.display()));
    let bytes = File::open(path).and_then(|file| read_bounded(file, KEY_FILE_BYTES_MAX));
    let bytes = bytes.map_err(|error| failed(error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| failed("not UTF-8 text".to_owned()))
}

impl RemoteArgs {
    /// Returns whether a server is set.
    pub(super) fn is_named(&self) -> bool {
        self.server.is_named()
    }

    pub(super) fn connect(&self) -> Result<ApiClient, CliError> {
        self.server.connect()
    }

    /// Connects to the server and runs `work`.
    pub(super) fn run(
        &self,
        work: impl AsyncFnOnce(&Remote) -> Result<(), CliError>,
    ) -> Result<ExitCode, CliError> {
        let remote = Remote { client: self.server.connect()?, json: self.json };
        engine_args::build_runtime()?.block_on(work(&remote))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A server, and how its responses are displayed.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) client: ApiClient,
    pub(super) json: bool,
}

impl Remote {
    /// Sends a request and displays the returned record.
    pub(super) async fn show(&self, call: ApiRequest) -> Result<(), CliError> {
        let answer = self.client.json(call).await?;
        if self.json { print_json(&answer) } else { display::print_fields(&answer) }
    }

    /// Sends a request that creates an object, and displays it without the submitted text.
    pub(super) async fn show_created(&self, call: ApiRequest, text: &str) -> Result<(), CliError> {
        let mut answer = self.client.json(call).await?;
        if self.json {
            return print_json(&answer);
        }
        if let Some(fields) = answer.as_object_mut() {
            fields.shift_remove(text);
        }
        display::print_fields(&answer)
    }

    /// Sends a request, and reports the result in one line.
    pub(super) async fn send_and_report(
        &self,
        call: ApiRequest,
        message: &str,
    ) -> Result<(), CliError> {
        let answer = self.client.json(call).await?;
        if self.json && !answer.is_null() {
            return print_json(&answer);
        }
        eprintln!("belljar: {}", terminal::for_stderr(message));
        Ok(())
    }

    /// Sends a request whose response contains a secret, and prints only the secret, so that it can
    /// be redirected.
    pub(super) async fn print_secret(
        &self,
        call: ApiRequest,
        pointer: &str,
    ) -> Result<(), CliError> {
        let answer = self.client.json(call).await?;
        if self.json {
            return print_json(&answer);
        }
        let secret = answer.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        eprintln!("belljar: save this key; it is shown only once");
        print_record(&terminal::for_stdout(secret))
    }

    /// Displays the newest entries of a list.
    pub(super) async fn list(
        &self,
        call: ApiRequest,
        list: ListArgs,
        columns: &[Column],
    ) -> Result<(), CliError> {
        self.list_named(call, list, columns, &[]).await
    }

    /// The same, where these fields are ids of principals and agents.
    pub(super) async fn list_named(
        &self,
        call: ApiRequest,
        ListArgs { limit }: ListArgs,
        columns: &[Column],
        fields: &[&str],
    ) -> Result<(), CliError> {
        let (mut items, more) = self.client.list(&call.path, &call.query, limit as usize).await?;
        self.replace_ids(&mut items, fields).await?;
        self.table(items, columns)?;
        if more && !self.json {
            eprintln!("belljar: showing the first {limit} entries; use --limit N for more");
        }
        Ok(())
    }

    /// Replaces ids by names in text output; JSON output keeps ids.
    pub(super) async fn replace_ids(
        &self,
        items: &mut [Value],
        fields: &[&str],
    ) -> Result<(), CliError> {
        if self.json || fields.is_empty() || items.is_empty() {
            return Ok(());
        }
        let mut names = self.client.list_names(ResourceKind::Principal).await?;
        names.extend(self.client.list_names(ResourceKind::Agent).await?);
        items.iter_mut().for_each(|item| replace_ids(item, fields, &names));
        Ok(())
    }

    pub(super) fn table(&self, items: Vec<Value>, columns: &[Column]) -> Result<(), CliError> {
        if self.json {
            return print_json(&Value::Array(items));
        }
        display::print_table(&items, columns)
    }
}

/// Prints JSON, indented on a terminal and on one line otherwise.
pub(super) fn print_json(value: &Value) -> Result<(), CliError> {
    let pretty = std::io::stdout().is_terminal().then(|| serde_json::to_string_pretty(value).ok());
    let text = pretty.flatten().unwrap_or_else(|| value.to_string());
    print_record(&terminal::for_stdout(&text))
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Address(_) | ClientError::Key | ClientError::File { .. } => {
                Self::usage(error.to_string())
            }
            ClientError::Unreachable { .. }
            | ClientError::Interrupted { .. }
            | ClientError::UnexpectedResponse { .. } => Self::internal(error.to_string()),
            ClientError::Problem(problem) => problem_error(&problem),
        }
    }
}

fn problem_error(problem: &ApiProblem) -> CliError {
    let details = problem.errors.iter().filter_map(|detail| detail_line(problem, detail)).collect();
    let exit = if problem.status < 500 { EXIT_REJECTED } else { EXIT_INTERNAL };
    CliError { message: problem.to_string(), details, exit }
}

/// Returns the line of a detail that the error message does not contain yet.
fn detail_line(problem: &ApiProblem, detail: &ApiProblemDetail) -> Option<String> {
    let at = match (detail.line, detail.column, &detail.path) {
        (Some(line), Some(column), _) => format!("{line}:{column}: "),
        _ if problem.detail.contains(&detail.message) => return None,
        (_, _, Some(path)) => format!("{path}: "),
        _ => String::new(),
    };
    let hint = detail.hint.as_ref().filter(|_| detail.hint != problem.hint);
    let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    Some(format!("{at}{}{hint}", detail.message))
}
