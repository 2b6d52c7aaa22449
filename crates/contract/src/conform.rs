//! Checks a value against a schema. The result is every violation, or the normalized value.

use crate::format;
use crate::number::{compare_number, is_whole};
use crate::schema::{
    AdditionalProperties, ArraySchema, NumberBounds, ObjectSchema, PythonConversion, Schema,
    SchemaFormat, SchemaKind,
};
use crate::step_budget::StepBudget;
use serde_json::{Map, Number, Value};
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
    /// Of the whole value: the check has ended before its end.
    TooManySteps,
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

/// Members that are properties, by the position of the property; `None` if a required one is missing.
type KnownMembers = Vec<(usize, Option<Value>)>;

/// The violations so far, and the current path.
struct SchemaChecker {
    path: ValuePath,
    violations: Vec<Violation>,
    budget: StepBudget,
}

impl SchemaChecker {
    fn new() -> Self {
        let (path, violations) = (ValuePath::default(), Vec::new());
        Self { path, violations, budget: StepBudget::new() }
    }

    fn add_violation(&mut self, kind: ViolationKind) {
        if !self.is_full() {
            self.violations.push(Violation { path: self.path.clone(), kind });
        }
    }

    /// Whether further checks could not change the result.
    fn is_full(&self) -> bool {
        self.budget.is_exhausted() || self.violations_left() == 0
    }

    fn violations_left(&self) -> usize {
        VIOLATIONS_MAX.saturating_sub(self.violations.len())
    }

    fn check_child(&mut self, step: PathSegment, schema: &Schema, value: Value) -> Value {
        self.path.0.push(step);
        let value = schema.conform_in(self, value);
        self.path.0.pop();
        value
    }

    fn finish<T>(self, value: T) -> Result<T, Vec<Violation>> {
        if self.budget.is_exhausted() {
            let path = ValuePath::default();
            return Err(vec![Violation { path, kind: ViolationKind::TooManySteps }]);
        }
        if self.violations.is_empty() { Ok(value) } else { Err(self.violations) }
    }
}

impl Schema {
    /// Returns the value with its numbers and dates in the form that the schema requires, or its
    /// violations.
    pub fn conform(&self, value: Value) -> Result<Value, Vec<Violation>> {
        let mut checker = SchemaChecker::new();
        let value = self.conform_in(&mut checker, value);
        checker.finish(value)
    }

    fn conform_in(&self, checker: &mut SchemaChecker, value: Value) -> Value {
        checker.budget.spend_steps(1);
        if checker.is_full() || value.is_null() && self.nullable {
            return value;
        }
        let is_known = self.one_of.is_empty() || self.one_of.contains(&value, &mut checker.budget);
        let value = match (&self.kind, value) {
            (SchemaKind::Any, value) | (SchemaKind::Boolean, value @ Value::Bool(_)) => value,
            (SchemaKind::String { format: None }, value @ Value::String(_)) => value,
            (SchemaKind::String { format: Some(wanted) }, Value::String(text)) => {
                self.conform_text(checker, text, *wanted)
            }
            (SchemaKind::Integer(range), Value::Number(number)) if is_whole(&number) => {
                let number = without_fraction(number);
                range.check(checker, &number);
                if number.is_f64() {
                    checker.add_violation(ViolationKind::TooManyDigits);
                }
                Value::Number(number)
            }
            (SchemaKind::Number(range), Value::Number(number)) => {
                range.check(checker, &number);
                match number.as_f64() {
                    Some(float) if self.conversion == Some(PythonConversion::Float) => {
                        Value::from(float)
                    }
                    _ => Value::Number(number),
                }
            }
            (SchemaKind::Array(array), Value::Array(items)) => {
                Value::Array(array.conform_in(checker, items))
            }
            (SchemaKind::Object(object), Value::Object(members)) => {
                Value::Object(object.conform_in(checker, members))
            }
            (kind, found) => {
                let expected = kind.type_name().unwrap_or("anything");
                checker.add_violation(ViolationKind::Type { expected, found: found.clone() });
                return found;
            }
        };
        if !is_known {
            checker.add_violation(ViolationKind::NotOneOf(self.one_of.values().to_vec()));
        }
        value
    }

