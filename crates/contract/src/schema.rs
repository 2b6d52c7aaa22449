//! The subset of JSON Schema that contracts use, as a type. Both importers create it, arguments and
//! values are checked against it, and the model sees it.

use crate::choices::Choices;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::ops::Deref;

/// Deeper than any form that a person fills in, and shallow enough for recursion on any thread.
pub(crate) const DEPTH_MAX: usize = 32;
/// A model reads them all before it chooses, and each value is compared with each of them.
pub(crate) const CHOICES_MAX: usize = 1000;

#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    pub kind: SchemaKind,
    /// Whether null is valid too.
    pub nullable: bool,
    pub title: Option<String>,
    pub description: Option<String>,
    pub default: Option<Value>,
    /// If not empty, only these values are valid.
    pub one_of: Choices,
    /// The keyword that selects the conversion.
    pub conversion: Option<PythonConversion>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SchemaKind {
    Any,
    String { format: Option<SchemaFormat> },
    Integer(NumberBounds),
    Number(NumberBounds),
    Boolean,
    Array(ArraySchema),
    Object(ObjectSchema),
}

/// Inclusive bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NumberBounds {
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    /// The width of the number, if the author has specified it.
    pub format: Option<SchemaFormat>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ArraySchema {
    /// Any item if absent.
    pub items: Option<Box<Schema>>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObjectSchema {
    pub properties: PropertyList,
    pub additional_properties: AdditionalProperties,
}

/// The properties of an object, in the order of its author, with an index that is built once: an
/// object is checked in the time that its own members take, however many properties it could have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PropertyList {
    properties: Vec<PropertySchema>,
    positions: HashMap<String, usize>,
    required: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PropertySchema {
    pub name: String,
    pub required: bool,
    pub schema: Schema,
}

/// Whether an object may have fields besides its properties.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum AdditionalProperties {
    #[default]
    Allowed,
    Forbidden,
    /// Forbidden, without a keyword in the schema: the vendor's published form omits it.
    ForbiddenImplicitly,
    Matching(Box<Schema>),
}

/// The conversion of a value before a function is called with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PythonConversion {
    Float,
    Datetime,
    NodeId,
    /// An instance of a class that the tool defines.
    Dataclass(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaFormat {
    DateTime,
    Date,
    Time,
    Email,
    Uuid,
    Uri,
    Hostname,
    Ipv4,
    Ipv6,
    Int32,
    Int64,
    Float,
    Double,
}

impl SchemaFormat {
    pub const ALL: [Self; 13] = [
        Self::DateTime,
        Self::Date,
        Self::Time,
        Self::Email,
        Self::Uuid,
        Self::Uri,
        Self::Hostname,
        Self::Ipv4,
        Self::Ipv6,
        Self::Int32,
        Self::Int64,
        Self::Float,
        Self::Double,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::DateTime => "date-time",
            Self::Date => "date",
            Self::Time => "time",
            Self::Email => "email",
            Self::Uuid => "uuid",
            Self::Uri => "uri",
            Self::Hostname => "hostname",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float => "float",
            Self::Double => "double",
        }
    }

    /// Whether it is a format of strings; the others are widths of numbers.
    pub(crate) fn is_text(self) -> bool {
        !matches!(self, Self::Int32 | Self::Int64 | Self::Float | Self::Double)
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}

impl From<SchemaKind> for Schema {
    fn from(kind: SchemaKind) -> Self {
        Self {
            kind,
            nullable: false,
            title: None,
            description: None,
            default: None,
            one_of: Choices::default(),
            conversion: None,
        }
    }
}

impl Schema {
    pub(crate) fn with_conversion(self, python: PythonConversion) -> Self {
        Self { conversion: Some(python), ..self }
    }

    /// The schema as a model sees it, without Python conversions.
    pub fn descriptor(&self) -> Value {
        let mut schema = Map::new();
        if let Some(name) = self.kind.type_name() {
            let name = if self.nullable { json!([name, "null"]) } else { json!(name) };
            schema.insert("type".into(), name);
        }
        self.kind.render_into(&mut schema);
        let mut say = |keyword: &str, value: Option<Value>| {
            if let Some(value) = value {
                schema.insert(keyword.into(), value);
            }
        };
        let mut one_of = self.one_of.values().to_vec();
        if self.nullable && !one_of.is_empty() {
            one_of.push(Value::Null);
        }
        say("enum", (!one_of.is_empty()).then_some(Value::Array(one_of)));
        say("title", self.title.clone().map(Value::String));
        say("description", self.description.clone().map(Value::String));
        say("default", self.default.clone());
        Value::Object(schema)
    }
}

impl SchemaKind {
    pub(crate) fn type_name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Any => return None,
            Self::String { .. } => "string",
            Self::Integer(_) => "integer",
            Self::Number(_) => "number",
            Self::Boolean => "boolean",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        })
    }

    fn render_into(&self, schema: &mut Map<String, Value>) {
        let mut say = |keyword: &str, value: Option<Value>| {
            if let Some(value) = value {
                schema.insert(keyword.into(), value);
            }
        };
        let format = |format: &Option<SchemaFormat>| format.map(|format| json!(format.name()));
        match self {
            Self::Any | Self::Boolean => {}
            Self::String { format: named } => say("format", format(named)),
            Self::Integer(range) | Self::Number(range) => {
                say("minimum", range.minimum.map(number_value));
                say("maximum", range.maximum.map(number_value));
                say("format", format(&range.format));
            }
            Self::Array(array) => {
                say("items", array.items.as_ref().map(|items| items.descriptor()));
                say("minItems", array.min_items.map(Value::from));
                say("maxItems", array.max_items.map(Value::from));
            }
            Self::Object(object) => object.render_into(schema),
        }
    }
}

