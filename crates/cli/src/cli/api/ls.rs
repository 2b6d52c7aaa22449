//! `belljar api ls`.

use super::document::{ApiOperation, OpenApiDocument};
use crate::cli::CliError;
use crate::cli::display::{self, Column};
use crate::cli::remote::print_json;
use serde_json::{Value, json};
use std::process::ExitCode;

const COLUMNS: &[Column] =
    &[("operation", "/operation"), ("method", "/method"), ("path", "/path"), ("", "/summary")];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// List only operations whose name, path or description contains all of these words
    #[arg(long, value_name = "WORDS", num_args = 1..)]
    search: Vec<String>,

    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, CliError> {
    let document = OpenApiDocument::embedded();
    let terms = args.search.join(" ").to_lowercase();
    let terms: Vec<&str> = terms.split_whitespace().collect();
    let operations = document.operations();
    let found = operations.iter().filter(|operation| matches_all(operation, &terms));
    let items: Vec<Value> = found.map(row).collect();
    if args.json {
        print_json(&Value::Array(items))?;
    } else {
        display::print_table(&items, COLUMNS)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn matches_all(operation: &ApiOperation<'_>, terms: &[&str]) -> bool {
    let texts = [
        operation.id,
        operation.method,
        operation.path,
        operation.summary(),
        operation.description(),
    ];
    let text = texts.join(" ").to_lowercase();
    terms.iter().all(|term| text.contains(term))
}

fn row(operation: &ApiOperation<'_>) -> Value {
    json!({
        "operation": operation.id,
        "method": operation.method.to_uppercase(),
        "path": operation.path,
        "summary": operation.summary(),
    })
}
