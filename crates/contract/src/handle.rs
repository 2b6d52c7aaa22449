//! Importer 1: the annotations and the docstring of `handle` to a schema.

use crate::annotation::{Annotations, Reader};
use crate::call;
use crate::docstring;
use crate::expression::{Form, Written};
use crate::problem::{Finding, Findings};
use crate::python::{Function, Module, Parameter};
use crate::schema::{Kind, Object, Others, Property, Python, Schema};
use crate::source::{Source, Span};
use crate::tool::RUN;
use serde_json::Value;
use std::collections::BTreeSet;
use types::Code;

pub(crate) const HANDLE: &str = "handle";
/// Letters that were left out, doubled, changed or swapped.
const SLIPS_MAX: usize = 2;
const PRIMITIVE: &str =
    "str, int, float, bool, datetime.datetime, NodeId, or a list of one of them";

/// The schema of the arguments, or `None` when `findings` have the reasons.
pub(crate) fn import(
    module: &Module,
    source: &Source,
    annotations: Annotations,
    findings: &mut Findings,
) -> Option<Object> {
    let Some(handle) = module.function(HANDLE) else {
        findings.errors.push(not_found(module, source));
        return None;
    };
    for earlier in module.functions.iter().filter(|other| other.name == HANDLE) {
        if earlier.span != handle.span {
            let message = "handle() is defined again below; the last definition is used";
            findings.warnings.push(Finding::new(Code::CodeNoEntry, message).at(earlier.span));
        }
    }
    names(handle, findings);
    let mut object = Object { properties: Vec::new(), others: Others::NothingUnsaid };
    let mut types = Types {
        asked: Reader::new(module, annotations),
        extended: Reader::new(module, Annotations::Extended),
        annotations,
    };
    for parameter in &handle.parameters {
        object.properties.extend(types.property(parameter, findings));
    }
    describe(handle, source, &mut object, findings);
    Some(object)
}

pub(crate) fn not_found(module: &Module, source: &Source) -> Finding {
    let finding = Finding::new(Code::CodeNoEntry, crate::NO_HANDLE);
    if let Some((_, span)) = module.hidden.iter().find(|(name, _)| name == HANDLE) {
        let hint = "this one is inside of something else; `handle` must start at the left margin";
        return finding.at(*span).hint(hint);
    }
    let alike = module.functions.iter().find(|function| {
        let name = function.name.to_lowercase();
        name.starts_with(HANDLE)
            || name == "main"
            || strsim::damerau_levenshtein(&name, HANDLE) <= SLIPS_MAX
    });
    match alike.or(module.function(RUN)) {
        Some(function) if function.name == RUN => finding.at(function.span).hint(
            "a tool with run(input) has its schemas in a JSON file: `belljar tool new NAME --style \
             run` writes one; or name this function `handle`",
        ),
        Some(function) => finding
            .at(function.span)
            .hint(format!("name this function `handle` instead of `{}`", function.name)),
        None => finding
            .at(Span { start: 0, end: source.as_str().find('\n').unwrap_or(0) })
            .hint("a tool is a function: def handle(name: str) -> str"),
    }
}

/// What is wrong with the list of parameters, whatever their types.
fn names(handle: &Function, findings: &mut Findings) {
    let unannotated: Vec<&Parameter> =
        handle.parameters.iter().filter(|parameter| parameter.annotation.is_none()).collect();
    if let Some(first) = unannotated.first() {
        let names = unannotated.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
        let message = format!("Missing type annotation for parameter(s): {names}");
        let finding = Finding::new(Code::CodeAnnotation, message).at(first.span);
        findings.errors.push(finding.hint(format!("write `{}: str`, or {PRIMITIVE}", first.name)));
    }
    let (mut seen, mut seen_again) = (BTreeSet::new(), BTreeSet::new());
    let mut repeated: Vec<(&str, Span)> = Vec::new();
    let variadic = handle.variadic.iter().map(|(name, span)| (name.trim_start_matches('*'), *span));
    let all = handle.parameters.iter().map(|it| (it.name.as_str(), it.span)).chain(variadic);
    for (name, span) in all {
        if !seen.insert(name) && seen_again.insert(name) {
            repeated.push((name, span));
        }
    }
    if let Some((_, span)) = repeated.first() {
        let names = repeated.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let message = format!("Duplicate argument name(s) found: {names}");
        findings.errors.push(
            Finding::new(Code::CodeDuplicateArgument, message)
                .at(*span)
                .hint("each parameter needs a name of its own"),
        );
    }
    if let Some((_, span)) = handle.variadic.first() {
        let names = handle.variadic.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        let message = format!("Unsupported parameter(s): {}", names.join(", "));
        findings.errors.push(
            Finding::new(Code::CodeType, message)
                .at(*span)
                .hint("a contract names every argument; write each as a parameter of its own"),
        );
    }
}

/// Reads the types of all parameters.
struct Types<'a> {
    asked: Reader<'a>,
    /// To tell those who were refused.
    extended: Reader<'a>,
    annotations: Annotations,
}

