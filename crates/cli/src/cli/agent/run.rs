//! `belljar agent run`: a model carries out a request, on this machine or on a server.

use crate::cli::embedded_service::{DRAIN_TIME, EmbeddedService};
use crate::cli::engine_args::{self, EngineArgs};
use crate::cli::model_args::ModelArgs;
use crate::cli::one_shot::{
    ExecutionDisplay, OutcomeArgs, StdoutUse, follow_execution, print_record, write_output_file,
};
use crate::cli::remote::{RemoteArgs, print_json};
use crate::cli::resource_names::ResourceKind;
use crate::cli::{CliError, EXIT_REJECTED, progress, terminal};
use crate::client::{ApiClient, ApiRequest, ApiRequestBody, ClientError, asset_path};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const DOCUMENTS: &str = "/v1/documents";
const CODE_EXECUTION: &str = "/v1/code_execution";

/// The request, the agent that carries it out, and the output directory.
#[derive(Debug, Default, clap::Args)]
pub(in crate::cli) struct RunRequestArgs {
    /// Name or id of an agent of the server. Without it, code_execution runs the request
    #[arg(value_name = "AGENT")]
    pub(in crate::cli) agent: Option<String>,

    /// Request in plain language. Optional with --cursor, to continue after --allow, --deny or a
    /// decided approval
    #[arg(short, long, value_name = "TEXT", required_unless_present = "cursor")]
    pub(in crate::cli) request: Option<String>,

    /// Input file, which code finds in /home/uploaded_files; repeatable
    #[arg(long = "file", value_name = "PATH")]
    pub(in crate::cli) files: Vec<PathBuf>,

    /// Additional context, such as "use a dark theme"
    #[arg(long, value_name = "TEXT", conflicts_with = "agent")]
    pub(in crate::cli) context: Option<String>,

    /// Continue in this session of the server (its `sandbox_id`)
    #[arg(long, value_name = "ID", conflicts_with = "agent")]
    pub(in crate::cli) sandbox: Option<String>,

    /// Maximum number of rounds [default: two per step of the plan, at least 6]
    #[arg(long, value_name = "N", conflicts_with = "agent")]
    pub(in crate::cli) max_rounds: Option<u32>,

    /// Continue from the response of the agent that has this cursor
    #[arg(long, value_name = "CURSOR", requires = "agent")]
    pub(in crate::cli) cursor: Option<String>,

    /// Allow this pending call of the response with that cursor; repeatable
    #[arg(long, value_name = "ID", requires = "cursor")]
    pub(in crate::cli) allow: Vec<String>,

    /// Deny this pending call of the response with that cursor; repeatable
    #[arg(long, value_name = "ID", requires = "cursor")]
    pub(in crate::cli) deny: Vec<String>,

    /// Write the files and charts that the code creates into this directory
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) out: Option<PathBuf>,
}

impl RunRequestArgs {
    /// Returns the confirmations for the pending calls of the agent.
    fn replies(&self) -> Vec<Value> {
        let reply = |id: &String, status: &str| json!({"role": "action", "type": "toolConfirmation", "actionId": id, "status": status});
        let allowed = self.allow.iter().map(|id| reply(id, "ALLOW"));
        allowed.chain(self.deny.iter().map(|id| reply(id, "DENY"))).collect()
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    request: RunRequestArgs,

    #[command(flatten)]
    models: ModelArgs,

    #[command(flatten)]
    engine: EngineArgs,
}

/// Sends the request to a server, remote or embedded.
pub(in crate::cli) struct AgentRunClient<'a> {
    pub(in crate::cli) client: &'a ApiClient,
    pub(in crate::cli) request: &'a RunRequestArgs,
    pub(in crate::cli) json: bool,
}

