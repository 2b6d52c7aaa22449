//! A value against a schema: everything in which it does not conform, or the value as the schema
//! has it.

use crate::format;
use crate::schema::{Array, Format, Kind, Object, Others, Property, Python, Range, Schema};
use serde_json::{Map, Number, Value};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;

/// Whoever mends this many sees the next ones the next time.
pub(crate) const VIOLATIONS_MAX: usize = 20;

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
        Self(self.0.iter().cloned().chain([Step::Key(key.to_owned())]).collect())
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

/// What was found so far, and where the walk is.
#[derive(Default)]
struct Walk {
    path: Path,
    violations: Vec<Violation>,
}

impl Walk {
    fn wrong(&mut self, fault: Nonconformity) {
        if !self.is_over() {
            self.violations.push(Violation { path: self.path.clone(), fault });
        }
    }

    fn is_over(&self) -> bool {
        self.violations.len() >= VIOLATIONS_MAX
    }

    fn step(&mut self, step: Step, schema: &Schema, value: Value) -> Value {
        self.path.0.push(step);
        let value = schema.conform_in(self, value);
        self.path.0.pop();
        value
    }

    fn conclude<T>(self, value: T) -> Result<T, Vec<Violation>> {
        if self.violations.is_empty() { Ok(value) } else { Err(self.violations) }
    }
}

impl Schema {
    /// The value with its numbers and dates in the form that the schema asks for, or what is
    /// wrong with it.
    pub fn conform(&self, value: Value) -> Result<Value, Vec<Violation>> {
        let mut walk = Walk::default();
        let value = self.conform_in(&mut walk, value);
        walk.conclude(value)
    }

    fn conform_in(&self, walk: &mut Walk, value: Value) -> Value {
        if walk.is_over() || value.is_null() && self.nullable {
            return value;
        }
        let is_known = self.one_of.is_empty() || self.one_of.iter().any(|one| equal(one, &value));
        let value = match (&self.kind, value) {
            (Kind::Any, value) | (Kind::Boolean, value @ Value::Bool(_)) => value,
            (Kind::String { format: None }, value @ Value::String(_)) => value,
            (Kind::String { format: Some(wanted) }, Value::String(text)) => {
                self.conform_text(walk, text, *wanted)
            }
            (Kind::Integer(range), Value::Number(number)) if is_whole(&number) => {
                let number = without_fraction(number);
                range.check(walk, &number);
                if number.is_f64() {
                    walk.wrong(Nonconformity::TooManyDigits);
                }
                Value::Number(number)
            }
            (Kind::Number(range), Value::Number(number)) => {
                range.check(walk, &number);
                match number.as_f64() {
                    Some(float) if self.python == Some(Python::Float) => Value::from(float),
                    _ => Value::Number(number),
                }
            }
            (Kind::Array(array), Value::Array(items)) => {
                Value::Array(array.conform_in(walk, items))
            }
            (Kind::Object(object), Value::Object(members)) => {
                Value::Object(object.conform_in(walk, members))
            }
            (kind, found) => {
                let expected = kind.type_name().unwrap_or("anything");
                walk.wrong(Nonconformity::Type { expected, found: found.clone() });
                return found;
            }
        };
        if !is_known {
            walk.wrong(Nonconformity::NotOneOf(self.one_of.clone()));
        }
        value
    }

    fn conform_text(&self, walk: &mut Walk, text: String, wanted: Format) -> Value {
        let canonical = match self.python {
            Some(Python::Datetime) => format::canonical_datetime(&text),
            _ => format::is(wanted, &text).then(|| text.clone()),
        };
        let found = Value::String(text);
        match canonical {
            Some(text) => Value::String(text),
            None => {
                let name = wanted.name();
                walk.wrong(Nonconformity::Format { name, found: found.clone() });
                found
            }
        }
    }
}

