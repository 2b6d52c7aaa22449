//! Validates JSON against a schema of the document.
//!
//! It supports the keywords that our own document uses; a test compares them with the document. The
//! server validates the request again.

use super::document::OpenApiDocument;
use serde_json::{Map, Value};
use std::fmt;
use uuid::Uuid;

/// One violation of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SchemaMismatch {
    /// A JSON pointer.
    path: String,
    message: String,
}

impl SchemaMismatch {
    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for SchemaMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.path.is_empty() { "the body" } else { &self.path };
        write!(f, "{place}: {}", self.message)
    }
}

impl OpenApiDocument {
    /// Returns all violations of the schema.
    pub(super) fn validate(&self, value: &Value, schema: &Value) -> Vec<SchemaMismatch> {
        let mut checker =
            OpenApiSchemaChecker { document: self, path: String::new(), mismatches: Vec::new() };
        checker.check(value, schema);
        checker.mismatches
    }

    pub(super) fn is_valid(&self, value: &Value, schema: &Value) -> bool {
        self.validate(value, schema).is_empty()
    }

    /// Parses text as the value that a schema expects: as a string if the schema allows one,
    /// otherwise as JSON.
    pub(super) fn parse_value(&self, text: &str, schema: &Value) -> Value {
        let as_text = Value::String(text.to_owned());
        let wants_anything = self.is_valid(&Value::Array(vec![Value::Null]), schema);
        if self.is_valid(&as_text, schema) && !wants_anything {
            return as_text;
        }
        serde_json::from_str(text).unwrap_or(as_text)
    }
}

struct OpenApiSchemaChecker<'a> {
    document: &'a OpenApiDocument,
    path: String,
    mismatches: Vec<SchemaMismatch>,
}

impl OpenApiSchemaChecker<'_> {
    fn check(&mut self, value: &Value, schema: &Value) {
        let schema = self.document.resolve(schema);
        if !is_of_type(value, &schema["type"]) {
            let wanted = type_names(&schema["type"]).join(" or ");
            return self
                .add_mismatch(format!("must be {wanted}, but is {}", json_type_name(value)));
        }
        self.check_choice(value, schema);
        for key in ["oneOf", "anyOf"] {
            if let Some(branches) = schema[key].as_array() {
                self.check_branches(value, branches);
            }
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.check(value, part);
        }
        match value {
            Value::Object(fields) => self.check_object(fields, schema),
            Value::Array(items) => self.check_array(items, schema),
            Value::String(text) => self.check_text(text, schema),
            Value::Number(number) => self.check_number(number.as_f64(), schema),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn check_choice(&mut self, value: &Value, schema: &Value) {
        let choice = schema["enum"].as_array();
        if let Some(choice) = choice.filter(|choice| !choice.contains(value)) {
            let names: Vec<String> = choice.iter().map(ToString::to_string).collect();
            self.add_mismatch(format!("must be one of {}", names.join(", ")));
        }
    }

    /// One of the schemas must match. Otherwise the errors are those of the most likely schema: the
    /// one whose errors are deepest, and fewest.
    fn check_branches(&mut self, value: &Value, branches: &[Value]) {
        let depth = |wrong: &SchemaMismatch| wrong.path.matches('/').count();
        let tried = branches.iter().map(|branch| {
            let mut checker = OpenApiSchemaChecker {
                document: self.document,
                path: self.path.clone(),
                mismatches: Vec::new(),
            };
            checker.check(value, branch);
            checker.mismatches
        });
        let nearest = tried.min_by_key(|wrongs| {
            let shallowest = wrongs.iter().map(depth).min().unwrap_or(usize::MAX);
            (std::cmp::Reverse(shallowest), wrongs.len())
        });
        self.mismatches.extend(nearest.unwrap_or_default());
    }

    fn check_object(&mut self, fields: &Map<String, Value>, schema: &Value) {
        let known = schema["properties"].as_object();
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                self.at_child(name, |checker| checker.add_mismatch("is missing".to_owned()));
            }
        }
        for (name, value) in fields {
            let property = known.and_then(|known| known.get(name));
            let schema = property.or_else(|| schema.get("additionalProperties"));
            self.at_child(name, |checker| match schema {
                Some(Value::Bool(false)) => checker.add_mismatch(unknown_field(known)),
                Some(Value::Bool(true)) | None => {}
                Some(schema) => checker.check(value, schema),
            });
        }
    }

    fn check_array(&mut self, items: &[Value], schema: &Value) {
        let min = schema["minItems"].as_u64().unwrap_or(0);
        let max = schema["maxItems"].as_u64().unwrap_or(u64::MAX);
        if !(min..=max).contains(&(items.len() as u64)) {
            self.add_mismatch(format!("must have {} items", range_text(min, max)));
        }
        let first = schema["prefixItems"].as_array().map_or(&[][..], Vec::as_slice);
        for (index, item) in items.iter().enumerate() {
            if let Some(schema) = first.get(index).or_else(|| schema.get("items")) {
                self.at_child(&index.to_string(), |checker| checker.check(item, schema));
            }
        }
    }

    fn check_text(&mut self, text: &str, schema: &Value) {
        if schema["format"] == "uuid" && text.parse::<Uuid>().is_err() {
            self.add_mismatch(
                "must be an id, such as 0198c0de-0000-7000-8000-000000000000".to_owned(),
            );
        }
        let min = schema["minLength"].as_u64().unwrap_or(0);
        let max = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
        if !(min..=max).contains(&(text.chars().count() as u64)) {
            self.add_mismatch(format!("must have {} characters", range_text(min, max)));
        }
    }

    fn check_number(&mut self, number: Option<f64>, schema: &Value) {
        let Some(number) = number else { return };
        if let Some(min) = schema["minimum"].as_f64().filter(|min| number < *min) {
            self.add_mismatch(format!("must be at least {min}"));
        }
        if let Some(max) = schema["maximum"].as_f64().filter(|max| number > *max) {
            self.add_mismatch(format!("must be at most {max}"));
        }
    }

    fn at_child(&mut self, name: &str, check: impl FnOnce(&mut Self)) {
        let outer = self.path.len();
        self.path += &format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        check(self);
        self.path.truncate(outer);
    }

    fn add_mismatch(&mut self, message: String) {
        self.mismatches.push(SchemaMismatch { path: self.path.clone(), message });
    }
}

