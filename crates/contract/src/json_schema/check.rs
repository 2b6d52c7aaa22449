//! Checks a value against a compiled schema, within a limit of steps.

use super::compile::{Keyword, Keywords, PropertyRules, Subschema, TypeName};
use super::mismatch::{Mismatch, MismatchCause, Segment};
use super::{MismatchKind, SchemaMismatch};
use crate::call::TOO_MANY_STEPS;
use crate::conform::VIOLATIONS_MAX;
use crate::format::matches_format;
use crate::message_text::json_type_name;
use crate::number::{canonical_text, compare_numbers, is_multiple_of, is_whole, json_equal};
use crate::step_budget::StepBudget;
use serde_json::{Map, Number, Value};
use std::cmp::{Ordering, Reverse};
use std::collections::HashSet;
use std::sync::Arc;

/// Steps of a mismatch, beside one for each level of its path.
const MISMATCH_STEPS: usize = 4;
/// Steps of a division of decimal numbers.
const DIVISION_STEPS: usize = 16;

/// What the keywords of a schema have evaluated, for `unevaluatedItems` and
/// `unevaluatedProperties`.
#[derive(Default)]
struct Evaluated<'a> {
    properties: HashSet<&'a str>,
    /// Items before this index.
    first_items: usize,
    items: HashSet<usize>,
}

impl Evaluated<'_> {
    fn extend(&mut self, other: Self) {
        self.properties.extend(other.properties);
        self.first_items = self.first_items.max(other.first_items);
        self.items.extend(other.items);
    }
}

pub(super) struct ValueChecker<'a, 'b> {
    /// Path of the current value.
    path: Vec<Segment<'a>>,
    mismatches: Vec<Mismatch<'a>>,
    /// After this many the check stops.
    mismatches_max: usize,
    budget: &'b mut StepBudget,
    /// Whether the schema asks what was evaluated.
    tracks: bool,
}

/// The first mismatches of a value.
pub(super) fn check_all(
    schema: &Subschema,
    value: &Value,
    tracks: bool,
    budget: &mut StepBudget,
) -> Vec<SchemaMismatch> {
    let mut checker = ValueChecker::new(budget, VIOLATIONS_MAX, tracks);
    checker.check_value(schema, value);
    if !checker.budget.is_exhausted() {
        return checker.mismatches.iter().map(Mismatch::to_reported).collect();
    }
    let message = TOO_MANY_STEPS.to_owned();
    vec![SchemaMismatch { path: String::new(), kind: MismatchKind::Other, message }]
}

impl<'a, 'b> ValueChecker<'a, 'b> {
    fn new(budget: &'b mut StepBudget, mismatches_max: usize, tracks: bool) -> Self {
        Self { path: Vec::new(), mismatches: Vec::new(), mismatches_max, budget, tracks }
    }

    /// Whether further checks could not change the result.
    fn is_done(&self) -> bool {
        self.budget.is_exhausted() || self.mismatches.len() >= self.mismatches_max
    }

    fn add_mismatch(&mut self, cause: MismatchCause<'a>) {
        self.budget.spend_steps(MISMATCH_STEPS + self.path.len());
        if !self.is_done() {
            self.mismatches.push(Mismatch { path: self.path.clone(), cause });
        }
    }

    fn add_mismatch_at(&mut self, segment: Segment<'a>, cause: MismatchCause<'a>) {
        self.path.push(segment);
        self.add_mismatch(cause);
        self.path.pop();
    }

    fn check_child(&mut self, segment: Segment<'a>, schema: &'a Subschema, value: &'a Value) {
        self.path.push(segment);
        self.check_value(schema, value);
        self.path.pop();
    }

