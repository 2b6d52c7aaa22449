//! Reads the source of a tool without running it, and returns its contract or all its errors.
//!
//! Two importers create one [`Schema`]: from the annotations of `handle` (vendor document 000) and
//! from the SchemaField lists of `run` (vendor document 003). A [`FunctionContract`] receives its
//! data unchanged, and a [`CallFunctionTool`] checks them against any [`JsonSchema`]. A
//! [`CodeTool`] turns arguments into a [`ValidatedCall`], which exists only for arguments that
//! conform, and checks the value of the call when it has left the sandbox.

mod annotation;
mod arguments_schema;
mod call;
mod call_function;
mod choices;
mod code_runner;
mod conform;
mod diagnostic;
mod docstring;
mod expression;
mod format;
mod function;
mod handle;
mod imports;
mod json_schema;
mod message_text;
mod number;
mod python;
mod schema;
mod schema_field_list;
mod source;
mod step_budget;
mod tool;
mod tool_json;
mod value_memory;

pub use annotation::AnnotationMode;
pub use arguments_schema::ArgumentsSchema;
pub use call::{ARGUMENTS_BYTES_MAX, CallArguments, ValidatedCall};
pub use call_function::{CallFunctionTool, POLLING_SECONDS_MAX};
pub use choices::Choices;
pub use code_runner::{is_reserved_variable, is_variable_name};
pub use conform::{ValuePath, Violation, ViolationKind};
pub use diagnostic::{Diagnostic, SourceCheck, SourceLocation};
pub use function::{FunctionContract, HANDLER};
pub use imports::{Import, is_standard};
pub use json_schema::{JsonSchema, JsonSchemaError, SchemaMismatch};
pub use schema::{
    AdditionalProperties, ArraySchema, NumberBounds, ObjectSchema, PropertyList, PropertySchema,
    PythonConversion, Schema, SchemaFormat, SchemaKind,
};
pub use schema_field_list::{SchemaFieldError, export_schema_fields as schema_fields};
pub use source::{PythonSource, SOURCE_BYTES_MAX};
pub use tool::{CodeTool, TestFunction, ToolEntryPoint, ToolVariables};

use handle::HANDLE;

/// The exact text of the vendor document.
const NO_HANDLE: &str = "Function 'handle' not found.";
