//! `belljar demo`: runs one of the examples with a scripted model. It needs no key and no server,
//! and leaves only its results.

mod examples;

use super::agent::run::{AgentRunClient, RunRequestArgs, exit_code};
use super::embedded_service::{DRAIN_TIME, EmbeddedService};
use super::engine_args::{self, EngineArgs};
use super::resource_names::ResourceKind;
use super::{CliError, progress};
use crate::client::{ApiClient, ApiRequest};
use agent::ModelSettings;
use examples::{EXAMPLES, Example};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The formats of the trace, and the file name of each, besides the files of the code.
const TRACE_FORMATS: [(&str, &str); 2] = [("html", "report.html"), ("ipynb", "run.ipynb")];
const SCRIPT: &str = "script.yaml";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(value_name = "NAME", help = example_names(), default_value = EXAMPLES[0].name, value_parser = find_example)]
    example: &'static Example,

    /// Write the results into this directory [default: a new temporary directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print only the result, as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    engine: EngineArgs,
}

fn example_names() -> String {
    let names: Vec<&str> = EXAMPLES.iter().map(|one| one.name).collect();
    format!("Example to run: {}", names.join(", "))
}

fn find_example(name: &str) -> Result<&'static Example, String> {
    let known = || EXAMPLES.iter().map(|one| format!("{} ({})", one.name, one.about));
    let found = EXAMPLES.iter().find(|one| one.name == name);
    found.ok_or_else(|| format!("must be one of {}", known().collect::<Vec<_>>().join(", ")))
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    let write_error = |error: std::io::Error| {
        CliError::internal(format!("cannot write temporary files: {error}"))
    };
    let example_directory = tempfile::tempdir().map_err(write_error)?;
    args.example.unpack(example_directory.path()).map_err(write_error)?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => {
            let temporary = tempfile::Builder::new().prefix("belljar-demo-").tempdir();
            temporary.map_err(write_error)?.keep()
        }
    };
    engine_args::build_runtime()?.block_on(run_example(&args, example_directory.path(), out))
}

async fn run_example(
    args: &Args,
    example_directory: &Path,
    out: PathBuf,
) -> Result<ExitCode, CliError> {
    let script = format!("script:{}", example_directory.join(SCRIPT).display());
    let models = ModelSettings { default: Some(script), ..ModelSettings::default() };
    let embedded = EmbeddedService::start(&args.engine, Vec::new(), models).await?;
    embedded.service.prepare_environment(progress::progress_printer()).await?;
    let client = embedded.client()?;
    let played = run_agent(args, &client, example_directory, &out).await;
    embedded.service.stop(DRAIN_TIME).await;
    let result = played?;
    if !args.json {
        eprintln!("belljar: results are in {}; start with {}", out.display(), TRACE_FORMATS[0].1);
    }
    Ok(exit_code(&result))
}

async fn run_agent(
    args: &Args,
    client: &ApiClient,
    example_directory: &Path,
    out: &Path,
) -> Result<Value, CliError> {
    let example = args.example;
    example.set_up(client).await?;
    if !args.json {
        eprintln!("belljar: example {}, request: {}", example.name, example.message);
    }
    let request = RunRequestArgs {
        agent: example.specification.map(|_| example.name.to_owned()),
        request: Some(example.message.to_owned()),
        files: example.data.iter().map(|(name, _)| example_directory.join(name)).collect(),
        out: Some(out.to_owned()),
        ..RunRequestArgs::default()
    };
    let result = AgentRunClient { client, request: &request, json: args.json }.run().await?;
    save_traces(client, &result, out).await?;
    Ok(result)
}

async fn save_traces(client: &ApiClient, result: &Value, out: &Path) -> Result<(), CliError> {
    let run = result["execution_id"].as_str().unwrap_or_default();
    for (format, name) in TRACE_FORMATS {
        let call =
            ApiRequest::get(format!("/v1/executions/{run}/trace")).query("format", Some(format));
        let path = out.join(name);
        let failed =
            |error| CliError::internal(format!("cannot write {}: {error}", path.display()));
        fs::write(&path, client.text(call).await?).map_err(failed)?;
    }
    Ok(())
}

impl Example {
    fn unpack(&self, folder: &Path) -> std::io::Result<()> {
        fs::write(folder.join(SCRIPT), self.script)?;
        self.data.iter().try_for_each(|(name, bytes)| fs::write(folder.join(name), bytes))
    }

    /// Creates the agent, if the example has one, with its tools in an empty service.
    async fn set_up(&self, client: &ApiClient) -> Result<(), CliError> {
        let Some(specification) = self.specification else { return Ok(()) };
        let agent = json!({"name": self.name, "specification": specification});
        client.json(ApiRequest::post(ResourceKind::Agent.path()).json(&agent)).await?;
        let agent = client.resolve_path(ResourceKind::Agent, self.name).await?;
        for tool in self.tools {
            let call = ApiRequest::post(ResourceKind::Tool.path())
                .bytes("application/json", (*tool).into());
            let tool = client.json(call).await?;
            let id = tool["id"].as_str().unwrap_or_default();
            client.json(ApiRequest::post(format!("{agent}/tools/{id}"))).await?;
        }
        Ok(())
    }
}
