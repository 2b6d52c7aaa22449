//! Checks values against any JSON Schema of draft 7, 2019-09 or 2020-12.
//!
//! The server evaluates schemas of untrusted authors, so evaluation must be bounded: a schema
//! refers to nothing outside of its document, is finite and small with all references expanded, its
//! patterns are bounded in memory together, and a check ends after a number of steps. A schema that cannot be
//! evaluated in this way is refused before there is a [`JsonSchema`].

mod check;
mod compile;
mod mismatch;
mod pattern;

use crate::step_budget::StepBudget;
use compile::{Compiler, DEPTH_MAX, Draft, NODES_MAX, Subschema};
use serde_json::Value;
use std::sync::Arc;

const DRAFTS: [(Draft, &str); 3] = [
    (Draft::Draft202012, "https://json-schema.org/draft/2020-12/schema"),
    (Draft::Draft201909, "https://json-schema.org/draft/2019-09/schema"),
    (Draft::Draft7, "http://json-schema.org/draft-07/schema"),
];

#[derive(Debug, Clone)]
pub struct JsonSchema {
    root: Arc<Subschema>,
    has_unevaluated: bool,
    memory_bytes: usize,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonSchemaError {
    #[error("the schema of arguments must be of type object; set \"type\": \"object\"")]
    NotAnObjectSchema,
    #[error("unknown \"$schema\" \"{named}\"; use one of {}", DRAFTS.map(|it| it.1).join(", "))]
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
    #[error("schema is invalid at \"{path}\": {reason}")]
    Invalid { path: String, reason: String },
}

/// A part of a value that does not match the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaMismatch {
    /// JSON pointer of that part, or of the missing property. Long names in it are truncated.
    path: String,
    kind: MismatchKind,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MismatchKind {
    Missing,
    Unknown,
    Other,
}

impl JsonSchema {
    /// A complete schema. Draft 7 also checks formats, as most of its implementations do.
    pub fn new(schema: &Value) -> Result<Self, JsonSchemaError> {
        let draft = Draft::of(schema)?;
        Self::compile(schema, schema, draft, draft == Draft::Draft7)
    }

    /// A schema of an OpenAPI document, to which its references refer. Formats are checked.
    pub fn in_document(document: &Value, schema: &Value) -> Result<Self, JsonSchemaError> {
        Self::compile(document, schema, Draft::Draft202012, true)
    }

    fn compile(
        document: &Value,
        schema: &Value,
        draft: Draft,
        asserts_formats: bool,
    ) -> Result<Self, JsonSchemaError> {
        let mut compiler = Compiler::new(document, draft, asserts_formats);
        let root = compiler.compile_schema(schema)?;
        let memory_bytes = compiler.memory_of(&root);
        Ok(Self { root, has_unevaluated: compiler.has_unevaluated, memory_bytes })
    }

    /// The first mismatches of a value; none if it matches.
    pub fn find_mismatches(&self, value: &Value) -> Vec<SchemaMismatch> {
        self.find_mismatches_within(value, &mut StepBudget::new())
    }

    fn find_mismatches_within(
        &self,
        value: &Value,
        budget: &mut StepBudget,
    ) -> Vec<SchemaMismatch> {
        check::check_all(&self.root, value, self.has_unevaluated, budget)
    }

    /// Estimates the memory of the compiled schema, with its patterns.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

impl SchemaMismatch {
    /// A JSON pointer, empty for the value itself.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn kind(&self) -> MismatchKind {
        self.kind
    }

    /// The name of the property of the value itself that is meant, if it is one.
    pub(crate) fn top_level_name(&self) -> Option<String> {
        let name = self.path.strip_prefix('/').filter(|name| !name.contains('/'))?;
        Some(name.replace("~1", "/").replace("~0", "~"))
    }
}

/// Appends a name or an index to a JSON pointer.
fn push_segment(path: &mut String, segment: &str) {
    path.push('/');
    if segment.contains(['~', '/']) {
        path.push_str(&segment.replace('~', "~0").replace('/', "~1"));
    } else {
        path.push_str(segment);
    }
}
