//! A value against a schema: everything in which it does not conform, or the value as the schema
//! has it.

use crate::format;
use crate::schema::{Array, Kind, Object, Others, Python, Range, Schema};
use serde_json::{Map, Value};
use std::fmt;

/// One way in which a value does not conform, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    pub path: Path,
    pub fault: Nonconformity,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Nonconformity {
    Type {
        expected: &'static str,
        found: Value,
    },
    /// Of an object at the path.
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
    /// Readers of JSON lose digits beyond 64 bits.
    TooManyDigits,
}

/// Where a part of a value is, from the value itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl Path {
    pub(crate) fn key(&self, key: &str) -> Self {
        self.with(Step::Key(key.to_owned()))
    }

    fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    fn with(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    pub(crate) fn depth(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if at == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl Schema {
    /// The value with its numbers and dates in the form that the schema asks for, or everything
    /// that is wrong with it.
    pub fn conform(&self, value: Value) -> Result<Value, Vec<Violation>> {
        let mut violations = Vec::new();
        let value = self.conform_at(value, &Path::default(), &mut violations);
        if violations.is_empty() { Ok(value) } else { Err(violations) }
    }

    fn conform_at(&self, value: Value, path: &Path, violations: &mut Vec<Violation>) -> Value {
        if value.is_null() && self.nullable {
            return value;
        }
        let mut wrong =
            |fault: Nonconformity| violations.push(Violation { path: path.clone(), fault });
        let is_known = self.one_of.is_empty() || self.one_of.iter().any(|one| equal(one, &value));
        let value = match (&self.kind, value) {
            (Kind::Any, value) => value,
            (Kind::String { format }, Value::String(text)) => {
                return self.conform_text(text, *format, is_known, &mut wrong);
            }
            (Kind::Integer(range), Value::Number(number)) if number.as_f64().is_some_and(whole) => {
                let integer = integer(&number);
                if integer.is_none() {
                    wrong(Nonconformity::TooManyDigits);
                }
                check_range(range, number.as_f64().unwrap_or_default(), &mut wrong);
                integer.unwrap_or(Value::Number(number))
            }
            (Kind::Number(range), Value::Number(number)) => {
                let float = number.as_f64().unwrap_or_default();
                check_range(range, float, &mut wrong);
                let becomes_float = self.python == Some(Python::Float);
                if becomes_float { Value::from(float) } else { Value::Number(number) }
            }
            (Kind::Boolean, value @ Value::Bool(_)) => value,
            (Kind::Array(array), Value::Array(items)) => {
                Value::Array(array.conform_at(items, path, violations))
            }
            (Kind::Object(object), Value::Object(members)) => {
                Value::Object(object.conform_at(members, path, violations))
            }
            (kind, found) => {
                let expected = kind.type_name().unwrap_or("anything");
                wrong(Nonconformity::Type { expected, found: found.clone() });
                return found;
            }
        };
        if !is_known {
            let fault = Nonconformity::NotOneOf(self.one_of.clone());
            violations.push(Violation { path: path.clone(), fault });
        }
        value
    }

    fn conform_text(
        &self,
        text: String,
        wanted: Option<crate::schema::Format>,
        is_known: bool,
        wrong: &mut dyn FnMut(Nonconformity),
    ) -> Value {
        if !is_known {
            wrong(Nonconformity::NotOneOf(self.one_of.clone()));
        }
        let Some(wanted) = wanted else { return Value::String(text) };
        let canonical = match self.python {
            Some(Python::Datetime) => format::canonical_datetime(&text),
            _ => format::is(wanted, &text).then(|| text.clone()),
        };
        let found = Value::String(text);
        match canonical {
            Some(text) => Value::String(text),
            None => {
                let name = wanted.name();
                wrong(Nonconformity::Format { name, found: found.clone() });
                found
            }
        }
    }
}

/// JSON has one kind of number: 1 and 1.0 are equal.
fn equal(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

fn whole(number: f64) -> bool {
    number.fract() == 0.0
}

/// A whole number without a fraction, if 64 bits hold it.
fn integer(number: &serde_json::Number) -> Option<Value> {
    if number.is_i64() || number.is_u64() {
        return Some(Value::Number(number.clone()));
    }
    let float = number.as_f64()?;
    // Beyond this, a float stands for many integers, and nobody knows which one was meant.
    (float.abs() <= 2f64.powi(53)).then(|| Value::from(float as i64))
}

fn check_range(range: &Range, number: f64, wrong: &mut dyn FnMut(Nonconformity)) {
    let (least, most) = range.format.and_then(format::limits).unzip();
    for minimum in [range.minimum, least].into_iter().flatten() {
        if number < minimum {
            wrong(Nonconformity::Below(minimum));
        }
    }
    for maximum in [range.maximum, most].into_iter().flatten() {
        if number > maximum {
            wrong(Nonconformity::Above(maximum));
        }
    }
}

impl Array {
    fn conform_at(
        &self,
        items: Vec<Value>,
        path: &Path,
        violations: &mut Vec<Violation>,
    ) -> Vec<Value> {
        let count = items.len() as u64;
        let mut wrong =
            |fault: Nonconformity| violations.push(Violation { path: path.clone(), fault });
        if let Some(least) = self.min_items.filter(|least| count < *least) {
            wrong(Nonconformity::TooFewItems(least));
        }
        if let Some(most) = self.max_items.filter(|most| count > *most) {
            wrong(Nonconformity::TooManyItems(most));
        }
        let Some(schema) = &self.items else { return items };
        let items = items.into_iter().enumerate();
        items.map(|(at, item)| schema.conform_at(item, &path.index(at), violations)).collect()
    }
}

impl Object {
    /// As [`Schema::conform`], for what is known to be an object.
    pub fn conform(
        &self,
        members: Map<String, Value>,
    ) -> Result<Map<String, Value>, Vec<Violation>> {
        let mut violations = Vec::new();
        let members = self.conform_at(members, &Path::default(), &mut violations);
        if violations.is_empty() { Ok(members) } else { Err(violations) }
    }

    fn conform_at(
        &self,
        mut members: Map<String, Value>,
        path: &Path,
        violations: &mut Vec<Violation>,
    ) -> Map<String, Value> {
        let mut conformed = Map::new();
        for property in &self.properties {
            match members.shift_remove(&property.name) {
                Some(value) => {
                    let at = path.key(&property.name);
                    let value = property.schema.conform_at(value, &at, violations);
                    conformed.insert(property.name.clone(), value);
                }
                None if property.required => {
                    let fault = Nonconformity::Missing(property.name.clone());
                    violations.push(Violation { path: path.clone(), fault });
                }
                None => {}
            }
        }
        match &self.others {
            Others::Anything => conformed.extend(members),
            Others::Each(schema) => {
                for (key, value) in members {
                    let value = schema.conform_at(value, &path.key(&key), violations);
                    conformed.insert(key, value);
                }
            }
            Others::Nothing | Others::NothingUnsaid if members.is_empty() => {}
            Others::Nothing | Others::NothingUnsaid => {
                let fault =
                    Nonconformity::Unknown(members.into_iter().map(|(key, _)| key).collect());
                violations.push(Violation { path: path.clone(), fault });
            }
        }
        conformed
    }
}
