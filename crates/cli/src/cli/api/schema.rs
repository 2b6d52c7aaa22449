//! Validates JSON against a schema of the document. The server validates the request again.

use super::document::OpenApiDocument;
use contract::{JsonSchema, JsonSchemaError, SchemaMismatch};
use serde_json::Value;

impl OpenApiDocument {
    /// Returns the violations of a schema; none if the document has no schema there.
    pub(super) fn validate(
        &self,
        value: &Value,
        schema: &Value,
    ) -> Result<Vec<SchemaMismatch>, JsonSchemaError> {
        if schema.is_null() {
            return Ok(Vec::new());
        }
        let schema = JsonSchema::in_document(&self.json, schema)?;
        Ok(schema.find_mismatches(value))
    }

    pub(super) fn is_valid(&self, value: &Value, schema: &Value) -> bool {
        self.validate(value, schema).is_ok_and(|mismatches| mismatches.is_empty())
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

    /// The schemas of parameters, headers, bodies and responses in a part of the document.
    fn schemas_within<'a>(part: &'a Value, schemas: &mut Vec<&'a Value>) {
        match part {
            Value::Object(members) => {
                schemas.extend(members.get("schema"));
                members.values().for_each(|member| schemas_within(member, schemas));
            }
            Value::Array(items) => items.iter().for_each(|item| schemas_within(item, schemas)),
            _ => {}
        }
    }

    #[test]
    fn every_schema_of_the_document_can_be_checked_against() {
        let document = OpenApiDocument::embedded();
        let components = document.json["components"]["schemas"].as_object().unwrap();
        let mut schemas: Vec<&Value> = components.values().collect();
        assert!(schemas.len() > 50);
        schemas_within(&document.json["paths"], &mut schemas);
        assert!(schemas.len() > 300, "{}", schemas.len());
        for schema in schemas {
            let checked = document.validate(&json!({}), schema);
            assert!(checked.is_ok(), "{schema}: {checked:?}");
        }
        for (schema, is_checked) in
            [(json!({"$ref": "#/components/schemas/None"}), false), (Value::Null, true)]
        {
            assert_eq!(document.validate(&json!({}), &schema).is_ok(), is_checked, "{schema}");
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
        assert_eq!(document.validate(&right, &schema), Ok(Vec::new()));
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
            let mismatches = document.validate(&value, &schema).unwrap();
            let paths: Vec<&str> = mismatches.iter().map(SchemaMismatch::path).collect();
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
