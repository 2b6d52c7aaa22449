//! `belljar tool check`: prints the contract, or all errors.

use super::file::ToolFile;
use super::{AnnotationArgs, EXIT_INVALID, diagnostic};
use crate::cli::engine_args::{LocalDataArgs, tool_environment};
use crate::cli::one_shot::print_record;
use crate::cli::{CliError, terminal};
use contract::{CodeTool, schema_fields};
use engine::preflight::EnvironmentContents;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    strictness: AnnotationArgs,

    /// Environment that the tool will run in; missing imports and programs are reported [default:
    /// atlas for a function `handle`, coderunner for a function `run`]
    #[arg(long = "env", value_name = "NAME")]
    environment: Option<String>,

    #[command(flatten)]
    paths: LocalDataArgs,

    /// Modules that code may import besides the standard library, such as `numpy,pandas` [default:
    /// all installed]
    #[arg(
        long,
        value_name = "NAMES",
        env = "PYTHON_PACKAGES_WHITELIST_IMPORT",
        value_delimiter = ',',
        hide_env_values = true
    )]
    imports: Option<Vec<String>>,

    /// Print one JSON object with the contract or the errors, and the warnings
    #[arg(long)]
    json: bool,

    /// Python file with a function `handle`, or JSON file of a tool
    #[arg(value_name = "FILE.py | FILE.json")]
    file: PathBuf,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, CliError> {
    let mut file = ToolFile::read(&args.file, args.strictness.mode())?;
    if let Some(tool) = file.check.result.as_ref().ok().filter(|tool| has_requirements(tool)) {
        let missing = environment_contents(args, tool)?.check_tool(tool);
        file.check.warnings.extend(missing);
    }
    print_report(&file, args.json)?;
    Ok(ExitCode::from(if file.check.result.is_err() { EXIT_INVALID } else { 0 }))
}

/// Returns whether the tool needs modules or programs of its environment.
fn has_requirements(tool: &CodeTool) -> bool {
    !tool.source.imports().is_empty() || !tool.requires_binaries.is_empty()
}

fn environment_contents(args: &Args, tool: &CodeTool) -> Result<EnvironmentContents, CliError> {
    let environment = tool_environment(args.environment.as_deref(), tool);
    args.paths.contents(environment, args.imports.as_deref())
}

/// Prints the contract to standard output, or the errors to standard error; with --json, both as
/// one object.
pub(super) fn print_report(file: &ToolFile, json: bool) -> Result<(), CliError> {
    if json {
        return print_record(&terminal::for_stdout(&report_json(file).to_string()));
    }
    eprint!("{}", terminal::for_stderr(&diagnostic::render_warnings(file)));
    match &file.check.result {
        Ok(tool) => {
            let schema = serde_json::to_string_pretty(&tool.descriptor()).unwrap_or_default();
            print_record(&terminal::for_stdout(&schema))
        }
        Err(problems) => {
            eprint!("{}", terminal::for_stderr(&diagnostic::render_errors(file, problems)));
            Ok(())
        }
    }
}

/// Either a contract or errors, never both.
fn report_json(file: &ToolFile) -> Value {
    let mut report = json!({ "file": file.path.display().to_string() });
    match &file.check.result {
        Ok(tool) => report["contract"] = contract_json(tool),
        Err(problems) => report["errors"] = json!(problems),
    }
    report["warnings"] = json!(file.check.warnings);
    report
}

fn contract_json(tool: &CodeTool) -> Value {
    let mut contract = json!({ "name": tool.name, "input_schema": tool.descriptor() });
    if let Some(description) = &tool.description {
        contract["description"] = json!(description);
    }
    if let Some(output) = tool.output_descriptor() {
        contract["output_schema"] = output;
    }
    // The same parameters as SchemaField objects, if those can express them.
    if let Some(Ok(fields)) = tool.input().map(schema_fields) {
        contract["input_fields"] = json!(fields);
    }
    contract
}
