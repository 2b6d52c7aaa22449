//! Validates JSON against a schema of the document. The server validates the request again.

use super::document::OpenApiDocument;
use contract::{JsonSchema, SchemaMismatch};
use serde_json::Value;

impl OpenApiDocument {
    /// Returns the violations of a schema; none if the document has no schema there.
    pub(super) fn validate(&self, value: &Value, schema: &Value) -> Vec<SchemaMismatch> {
        // A test shows that every schema of the document compiles.
        let compiled = JsonSchema::in_document(&self.json, schema);
        compiled.map(|schema| schema.find_mismatches(value)).unwrap_or_default()
    }

    pub(super) fn is_valid(&self, value: &Value, schema: &Value) -> bool {
        self.validate(value, schema).is_empty()
    }

    /// Text as the value that a schema wants: itself where it wants text, otherwise JSON.
    pub(super) fn parse_value(&self, text: &str, schema: &Value) -> Value {
        let as_text = Value::String(text.to_owned());
        let wants_anything = self.is_valid(&Value::Array(vec![Value::Null]), schema);
        if self.is_valid(&as_text, schema) && !wants_anything {
            return as_text;
        }
        serde_json::from_str(text).unwrap_or(as_text)
    }
}

/// A violation of the schema of a body, with its place.
pub(super) fn mismatch_text(mismatch: &SchemaMismatch) -> String {
    let place = if mismatch.path().is_empty() { "the body" } else { mismatch.path() };
    format!("{place}: {}", mismatch.message())
}

/// The names of a `type`, which is one or several.
pub(super) fn type_names(schema: &Value) -> Vec<&str> {
    match schema {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_schema_of_the_document_can_be_checked_against() {
        let document = OpenApiDocument::embedded();
        let schemas = document.json["components"]["schemas"].as_object().unwrap();
        assert!(schemas.len() > 50);
        for (name, schema) in schemas {
            let compiled = JsonSchema::in_document(&document.json, schema);
            assert!(compiled.is_ok(), "{name}: {compiled:?}");
        }
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
                document.validate(&value, &schema).iter().map(|it| it.path().to_owned()).collect();
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
