//! `belljar api describe`: what an operation takes and answers, down to the last field.

use super::document::{Document, Operation};
use super::schema::types;
use crate::cli::Failure;
use crate::cli::listing::aligned;
use crate::cli::once::print_record;
use crate::cli::remote::print_json;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(value_name = "OPERATION")]
    operation: String,

    /// Print what the OpenAPI document says of it, with the schemas that it uses
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let document = Document::ours();
    let operation = document.operation(&args.operation)?;
    if args.json {
        let schemas: Map<String, Value> = used(&document, operation.said)
            .into_iter()
            .map(|(name, schema)| (name.to_owned(), schema.clone()))
            .collect();
        print_json(&json!({
            "method": operation.method.to_uppercase(),
            "path": operation.path,
            "operation": operation.said,
            "schemas": schemas,
        }))?;
    } else {
        print_record(&text(&document, &operation))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(document: &Document, operation: &Operation<'_>) -> String {
    let heading =
        format!("{}  {} {}", operation.id, operation.method.to_uppercase(), operation.path);
    let mut parts = vec![heading, operation.summary().to_owned()];
    parts.push(operation.description().to_owned());
    parts.push(parameters(operation));
    for (kind, schema) in operation.bodies() {
        parts.push(format!("body ({kind}): {}", name_of(schema)));
    }
    parts.push(answers(operation));
    for (name, schema) in used(document, &operation.said["requestBody"]) {
        parts.push(format!("{name}\n{}", fields(schema)));
    }
    parts.push(example(operation));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

fn parameters(operation: &Operation<'_>) -> String {
    let rows = operation.parameters().into_iter().map(|parameter| {
        let needed = if parameter.required { "required" } else { "" };
        let description = parameter.said["description"].as_str().unwrap_or_default();
        let schema = name_of(&parameter.said["schema"]);
        [parameter.name, parameter.place, &schema, needed, description].map(indented).to_vec()
    });
    aligned(&rows.collect::<Vec<_>>())
}

fn answers(operation: &Operation<'_>) -> String {
    let answers = operation.said["responses"].as_object().into_iter().flatten();
    let rows = answers.map(|(status, answer)| {
        let description = answer["description"].as_str().unwrap_or_default();
        let content = answer["content"].as_object().into_iter().flatten().next();
        let schema = content.map(|(_, content)| name_of(&content["schema"])).unwrap_or_default();
        [status, &schema, description].map(indented).to_vec()
    });
    aligned(&rows.collect::<Vec<_>>())
}

/// The fields of an object, or what else a schema is.
fn fields(schema: &Value) -> String {
    let Some(properties) = schema["properties"].as_object() else {
        return format!("  {}", name_of(schema));
    };
    let required = schema["required"].as_array();
    let rows = properties.iter().map(|(name, field)| {
        let needed = required.is_some_and(|names| names.iter().any(|one| one == name));
        let needed = if needed { "required" } else { "" };
        let description = field["description"].as_str().unwrap_or_default();
        [&format!("  {name}"), name_of(field).as_str(), needed, description].map(indented).to_vec()
    });
    aligned(&rows.collect::<Vec<_>>())
}

/// Descriptions are sentences over several lines; a table has one for each.
fn indented(text: &str) -> String {
    text.replace('\n', " ")
}

/// A schema in a few words.
fn name_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        return name.rsplit('/').next().unwrap_or_default().to_owned();
    }
    for (key, between) in [("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")] {
        if let Some(parts) = schema[key].as_array() {
            return parts.iter().map(name_of).collect::<Vec<_>>().join(between);
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ");
    }
    let names = types(&schema["type"]).join(" or ");
    match (names.as_str(), schema["format"].as_str()) {
        ("", _) => "anything".to_owned(),
        ("array", _) => format!("list of {}", name_of(&schema["items"])),
        ("object", _) if !schema["properties"].is_object() => "object".to_owned(),
        ("object", _) => {
            let names = schema["properties"].as_object().into_iter().flatten();
            format!("{{{}}}", names.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "))
        }
        (names, Some(format @ ("uuid" | "date-time" | "binary"))) => format!("{names} ({format})"),
        (names, _) => names.to_owned(),
    }
}

/// The named schemas that a part of an operation uses, also those within others, each once.
fn used<'a>(document: &'a Document, part: &'a Value) -> Vec<(&'a str, &'a Value)> {
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

/// How it is called from here.
fn example(operation: &Operation<'_>) -> String {
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