/// JSON has one kind of number: 1 and 1.0 are equal.
pub(crate) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => match (integer(one), integer(other)) {
            (Some(one), Some(other)) => one == other,
            (None, _) => one.as_f64().is_some_and(|one| compare(other, one).is_eq()),
            (_, None) => other.as_f64().is_some_and(|other| compare(one, other).is_eq()),
        },
        _ => one == other,
    }
}

/// Without rounding: a float holds no more than 53 bits of an integer.
pub(crate) fn compare(number: &Number, bound: f64) -> Ordering {
    match integer(number) {
        Some(integer) => {
            let beyond = if bound.fract() == 0.0 { Ordering::Equal } else { Ordering::Less };
            integer.cmp(&(bound.floor() as i128)).then(beyond)
        }
        None => number.as_f64().and_then(|it| it.partial_cmp(&bound)).unwrap_or(Ordering::Equal),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn is_whole(number: &Number) -> bool {
    number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

/// 25.0 as 25. Beyond 53 bits, a float stands for many integers, and nobody knows which one was
/// meant.
fn without_fraction(number: Number) -> Number {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.abs() <= 2f64.powi(53) => {
            Number::from(float as i64)
        }
        _ => number,
    }
}

impl Range {
    fn check(&self, walk: &mut Walk, number: &Number) {
        if let Some(minimum) = self.minimum.filter(|bound| compare(number, *bound).is_lt()) {
            walk.wrong(Nonconformity::Below(minimum));
        }
        if let Some(maximum) = self.maximum.filter(|bound| compare(number, *bound).is_gt()) {
            walk.wrong(Nonconformity::Above(maximum));
        }
        if let Some(format) = self.format.filter(|format| !format::holds(*format, number)) {
            let found = Value::Number(number.clone());
            walk.wrong(Nonconformity::Format { name: format.name(), found });
        }
    }
}

impl Array {
    fn conform_in(&self, walk: &mut Walk, items: Vec<Value>) -> Vec<Value> {
        let count = items.len() as u64;
        if let Some(least) = self.min_items.filter(|least| count < *least) {
            walk.wrong(Nonconformity::TooFewItems(least));
        }
        if let Some(most) = self.max_items.filter(|most| count > *most) {
            walk.wrong(Nonconformity::TooManyItems(most));
        }
        let Some(schema) = &self.items else { return items };
        let items = items.into_iter().enumerate();
        items.map(|(at, item)| walk.step(Step::Index(at), schema, item)).collect()
    }
}

impl Object {
    /// As [`Schema::conform`], for what is known to be an object.
    pub fn conform(
        &self,
        members: Map<String, Value>,
    ) -> Result<Map<String, Value>, Vec<Violation>> {
        let mut walk = Walk::default();
        let members = self.conform_in(&mut walk, members);
        walk.conclude(members)
    }

    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.properties.iter().map(|property| property.name.as_str()).collect()
    }

    fn conform_in(&self, walk: &mut Walk, mut members: Map<String, Value>) -> Map<String, Value> {
        let mut conformed = Map::new();
        for Property { name, required, schema } in &self.properties {
            match members.get_mut(name).map(Value::take) {
                Some(value) => {
                    let value = walk.step(Step::Key(name.clone()), schema, value);
                    conformed.insert(name.clone(), value);
                }
                None if *required => walk.wrong(Nonconformity::Missing(name.clone())),
                None => {}
            }
        }
        let names = self.names();
        members.retain(|name, _| !names.contains(name.as_str()));
        match &self.others {
            Others::Anything => conformed.extend(members),
            Others::Each(schema) => {
                for (key, value) in members {
                    let value = walk.step(Step::Key(key.clone()), schema, value);
                    conformed.insert(key, value);
                }
            }
            Others::Nothing | Others::NothingUnsaid if members.is_empty() => {}
            Others::Nothing | Others::NothingUnsaid => {
                walk.wrong(Nonconformity::Unknown(members.into_iter().map(|it| it.0).collect()));
            }
        }
        conformed
    }
}
