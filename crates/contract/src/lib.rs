//! Reads the source of a tool, never runs it, and gives its contract or everything that is wrong
//! with it.
//!
//! Two importers make one [`Schema`]: the annotations of `handle` (seed 000) and the SchemaField
//! lists of `run` (seed 003). A [`Function`] is given its data as it is, and a [`CallFunction`] checks
//! them against any [`JsonSchema`]. A [`Tool`] turns arguments into a [`Call`], which exists only for
//! arguments that conform, and checks the value of the call when it is back outside the walls.

mod annotation;
mod call;
mod call_function;
mod code_runner;
mod conform;
mod docstring;
mod expression;
mod fields;
mod format;
mod function;
mod handle;
mod imports;
mod json_schema;
mod problem;
mod python;
mod schema;
mod source;
mod tool;
mod tool_json;

pub use annotation::Annotations;
pub use call::{ARGUMENTS_BYTES_MAX, Arguments, Call};
pub use call_function::{CallFunction, POLLING_SECONDS_MAX};
pub use code_runner::{is_reserved_variable, is_variable_name};
pub use conform::{Nonconformity, Path, Violation};
pub use fields::{NoField, export as schema_fields};
pub use function::{Function, HANDLER};
pub use imports::{Import, is_standard};
pub use json_schema::{JsonSchema, JsonSchemaError};
pub use problem::{Checked, Place, Problem};
pub use schema::{Array, Format, Kind, Object, Others, Property, Python, Range, Schema};
pub use source::{SOURCE_BYTES_MAX, Source};
pub use tool::{Entry, Test, Tool, Variables};

use handle::HANDLE;

/// The exact text of the seed.
const NO_HANDLE: &str = "Function 'handle' not found.";