impl Types<'_> {
    fn property(&mut self, parameter: &Parameter, findings: &mut Findings) -> Option<Property> {
        let annotation = parameter.annotation.as_ref()?;
        let name = &parameter.name;
        let mut schema = match self.asked.read(&annotation.form) {
            Ok(schema) => schema,
            Err(unsupported) => {
                let reason = unsupported.reason(&annotation.text);
                let message = format!("Unsupported type for parameter '{name}': {reason}");
                let finding = Finding::new(Code::CodeType, message).at(annotation.span);
                findings.errors.push(finding.hint(self.hint(annotation)));
                return None;
            }
        };
        if let Some(default) = &parameter.default {
            match read_default(&schema, default, self.annotations) {
                Ok(shown) => schema.default = shown,
                Err(reason) => {
                    let message = format!("Unsupported default for parameter '{name}': {reason}");
                    let finding = Finding::new(Code::CodeType, message).at(default.span);
                    findings.errors.push(finding.hint(self.default_hint(default)));
                }
            }
        }
        if let Some(missing) = self.asked.undefined(&annotation.form) {
            let message = format!("{missing} is not defined; calls will end in a NameError");
            let finding = Finding::new(Code::CodeAnnotation, message).at(annotation.span);
            findings.warnings.push(finding.hint(format!("import {missing}")));
        }
        Some(Property { name: name.clone(), required: parameter.default.is_none(), schema })
    }

    fn default_hint(&self, default: &Written) -> String {
        match (self.annotations, &default.form) {
            (Annotations::Strict, Form::Literal(Value::Null)) => {
                "give it a value of its type; `--extended` takes Optional[...] = None".to_owned()
            }
            (_, Form::Literal(_)) => "give it a value of its type".to_owned(),
            _ => "write the value itself, as text, a number, True or False".to_owned(),
        }
    }

    fn hint(&mut self, annotation: &Written) -> String {
        if let Some(missing) = self.extended.undefined(&annotation.form) {
            return format!("{missing} is not defined; import it, or use {PRIMITIVE}");
        }
        match self.annotations {
            Annotations::Strict if self.extended.read(&annotation.form).is_ok() => {
                format!("use {PRIMITIVE}; with `--extended` this one is taken too")
            }
            Annotations::Strict => format!("use {PRIMITIVE}"),
            Annotations::Extended => format!(
                "use {PRIMITIVE}; Optional, Literal, dict[str, ...], a TypedDict, a dataclass or \
                 a list of these"
            ),
        }
    }
}

/// The default as JSON, if it is one that a model can be shown.
fn read_default(
    schema: &Schema,
    default: &Written,
    annotations: Annotations,
) -> Result<Option<Value>, String> {
    if annotations == Annotations::Strict {
        if matches!(schema.kind, Kind::Array(_)) {
            return Err("default values are not supported for lists".into());
        }
        if matches!(schema.python, Some(Python::Datetime | Python::NodeId)) {
            return Err(
                "only primitive types (str, int, float, bool) support default values".into()
            );
        }
    }
    let is_primitive = schema.python.as_ref().is_none_or(|python| *python == Python::Float)
        && !matches!(schema.kind, Kind::Array(_) | Kind::Object(_) | Kind::Any);
    match &default.form {
        Form::Literal(value) => {
            let is_integral = matches!(schema.kind, Kind::Integer(_)) && value.is_f64();
            // Arguments are converted, and defaults are not: Python would see the text of a date.
            let is_raw = is_filled(value) && call::conversion(schema).is_some();
            match schema.conform(value.clone()) {
                Ok(value) if !is_integral && !is_raw => Ok(Some(value)),
                _ => Err(format!("{} is not of its type", default.text)),
            }
        }
        _ if is_primitive => Err(format!("{} is not a plain value", default.text)),
        // Made by Python when the argument is left out.
        _ => Ok(None),
    }
}

fn is_filled(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    }
}

/// Puts the descriptions of the docstring where they belong.
fn describe(handle: &Function, source: &Source, object: &mut Object, findings: &mut Findings) {
    let Some(docstring) = &handle.docstring else {
        let message = "handle() has no docstring; the agent will see no parameter descriptions";
        findings.warnings.push(Finding::new(Code::CodeDocstring, message).at(handle.span));
        return;
    };
    let mut descriptions = docstring::descriptions(docstring);
    for property in &mut object.properties {
        let description = descriptions.get(&property.name).filter(|text| !text.is_empty());
        property.schema.description = description.cloned();
    }
    let undescribed: Vec<&str> = handle
        .parameters
        .iter()
        .map(|parameter| parameter.name.as_str())
        .filter(|name| descriptions.get(*name).is_none_or(String::is_empty))
        .collect();
    if !undescribed.is_empty() {
        let message = format!(
            "the docstring of handle() does not describe parameter(s): {}",
            undescribed.join(", ")
        );
        let hint = match docstring::other_style(docstring) {
            Some(style) => format!("this is {style} style; only `Args:` of Google's style is read"),
            None => "describe each one under `Args:`, as `name: what it is`".to_owned(),
        };
        let finding = Finding::new(Code::CodeDocstring, message).at(handle.span);
        findings.warnings.push(finding.hint(hint));
    }
    let known: BTreeSet<&str> = handle.parameters.iter().map(|it| it.name.as_str()).collect();
    let variadic: BTreeSet<&str> =
        handle.variadic.iter().map(|(name, _)| name.trim_start_matches('*')).collect();
    descriptions
        .retain(|name, _| !known.contains(name.as_str()) && !variadic.contains(name.as_str()));
    if let Some(first) = descriptions.keys().next() {
        let names = descriptions.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let message = format!("The docstring documents parameter(s) that do not exist: {names}");
        findings.errors.push(
            Finding::new(Code::CodeDocstring, message)
                .at(docstring::span_of(first, docstring, source))
                .hint("remove it from `Args:`, or give handle() a parameter of that name"),
        );
    }
}
