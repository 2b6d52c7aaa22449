//! Importer 2: converts SchemaField lists (vendor document 003) to a schema, and back.

use crate::diagnostic::Diagnostic;
use crate::number::{canonical_text, compare_number};
use crate::schema::{
    AdditionalProperties, ArraySchema, CHOICES_MAX, DEPTH_MAX, NumberBounds, ObjectSchema,
    PropertyList, PropertySchema, Schema, SchemaFormat, SchemaKind, number_value,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use types::ErrorCode;

const EXACT_NUMBER: &str = "a number that fits into 53 bits";
const TYPES: [&str; 6] = ["STRING", "INTEGER", "NUMBER", "BOOLEAN", "ARRAY", "OBJECT"];

/// The keys of a SchemaField, and the types that they belong to.
const KEYS: [(&str, &[&str]); 15] = [
    ("name", &TYPES),
    ("field_type", &TYPES),
    ("required", &TYPES),
    ("title", &TYPES),
    ("description", &TYPES),
    ("enum_values", &["STRING", "INTEGER", "NUMBER", "BOOLEAN"]),
    ("format", &["STRING", "INTEGER", "NUMBER"]),
    ("minimum", &["INTEGER", "NUMBER"]),
    ("maximum", &["INTEGER", "NUMBER"]),
    ("items_type", &["ARRAY"]),
    ("items_schema", &["ARRAY"]),
    ("min_items", &["ARRAY"]),
    ("max_items", &["ARRAY"]),
    ("properties", &["OBJECT"]),
    ("items", &[]),
];

/// The object that a list of fields describes. It allows no other fields.
pub(crate) fn import_schema_fields(
    list: &Value,
    path: &str,
    problems: &mut Vec<Diagnostic>,
) -> ObjectSchema {
    SchemaFieldImporter { problems }.fields(list, path, 0)
}

struct SchemaFieldImporter<'a> {
    problems: &'a mut Vec<Diagnostic>,
}

