//! Checks a value against a compiled schema, within a limit of steps.

use super::compile::{Keyword, Keywords, Pattern, PropertyRules, Subschema, TypeName};
use super::{MismatchKind, SchemaMismatch};
use crate::call::{describe_value, json_type_name, truncate_message};
use crate::conform::VIOLATIONS_MAX;
use crate::format::matches_format;
use crate::number::{canonical_text, compare_numbers, is_multiple_of, is_whole, json_equal};
use crate::schema::SchemaFormat;
use serde_json::{Map, Number, Value};
use std::cmp::{Ordering, Reverse};
use std::collections::HashSet;
use std::sync::Arc;

/// A keyword of one value takes one step or more. Arguments of the largest size have half a million
/// values; more than forty keywords for each take seconds.
const STEPS_MAX: usize = 20_000_000;
/// Characters of a text that are read in the time of a step.
const STEP_CHARS: usize = 8;
/// A message takes as long as this many steps.
const MESSAGE_STEPS: usize = 20;
/// Choices and names in a message; a reader finds the right one in the schema.
const SHOWN_MAX: usize = 50;
const UUID_EXAMPLE: &str = "0198c0de-0000-7000-8000-000000000000";

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
    fn len(&self) -> usize {
        self.properties.len() + self.items.len()
    }

    fn extend(&mut self, other: Self) {
        self.properties.extend(other.properties);
        self.first_items = self.first_items.max(other.first_items);
        self.items.extend(other.items);
    }
}

pub(super) struct ValueChecker {
    /// JSON pointer of the current value.
    path: String,
    mismatches: Vec<SchemaMismatch>,
    steps: usize,
    /// Whether the schema asks what was evaluated.
    tracks: bool,
}

impl ValueChecker {
    pub(super) fn check_all(
        schema: &Subschema,
        value: &Value,
        tracks: bool,
    ) -> Vec<SchemaMismatch> {
        let mut checker =
            Self { path: String::new(), mismatches: Vec::new(), steps: STEPS_MAX, tracks };
        checker.check(schema, value);
        if checker.steps > 0 {
            return checker.mismatches;
        }
        let message = "takes too long to check against the schema; make it smaller".to_owned();
        vec![SchemaMismatch { path: String::new(), kind: MismatchKind::Other, message }]
    }

    fn spend(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
    }

    /// Whether further checks could not change the result.
    fn is_done(&self) -> bool {
        self.steps == 0 || self.mismatches.len() >= VIOLATIONS_MAX
    }

    fn add(&mut self, message: String) {
        self.add_as(MismatchKind::Other, message);
    }

    fn add_as(&mut self, kind: MismatchKind, message: String) {
        self.spend(MESSAGE_STEPS);
        if !self.is_done() {
            let message = truncate_message(&message);
            self.mismatches.push(SchemaMismatch { path: self.path.clone(), kind, message });
        }
    }

    fn at<T>(&mut self, segment: &str, work: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        super::push_segment(&mut self.path, segment);
        let done = work(self);
        self.path.truncate(length);
        done
    }

