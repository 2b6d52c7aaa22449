//! Checks a value against a schema. The result is every violation, or the normalized value.

use crate::format;
use crate::number::{compare_number, is_whole, json_equal};
use crate::schema::{
    AdditionalProperties, ArraySchema, NumberBounds, ObjectSchema, PropertySchema,
    PythonConversion, Schema, SchemaFormat, SchemaKind,
};
use serde_json::{Map, Number, Value};
use std::collections::BTreeSet;
use std::fmt;

/// After fixing this many, the next check shows the others.
pub(crate) const VIOLATIONS_MAX: usize = 20;

/// One violation, and its path.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    pub path: ValuePath,
    pub kind: ViolationKind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ViolationKind {
    Type {
        expected: &'static str,
        found: Value,
    },
    /// For an object at the path.
    Missing(String),
    Unknown(Vec<String>),
    NotOneOf(Vec<Value>),
    Below(f64),
    Above(f64),
    TooFewItems(u64),
    TooManyItems(u64),
    Format {
        name: &'static str,
        found: Value,
    },
    /// JSON parsers lose digits beyond 64 bits.
    TooManyDigits,
}

/// Path of a part of a value, from its root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValuePath(Vec<PathSegment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PathSegment {
    Key(String),
    Index(usize),
}

impl ValuePath {
    pub(crate) fn child(&self, key: &str) -> Self {
        Self(self.0.iter().cloned().chain([PathSegment::Key(key.to_owned())]).collect())
    }

    pub(crate) fn depth(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for ValuePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                PathSegment::Key(key) if at == 0 => f.write_str(key)?,
                PathSegment::Key(key) => write!(f, ".{key}")?,
                PathSegment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// The violations so far, and the current path.
#[derive(Default)]
struct SchemaChecker {
    path: ValuePath,
    violations: Vec<Violation>,
}

impl SchemaChecker {
    fn add_violation(&mut self, kind: ViolationKind) {
        if !self.is_full() {
            self.violations.push(Violation { path: self.path.clone(), kind });
        }
    }

    fn is_full(&self) -> bool {
        self.violations.len() >= VIOLATIONS_MAX
    }

    fn check_child(&mut self, step: PathSegment, schema: &Schema, value: Value) -> Value {
        self.path.0.push(step);
        let value = schema.conform_in(self, value);
        self.path.0.pop();
        value
    }

    fn finish<T>(self, value: T) -> Result<T, Vec<Violation>> {
        if self.violations.is_empty() { Ok(value) } else { Err(self.violations) }
    }
}

impl Schema {
    /// Returns the value with its numbers and dates in the form that the schema requires, or its
    /// violations.
    pub fn conform(&self, value: Value) -> Result<Value, Vec<Violation>> {
        let mut walk = SchemaChecker::default();
        let value = self.conform_in(&mut walk, value);
        walk.finish(value)
    }

    fn conform_in(&self, walk: &mut SchemaChecker, value: Value) -> Value {
        if walk.is_full() || value.is_null() && self.nullable {
            return value;
        }
        let is_known =
            self.one_of.is_empty() || self.one_of.iter().any(|one| json_equal(one, &value));
        let value = match (&self.kind, value) {
            (SchemaKind::Any, value) | (SchemaKind::Boolean, value @ Value::Bool(_)) => value,
            (SchemaKind::String { format: None }, value @ Value::String(_)) => value,
            (SchemaKind::String { format: Some(wanted) }, Value::String(text)) => {
                self.conform_text(walk, text, *wanted)
            }
            (SchemaKind::Integer(range), Value::Number(number)) if is_whole(&number) => {
                let number = without_fraction(number);
                range.check(walk, &number);
                if number.is_f64() {
                    walk.add_violation(ViolationKind::TooManyDigits);
                }
                Value::Number(number)
            }
            (SchemaKind::Number(range), Value::Number(number)) => {
                range.check(walk, &number);
                match number.as_f64() {
                    Some(float) if self.conversion == Some(PythonConversion::Float) => {
                        Value::from(float)
                    }
                    _ => Value::Number(number),
                }
            }
            (SchemaKind::Array(array), Value::Array(items)) => {
                Value::Array(array.conform_in(walk, items))
            }
            (SchemaKind::Object(object), Value::Object(members)) => {
                Value::Object(object.conform_in(walk, members))
            }
            (kind, found) => {
                let expected = kind.type_name().unwrap_or("anything");
                walk.add_violation(ViolationKind::Type { expected, found: found.clone() });
                return found;
            }
        };
        if !is_known {
            walk.add_violation(ViolationKind::NotOneOf(self.one_of.clone()));
        }
        value
    }

    fn conform_text(&self, walk: &mut SchemaChecker, text: String, wanted: SchemaFormat) -> Value {
        let canonical = match self.conversion {
            Some(PythonConversion::Datetime) => format::canonical_datetime(&text),
            _ => format::matches_format(wanted, &text).then(|| text.clone()),
        };
        let found = Value::String(text);
        match canonical {
            Some(text) => Value::String(text),
            None => {
                let name = wanted.name();
                walk.add_violation(ViolationKind::Format { name, found: found.clone() });
                found
            }
        }
    }
}

/// Converts 25.0 to 25. Beyond 53 bits a float represents many integers, and the intended one is
/// unknown.
fn without_fraction(number: Number) -> Number {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.abs() <= 2f64.powi(53) => {
            Number::from(float as i64)
        }
        _ => number,
    }
}

impl NumberBounds {
    fn check(&self, walk: &mut SchemaChecker, number: &Number) {
        if let Some(minimum) = self.minimum.filter(|bound| compare_number(number, *bound).is_lt()) {
            walk.add_violation(ViolationKind::Below(minimum));
        }
        if let Some(maximum) = self.maximum.filter(|bound| compare_number(number, *bound).is_gt()) {
            walk.add_violation(ViolationKind::Above(maximum));
        }
        if let Some(format) = self.format.filter(|format| !format::fits_format(*format, number)) {
            let found = Value::Number(number.clone());
            walk.add_violation(ViolationKind::Format { name: format.name(), found });
        }
    }
}

impl ArraySchema {
    fn conform_in(&self, walk: &mut SchemaChecker, items: Vec<Value>) -> Vec<Value> {
        let count = items.len() as u64;
        if let Some(least) = self.min_items.filter(|least| count < *least) {
            walk.add_violation(ViolationKind::TooFewItems(least));
        }
        if let Some(most) = self.max_items.filter(|most| count > *most) {
            walk.add_violation(ViolationKind::TooManyItems(most));
        }
        let Some(schema) = &self.items else { return items };
        let items = items.into_iter().enumerate();
        items.map(|(at, item)| walk.check_child(PathSegment::Index(at), schema, item)).collect()
    }
}

impl ObjectSchema {
    /// Like [`Schema::conform`], for a value that is known to be an object.
    pub fn conform(
        &self,
        members: Map<String, Value>,
    ) -> Result<Map<String, Value>, Vec<Violation>> {
        let mut walk = SchemaChecker::default();
        let members = self.conform_in(&mut walk, members);
        walk.finish(members)
    }