pub(super) fn main(args: Args, remote: &RemoteArgs) -> Result<ExitCode, CliError> {
    let runtime = engine_args::build_runtime()?;
    if remote.is_named() {
        args.models.warn_if_server();
        let client = remote.connect()?;
        let task = AgentRunClient { client: &client, request: &args.request, json: remote.json };
        return runtime.block_on(task.run()).map(|result| exit_code(&result));
    }
    if args.request.agent.is_some() || args.request.sandbox.is_some() {
        let what = match &args.request.agent {
            Some(agent) => format!("agent {agent:?}"),
            None => "--sandbox".to_owned(),
        };
        return Err(CliError::usage(format!(
            "{what} requires a server: set --server or BELLJAR_URL"
        )));
    }
    runtime.block_on(async {
        let embedded =
            EmbeddedService::start(&args.engine, Vec::new(), args.models.settings()?).await?;
        embedded.service.prepare_environment(progress::progress_printer()).await?;
        let client = embedded.client()?;
        let ran = AgentRunClient { client: &client, request: &args.request, json: remote.json }
            .run()
            .await;
        embedded.service.stop(DRAIN_TIME).await;
        ran.map(|result| exit_code(&result))
    })
}

impl AgentRunClient<'_> {
    /// Runs the request, displays it, and returns the result.
    pub(in crate::cli) async fn run(&self) -> Result<Value, CliError> {
        let outcome = OutcomeArgs { out: self.request.out.clone(), json: self.json };
        let mut display = ExecutionDisplay::new(&outcome, StdoutUse::Output)?;
        display.reports_approvals_at_end = self.request.agent.is_some();
        let documents = self.upload().await?;
        let (call, result) = self.build_request(documents).await?;
        let record = follow_execution(self.client, call, &mut display).await?;
        let result = self.client.json(ApiRequest::get(format!("{result}/{}", record.id))).await?;
        if let Some(out) = &self.request.out {
            download_files(self.client, &result, out).await?;
        }
        if self.json {
            print_json(&result)?;
        } else {
            self.print_result(&mut display, &result)?;
        }
        Ok(result)
    }

    async fn upload(&self) -> Result<Vec<Value>, CliError> {
        if self.request.files.is_empty() {
            return Ok(Vec::new());
        }
        let body = ApiRequestBody::Files(self.request.files.clone());
        let uploaded = self.client.json(ApiRequest { body, ..ApiRequest::post(DOCUMENTS) }).await?;
        let items = uploaded["items"].as_array().cloned().unwrap_or_default();
        Ok(items.into_iter().map(|document| document["id"].clone()).collect())
    }

    /// Returns the request, and the path of its result.
    async fn build_request(&self, documents: Vec<Value>) -> Result<(ApiRequest, String), CliError> {
        let request = self.request;
        let Some(agent) = &request.agent else {
            let body = json!({
                "request": request.request,
                "document_ids": documents,
                "context": request.context,
                "sandbox_id": request.sandbox,
                "max_rounds": request.max_rounds,
            });
            return Ok((ApiRequest::post(CODE_EXECUTION).json(&body), CODE_EXECUTION.to_owned()));
        };
        let path = self.client.resolve_path(ResourceKind::Agent, agent).await?;
        let body = json!({
            "message": request.request,
            "messages": request.replies(),
            "document_ids": documents,
            "cursor": request.cursor,
        });
        Ok((ApiRequest::post(format!("{path}/run")).json(&body), format!("{path}/runs")))
    }

    /// Prints the answer to standard output and everything else to standard error.
    fn print_result(
        &self,
        display: &mut ExecutionDisplay<'_>,
        result: &Value,
    ) -> Result<(), CliError> {
        let answer = result["answer"].as_str().unwrap_or_default();
        display.terminal.print_note("");
        if !answer.is_empty() {
            print_record(&terminal::for_stdout(answer.trim_end()))?;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if let Some(message) = result["error"]["message"].as_str() {
            display
                .terminal
                .print_note(&format!("belljar: {}: {message}", text(&result["error"]["code"])));
        }
        if let Some(hint) = result["error"]["hint"].as_str() {
            display.terminal.print_note(&format!("belljar: {hint}"));
        }
        for file in result_files(result) {
            let hint = match &self.request.out {
                Some(out) => format!("in {}", out.display()),
                None => "save it with --out DIR".to_owned(),
            };
            display.terminal.print_note(&format!("belljar: {} ({hint})", file.name));
        }
        self.print_approvals(display, result);
        let session = result["sandbox_id"].as_str().map(|id| format!(", session {id}"));
        let run = text(&result["execution_id"]);
        display.terminal.print_note(&format!("belljar: run {run}{}", session.unwrap_or_default()));
        Ok(())
    }

    /// Prints the pending approvals and the commands that decide them.
    fn print_approvals(&self, display: &mut ExecutionDisplay<'_>, result: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let actions = result["actions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let (Some(agent), false) = (&self.request.agent, actions.is_empty()) else { return };
        let on = format!(
            "belljar agent run {} --cursor {}",
            shell_quote(agent),
            text(&result["cursor"])
        );
        let (mut allowed, mut others) = (on.clone(), Vec::new());
        for action in actions {
            let (id, confirmation) = (text(&action["actionId"]), &action["toolConfirmation"]);
            let (tool, arguments) =
                (text(&confirmation["toolName"]), &confirmation["toolArguments"]);
            display
                .terminal
                .print_note(&format!("belljar: approval required for {tool} {arguments}: {id}"));
            allowed.push_str(&format!(" --allow {id}"));
            others.push(format!("`belljar approvals allow {id}`"));
        }
        display
            .terminal
            .print_note(&format!("belljar: to allow it, run `{allowed}`; use --deny to deny it"));
        display.terminal.print_note(&format!(
            "belljar: or another person allows it with {}; then continue with `{on}`",
            others.join(", ")
        ));
    }
}

