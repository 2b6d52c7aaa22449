//! The server's own description of itself, as operations that can be called.
//!
//! Tests that have to hold for every route take the routes from here, so that a new one is tested
//! from the day on which it is served.

use crate::test_server::World;
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;

pub(crate) struct Document(Value);

#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) streams: bool,
    parameters: Vec<Parameter>,
    body: Option<(String, Value)>,
}

#[derive(Debug, Clone)]
struct Parameter {
    name: String,
    place: String,
    schema: Value,
}

/// A request as it can be sent.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) body: Option<(String, Vec<u8>)>,
}

/// Ids by the names of their types, such as `ToolId`; other things by the names of parameters.
pub(crate) type Things = BTreeMap<&'static str, String>;

/// What is put where an id is wanted. All are `own`, but the one at `slot` is another principal's.
pub(crate) struct Fill<'a> {
    own: &'a Things,
    foreign: Option<(&'a Things, usize)>,
    /// Which of several forms of a body is made.
    variant: usize,
    asked: Cell<usize>,
    last: Cell<Slot>,
}

/// Where in the request the foreign id went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    None,
    Path,
    Query,
    Body,
}

impl Operation {
    pub(crate) fn has_query(&self, name: &str) -> bool {
        self.parameters.iter().any(|known| known.place == "query" && known.name == name)
    }
}

impl<'a> Fill<'a> {
    pub(crate) fn own(own: &'a Things) -> Self {
        let (asked, last) = (Cell::new(0), Cell::new(Slot::None));
        Self { own, foreign: None, variant: 0, asked, last }
    }

    pub(crate) fn foreign(own: &'a Things, foreign: &'a Things, slot: usize, form: usize) -> Self {
        Self { foreign: Some((foreign, slot)), variant: form, ..Self::own(own) }
    }

    /// Where the foreign id is, once a request was made.
    pub(crate) fn slot(&self) -> Slot {
        self.last.get()
    }

    fn id(&self, name: &str, place: Slot) -> String {
        let number = self.asked.replace(self.asked.get() + 1);
        let from = match self.foreign {
            Some((foreign, slot)) if slot == number => {
                self.last.set(place);
                foreign
            }
            _ => self.own,
        };
        let known = from.get(name);
        known.unwrap_or_else(|| panic!("this test has no {name}: make one in `furnish`")).clone()
    }
}

impl Document {
    pub(crate) async fn of(world: &World) -> Self {
        Self(world.api("").get("/openapi.json").await)
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        let mut operations = Vec::new();
        for (path, item) in self.0["paths"].as_object().unwrap() {
            for method in ["get", "put", "post", "patch", "delete"] {
                if let Some(operation) = item.get(method) {
                    operations.push(read(path, method, operation));
                }
            }
        }
        assert!(!operations.is_empty());
        operations
    }

    /// The smallest request that the operation can read, with every id that it has a place for.
    pub(crate) fn request(&self, operation: &Operation, fill: &Fill<'_>) -> Request {
        let mut path = operation.path.clone();
        let mut query = String::new();
        for parameter in &operation.parameters {
            match parameter.place.as_str() {
                "path" => {
                    let value = self.path_value(&operation.id, parameter, fill);
                    path = path.replace(&format!("{{{}}}", parameter.name), &value);
                }
                "query" if id_name(&parameter.schema).is_some() => {
                    let name = id_name(&parameter.schema).unwrap();
                    let value = fill.id(name, Slot::Query);
                    query += &format!("{}{}={value}", separator(&query), parameter.name);
                }
                _ => {}
            }
        }
        let body = operation.body.as_ref().map(|(kind, schema)| {
            let body = match kind.as_str() {
                "application/json" => self.example(schema, fill).to_string().into_bytes(),
                _ => b"x".to_vec(),
            };
            (kind.clone(), body)
        });
        Request { path: path + &query, body }
    }

    /// What stands in a JSON body, each with the kind of its values; the kind of a choice is empty.
    pub(crate) fn fields(&self, operation: &Operation) -> Vec<(String, String)> {
        let Some((kind, schema)) = &operation.body else { return Vec::new() };
        if kind != "application/json" {
            return Vec::new();
        }
        let schema = schema["$ref"].as_str().map_or(schema, |reference| self.resolve(reference));
        let properties = schema["properties"].as_object().cloned().unwrap_or_default();
        let kinds = properties.into_iter().map(|(name, property)| {
            let kind = self.kind(&property);
            (name, kind)
        });
        kinds.collect()
    }

    fn kind(&self, schema: &Value) -> String {
        if let Some(reference) = schema["$ref"].as_str() {
            return self.kind(self.resolve(reference));
        }
        match &schema["type"] {
            Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").unwrap(),
            kind => kind,
        }
        .as_str()
        .unwrap_or_default()
        .to_owned()
    }

