//! `belljar api describe`: prints the parameters, the body and the responses of an operation.

use super::document::{ApiOperation, OpenApiDocument};
use super::schema::type_names;
use crate::cli::CliError;
use crate::cli::display::align_columns;
use crate::cli::one_shot::print_record;
use crate::cli::remote::print_json;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the operation, as listed by `belljar api ls`
    #[arg(value_name = "OPERATION")]
    operation: String,

    /// Print the operation of the OpenAPI document, with the schemas that it uses
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, CliError> {
    let document = OpenApiDocument::embedded();
    let operation = document.find_operation(&args.operation)?;
    if args.json {
        let schemas: Map<String, Value> = used_schemas(&document, operation.definition)
            .into_iter()
            .map(|(name, schema)| (name.to_owned(), schema.clone()))
            .collect();
        print_json(&json!({
            "method": operation.method.to_uppercase(),
            "path": operation.path,
            "operation": operation.definition,
            "schemas": schemas,
        }))?;
    } else {
        print_record(&describe_operation(&document, &operation))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn describe_operation(document: &OpenApiDocument, operation: &ApiOperation<'_>) -> String {
    let heading =
        format!("{}  {} {}", operation.id, operation.method.to_uppercase(), operation.path);
    let mut parts = vec![heading, operation.summary().to_owned()];
    parts.push(operation.description().to_owned());
    parts.push(parameters_text(operation));
    for (kind, schema) in operation.bodies() {
        parts.push(format!("body ({kind}): {}", schema_name(schema)));
    }
    parts.push(responses_text(operation));
    for (name, schema) in used_schemas(document, &operation.definition["requestBody"]) {
        parts.push(format!("{name}\n{}", fields_text(schema)));
    }
    parts.push(example_command(operation));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

fn parameters_text(operation: &ApiOperation<'_>) -> String {
    let rows = operation.parameters().into_iter().map(|parameter| {
        let needed = if parameter.required { "required" } else { "" };
        let description = parameter.definition["description"].as_str().unwrap_or_default();
        let schema = schema_name(&parameter.definition["schema"]);
        [parameter.name, parameter.location, &schema, needed, description]
            .map(indent_lines)
            .to_vec()
    });
    align_columns(&rows.collect::<Vec<_>>())
}

fn responses_text(operation: &ApiOperation<'_>) -> String {
    let answers = operation.definition["responses"].as_object().into_iter().flatten();
    let rows = answers.map(|(status, answer)| {
        let description = answer["description"].as_str().unwrap_or_default();
        let content = answer["content"].as_object().into_iter().flatten().next();
        let schema =
            content.map(|(_, content)| schema_name(&content["schema"])).unwrap_or_default();
        [status, &schema, description].map(indent_lines).to_vec()
    });
    align_columns(&rows.collect::<Vec<_>>())
}

/// The fields of an object, or a description of any other schema.
fn fields_text(schema: &Value) -> String {
    let Some(properties) = schema["properties"].as_object() else {
        return format!("  {}", schema_name(schema));
    };
    let required = schema["required"].as_array();
    let rows = properties.iter().map(|(name, field)| {
        let needed = required.is_some_and(|names| names.iter().any(|one| one == name));
        let needed = if needed { "required" } else { "" };
        let description = field["description"].as_str().unwrap_or_default();
        [&format!("  {name}"), schema_name(field).as_str(), needed, description]
            .map(indent_lines)
            .to_vec()
    });
    align_columns(&rows.collect::<Vec<_>>())
}

/// Joins the lines of a description, because a table has one line per entry.
fn indent_lines(text: &str) -> String {
    text.replace('\n', " ")
}

/// A schema in a few words.
fn schema_name(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        return name.rsplit('/').next().unwrap_or_default().to_owned();
    }
    for (key, between) in [("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")] {
        if let Some(parts) = schema[key].as_array() {
            return parts.iter().map(schema_name).collect::<Vec<_>>().join(between);
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ");
    }
    let names = type_names(&schema["type"]).join(" or ");
    match (names.as_str(), schema["format"].as_str()) {
        ("", _) => "anything".to_owned(),
        ("array", _) => format!("list of {}", schema_name(&schema["items"])),
        ("object", _) if !schema["properties"].is_object() => "object".to_owned(),
        ("object", _) => {
            let names = schema["properties"].as_object().into_iter().flatten();
            format!("{{{}}}", names.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "))
        }
        (names, Some(format @ ("uuid" | "date-time" | "binary"))) => format!("{names} ({format})"),
        (names, _) => names.to_owned(),
    }
}

/// The named schemas that a part of an operation uses, directly or through others, each once.
fn used_schemas<'a>(document: &'a OpenApiDocument, part: &'a Value) -> Vec<(&'a str, &'a Value)> {
    let mut found: Vec<(&str, &Value)> = Vec::new();
    let mut open = vec![part];
    while let Some(value) = open.pop() {
        if let Some(name) = value["$ref"].as_str().and_then(|path| path.rsplit('/').next())
            && !found.iter().any(|(known, _)| *known == name)
        {
            let schema = document.resolve(value);
            found.push((name, schema));
            open.push(schema);
        }
        match value {
            Value::Object(fields) => open.extend(fields.values().rev()),
            Value::Array(items) => open.extend(items.iter().rev()),
            _ => {}
        }
    }
    found
}

/// Returns a command that calls the operation.
fn example_command(operation: &ApiOperation<'_>) -> String {
    let required = operation.parameters().into_iter().filter(|parameter| parameter.required);
    let mut words = vec![format!("belljar api call {}", operation.id)];
    words.extend(required.map(|parameter| format!("--param {}=…", parameter.name)));
    let bodies = operation.bodies();
    if operation.body("application/json").is_some() {
        words.push("--body @FILE.json".to_owned());
    } else if operation.body("multipart/form-data").is_some() {
        words.push("--file PATH".to_owned());
    } else if !bodies.is_empty() {
        words.push("--body @FILE".to_owned());
    }
    words.join(" ")
}