    /// The first mismatches of a schema that the value need not match.
    fn attempt_schema(
        &mut self,
        schema: &'a Subschema,
        value: &'a Value,
        mismatches_max: usize,
    ) -> (Vec<Mismatch<'a>>, Evaluated<'a>) {
        let outer = std::mem::take(&mut self.mismatches);
        let outer_max = std::mem::replace(&mut self.mismatches_max, mismatches_max);
        let evaluated = self.check_value(schema, value);
        self.mismatches_max = outer_max;
        (std::mem::replace(&mut self.mismatches, outer), evaluated)
    }

    /// What the schema evaluates, if the value matches it.
    fn match_schema(&mut self, schema: &'a Subschema, value: &'a Value) -> Option<Evaluated<'a>> {
        let (mismatches, evaluated) = self.attempt_schema(schema, value, 1);
        mismatches.is_empty().then_some(evaluated)
    }

    fn check_value(&mut self, schema: &'a Subschema, value: &'a Value) -> Evaluated<'a> {
        self.budget.spend_steps(1);
        let mut evaluated = Evaluated::default();
        let keywords = match &schema.keywords {
            Keywords::Any => return evaluated,
            Keywords::Never => {
                self.add_mismatch(MismatchCause::NotAllowed);
                return evaluated;
            }
            Keywords::All(keywords) => keywords,
        };
        for keyword in keywords {
            self.budget.spend_steps(1);
            if self.is_done() {
                break;
            }
            match (keyword, value) {
                (Keyword::Type(names), _) => {
                    // Further mismatches of a value of the wrong type do not help to fix it.
                    if !self.check_type(names, value) {
                        break;
                    }
                }
                (Keyword::Enum(_) | Keyword::Const(_), _) => self.check_choice(keyword, value),
                (_, Value::Object(members)) => {
                    self.check_object(keyword, members, value, &mut evaluated);
                }
                (_, Value::Array(items)) => self.check_array(keyword, items, &mut evaluated),
                (_, Value::String(text)) => self.check_text(keyword, text),
                (_, Value::Number(number)) => self.check_number(keyword, number),
                (_, Value::Null | Value::Bool(_)) => {}
            }
            self.check_combination(keyword, value, &mut evaluated);
        }
        evaluated
    }

    fn check_type(&mut self, names: &'a [TypeName], value: &'a Value) -> bool {
        let is = |name: &TypeName| match (name, value) {
            (TypeName::Number, Value::Number(_)) => true,
            (TypeName::Integer, Value::Number(number)) => is_whole(number),
            (name, value) => json_type_name(value) == name.name() && !value.is_number(),
        };
        let matches = names.iter().any(is);
        if !matches {
            self.add_mismatch(MismatchCause::Type { names: names.to_vec(), found: value });
        }
        matches
    }

    fn check_choice(&mut self, keyword: &'a Keyword, value: &Value) {
        match keyword {
            Keyword::Const(only) if !json_equal(only, value, self.budget) => {
                self.add_mismatch(MismatchCause::NotEqual(only));
            }
            Keyword::Enum(choices) if !choices.contains(value, self.budget) => {
                self.add_mismatch(MismatchCause::NotOneOf(choices.values()));
            }
            _ => {}
        }
    }

    fn check_number(&mut self, keyword: &'a Keyword, number: &Number) {
        let is = |bound: &Number| compare_numbers(number, bound);
        let (relation, bound) = match keyword {
            Keyword::Minimum(bound) if is(bound).is_lt() => ("at least", bound),
            Keyword::Maximum(bound) if is(bound).is_gt() => ("at most", bound),
            Keyword::ExclusiveMinimum(bound) if is(bound).is_le() => ("greater than", bound),
            Keyword::ExclusiveMaximum(bound) if is(bound).is_ge() => ("less than", bound),
            Keyword::MultipleOf(divisor) => {
                self.budget.spend_steps(DIVISION_STEPS);
                if is_multiple_of(number, divisor) {
                    return;
                }
                ("a multiple of", divisor)
            }
            _ => return,
        };
        self.add_mismatch(MismatchCause::Number { relation, bound });
    }

    fn check_text(&mut self, keyword: &'a Keyword, text: &str) {
        match keyword {
            Keyword::MinLength(least) => {
                self.budget.spend_text(text);
                self.check_count(text.chars().count(), *least, Ordering::Less, "characters");
            }
            Keyword::MaxLength(most) => {
                self.budget.spend_text(text);
                self.check_count(text.chars().count(), *most, Ordering::Greater, "characters");
            }
            Keyword::Pattern(pattern) if !pattern.is_match(text, self.budget) => {
                self.add_mismatch(MismatchCause::Pattern(&pattern.text));
            }
            Keyword::Format(format) => {
                self.budget.spend_text(text);
                if !matches_format(*format, text) {
                    self.add_mismatch(MismatchCause::Format(*format));
                }
            }
            _ => {}
        }
    }

    /// Adds a mismatch if the count is on the wrong side of a bound.
    fn check_count(&mut self, count: usize, bound: u64, wrong: Ordering, of: &'static str) {
        if (count as u64).cmp(&bound) == wrong {
            let side = if wrong == Ordering::Less { "least" } else { "most" };
            self.add_mismatch(MismatchCause::Count { side, bound, of });
        }
    }

    fn check_array(
        &mut self,
        keyword: &'a Keyword,
        items: &'a [Value],
        evaluated: &mut Evaluated<'a>,
    ) {
        match keyword {
            Keyword::MinItems(least) => {
                self.check_count(items.len(), *least, Ordering::Less, "items");
            }
            Keyword::MaxItems(most) => {
                self.check_count(items.len(), *most, Ordering::Greater, "items");
            }
            Keyword::UniqueItems => self.check_unique(items),
            Keyword::Items { prefix, rest } => {
                let schemas = prefix.iter().map(Some).chain(std::iter::repeat(rest.as_ref()));
                for (index, (item, schema)) in items.iter().zip(schemas).enumerate() {
                    let Some(schema) = schema.filter(|_| !self.is_done()) else { break };
                    self.check_child(Segment::Index(index), schema, item);
                }
                let count = if rest.is_some() { items.len() } else { prefix.len() };
                evaluated.first_items = evaluated.first_items.max(count);
            }
            Keyword::Contains { schema, min, max, evaluates } => {
                self.check_contains((schema, *min, *max, *evaluates), items, evaluated);
            }
            Keyword::UnevaluatedItems(schema) => {
                for (index, item) in items.iter().enumerate().skip(evaluated.first_items) {
                    self.budget.spend_steps(1);
                    if self.is_done() {
                        break;
                    }
                    if !evaluated.items.contains(&index) {
                        self.check_child(Segment::Index(index), schema, item);
                    }
                }
                evaluated.first_items = items.len();
            }
            _ => {}
        }
    }

    fn check_unique(&mut self, items: &[Value]) {
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let text = canonical_text(item);
            self.budget.spend_text(&text);
            if self.is_done() {
                return;
            }
            if !seen.insert(text) {
                self.add_mismatch_at(Segment::Index(index), MismatchCause::Duplicate);
            }
        }
    }

    fn check_contains(
        &mut self,
        (schema, min, max, evaluates): (&'a Subschema, u64, Option<u64>, bool),
        items: &'a [Value],
        evaluated: &mut Evaluated<'a>,
    ) {
        let mut count = 0;
        for (index, item) in items.iter().enumerate() {
            if self.budget.is_exhausted() {
                return;
            }
            if self.match_schema(schema, item).is_some() {
                count += 1;
                if self.tracks && evaluates {
                    evaluated.items.insert(index);
                }
            }
        }
        let of = "items that match \"contains\"";
        self.check_count(count, min, Ordering::Less, of);
        if let Some(max) = max {
            self.check_count(count, max, Ordering::Greater, of);
        }
    }

    fn check_object(
        &mut self,
        keyword: &'a Keyword,
        members: &'a Map<String, Value>,
        value: &'a Value,
        evaluated: &mut Evaluated<'a>,
    ) {
        match keyword {
            Keyword::MinProperties(least) => {
                self.check_count(members.len(), *least, Ordering::Less, "properties");
            }
            Keyword::MaxProperties(most) => {
                self.check_count(members.len(), *most, Ordering::Greater, "properties");
            }
            Keyword::Required(names) => self.check_required(names, members, None),
            Keyword::Properties(rules) => self.check_properties(rules, members, evaluated),
            Keyword::PropertyNames(schema) => self.check_names(schema, members),
            Keyword::DependentRequired(all) => {
                for (name, required) in all {
                    if self.has_member(members, name) {
                        self.check_required(required, members, Some(name));
                    }
                }
            }
            Keyword::DependentSchemas(all) => {
                for (name, schema) in all {
                    if self.has_member(members, name) {
                        let inner = self.check_value(schema, value);
                        self.merge_evaluated(evaluated, inner);
                    }
                }
            }
            Keyword::UnevaluatedProperties(schema) => {
                for (name, member) in members {
                    self.budget.spend_text(name);
                    if self.is_done() {
                        return;
                    }
                    if !evaluated.properties.contains(name.as_str()) {
                        self.check_additional(schema, name, member, &[]);
                    }
                }
                evaluated.properties.extend(members.keys().map(String::as_str));
            }
            _ => {}
        }
    }

    fn has_member(&mut self, members: &Map<String, Value>, name: &str) -> bool {
        self.budget.spend_text(name);
        !self.is_done() && members.contains_key(name)
    }

    fn check_names(&mut self, schema: &Subschema, members: &'a Map<String, Value>) {
        for name in members.keys() {
            self.budget.spend_text(name);
            if self.is_done() {
                return;
            }
            let value = Value::String(name.clone());
            let mut checker = ValueChecker::new(self.budget, 1, false);
            checker.check_value(schema, &value);
            let message = checker.mismatches.first().map(|mismatch| mismatch.cause.message());
            if let Some(message) = message {
                self.budget.spend_text(&message);
                self.add_mismatch_at(Segment::Name(name), MismatchCause::Name(message));
            }
        }
    }

    fn check_required(
        &mut self,
        names: &'a [String],
        members: &Map<String, Value>,
        required_by: Option<&'a str>,
    ) {
        for name in names {
            self.budget.spend_text(name);
            if self.is_done() {
                return;
            }
            if !members.contains_key(name) {
                self.add_mismatch_at(Segment::Name(name), MismatchCause::Missing { required_by });
            }
        }
    }

    fn check_properties(
        &mut self,
        rules: &'a PropertyRules,
        members: &'a Map<String, Value>,
        evaluated: &mut Evaluated<'a>,
    ) {
        for (name, member) in members {
            self.budget.spend_text(name);
            if self.is_done() {
                return;
            }
            let property = rules.properties.get(name);
            let mut is_known = property.is_some();
            if let Some(schema) = property {
                self.check_child(Segment::Name(name), schema, member);
            }
            for (pattern, schema) in &rules.patterns {
                if pattern.is_match(name, self.budget) {
                    is_known = true;
                    self.check_child(Segment::Name(name), schema, member);
                }
            }
            match &rules.additional {
                Some(schema) if !is_known => {
                    self.check_additional(schema, name, member, &rules.names);
                }
                None if !is_known => continue,
                _ => {}
            }
            if self.tracks {
                evaluated.properties.insert(name);
            }
        }
    }

    /// Checks a property that no other keyword is about.
    fn check_additional(
        &mut self,
        schema: &'a Subschema,
        name: &'a str,
        member: &'a Value,
        known: &'a [String],
    ) {
        if self.is_done() {
            return;
        }
        if matches!(schema.keywords, Keywords::Never) {
            self.add_mismatch_at(Segment::Name(name), MismatchCause::Unknown { known });
        } else {
            self.check_child(Segment::Name(name), schema, member);
        }
    }

    /// Checks the keywords that apply schemas to the value itself, whatever its type.
    fn check_combination(
        &mut self,
        keyword: &'a Keyword,
        value: &'a Value,
        evaluated: &mut Evaluated<'a>,
    ) {
        match keyword {
            Keyword::AllOf(schemas) => {
                for schema in schemas {
                    let inner = self.check_value(schema, value);
                    self.merge_evaluated(evaluated, inner);
                }
            }
            Keyword::AnyOf(schemas) => self.check_branches(schemas, value, evaluated, false),
            Keyword::OneOf(schemas) => self.check_branches(schemas, value, evaluated, true),
            Keyword::Not(schema) if self.match_schema(schema, value).is_some() => {
                self.add_mismatch(MismatchCause::MatchesNot);
            }
            Keyword::Conditional { condition, then, otherwise } => {
                let branch = match self.match_schema(condition, value) {
                    Some(inner) => {
                        self.merge_evaluated(evaluated, inner);
                        then
                    }
                    None => otherwise,
                };
                if let Some(schema) = branch {
                    let inner = self.check_value(schema, value);
                    self.merge_evaluated(evaluated, inner);
                }
            }
            _ => {}
        }
    }

    fn merge_evaluated(&mut self, evaluated: &mut Evaluated<'a>, inner: Evaluated<'a>) {
        if self.tracks {
            self.budget.spend_steps(inner.items.len());
            inner.properties.iter().for_each(|name| self.budget.spend_text(name));
            evaluated.extend(inner);
        }
    }

    fn check_branches(
        &mut self,
        schemas: &'a [Arc<Subschema>],
        value: &'a Value,
        evaluated: &mut Evaluated<'a>,
        exactly_one: bool,
    ) {
        let mut failed = Vec::new();
        let mut matching = 0;
        for schema in schemas {
            if self.budget.is_exhausted() {
                return;
            }
            let (mismatches, inner) = self.attempt_schema(schema, value, 1);
            if !mismatches.is_empty() {
                failed.push(mismatches);
                continue;
            }
            matching += 1;
            self.merge_evaluated(evaluated, inner);
            if !self.tracks && !exactly_one {
                return;
            }
        }
        match matching {
            0 if self.mismatches_max == 1 => self.add_nearest(failed, value),
            0 => {
                let most = self.mismatches_max;
                let attempts = schemas.iter();
                let failed = attempts.map(|schema| self.attempt_schema(schema, value, most).0);
                let failed = failed.collect();
                self.add_nearest(failed, value);
            }
            1 => {}
            _ if exactly_one => self.add_mismatch(MismatchCause::MatchesSeveral(matching)),
            _ => {}
        }
    }

    /// Adds the mismatches of the branch that was most likely meant: the one that differs the
    /// deepest, and in the fewest places. If every branch is for another type, names all the types.
    fn add_nearest(&mut self, failed: Vec<Vec<Mismatch<'a>>>, value: &'a Value) {
        let types = failed.iter().map(|mismatches| match mismatches.as_slice() {
            [Mismatch { path, cause: MismatchCause::Type { names, .. } }]
                if path.len() == self.path.len() =>
            {
                Some(names.as_slice())
            }
            _ => None,
        });
        if let Some(names) = types.collect::<Option<Vec<_>>>() {
            return self.add_mismatch(MismatchCause::Type { names: names.concat(), found: value });
        }
        let nearest = failed.into_iter().min_by_key(|mismatches| {
            let shallowest = mismatches.iter().map(|mismatch| mismatch.path.len()).min();
            (Reverse(shallowest), mismatches.len())
        });
        let room = self.mismatches_max.saturating_sub(self.mismatches.len());
        self.mismatches.extend(nearest.unwrap_or_default().into_iter().take(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_schema::JsonSchema;
    use crate::step_budget::STEPS_MAX;
    use serde_json::json;

    /// The steps of a check, and the number of mismatches.
    fn check(schema: Value, value: Value) -> (usize, usize) {
        let schema = JsonSchema::new(&schema).unwrap();
        let mut budget = StepBudget::new();
        let mismatches = schema.find_mismatches_within(&value, &mut budget);
        (STEPS_MAX - budget.steps_left(), mismatches.len())
    }

    #[test]
    fn t204_an_attempt_ends_with_its_first_mismatch() {
        let texts = json!({"items": {"items": {"type": "string"}}});
        let numbers = vec![vec![0; 100]; 100];
        for schema in [
            json!({"not": texts}),
            json!({"if": texts, "then": false}),
            json!({"contains": texts["items"], "minContains": 0}),
            json!({"anyOf": [texts, {"type": "array"}]}),
            json!({"oneOf": [texts, {"type": "array"}]}),
        ] {
            let (steps, mismatches) = check(schema.clone(), json!(numbers));
            assert_eq!(mismatches, 0, "{schema}");
            assert!(steps < 100 * 20, "{schema}: {steps}");
            let (steps, _) = check(schema.clone(), json!(vec![vec!["a"; 100]; 100]));
            assert!(steps > 100 * 100, "the twin is read to its end: {schema}: {steps}");
        }
    }

    #[test]
    fn t204_a_mismatch_in_an_attempt_copies_no_path() {
        let key = "k".repeat(500_000);
        let branch = |kind: &str| json!({"additionalProperties": {"items": {"type": kind}}});
        let schema = json!({"anyOf": [branch("string"), branch("number")]});
        let (steps, mismatches) = check(schema, json!({ key: vec![0; 1_000] }));
        assert_eq!(mismatches, 0);
        assert!(steps < 100_000, "{steps}");
    }

    #[test]
    fn t204_steps_grow_with_the_texts_and_values_that_are_read() {
        let text = "a:".repeat(8_000);
        let draft_7 = "http://json-schema.org/draft-07/schema#";
        for (schema, value) in [
            (json!({"$schema": draft_7, "format": "uri"}), json!(text)),
            (json!({"const": text}), json!(text)),
            (json!({"enum": [text, 1]}), json!(text)),
            (json!({"enum": [{"a": [text]}]}), json!({"a": [text]})),
            (json!({"uniqueItems": true}), json!([text])),
            (json!({"maxLength": 100_000}), json!(text)),
            (json!({"propertyNames": true}), json!({text.as_str(): 1})),
            (json!({"properties": {"a": {}}}), json!({text.as_str(): 1})),
            (json!({"required": [text]}), json!({text.as_str(): 1})),
            (json!({"unevaluatedProperties": true}), json!({text.as_str(): 1})),
            (json!({"const": vec![0; 1_000]}), json!(vec![0; 1_000])),
            (json!({"multipleOf": 5e-324, "items": {}}), json!(1e308)),
        ] {
            let shown: String = schema.to_string().chars().take(60).collect();
            let (steps, mismatches) = check(schema, value.clone());
            assert_eq!(mismatches, 0, "{shown}");
            let least = if value.is_number() { DIVISION_STEPS } else { 1_000 };
            assert!((least..least * 4).contains(&steps), "{shown}: {steps}");
            let (steps, _) = check(json!({"type": ["string", "array", "object", "number"]}), value);
            assert!(steps < 5, "the twin does not read it: {steps}");
        }
    }

    #[test]
    fn t204_choices_take_no_steps_for_their_number() {
        let choices: Vec<String> = (0..9_000).map(|n| format!("choice {n}")).collect();
        let values: Vec<String> = (0..9_000).map(|n| format!("choice {n}")).collect();
        let (steps, mismatches) = check(json!({"items": {"enum": choices}}), json!(values));
        assert_eq!(mismatches, 0);
        assert!(steps < 9_000 * 6, "{steps}");
    }
}