    pub(crate) fn property_names(&self) -> BTreeSet<&str> {
        self.properties.iter().map(|property| property.name.as_str()).collect()
    }

    fn conform_in(
        &self,
        walk: &mut SchemaChecker,
        mut members: Map<String, Value>,
    ) -> Map<String, Value> {
        let mut conformed = Map::new();
        for PropertySchema { name, required, schema } in &self.properties {
            match members.get_mut(name).map(Value::take) {
                Some(value) => {
                    let value = walk.check_child(PathSegment::Key(name.clone()), schema, value);
                    conformed.insert(name.clone(), value);
                }
                None if *required => walk.add_violation(ViolationKind::Missing(name.clone())),
                None => {}
            }
        }
        let names = self.property_names();
        members.retain(|name, _| !names.contains(name.as_str()));
        match &self.additional_properties {
            AdditionalProperties::Allowed => conformed.extend(members),
            AdditionalProperties::Matching(schema) => {
                for (key, value) in members {
                    let value = walk.check_child(PathSegment::Key(key.clone()), schema, value);
                    conformed.insert(key, value);
                }
            }
            AdditionalProperties::Forbidden | AdditionalProperties::ForbiddenImplicitly
                if members.is_empty() => {}
            AdditionalProperties::Forbidden | AdditionalProperties::ForbiddenImplicitly => {
                walk.add_violation(ViolationKind::Unknown(
                    members.into_iter().map(|it| it.0).collect(),
                ));
            }
        }
        conformed
    }
}
