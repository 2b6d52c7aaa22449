//! Importer 1: converts the annotations and the docstring of `handle` to a schema.

use crate::annotation::{AnnotationMode, AnnotationReader};
use crate::call;
use crate::diagnostic::{DiagnosticCollector, UnlocatedDiagnostic};
use crate::docstring;
use crate::expression::{ExpressionKind, SourceExpression};
use crate::python::{PythonFunction, PythonModule, PythonParameter};
use crate::schema::{
    AdditionalProperties, ObjectSchema, PropertySchema, PythonConversion, Schema, SchemaKind,
};
use crate::source::{PythonSource, Span};
use crate::tool::RUN_FUNCTION;
use serde_json::Value;
use std::collections::BTreeSet;
use types::ErrorCode;

pub(crate) const HANDLE: &str = "handle";
/// Letters that were omitted, doubled, changed or swapped.
const TYPO_DISTANCE_MAX: usize = 2;
const PRIMITIVE: &str =
    "str, int, float, bool, datetime.datetime, NodeId, or a list of one of them";

/// The schema of the arguments, or `None` if `findings` has errors.
pub(crate) fn import_handle(
    module: &PythonModule,
    source: &PythonSource,
    annotations: AnnotationMode,
    findings: &mut DiagnosticCollector,
) -> Option<ObjectSchema> {
    let Some(handle) = module.function(HANDLE) else {
        findings.errors.push(handle_not_found(module, source));
        return None;
    };
    for earlier in module.functions.iter().filter(|other| other.name == HANDLE) {
        if earlier.span != handle.span {
            let message = "handle() is defined again below; the last definition is used";
            findings.warnings.push(
                UnlocatedDiagnostic::new(ErrorCode::CodeNoEntry, message).with_span(earlier.span),
            );
        }
    }
    check_parameters(handle, findings);
    let mut properties = Vec::new();
    let mut types = ParameterTypes {
        reader: AnnotationReader::new(module, annotations),
        extended_reader: AnnotationReader::new(module, AnnotationMode::Extended),
        annotations,
    };
    for parameter in &handle.parameters {
        properties.extend(types.property(parameter, findings));
    }
    apply_descriptions(handle, source, &mut properties, findings);
    Some(ObjectSchema {
        properties: properties.into(),
        additional_properties: AdditionalProperties::ForbiddenImplicitly,
    })
}

pub(crate) fn handle_not_found(
    module: &PythonModule,
    source: &PythonSource,
) -> UnlocatedDiagnostic {
    let finding = UnlocatedDiagnostic::new(ErrorCode::CodeNoEntry, crate::NO_HANDLE);
    if let Some((_, span)) = module.nested_functions.iter().find(|(name, _)| name == HANDLE) {
        let hint = "`handle` must be defined at the top level of the module";
        return finding.with_span(*span).with_hint(hint);
    }
    let alike = module.functions.iter().find(|function| {
        let name = function.name.to_lowercase();
        name.starts_with(HANDLE)
            || name == "main"
            || strsim::damerau_levenshtein(&name, HANDLE) <= TYPO_DISTANCE_MAX
    });
    match alike.or(module.function(RUN_FUNCTION)) {
        Some(function) if function.name == RUN_FUNCTION => finding.with_span(function.span).with_hint(
            "a tool with run(input) has its schemas in a JSON file: `belljar tool new NAME --style \
             run` writes one; or name this function `handle`",
        ),
        Some(function) => finding
            .with_span(function.span)
            .with_hint(format!("name this function `handle` instead of `{}`", function.name)),
        None => finding
            .with_span(Span { start: 0, end: source.as_str().find('\n').unwrap_or(0) })
            .with_hint("a tool is a function: def handle(name: str) -> str"),
    }
}

/// Checks the list of parameters, independent of their types.
fn check_parameters(handle: &PythonFunction, findings: &mut DiagnosticCollector) {
    let unannotated: Vec<&PythonParameter> =
        handle.parameters.iter().filter(|parameter| parameter.annotation.is_none()).collect();
    if let Some(first) = unannotated.first() {
        let names = unannotated.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
        let message = format!("Missing type annotation for parameter(s): {names}");
        let finding =
            UnlocatedDiagnostic::new(ErrorCode::CodeAnnotation, message).with_span(first.span);
        findings
            .errors
            .push(finding.with_hint(format!("write `{}: str`, or {PRIMITIVE}", first.name)));
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
            UnlocatedDiagnostic::new(ErrorCode::CodeDuplicateArgument, message)
                .with_span(*span)
                .with_hint("give each parameter a unique name"),
        );
    }
    if let Some((_, span)) = handle.variadic.first() {
        let names = handle.variadic.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        let message = format!("Unsupported parameter(s): {}", names.join(", "));
        findings.errors.push(
            UnlocatedDiagnostic::new(ErrorCode::CodeType, message)
                .with_span(*span)
                .with_hint("replace it with one named parameter for each argument"),
        );
    }
}

/// Reads the types of all parameters.
struct ParameterTypes<'a> {
    reader: AnnotationReader<'a>,
    /// For the hint that extended mode would accept a refused annotation.
    extended_reader: AnnotationReader<'a>,
    annotations: AnnotationMode,
}