    /// The mismatches of a schema that need not match.
    fn attempt<'a>(
        &mut self,
        schema: &Subschema,
        value: &'a Value,
    ) -> (Vec<SchemaMismatch>, Evaluated<'a>) {
        let outer = std::mem::take(&mut self.mismatches);
        let evaluated = self.check(schema, value);
        (std::mem::replace(&mut self.mismatches, outer), evaluated)
    }

    fn check<'a>(&mut self, schema: &Subschema, value: &'a Value) -> Evaluated<'a> {
        self.spend(1);
        let mut evaluated = Evaluated::default();
        let keywords = match &schema.keywords {
            Keywords::Any => return evaluated,
            Keywords::Never => {
                self.add("is not allowed".to_owned());
                return evaluated;
            }
            Keywords::All(keywords) => keywords,
        };
        for keyword in keywords {
            if self.is_done() {
                break;
            }
            self.spend(1);
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
            self.apply(keyword, value, &mut evaluated);
        }
        evaluated
    }

    fn check_type(&mut self, names: &[TypeName], value: &Value) -> bool {
        let is = |name: &TypeName| match (name, value) {
            (TypeName::Number, Value::Number(_)) => true,
            (TypeName::Integer, Value::Number(number)) => is_whole(number),
            (name, value) => json_type_name(value) == name.name() && !value.is_number(),
        };
        let matches = names.iter().any(is);
        if !matches {
            self.add_type(names.to_vec(), value);
        }
        matches
    }

    fn add_type(&mut self, mut names: Vec<TypeName>, value: &Value) {
        names = TypeName::ALL.into_iter().filter(|name| names.contains(name)).collect();
        let expected = names.iter().map(|name| name.name()).collect::<Vec<_>>().join(" or ");
        let message = format!("must be {expected}, but is {}", describe_value(value));
        self.add_as(MismatchKind::Type(names), message);
    }

    fn check_choice(&mut self, keyword: &Keyword, value: &Value) {
        match keyword {
            Keyword::Const(only) if !json_equal(only, value) => self.add(format!("must be {only}")),
            Keyword::Enum(choices) => {
                self.spend(choices.len());
                if !choices.iter().any(|choice| json_equal(choice, value)) {
                    let choices = choices.iter().map(Value::to_string);
                    self.add(format!("must be one of {}", join(choices)));
                }
            }
            _ => {}
        }
    }

    fn check_number(&mut self, keyword: &Keyword, number: &Number) {
        let is = |bound: &Number| compare_numbers(number, bound);
        match keyword {
            Keyword::Minimum(bound) if is(bound).is_lt() => {
                self.add(format!("must be at least {bound}"));
            }
            Keyword::Maximum(bound) if is(bound).is_gt() => {
                self.add(format!("must be at most {bound}"));
            }
            Keyword::ExclusiveMinimum(bound) if is(bound).is_le() => {
                self.add(format!("must be greater than {bound}"));
            }
            Keyword::ExclusiveMaximum(bound) if is(bound).is_ge() => {
                self.add(format!("must be less than {bound}"));
            }
            Keyword::MultipleOf(divisor) if !is_multiple_of(number, divisor) => {
                self.add(format!("must be a multiple of {divisor}"));
            }
            _ => {}
        }
    }

    fn check_text(&mut self, keyword: &Keyword, text: &str) {
        match keyword {
            Keyword::MinLength(least) => {
                self.spend(text.len() / STEP_CHARS);
                self.check_count(text.chars().count(), *least, Ordering::Less, "characters");
            }
            Keyword::MaxLength(most) => {
                self.spend(text.len() / STEP_CHARS);
                self.check_count(text.chars().count(), *most, Ordering::Greater, "characters");
            }
            Keyword::Pattern(pattern) if !self.matches(pattern, text) => {
                self.add(format!("must match the pattern {}", pattern.text));
            }
            Keyword::Format(format) if !matches_format(*format, text) => self.add(match format {
                SchemaFormat::Uuid => format!("must be an id (UUID), such as {UUID_EXAMPLE}"),
                format => format!("must have the format {}", format.name()),
            }),
            _ => {}
        }
    }

    fn matches(&mut self, pattern: &Pattern, text: &str) -> bool {
        self.spend(1 + text.len() / STEP_CHARS);
        self.steps > 0 && pattern.regex.is_match(text)
    }

    /// Adds a mismatch if the count is on the wrong side of a bound.
    fn check_count(&mut self, count: usize, bound: u64, wrong: Ordering, of: &str) {
        if (count as u64).cmp(&bound) == wrong {
            let side = if wrong == Ordering::Less { "least" } else { "most" };
            self.add(format!("must have at {side} {bound} {of}"));
        }
    }

    fn check_array<'a>(
        &mut self,
        keyword: &Keyword,
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
                    let Some(schema) = schema else { break };
                    self.check_item(schema, index, item);
                }
                let count = if rest.is_some() { items.len() } else { prefix.len() };
                evaluated.first_items = evaluated.first_items.max(count);
            }
            Keyword::Contains { schema, min, max, evaluates } => {
                self.check_contains((schema, *min, *max, *evaluates), items, evaluated);
            }
            Keyword::UnevaluatedItems(schema) => {
                for (index, item) in items.iter().enumerate().skip(evaluated.first_items) {
                    if !evaluated.items.contains(&index) {
                        self.check_item(schema, index, item);
                    }
                }
                evaluated.first_items = items.len();
            }
            _ => {}
        }
    }

    fn check_item(&mut self, schema: &Subschema, index: usize, item: &Value) {
        if !self.is_done() {
            self.at(&index.to_string(), |checker| {
                checker.check(schema, item);
            });
        }
    }

    fn check_unique(&mut self, items: &[Value]) {
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let text = canonical_text(item);
            self.spend(1 + text.len() / STEP_CHARS);
            if self.is_done() {
                return;
            }
            if !seen.insert(text) {
                self.at(&index.to_string(), |checker| {
                    checker.add("must not be equal to an earlier item".to_owned());
                });
            }
        }
    }

    fn check_contains(
        &mut self,
        (schema, min, max, evaluates): (&Subschema, u64, Option<u64>, bool),
        items: &[Value],
        evaluated: &mut Evaluated<'_>,
    ) {
        let mut count = 0;
        for (index, item) in items.iter().enumerate() {
            if self.steps > 0 && self.attempt(schema, item).0.is_empty() {
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

    fn check_object<'a>(
        &mut self,
        keyword: &Keyword,
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
            Keyword::PropertyNames(schema) => {
                for name in members.keys() {
                    self.spend(1);
                    let (mismatches, _) = self.attempt(schema, &Value::String(name.clone()));
                    if let Some(mismatch) = mismatches.into_iter().next() {
                        let message = format!("its name {}", mismatch.message);
                        self.at(name, |checker| checker.add(message));
                    }
                }
            }
            Keyword::DependentRequired(all) => {
                for (name, required) in all.iter().filter(|(name, _)| members.contains_key(name)) {
                    self.check_required(required, members, Some(name));
                }
            }
            Keyword::DependentSchemas(all) => {
                for (_, schema) in all.iter().filter(|(name, _)| members.contains_key(name)) {
                    let inner = self.check(schema, value);
                    self.merge(evaluated, inner);
                }
            }
            Keyword::UnevaluatedProperties(schema) => {
                for (name, member) in members {
                    self.spend(1);
                    if !evaluated.properties.contains(name.as_str()) {
                        self.check_rest(schema, name, member, &[]);
                    }
                }
                evaluated.properties.extend(members.keys().map(String::as_str));
            }
            _ => {}
        }
    }

    fn check_required(
        &mut self,
        names: &[String],
        members: &Map<String, Value>,
        because_of: Option<&str>,
    ) {
        self.spend(names.len());
        for name in names.iter().filter(|name| !members.contains_key(*name)) {
            let message = match because_of {
                Some(other) => format!("is missing; {other:?} requires it"),
                None => "is missing".to_owned(),
            };
            self.at(name, |checker| checker.add_as(MismatchKind::Missing, message));
        }
    }

    fn check_properties<'a>(
        &mut self,
        rules: &PropertyRules,
        members: &'a Map<String, Value>,
        evaluated: &mut Evaluated<'a>,
    ) {
        for (name, member) in members {
            if self.is_done() {
                return;
            }
            self.spend(1);
            let property = rules.properties.get(name);
            let mut is_known = property.is_some();
            if let Some(schema) = property {
                self.at(name, |checker| {
                    checker.check(schema, member);
                });
            }
            for (pattern, schema) in &rules.patterns {
                if self.matches(pattern, name) {
                    is_known = true;
                    self.at(name, |checker| {
                        checker.check(schema, member);
                    });
                }
            }
            match &rules.additional {
                Some(schema) if !is_known => self.check_rest(schema, name, member, &rules.names),
                None if !is_known => continue,
                _ => {}
            }
            if self.tracks {
                evaluated.properties.insert(name);
            }
        }
    }

    /// Checks a property that no other keyword is about.
    fn check_rest(&mut self, schema: &Subschema, name: &str, member: &Value, known: &[String]) {
        if self.is_done() {
            return;
        }
        self.at(name, |checker| {
            if !matches!(schema.keywords, Keywords::Never) {
                checker.check(schema, member);
                return;
            }
            let message = match known {
                [] => "is unknown".to_owned(),
                known => format!("is unknown; use one of {}", join(known.iter().cloned())),
            };
            checker.add_as(MismatchKind::Unknown, message);
        });
    }

    /// Keywords for values of every type, which apply schemas to the value itself.
    fn apply<'a>(&mut self, keyword: &Keyword, value: &'a Value, evaluated: &mut Evaluated<'a>) {
        match keyword {
            Keyword::AllOf(schemas) => {
                for schema in schemas {
                    let inner = self.check(schema, value);
                    self.merge(evaluated, inner);
                }
            }
            Keyword::AnyOf(schemas) => self.check_branches(schemas, value, evaluated, false),
            Keyword::OneOf(schemas) => self.check_branches(schemas, value, evaluated, true),
            Keyword::Not(schema) if self.attempt(schema, value).0.is_empty() => {
                self.add("must not match the schema in \"not\"".to_owned());
            }
            Keyword::Conditional { condition, then, otherwise } => {
                let (mismatches, inner) = self.attempt(condition, value);
                let branch = if mismatches.is_empty() {
                    self.merge(evaluated, inner);
                    then
                } else {
                    otherwise
                };
                if let Some(schema) = branch {
                    let inner = self.check(schema, value);
                    self.merge(evaluated, inner);
                }
            }
            _ => {}
        }
    }

    fn merge<'a>(&mut self, evaluated: &mut Evaluated<'a>, inner: Evaluated<'a>) {
        if self.tracks {
            self.spend(inner.len());
            evaluated.extend(inner);
        }
    }

    fn check_branches<'a>(
        &mut self,
        schemas: &[Arc<Subschema>],
        value: &'a Value,
        evaluated: &mut Evaluated<'a>,
        exactly_one: bool,
    ) {
        let mut failed = Vec::new();
        let mut matching = 0;
        for schema in schemas {
            let (mismatches, inner) = self.attempt(schema, value);
            if !mismatches.is_empty() {
                failed.push(mismatches);
                continue;
            }
            matching += 1;
            self.merge(evaluated, inner);
            if !self.tracks && !exactly_one {
                return;
            }
        }
        match matching {
            0 => self.add_nearest(failed, value),
            1 => {}
            _ if exactly_one => {
                self.add(format!("must match one schema of \"oneOf\", but matches {matching}"));
            }
            _ => {}
        }
    }

    /// Adds the mismatches of the branch that was most likely meant: the one that differs the
    /// deepest, and in the fewest places. If every branch is for another type, names all the types.
    fn add_nearest(&mut self, failed: Vec<Vec<SchemaMismatch>>, value: &Value) {
        let types = failed.iter().map(|mismatches| match mismatches.as_slice() {
            [SchemaMismatch { path, kind: MismatchKind::Type(names), .. }]
                if *path == self.path =>
            {
                Some(names.as_slice())
            }
            _ => None,
        });
        if let Some(names) = types.collect::<Option<Vec<_>>>() {
            return self.add_type(names.concat(), value);
        }
        let nearest = failed.into_iter().min_by_key(|mismatches| {
            let depth = |mismatch: &SchemaMismatch| mismatch.path.matches('/').count();
            let shallowest = mismatches.iter().map(depth).min();
            (Reverse(shallowest), mismatches.len())
        });
        let room = VIOLATIONS_MAX.saturating_sub(self.mismatches.len());
        self.mismatches.extend(nearest.unwrap_or_default().into_iter().take(room));
    }
}

fn join(shown: impl ExactSizeIterator<Item = String>) -> String {
    let more = (shown.len() > SHOWN_MAX).then(|| "…".to_owned());
    shown.take(SHOWN_MAX).chain(more).collect::<Vec<_>>().join(", ")
}