    fn conform_text(
        &self,
        checker: &mut SchemaChecker,
        text: String,
        wanted: SchemaFormat,
    ) -> Value {
        checker.budget.spend_text(&text);
        let canonical = match self.conversion {
            Some(PythonConversion::Datetime) => format::canonical_datetime(&text),
            _ => format::matches_format(wanted, &text).then(|| text.clone()),
        };
        let found = Value::String(text);
        match canonical {
            Some(text) => Value::String(text),
            None => {
                let name = wanted.name();
                checker.add_violation(ViolationKind::Format { name, found: found.clone() });
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
    fn check(&self, checker: &mut SchemaChecker, number: &Number) {
        if let Some(minimum) = self.minimum.filter(|bound| compare_number(number, *bound).is_lt()) {
            checker.add_violation(ViolationKind::Below(minimum));
        }
        if let Some(maximum) = self.maximum.filter(|bound| compare_number(number, *bound).is_gt()) {
            checker.add_violation(ViolationKind::Above(maximum));
        }
        if let Some(format) = self.format.filter(|format| !format::fits_format(*format, number)) {
            let found = Value::Number(number.clone());
            checker.add_violation(ViolationKind::Format { name: format.name(), found });
        }
    }
}

impl ArraySchema {
    fn conform_in(&self, checker: &mut SchemaChecker, items: Vec<Value>) -> Vec<Value> {
        let count = items.len() as u64;
        if let Some(least) = self.min_items.filter(|least| count < *least) {
            checker.add_violation(ViolationKind::TooFewItems(least));
        }
        if let Some(most) = self.max_items.filter(|most| count > *most) {
            checker.add_violation(ViolationKind::TooManyItems(most));
        }
        let Some(schema) = &self.items else { return items };
        let items = items.into_iter().enumerate();
        items.map(|(at, item)| checker.check_child(PathSegment::Index(at), schema, item)).collect()
    }
}

impl ObjectSchema {
    /// Like [`Schema::conform`], for a value that is known to be an object.
    pub fn conform(
        &self,
        members: Map<String, Value>,
    ) -> Result<Map<String, Value>, Vec<Violation>> {
        let mut checker = SchemaChecker::new();
        let members = self.conform_in(&mut checker, members);
        checker.finish(members)
    }

    fn conform_in(
        &self,
        checker: &mut SchemaChecker,
        members: Map<String, Value>,
    ) -> Map<String, Value> {
        let (known, members) = self.take_properties(checker, members);
        let mut conformed = Map::new();
        for (at, member) in known {
            let Some(property) = self.properties.get(at) else { continue };
            match member {
                Some(value) => {
                    let step = PathSegment::Key(property.name.clone());
                    let value = checker.check_child(step, &property.schema, value);
                    conformed.insert(property.name.clone(), value);
                }
                None => checker.add_violation(ViolationKind::Missing(property.name.clone())),
            }
        }
        match &self.additional_properties {
            AdditionalProperties::Allowed => conformed.extend(members),
            AdditionalProperties::Matching(schema) => {
                for (key, value) in members {
                    let value = checker.check_child(PathSegment::Key(key.clone()), schema, value);
                    conformed.insert(key, value);
                }
            }
            AdditionalProperties::Forbidden | AdditionalProperties::ForbiddenImplicitly
                if members.is_empty() => {}
            AdditionalProperties::Forbidden | AdditionalProperties::ForbiddenImplicitly => {
                checker.add_violation(ViolationKind::Unknown(
                    members.into_iter().map(|it| it.0).collect(),
                ));
            }
        }
        conformed
    }

    /// The members that are properties and the first missing ones, in the order of the schema, and
    /// all other members. It takes as long as the members are, not as the schema is.
    fn take_properties(
        &self,
        checker: &mut SchemaChecker,
        members: Map<String, Value>,
    ) -> (KnownMembers, Map<String, Value>) {
        let (mut known, mut others) = (Vec::new(), Map::new());
        for (name, value) in members {
            checker.budget.spend_text(&name);
            match self.properties.position(&name) {
                Some(at) => known.push((at, Some(value))),
                None => {
                    others.insert(name, value);
                }
            }
        }
        known.sort_unstable_by_key(|(at, _)| *at);
        let mut missing = Vec::new();
        for at in self.properties.required_positions() {
            if missing.len() >= checker.violations_left() {
                break;
            }
            checker.budget.spend_steps(1);
            if known.binary_search_by_key(at, |(at, _)| *at).is_err() {
                missing.push((*at, None));
            }
        }
        known.extend(missing);
        known.sort_unstable_by_key(|(at, _)| *at);
        (known, others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::PropertySchema;
    use crate::step_budget::STEPS_MAX;
    use serde_json::json;

    fn object(count: usize, required: bool) -> Schema {
        let property = |n: usize| PropertySchema {
            name: format!("f{n}"),
            required,
            schema: SchemaKind::Any.into(),
        };
        let properties: Vec<PropertySchema> = (0..count).map(property).collect();
        let additional_properties = AdditionalProperties::Forbidden;
        SchemaKind::Object(ObjectSchema { properties: properties.into(), additional_properties })
            .into()
    }

    /// The steps of a check of a list, and its violations.
    fn check(items: Schema, value: Value) -> (usize, Vec<Violation>) {
        let array = ArraySchema { items: Some(Box::new(items)), ..ArraySchema::default() };
        let mut checker = SchemaChecker::new();
        Schema::from(SchemaKind::Array(array)).conform_in(&mut checker, value);
        (STEPS_MAX - checker.budget.steps_left(), checker.violations)
    }

    #[test]
    fn t205_a_check_takes_steps_for_the_members_and_not_for_the_properties() {
        for value in [json!({}), json!({"f6499": 1}), json!({"f0": 1, "f1": 2})] {
            let members = value.as_object().unwrap().len();
            let (steps, violations) = check(object(6_500, false), json!(vec![value; 1_000]));
            assert_eq!(violations, []);
            assert!(steps <= 1 + 1_000 * (1 + 2 * members), "{steps}");
        }
        let (steps, violations) = check(object(6_500, true), json!(vec![json!({}); 1_000]));
        assert_eq!(violations.len(), VIOLATIONS_MAX);
        assert!(steps <= 1_000 + 2 * VIOLATIONS_MAX, "{steps}");
    }

    #[test]
    fn t205_members_and_missing_ones_are_told_in_the_order_of_the_schema() {
        let (steps, violations) = check(object(4, true), json!([{"f2": 1, "x": 1, "f1": 1}]));
        let kinds: Vec<ViolationKind> = violations.into_iter().map(|it| it.kind).collect();
        let missing = |name: &str| ViolationKind::Missing(name.to_owned());
        let unknown = ViolationKind::Unknown(vec!["x".to_owned()]);
        assert_eq!(kinds, [missing("f0"), missing("f3"), unknown]);
        assert!(steps < 20, "{steps}");
        let SchemaKind::Object(schema) = object(3, false).kind else { panic!() };
        let given = json!({"f2": 1, "f0": 2}).as_object().unwrap().clone();
        let conformed = schema.conform(given).unwrap();
        assert_eq!(conformed.keys().collect::<Vec<_>>(), ["f0", "f2"]);
    }

    #[test]
    fn t205_a_value_with_too_many_parts_is_refused() {
        let schema = |items: Schema| {
            let array = ArraySchema { items: Some(Box::new(items)), ..ArraySchema::default() };
            Schema::from(SchemaKind::Array(array))
        };
        let parts = |count: usize| json!(vec![Value::Null; count]);
        let any = || Schema::from(SchemaKind::Any);
        let refused = schema(any()).conform(parts(STEPS_MAX)).unwrap_err();
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].kind, ViolationKind::TooManySteps);
        assert!(schema(any()).conform(parts(STEPS_MAX / 4)).is_ok(), "the twin has fewer");
    }
}
