//! `belljar tool check`: the contract, or all errors.

use super::file::ToolFile;
use super::{EXIT_WRONG, Strictness, diagnostic};
use crate::cli::once::print_record;
use crate::cli::setup::{Place, USUAL_ENVIRONMENT};
use crate::cli::{Failure, terminal};
use contract::{Tool, schema_fields};
use engine::preflight::Contents;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    strictness: Strictness,

    /// The environment that the tool will run in: what it will miss there, imports and programs, is said
    #[arg(long = "env", value_name = "NAME", default_value = USUAL_ENVIRONMENT)]
    environment: String,

    #[command(flatten)]
    place: Place,

    /// What code may import besides the standard library, as `numpy,pandas` [default: everything there is]
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

    /// Python with a function `handle`, or the JSON of a tool
    #[arg(value_name = "FILE.py | FILE.json")]
    file: PathBuf,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let mut file = ToolFile::read(&args.file, args.strictness.annotations())?;
    if let Some(tool) = file.checked.outcome.as_ref().ok().filter(|tool| needs_anything(tool)) {
        let missing = contents(args)?.missing(tool);
        file.checked.warnings.extend(missing);
    }
    tell(&file, args.json)?;
    Ok(ExitCode::from(if file.checked.outcome.is_err() { EXIT_WRONG } else { 0 }))
}

/// A tool that imports nothing is at home everywhere.
fn needs_anything(tool: &Tool) -> bool {
    !tool.source.imports().is_empty() || !tool.requires_binaries.is_empty()
}

fn contents(args: &Args) -> Result<Contents, Failure> {
    args.place.contents(&args.environment, args.imports.as_deref())
}

/// The contract on standard output, or what is wrong on standard error; for a machine, both as one
/// object.
pub(super) fn tell(file: &ToolFile, json: bool) -> Result<(), Failure> {
    if json {
        return print_record(&terminal::for_stdout(&report(file).to_string()));
    }
    eprint!("{}", terminal::for_stderr(&diagnostic::warnings(file)));
    match &file.checked.outcome {
        Ok(tool) => {
            let schema = serde_json::to_string_pretty(&tool.descriptor()).unwrap_or_default();
            print_record(&terminal::for_stdout(&schema))
        }
        Err(problems) => {
            eprint!("{}", terminal::for_stderr(&diagnostic::errors(file, problems)));
            Ok(())
        }
    }
}

/// Either a contract or errors, never both.
fn report(file: &ToolFile) -> Value {
    let mut report = json!({ "file": file.path.display().to_string() });
    match &file.checked.outcome {
        Ok(tool) => report["contract"] = contract(tool),
        Err(problems) => report["errors"] = json!(problems),
    }
    report["warnings"] = json!(file.checked.warnings);
    report
}

fn contract(tool: &Tool) -> Value {
    let mut contract = json!({ "name": tool.name, "input_schema": tool.descriptor() });
    if let Some(description) = &tool.description {
        contract["description"] = json!(description);
    }
    if let Some(output) = tool.output_descriptor() {
        contract["output_schema"] = output;
    }
    // The same as SchemaField, where they can say it.
    if let Some(Ok(fields)) = tool.input().map(schema_fields) {
        contract["input_fields"] = json!(fields);
    }
    contract
}