impl SchemaFieldImporter<'_> {
    fn add_problem(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(Diagnostic::new(ErrorCode::ArgsInvalid, message).with_json_path(path));
    }

    fn fields(&mut self, list: &Value, path: &str, depth: usize) -> ObjectSchema {
        let additional_properties = AdditionalProperties::Forbidden;
        let Some(list) = list.as_array() else {
            self.add_problem(path, "must be a list of fields");
            return ObjectSchema { properties: PropertyList::default(), additional_properties };
        };
        let mut properties = Vec::new();
        let mut names = BTreeSet::new();
        for (at, field) in list.iter().enumerate() {
            let path = format!("{path}[{at}]");
            let Some(field) = field.as_object() else {
                self.add_problem(&path, "a field must be an object");
                continue;
            };
            let name = field.get("name").and_then(Value::as_str).unwrap_or_default().trim();
            if name.is_empty() {
                self.add_problem(&format!("{path}.name"), "a field needs a name");
            } else if !names.insert(name) {
                self.add_problem(&format!("{path}.name"), format!("duplicate field '{name}'"));
            }
            let required = self.optional(field, "required", &path, "true or false", Value::as_bool);
            let schema = self.field(field, &path, depth);
            properties.push(PropertySchema {
                name: name.to_owned(),
                required: required.unwrap_or(false),
                schema,
            });
        }
        ObjectSchema { properties: properties.into(), additional_properties }
    }

    fn field(&mut self, field: &Map<String, Value>, path: &str, depth: usize) -> Schema {
        let Some(kind) = self.type_at(field, "field_type", path) else {
            return SchemaKind::Any.into();
        };
        self.check_keys(field, kind, path);
        let mut schema = Schema::from(match kind {
            "STRING" => SchemaKind::String { format: self.format(field, kind, path) },
            "INTEGER" => SchemaKind::Integer(self.range(field, kind, path)),
            "NUMBER" => SchemaKind::Number(self.range(field, kind, path)),
            "BOOLEAN" => SchemaKind::Boolean,
            "ARRAY" => SchemaKind::Array(self.array(field, path, depth)),
            _ => SchemaKind::Object(self.object(field, path, depth)),
        });
        schema.title = self.optional(field, "title", path, "a string", as_text);
        schema.description = self.optional(field, "description", path, "a string", as_text);
        schema.one_of = self.choices(field, &schema, path).into();
        schema
    }

    fn type_at(
        &mut self,
        field: &Map<String, Value>,
        key: &str,
        path: &str,
    ) -> Option<&'static str> {
        let given = field.get(key).and_then(Value::as_str).unwrap_or_default();
        if let Some(known) = TYPES.into_iter().find(|known| *known == given) {
            return Some(known);
        }
        let upper = given.to_uppercase();
        let message = match TYPES.into_iter().find(|known| *known == upper) {
            Some(known) => format!("{key} '{given}' must be written '{known}'"),
            None if given.is_empty() => format!("{key} must be one of {}", TYPES.join(", ")),
            None => format!("{key} '{given}' is unknown; use one of {}", TYPES.join(", ")),
        };
        self.add_problem(&format!("{path}.{key}"), message);
        None
    }

    fn check_keys(&mut self, field: &Map<String, Value>, kind: &str, path: &str) {
        for (key, _) in field.iter().filter(|(_, value)| !value.is_null()) {
            let fits = KEYS.iter().find(|(known, _)| known == key).map(|(_, types)| types);
            let message = match fits {
                None => format!("unknown property '{key}' of a field"),
                Some(types) if types.contains(&kind) => continue,
                Some([]) => {
                    format!("unknown property '{key}' of a field; use items_type or items_schema")
                }
                Some(types) => {
                    format!("'{key}' is allowed for {}, not for {kind}", types.join(", "))
                }
            };
            self.add_problem(&format!("{path}.{key}"), message);
        }
    }

    /// A key that may be absent or null, and must otherwise have the right type.
    fn optional<T>(
        &mut self,
        field: &Map<String, Value>,
        key: &str,
        path: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = field.get(key).filter(|value| !value.is_null())?;
        let found = read(value);
        if found.is_none() {
            self.add_problem(&format!("{path}.{key}"), format!("'{key}' must be {expected}"));
        }
        found
    }

    fn format(
        &mut self,
        field: &Map<String, Value>,
        kind: &str,
        path: &str,
    ) -> Option<SchemaFormat> {
        let name = self.optional(field, "format", path, "a string", as_text)?;
        let fitting: Vec<&str> = SchemaFormat::ALL
            .into_iter()
            .filter(|format| format.field_type() == kind)
            .map(SchemaFormat::name)
            .collect();
        let format =
            SchemaFormat::from_name(&name).filter(|format| fitting.contains(&format.name()));
        if format.is_none() {
            let message =
                format!("'{name}' is not a format of {kind}; use one of {}", fitting.join(", "));
            self.add_problem(&format!("{path}.format"), message);
        }
        format
    }

    fn range(&mut self, field: &Map<String, Value>, kind: &str, path: &str) -> NumberBounds {
        let range = NumberBounds {
            minimum: self.optional(field, "minimum", path, EXACT_NUMBER, exact_bound),
            maximum: self.optional(field, "maximum", path, EXACT_NUMBER, exact_bound),
            format: self.format(field, kind, path),
        };
        if let (Some(minimum), Some(maximum)) = (range.minimum, range.maximum)
            && minimum > maximum
        {
            self.add_problem(&format!("{path}.minimum"), "'minimum' is greater than 'maximum'");
        }
        range
    }

    fn array(&mut self, field: &Map<String, Value>, path: &str, depth: usize) -> ArraySchema {
        let count = "an integer of at least 0";
        let min_items = self.optional(field, "min_items", path, count, Value::as_u64);
        let max_items = self.optional(field, "max_items", path, count, Value::as_u64);
        if let (Some(least), Some(most)) = (min_items, max_items)
            && least > most
        {
            self.add_problem(
                &format!("{path}.min_items"),
                "'min_items' is greater than 'max_items'",
            );
        }
        let items = self.items(field, path, depth);
        ArraySchema { items: items.map(Box::new), min_items, max_items }
    }

    /// `items_type` alone, or `items_schema`: one field without a name, or the fields of objects.
    fn items(&mut self, field: &Map<String, Value>, path: &str, depth: usize) -> Option<Schema> {
        let given = |key: &str| field.get(key).filter(|value| !value.is_null());
        let kind = match given("items_type") {
            Some(_) => Some(self.type_at(field, "items_type", path)?),
            None => None,
        };
        let Some(schema) = given("items_schema") else {
            return kind.map(|kind| match kind {
                "STRING" => SchemaKind::String { format: None }.into(),
                "INTEGER" => SchemaKind::Integer(NumberBounds::default()).into(),
                "NUMBER" => SchemaKind::Number(NumberBounds::default()).into(),
                "BOOLEAN" => SchemaKind::Boolean.into(),
                "ARRAY" => SchemaKind::Array(ArraySchema::default()).into(),
                _ => SchemaKind::Object(ObjectSchema::default()).into(),
            });
        };
        let inner = format!("{path}.items_schema");
        if self.too_deep(&inner, depth) {
            return None;
        }
        let items = match schema {
            Value::Array(_) => SchemaKind::Object(self.inner_fields(schema, &inner, depth)).into(),
            Value::Object(item) => self.field(item, &inner, depth + 1),
            _ => {
                self.add_problem(&inner, "'items_schema' must be a field, or a list of fields");
                return None;
            }
        };
        if let Some(kind) = kind
            && items.kind.type_name().is_some_and(|name| name.to_uppercase() != kind)
        {
            self.add_problem(&inner, format!("'items_schema' is not of items_type {kind}"));
        }
        Some(items)
    }

    fn object(&mut self, field: &Map<String, Value>, path: &str, depth: usize) -> ObjectSchema {
        let inner = format!("{path}.properties");
        match field.get("properties").filter(|value| !value.is_null()) {
            Some(properties) if !self.too_deep(&inner, depth) => {
                self.inner_fields(properties, &inner, depth)
            }
            _ => ObjectSchema::default(),
        }
    }

    /// An object without fields is any object.
    fn inner_fields(&mut self, list: &Value, path: &str, depth: usize) -> ObjectSchema {
        let object = self.fields(list, path, depth + 1);
        if object.properties.is_empty() { ObjectSchema::default() } else { object }
    }

    fn too_deep(&mut self, path: &str, depth: usize) -> bool {
        let too_deep = depth >= DEPTH_MAX;
        if too_deep {
            let message = format!("fields are nested deeper than {DEPTH_MAX} levels");
            self.add_problem(path, message);
        }
        too_deep
    }

    fn choices(&mut self, field: &Map<String, Value>, schema: &Schema, path: &str) -> Vec<Value> {
        let expected = format!("a list of 1 to {CHOICES_MAX} values");
        let list = |value: &Value| {
            value.as_array().filter(|list| (1..=CHOICES_MAX).contains(&list.len())).cloned()
        };
        let choices = self.optional(field, "enum_values", path, &expected, list);
        let choices = choices.unwrap_or_default();
        let mut texts = BTreeSet::new();
        for (at, choice) in choices.iter().enumerate() {
            let path = format!("{path}.enum_values[{at}]");
            if schema.conform(choice.clone()).is_err() {
                self.add_problem(&path, format!("{choice} does not have the type of this field"));
            } else if !texts.insert(canonical_text(choice)) {
                self.add_problem(&path, format!("{choice} is listed twice"));
            }
        }
        choices
    }
}