impl From<Vec<PropertySchema>> for PropertyList {
    fn from(properties: Vec<PropertySchema>) -> Self {
        let names = properties.iter().enumerate().map(|(at, it)| (it.name.clone(), at));
        let positions = names.collect();
        let required = properties.iter().enumerate().filter(|(_, it)| it.required);
        let required = required.map(|(at, _)| at).collect();
        Self { properties, positions, required }
    }
}

impl Deref for PropertyList {
    type Target = [PropertySchema];

    fn deref(&self) -> &[PropertySchema] {
        &self.properties
    }
}

impl PropertyList {
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    /// The positions of those that an object must have.
    pub(crate) fn required_positions(&self) -> &[usize] {
        &self.required
    }
}

/// A bound as its author wrote it: 5 and not 5.0.
pub(crate) fn number_value(bound: f64) -> Value {
    let whole = bound.fract() == 0.0 && bound.abs() < 2f64.powi(53);
    if whole { json!(bound as i64) } else { json!(bound) }
}

impl ObjectSchema {
    /// The schema as a model sees it.
    pub fn descriptor(&self) -> Value {
        let mut schema = Map::from_iter([("type".to_owned(), json!("object"))]);
        self.render_into(&mut schema);
        Value::Object(schema)
    }

    pub(crate) fn required(&self) -> impl Iterator<Item = &str> {
        self.properties
            .iter()
            .filter(|property| property.required)
            .map(|property| property.name.as_str())
    }

    /// `required` is sorted, as in the vendor documents. A map of any values has no properties.
    fn render_into(&self, schema: &mut Map<String, Value>) {
        let is_map = self.properties.is_empty()
            && matches!(
                self.additional_properties,
                AdditionalProperties::Allowed | AdditionalProperties::Matching(_)
            );
        if !is_map {
            let properties: Map<String, Value> = self
                .properties
                .iter()
                .map(|property| (property.name.clone(), property.schema.descriptor()))
                .collect();
            let mut required: Vec<&str> = self.required().collect();
            required.sort_unstable();
            schema.insert("properties".into(), Value::Object(properties));
            schema.insert("required".into(), json!(required));
        }
        match &self.additional_properties {
            AdditionalProperties::Allowed | AdditionalProperties::ForbiddenImplicitly => {}
            AdditionalProperties::Forbidden => {
                schema.insert("additionalProperties".into(), Value::Bool(false));
            }
            AdditionalProperties::Matching(each) => {
                schema.insert("additionalProperties".into(), each.descriptor());
            }
        }
    }
}