/// Quotes text so that a shell reads it as one word.
fn shell_quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Returns success if the request was carried out.
pub(in crate::cli) fn exit_code(result: &Value) -> ExitCode {
    let well = result["status"] == "succeeded";
    if well { ExitCode::SUCCESS } else { ExitCode::from(EXIT_REJECTED) }
}

/// A file of a result: its local name, and where its bytes are.
struct ResultFile {
    name: String,
    path: String,
}

fn result_files(result: &Value) -> Vec<ResultFile> {
    let mut files: Vec<ResultFile> = Vec::new();
    let list = |key: &str| result[key].as_array().into_iter().flatten();
    for file in list("generated_files").chain(list("artifacts")) {
        let text = |key: &str| file[key].as_str().map(str::to_owned);
        let Some(path) = text("url").as_deref().and_then(asset_path) else { continue };
        let Some(file_name) = text("name") else { continue };
        let is_free = |name: &String| files.iter().all(|known| known.name != *name);
        // Two rounds may each show a `plot_0.png`, and two tools may write the same name.
        let names = [Some(file_name.clone()), text("asset_filename")].into_iter().flatten();
        let numbered = (1..).map(|number| numbered_name(&file_name, number));
        let name = names.chain(numbered).find(is_free);
        files.extend(name.map(|name| ResultFile { name, path }));
    }
    files
}

/// `a/b.csv` is `a/b-1.csv`.
fn numbered_name(name: &str, number: u32) -> String {
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[last..].rfind('.').filter(|dot| *dot > 0) {
        Some(dot) => format!("{}-{number}{}", &name[..last + dot], &name[last + dot..]),
        None => format!("{name}-{number}"),
    }
}

async fn download_files(client: &ApiClient, result: &Value, out: &Path) -> Result<(), CliError> {
    for ResultFile { name, path } in result_files(result) {
        let answer = client.send(ApiRequest::get(path)).await?;
        let broken = |error: reqwest::Error| ClientError::Interrupted { reason: error.to_string() };
        write_output_file(out, &name, &answer.bytes().await.map_err(broken)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_for_a_shell() {
        let words = [("sales", "sales"), ("my agent", "'my agent'"), ("a'b", r"'a'\''b'")];
        for (name, expected) in words {
            assert_eq!(shell_quote(name), expected);
        }
    }

    #[test]
    fn files_of_one_name_are_all_written() {
        let file = |name: &str| json!({"name": name, "url": "/v1/assets/1/x"});
        let chart = json!({"name": "a.png", "asset_filename": "plot_1.png", "url": "http://a.example/v1/assets/1/x?signature=y"});
        let result = json!({
            "generated_files": [file("a/b.csv"), file("a/b.csv"), file("a/b.csv"), file("c"), file("c")],
            "artifacts": [file("a.png"), chart],
        });
        let names: Vec<String> = result_files(&result).into_iter().map(|file| file.name).collect();
        let all = ["a/b.csv", "a/b-1.csv", "a/b-2.csv", "c", "c-1", "a.png", "plot_1.png"];
        assert_eq!(names, all);
    }
}
