//! Arbitrary JSON Schemas, and the validation of arguments against them.
//!
//! The server evaluates schemas of untrusted authors, so evaluation must be bounded: a schema
//! refers to nothing outside of itself, is finite and small with all references expanded, and its
//! patterns take linear time. Any other schema is refused before there is a [`JsonSchema`].

use crate::call::{TRY_AGAIN, json_type_name, truncate_message};
use crate::conform::VIOLATIONS_MAX;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use types::{Error, ErrorCode};

/// Values of the schema with references expanded. Schemas of large APIs have some thousands.
const NODES_MAX: usize = 10_000;
/// The maximum depth of JSON here; the expanded schema is traversed by recursion as well.
const DEPTH_MAX: usize = 96;
/// Each one evaluates its siblings again, and nested ones do so each time.
const UNEVALUATED_MAX: usize = 4;
/// Limit of a compiled pattern, in bytes; an ordinary one has some kilobytes.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// With these a reference could refer to something else than its path says.
const REBASING_KEYWORDS: [&str; 6] =
    ["$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"];
const UNEVALUATED_KEYWORDS: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];
const DRAFTS: [&str; 3] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
];

/// A schema of arguments, which are always an object.
#[derive(Debug, Clone)]
pub struct JsonSchema {
    source: Map<String, Value>,
    validator: Arc<Validator>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonSchemaError {
    #[error("the schema of arguments must be of type object; set \"type\": \"object\"")]
    NotAnObjectSchema,
    #[error("unknown \"$schema\" \"{named}\"; use one of {}", DRAFTS.join(", "))]
    Draft { named: String },
    #[error("reference \"{0}\" is not supported; use references such as \"#/$defs/NAME\"")]
    Keyword(String),
    #[error("reference \"{0}\" not found in the schema; use references such as \"#/$defs/NAME\"")]
    Reference(String),
    #[error(
        "schema with its references resolved exceeds {NODES_MAX} values or {DEPTH_MAX} levels; \
         recursive schemas are not supported"
    )]
    TooLarge,
    #[error("schema has more than {UNEVALUATED_MAX} of {}", UNEVALUATED_KEYWORDS.join(" and "))]
    Unevaluated,
    #[error("schema is invalid at \"{path}\": {reason}")]
    Invalid { path: String, reason: String },
}

impl JsonSchema {
    pub fn new(written: Map<String, Value>) -> Result<Self, JsonSchemaError> {
        match written.get("type") {
            None => {}
            Some(Value::String(kind)) if kind == "object" => {}
            Some(_) => return Err(JsonSchemaError::NotAnObjectSchema),
        }
        check_draft(&written)?;
        let schema = Value::Object(written.clone());
        check_complexity(&schema)?;
        let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX);
        let built = jsonschema::options().with_pattern_options(patterns).build(&schema);
        let validator = built.map_err(|error| JsonSchemaError::Invalid {
            path: error.instance_path().to_string(),
            reason: error.to_string(),
        })?;
        Ok(Self { source: written, validator: Arc::new(validator) })
    }

    /// The schema as a model sees it.
    pub fn descriptor(&self) -> Value {
        let mut shown = self.source.clone();
        shown.entry("type").or_insert_with(|| json!("object"));
        Value::Object(shown)
    }

    pub(crate) fn check(&self, arguments: &Value) -> Result<(), Error> {
        if !arguments.is_object() {
            let kind = json_type_name(arguments);
            let message = format!("Arguments must be a JSON object, got {kind}");
            return Err(Error::new(ErrorCode::ArgsInvalid, message).hint(TRY_AGAIN));
        }
        let errors: Vec<_> = self.validator.iter_errors(arguments).take(VIOLATIONS_MAX).collect();
        if errors.is_empty() {
            return Ok(());
        }
        let is_missing = |error: &ValidationError<'_>| {
            let is_at_top = error.instance_path().to_string().is_empty();
            is_at_top && matches!(error.kind(), ValidationErrorKind::Required { .. })
        };
        let all_missing = errors.iter().all(is_missing);
        let code = if all_missing { ErrorCode::ArgsMissing } else { ErrorCode::ArgsInvalid };
        let message = errors.iter().map(error_text).collect::<Vec<_>>().join("; ");
        Err(Error::new(code, truncate_message(&message)).hint(TRY_AGAIN))
    }
}

fn error_text(error: &ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    match (path.as_str(), error.kind()) {
        ("", ValidationErrorKind::Required { property }) => {
            format!("Missing required argument '{}'", property.as_str().unwrap_or_default())
        }
        ("", _) => format!("Invalid arguments: {}", truncate_message(&error.to_string())),
        (path, _) => format!("Invalid argument '{path}': {}", truncate_message(&error.to_string())),
    }
}

fn check_draft(written: &Map<String, Value>) -> Result<(), JsonSchemaError> {
    let Some(draft) = written.get("$schema") else { return Ok(()) };
    let known = draft.as_str().map(|draft| draft.trim_end_matches('#'));
    match known.filter(|draft| DRAFTS.contains(draft)) {
        Some(_) => Ok(()),
        None => Err(JsonSchemaError::Draft { named: draft.to_string().replace('"', "") }),
    }
}

/// Traverses the schema as its evaluation does, including references, with a limit on nodes and
/// depth.
fn check_complexity(schema: &Value) -> Result<(), JsonSchemaError> {
    let mut left = vec![(schema, 0)];
    let (mut nodes, mut unevaluated) = (0, 0);
    while let Some((value, depth)) = left.pop() {
        nodes += 1;
        if nodes > NODES_MAX || depth > DEPTH_MAX {
            return Err(JsonSchemaError::TooLarge);
        }
        match value {
            Value::Array(items) => left.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => {
                left.extend(members.values().map(|member| (member, depth + 1)));
                unevaluated +=
                    UNEVALUATED_KEYWORDS.iter().filter(|key| members.contains_key(**key)).count();
                left.extend(resolve_reference(schema, members)?.map(|target| (target, depth + 1)));
            }
            _ => {}
        }
    }
    if unevaluated > UNEVALUATED_MAX { Err(JsonSchemaError::Unevaluated) } else { Ok(()) }
}

fn resolve_reference<'a>(
    schema: &'a Value,
    members: &Map<String, Value>,
) -> Result<Option<&'a Value>, JsonSchemaError> {
    // A property may have this name, and is an object then.
    let text = |key: &str| members.get(key).filter(|value| !value.is_object());
    if let Some(key) = REBASING_KEYWORDS.into_iter().find(|key| text(key).is_some()) {
        return Err(JsonSchemaError::Keyword(key.to_owned()));
    }
    let Some(reference) = text("$ref") else { return Ok(None) };
    let reference = reference.as_str().unwrap_or_default();
    let is_plain = !reference.contains('%');
    let target = reference.strip_prefix('#').filter(|_| is_plain);
    let target = target.and_then(|pointer| schema.pointer(pointer));
    target.map(Some).ok_or_else(|| JsonSchemaError::Reference(reference.to_owned()))
}