fn unknown_field(known: Option<&Map<String, Value>>) -> String {
    let names: Vec<&str> = known.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    format!("unknown field; use one of {}", names.join(", "))
}

fn range_text(min: u64, max: u64) -> String {
    match (min, max) {
        (min, u64::MAX) => format!("at least {min}"),
        (0, max) => format!("at most {max}"),
        (min, max) => format!("{min} to {max}"),
    }
}

/// The names of a `type`, which is one or several.
pub(super) fn type_names(schema: &Value) -> Vec<&str> {
    match schema {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_of_type(value: &Value, schema: &Value) -> bool {
    let types = type_names(schema);
    let is = |name: &str| match name {
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        name => json_type_name(value) == name,
    };
    types.is_empty() || types.into_iter().any(is)
}

fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    /// What is obeyed, and what only describes.
    const KNOWN: [&str; 24] = [
        "$ref",
        "type",
        "enum",
        "oneOf",
        "anyOf",
        "allOf",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "format",
        // Descriptions, and names of members, which are always text.
        "title",
        "description",
        "default",
        "example",
        "examples",
        "propertyNames",
    ];

    fn words(schema: &Value, found: &mut BTreeSet<String>) {
        for (word, inner) in schema.as_object().into_iter().flatten() {
            found.insert(word.clone());
            match word.as_str() {
                "properties" => {
                    inner.as_object().unwrap().values().for_each(|one| words(one, found));
                }
                "items" | "additionalProperties" => words(inner, found),
                "oneOf" | "anyOf" | "allOf" | "prefixItems" => {
                    inner.as_array().unwrap().iter().for_each(|one| words(one, found));
                }
                _ => {}
            }
        }
    }

    #[test]
    fn no_word_of_our_schemas_is_passed_over() {
        let whole = serde_json::to_value(api::document()).unwrap();
        let mut found = BTreeSet::new();
        let schemas = whole["components"]["schemas"].as_object().unwrap();
        schemas.values().for_each(|schema| words(schema, &mut found));
        assert!(found.len() > 5, "{found:?}");
        let missed: Vec<&String> =
            found.iter().filter(|word| !KNOWN.contains(&word.as_str())).collect();
        assert!(missed.is_empty(), "{missed:?}");
    }

    #[test]
    fn what_is_wrong_is_named_by_its_place() {
        let document = OpenApiDocument::embedded();
        let schema = json!({
            "type": "object",
            "required": ["name"],
            "additionalProperties": false,
            "properties": {
                "name": {"type": "string", "maxLength": 3},
                "limits": {"type": ["object", "null"], "properties": {"ms": {"type": "integer", "minimum": 1}}},
                "action": {"type": "string", "enum": ["allow", "deny"]},
                "files": {"type": "array", "items": {"oneOf": [
                    {"type": "object", "required": ["id"], "properties": {"id": {"type": "string", "format": "uuid"}}, "additionalProperties": false},
                    {"type": "object", "required": ["name", "text"], "properties": {"name": {"type": "string"}, "text": {"type": "string"}}, "additionalProperties": false},
                ]}},
            },
        });
        let right = json!({"name": "abc", "limits": null, "files": [{"name": "a", "text": "b"}]});
        assert_eq!(document.validate(&right, &schema), []);
        for (value, path) in [
            (json!([]), ""),
            (json!({}), "/name"),
            (json!({"name": 1}), "/name"),
            (json!({"name": "abcd"}), "/name"),
            (json!({"name": "a", "a/b": 1}), "/a~1b"),
            (json!({"name": "a", "limits": {"ms": 0}}), "/limits/ms"),
            (json!({"name": "a", "limits": {"ms": 1.5}}), "/limits/ms"),
            (json!({"name": "a", "action": "ask"}), "/action"),
            (json!({"name": "a", "files": [{"id": "x"}]}), "/files/0/id"),
            (json!({"name": "a", "files": [{"name": "a", "text": 1}]}), "/files/0/text"),
        ] {
            let paths: Vec<String> =
                document.validate(&value, &schema).into_iter().map(|wrong| wrong.path).collect();
            assert_eq!(paths, [path], "{value}");
        }
    }

    #[test]
    fn text_becomes_what_the_schema_wants() {
        let document = OpenApiDocument::embedded();
        let value = |text: &str, schema: Value| document.parse_value(text, &schema);
        assert_eq!(value("12", json!({"type": "integer"})), json!(12));
        assert_eq!(value("12", json!({"type": "string"})), json!("12"));
        assert_eq!(value("{\"a\": 1}", json!({})), json!({"a": 1}));
        assert_eq!(value("plain", json!({})), json!("plain"));
        assert_eq!(value("x", json!({"type": "integer"})), json!("x"));
    }
}
