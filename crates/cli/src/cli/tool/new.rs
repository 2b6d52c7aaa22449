//! `belljar tool new`: creates a tool from a template that passes check and test.

use crate::cli::CliError;
use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;

const NAME_CHARS_MAX: usize = 64;
/// Placeholder for the name in the templates.
const NAME_PLACEHOLDER: &str = "TOOL_NAME";
const HANDLE: &str = include_str!("templates/handle.py");
const RUN: &str = include_str!("templates/run.py");
const RUN_TOOL: &str = include_str!("templates/run.json");

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Template: handle (one Python file with typed parameters) or run (a JSON file and a Python
    /// file)
    #[arg(long, value_enum, default_value = "handle")]
    style: ToolStyle,

    /// Name of the tool and of its files
    #[arg(value_parser = parse_name)]
    name: String,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ToolStyle {
    Handle,
    Run,
}

fn parse_name(name: &str) -> Result<String, String> {
    let is_valid = name.len() <= NAME_CHARS_MAX
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_valid {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "must have at most {NAME_CHARS_MAX} characters of a-z, 0-9 and _, and must not start with a digit"
        ))
    }
}

pub(super) fn main(args: &Args) -> Result<ExitCode, CliError> {
    let name = &args.name;
    let (files, tool) = match args.style {
        ToolStyle::Handle => (vec![(format!("{name}.py"), HANDLE)], format!("{name}.py")),
        ToolStyle::Run => (
            vec![(format!("{name}.py"), RUN), (format!("{name}.json"), RUN_TOOL)],
            format!("{name}.json"),
        ),
    };
    for (path, template) in &files {
        let failed = |error| CliError::usage(format!("{path}: {error}"));
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
        file.write_all(template.replace(NAME_PLACEHOLDER, name).as_bytes()).map_err(failed)?;
        println!("wrote {path}");
    }
    println!("next: belljar tool check {tool} && belljar tool test {tool}");
    Ok(ExitCode::SUCCESS)
}
