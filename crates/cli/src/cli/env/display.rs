//! Displays environments, local or of a server.

use crate::cli::CliError;
use crate::cli::display::{self, Column};
use crate::cli::remote::print_json;
use serde_json::{Map, Value, json};

const COLUMNS: &[Column] = &[
    ("name", "/name"),
    ("status", "/status"),
    ("origin", "/origin"),
    ("python", "/python"),
    ("packages", "/packages"),
    ("size", "/size"),
    ("used", "/last_used_at"),
    ("description", "/description"),
];

const MEBIBYTE: f64 = 1024.0 * 1024.0;

pub(super) fn print_environments(items: &[Value], json: bool) -> Result<(), CliError> {
    if json {
        return print_json(&Value::Array(items.to_vec()));
    }
    let rows: Vec<Value> = items.iter().map(row).collect();
    display::print_table(&rows, COLUMNS)
}

pub(super) fn print_environment(environment: &Value, json: bool) -> Result<(), CliError> {
    if json {
        return print_json(environment);
    }
    let mut listed = environment.clone();
    if let Some(fields) = listed.as_object_mut() {
        // Too long to read; it is in the JSON output.
        fields.shift_remove("lock");
        fields.insert("packages".to_owned(), Value::Object(versions(environment)));
        if let Some(size) = size(environment) {
            fields.insert("bytes".to_owned(), size);
        }
    }
    display::print_fields(&listed)
}

fn row(environment: &Value) -> Value {
    let python = environment.get("python_version").unwrap_or(&environment["python"]);
    let built = environment["python_version"].is_string();
    json!({
        "name": environment["name"],
        "status": environment["status"],
        "origin": environment["origin"],
        "python": python,
        "packages": built.then(|| environment["packages"].as_array().map(Vec::len)),
        "size": size(environment),
        "last_used_at": environment["last_used_at"].as_str().map(|at| at.get(..10).unwrap_or(at)),
        "description": environment["description"],
    })
}

fn versions(environment: &Value) -> Map<String, Value> {
    let packages = environment["packages"].as_array().into_iter().flatten();
    let named =
        packages.filter_map(|it| Some((it["name"].as_str()?.to_owned(), it["version"].clone())));
    named.collect()
}

fn size(environment: &Value) -> Option<Value> {
    let bytes = environment["bytes"].as_f64()?;
    Some(format!("{:.0} MiB", bytes / MEBIBYTE).into())
}