    fn path_value(&self, operation: &str, parameter: &Parameter, fill: &Fill<'_>) -> String {
        match id_name(&parameter.schema) {
            // Not every execution is what this operation is about.
            Some("ExecutionId") if fill.own.contains_key(operation) => {
                fill.id(operation, Slot::Path)
            }
            Some(name) => fill.id(name, Slot::Path),
            None => {
                let known = fill.own.get(parameter.name.as_str());
                let name = &parameter.name;
                known.unwrap_or_else(|| panic!("this test has no {name}")).clone()
            }
        }
    }

    fn example(&self, schema: &Value, fill: &Fill<'_>) -> Value {
        if let Some(name) = id_name(schema) {
            return fill.id(name, Slot::Body).into();
        }
        if let Some(reference) = schema["$ref"].as_str() {
            return self.example(self.resolve(reference), fill);
        }
        for choice in ["oneOf", "anyOf"] {
            if let Some(forms) = schema[choice].as_array() {
                let forms: Vec<_> = forms.iter().filter(|form| form["type"] != "null").collect();
                return self.example(forms[fill.variant % forms.len()], fill);
            }
        }
        if let Some(parts) = schema["allOf"].as_array() {
            let parts = parts.iter().map(|part| self.example(part, fill));
            let merged = parts.filter_map(|part| part.as_object().cloned()).flatten();
            return Value::Object(merged.collect());
        }
        if let Some(values) = schema["enum"].as_array() {
            return values[0].clone();
        }
        self.plain(schema, fill)
    }

    fn plain(&self, schema: &Value, fill: &Fill<'_>) -> Value {
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").unwrap(),
            kind => kind,
        };
        match kind.as_str().unwrap_or("object") {
            "object" => self.object(schema, fill),
            "array" if self.has_id(&schema["items"]) => {
                json!([self.example(&schema["items"], fill)])
            }
            "array" => json!([]),
            "integer" | "number" => schema.get("minimum").cloned().unwrap_or(json!(1)),
            "boolean" => json!(false),
            _ if schema["format"] == "date-time" => json!("2100-01-01T00:00:00Z"),
            _ => json!("x"),
        }
    }

    fn object(&self, schema: &Value, fill: &Fill<'_>) -> Value {
        let empty = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&empty);
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let wanted = properties.iter().filter(|(name, property)| {
            required.iter().any(|required| required == *name) || self.has_id(property)
        });
        wanted.map(|(name, property)| (name.clone(), self.example(property, fill))).collect()
    }

    fn has_id(&self, schema: &Value) -> bool {
        if id_name(schema).is_some() {
            return true;
        }
        if let Some(reference) = schema["$ref"].as_str() {
            return self.has_id(self.resolve(reference));
        }
        match schema {
            Value::Object(fields) => fields.values().any(|field| self.has_id(field)),
            Value::Array(items) => items.iter().any(|item| self.has_id(item)),
            _ => false,
        }
    }

    fn resolve(&self, reference: &str) -> &Value {
        let found = self.0.pointer(reference.trim_start_matches('#'));
        found.unwrap_or_else(|| panic!("the document has no {reference}"))
    }
}

fn read(path: &str, method: &str, operation: &Value) -> Operation {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
    let parameters = parameters.iter().map(|parameter| Parameter {
        name: text(&parameter["name"]),
        place: text(&parameter["in"]),
        schema: parameter["schema"].clone(),
    });
    let contents = operation["requestBody"]["content"].as_object().cloned().unwrap_or_default();
    let json = contents.get("application/json").map(|found| ("application/json".into(), found));
    let first = contents.iter().next().map(|(kind, found)| (kind.clone(), found));
    let body = json.or(first).map(|(kind, found)| (kind, found["schema"].clone()));
    let streams = operation["responses"]["200"]["content"].get("text/event-stream").is_some();
    Operation {
        id: text(&operation["operationId"]),
        method: method.to_uppercase(),
        path: path.to_owned(),
        streams,
        parameters: parameters.collect(),
        body,
    }
}

/// The name of a type of ids, also of one that may be absent.
fn id_name(schema: &Value) -> Option<&str> {
    let nullable = || {
        let forms = schema["oneOf"].as_array()?;
        let mut forms = forms.iter().filter(|form| form["type"] != "null");
        forms.next().filter(|_| forms.next().is_none())
    };
    let named = if schema["$ref"].is_string() { Some(schema) } else { nullable() };
    let name = named?["$ref"].as_str()?.rsplit('/').next()?;
    name.ends_with("Id").then_some(name)
}

fn separator(query: &str) -> char {
    if query.is_empty() { '?' } else { '&' }
}