fn as_text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// A bound that a float holds without rounding.
fn exact_bound(value: &Value) -> Option<f64> {
    let Value::Number(number) = value else { return None };
    number.as_f64().filter(|bound| compare_number(number, *bound).is_eq())
}

impl SchemaFormat {
    fn field_type(self) -> &'static str {
        match self {
            Self::Int32 | Self::Int64 => "INTEGER",
            Self::Float | Self::Double => "NUMBER",
            _ => "STRING",
        }
    }
}

/// What a SchemaField cannot express.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaFieldError {
    #[error("'{0}' may be null, which a SchemaField cannot express")]
    Nullable(String),
    #[error("'{0}' may have any type, which a SchemaField cannot express")]
    Any(String),
    #[error("'{0}' is a map with arbitrary keys, which a SchemaField cannot express")]
    Map(String),
}

/// Exports an object as a list of SchemaField.
pub fn export_schema_fields(object: &ObjectSchema) -> Result<Vec<Value>, SchemaFieldError> {
    object
        .properties
        .iter()
        .map(|property| {
            let mut field = Map::new();
            field.insert("name".into(), json!(property.name));
            field.extend(export_schema(&property.schema, &property.name)?);
            field.insert("required".into(), json!(property.required));
            Ok(Value::Object(field))
        })
        .collect()
}

fn export_schema(schema: &Schema, name: &str) -> Result<Map<String, Value>, SchemaFieldError> {
    if schema.nullable {
        return Err(SchemaFieldError::Nullable(name.to_owned()));
    }
    let kind = schema.kind.type_name().ok_or_else(|| SchemaFieldError::Any(name.to_owned()))?;
    let mut field = Map::new();
    let mut say = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            field.insert(key.into(), value);
        }
    };
    say("field_type", Some(json!(kind.to_uppercase())));
    say("title", schema.title.as_ref().map(|title| json!(title)));
    say("description", schema.description.as_ref().map(|text| json!(text)));
    say("enum_values", (!schema.one_of.is_empty()).then(|| json!(schema.one_of.values())));
    match &schema.kind {
        SchemaKind::Any | SchemaKind::Boolean => {}
        SchemaKind::String { format } => say("format", format.map(|format| json!(format.name()))),
        SchemaKind::Integer(range) | SchemaKind::Number(range) => {
            say("minimum", range.minimum.map(number_value));
            say("maximum", range.maximum.map(number_value));
            say("format", range.format.map(|format| json!(format.name())));
        }
        SchemaKind::Array(array) => {
            say("min_items", array.min_items.map(|count| json!(count)));
            say("max_items", array.max_items.map(|count| json!(count)));
            if let Some(items) = &array.items {
                let items = export_schema(items, &format!("{name}[]"))?;
                say("items_type", items.get("field_type").cloned());
                // A type alone is complete.
                say("items_schema", (items.len() > 1).then_some(Value::Object(items)));
            }
        }
        SchemaKind::Object(object) => match &object.additional_properties {
            AdditionalProperties::Matching(_) => {
                return Err(SchemaFieldError::Map(name.to_owned()));
            }
            _ if object.properties.is_empty() => {}
            _ => say("properties", Some(Value::Array(export_schema_fields(object)?))),
        },
    }
    Ok(field)
}