impl ParameterTypes<'_> {
    fn property(
        &mut self,
        parameter: &PythonParameter,
        findings: &mut DiagnosticCollector,
    ) -> Option<PropertySchema> {
        let annotation = parameter.annotation.as_ref()?;
        let name = &parameter.name;
        let mut schema = match self.reader.read(&annotation.kind) {
            Ok(schema) => schema,
            Err(unsupported) => {
                let reason = unsupported.reason(&annotation.text);
                let message = format!("Unsupported type for parameter '{name}': {reason}");
                let finding = UnlocatedDiagnostic::new(ErrorCode::CodeType, message)
                    .with_span(annotation.span);
                findings.errors.push(finding.with_hint(self.hint(annotation)));
                return None;
            }
        };
        if let Some(default) = &parameter.default {
            match read_default(&schema, default, self.annotations) {
                Ok(shown) => schema.default = shown,
                Err(reason) => {
                    let message = format!("Unsupported default for parameter '{name}': {reason}");
                    let finding = UnlocatedDiagnostic::new(ErrorCode::CodeType, message)
                        .with_span(default.span);
                    findings.errors.push(finding.with_hint(self.default_hint(default)));
                }
            }
        }
        if let Some(missing) = self.reader.undefined_name(&annotation.kind) {
            let message = format!("{missing} is not defined; calls will raise a NameError");
            let finding = UnlocatedDiagnostic::new(ErrorCode::CodeAnnotation, message)
                .with_span(annotation.span);
            findings.warnings.push(finding.with_hint(format!("import {missing}")));
        }
        Some(PropertySchema { name: name.clone(), required: parameter.default.is_none(), schema })
    }

    fn default_hint(&self, default: &SourceExpression) -> String {
        match (self.annotations, &default.kind) {
            (AnnotationMode::Strict, ExpressionKind::Literal(Value::Null)) => {
                "use a default of the same type; `--extended` allows Optional[...] = None"
                    .to_owned()
            }
            (_, ExpressionKind::Literal(_)) => "use a default of the same type".to_owned(),
            _ => "use a literal: a string, a number, True or False".to_owned(),
        }
    }

    fn hint(&mut self, annotation: &SourceExpression) -> String {
        if let Some(missing) = self.extended_reader.undefined_name(&annotation.kind) {
            return format!("{missing} is not defined; import it, or use {PRIMITIVE}");
        }
        match self.annotations {
            AnnotationMode::Strict if self.extended_reader.read(&annotation.kind).is_ok() => {
                format!("use {PRIMITIVE}; `--extended` allows this type")
            }
            AnnotationMode::Strict => format!("use {PRIMITIVE}"),
            AnnotationMode::Extended => format!(
                "use {PRIMITIVE}; Optional, Literal, dict[str, ...], a TypedDict, a dataclass or \
                 a list of these"
            ),
        }
    }
}

/// The default as JSON, if a model can be shown it.
fn read_default(
    schema: &Schema,
    default: &SourceExpression,
    annotations: AnnotationMode,
) -> Result<Option<Value>, String> {
    if annotations == AnnotationMode::Strict {
        if matches!(schema.kind, SchemaKind::Array(_)) {
            return Err("default values are not supported for lists".into());
        }
        if matches!(schema.conversion, Some(PythonConversion::Datetime | PythonConversion::NodeId))
        {
            return Err(
                "only primitive types (str, int, float, bool) support default values".into()
            );
        }
    }
    let is_primitive = schema
        .conversion
        .as_ref()
        .is_none_or(|python| *python == PythonConversion::Float)
        && !matches!(schema.kind, SchemaKind::Array(_) | SchemaKind::Object(_) | SchemaKind::Any);
    match &default.kind {
        ExpressionKind::Literal(value) => {
            let is_integral = matches!(schema.kind, SchemaKind::Integer(_)) && value.is_f64();
            // Arguments are converted, but defaults are not: Python would see the text of a date.
            let is_raw = is_filled(value) && call::conversion(schema).is_some();
            match schema.conform(value.clone()) {
                Ok(value) if !is_integral && !is_raw => Ok(Some(value)),
                _ => Err(format!("{} is not of its type", default.text)),
            }
        }
        _ if is_primitive => Err(format!("{} is not a literal", default.text)),
        // Python evaluates it when the argument is omitted.
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

/// Assigns the descriptions of the docstring to the parameters.
fn apply_descriptions(
    handle: &PythonFunction,
    source: &PythonSource,
    properties: &mut [PropertySchema],
    findings: &mut DiagnosticCollector,
) {
    let Some(docstring) = &handle.docstring else {
        let message = "handle() has no docstring; the agent will see no parameter descriptions";
        findings.warnings.push(
            UnlocatedDiagnostic::new(ErrorCode::CodeDocstring, message).with_span(handle.span),
        );
        return;
    };
    let mut descriptions = docstring::parameter_descriptions(docstring);
    for property in properties {
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
        let hint = match docstring::non_google_style(docstring) {
            Some(style) => format!("this is {style} style; use `Args:` in Google style"),
            None => "describe each parameter under `Args:`, as `name: description`".to_owned(),
        };
        let finding =
            UnlocatedDiagnostic::new(ErrorCode::CodeDocstring, message).with_span(handle.span);
        findings.warnings.push(finding.with_hint(hint));
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
            UnlocatedDiagnostic::new(ErrorCode::CodeDocstring, message)
                .with_span(docstring::parameter_span(first, docstring, source))
                .with_hint("remove it from `Args:`, or give handle() a parameter of that name"),
        );
    }
}
