//! The definition of a tool: the request of its author, the validation by its contract, and the
//! stored form.
//!
//! Only tools with a valid contract are stored, with their code exactly as it was written. The
//! values of environment variables are secrets and never part of a stored definition.

use crate::data::staging::hex;
use crate::error::{ErrorDetail, RequestError, invalid_field};
use crate::names;
use crate::secrets::tool_variables::{self, VariableTimes};
use chrono::{DateTime, Utc};
use contract::{AnnotationMode, CallFunctionTool, Diagnostic, PythonSource, ToolEntryPoint};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use types::{ApprovalAction, Error, ErrorCode, PrincipalId, Tool, ToolId, WorkKind, WorkspaceId};
use utoipa::{IntoParams, ToSchema};

const CODE_RUNNER: &str = "code_runner";
pub(crate) const RUN_PYTHON_CODE: &str = "runPythonCode";
pub(crate) const CALL_FUNCTION: &str = "callFunction";
/// The `entry` of a tool that calls a function.
pub(crate) const FUNCTION_ENTRY: &str = "function";
const CONFIGURATION: &str = "configuration";
const EXTENDED_ANNOTATIONS: &str = "extended_annotations";

/// Limit of a description, which models read with every request. Run Python code tools have a limit
/// of their own.
const DESCRIPTION_CHARS_MAX: usize = 10_000;
/// Limit of everything but the code: models read the schemas with every request, and lists contain
/// them.
const SETTINGS_BYTES_MAX: usize = 256 * 1024;

/// A tool as its author writes it: the JSON of a CodeRunner tool, of a Run Python code tool or of a
/// Call Function tool, with settings of this server.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolRequest {
    pub name: Option<String>,
    /// Description for models.
    pub description: Option<String>,
    /// `code_runner`, for a tool with `configuration.code` and a function `run`.
    pub tool_type: Option<String>,
    /// `runPythonCode`, for a tool with `configuration.pythonCode` and a function `handle`; or
    /// `callFunction`, for one that calls a deployed function, with `configuration.externalId`,
    /// `maxPollingTime` and `schema`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub configuration: Option<Map<String, Value>>,
    /// Its environment. Default: `atlas` for `runPythonCode`, `coderunner` for `code_runner`, unless
    /// the operator has chosen others.
    pub environment: Option<String>,
    /// Whether calls are allowed, denied, or require a confirmation or an approval. Default:
    /// `confirm` for `runPythonCode`, otherwise `allow`.
    pub approval_action: Option<ApprovalAction>,
    /// For `handle`: allow optional values, literals, dicts, typed dicts and dataclasses, too.
    pub extended_annotations: Option<bool>,
    /// Variables that the changed tool already has; they may be named without a value.
    #[serde(skip)]
    pub(crate) kept_variables: VariableTimes,
}

/// The query parameters of a tool that is sent as a Python file.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PythonToolQuery {
    /// Name of a tool that is sent as `text/x-python`; in JSON it is part of the body.
    pub name: Option<String>,
    /// Description for models; defaults to the name.
    pub description: Option<String>,
    pub environment: Option<String>,
    pub approval_action: Option<ApprovalAction>,
    pub extended_annotations: Option<bool>,
}

/// The ids, the owner and the times of a stored tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolIdentity {
    pub(crate) id: ToolId,
    pub(crate) owner: PrincipalId,
    pub(crate) author: PrincipalId,
    pub(crate) workspace: WorkspaceId,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) updated_at: DateTime<Utc>,
}

/// The contract or all errors, and warnings in both cases.
#[derive(Debug)]
pub(crate) struct CheckedTool {
    pub(crate) outcome: Result<ToolContract, Vec<ErrorDetail>>,
    pub(crate) warnings: Vec<ErrorDetail>,
}

/// The contract of a tool, with its code.
#[derive(Debug, Clone)]
pub(crate) enum ToolContract {
    Python(Arc<contract::CodeTool>),
    /// A tool that calls a deployed function.
    Function(Arc<CallFunctionTool>),
}

impl ToolContract {
    /// Checks the arguments, including their size.
    pub(crate) fn with_input_limit(self, input_bytes_max: usize) -> Self {
        match self {
            Self::Python(tool) => {
                let tool = Arc::unwrap_or_clone(tool);
                Self::Python(Arc::new(contract::CodeTool { input_bytes_max, ..tool }))
            }
            Self::Function(tool) => {
                let tool = Arc::unwrap_or_clone(tool);
                Self::Function(Arc::new(CallFunctionTool { input_bytes_max, ..tool }))
            }
        }
    }

    /// Estimates its memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Python(tool) => tool.memory_bytes(),
            Self::Function(tool) => tool.schema.memory_bytes(),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Python(tool) => &tool.name,
            Self::Function(tool) => &tool.name,
        }
    }

    fn description(&self) -> &str {
        match self {
            Self::Python(tool) => tool.description.as_deref().unwrap_or_default(),
            Self::Function(tool) => &tool.description,
        }
    }

    /// The kind of work that its code is; none for a function, which has its own environment.
    pub(crate) fn work_kind(&self) -> Option<WorkKind> {
        match self {
            Self::Python(tool) => Some(code_work_kind(tool)),
            Self::Function(_) => None,
        }
    }

    /// The action of a tool whose author names none.
    fn default_action(&self) -> ApprovalAction {
        match self.work_kind() {
            Some(WorkKind::RunPythonCode) => ApprovalAction::Confirm,
            _ => ApprovalAction::Allow,
        }
    }

    /// `handle`, `run` or `function`.
    fn entry(&self) -> &'static str {
        match self {
            Self::Python(tool) => match tool.entry {
                ToolEntryPoint::Handle { .. } => "handle",
                ToolEntryPoint::Run { .. } => "run",
            },
            Self::Function(_) => FUNCTION_ENTRY,
        }
    }

    fn descriptor(&self) -> Value {
        match self {
            Self::Python(tool) => tool.descriptor(),
            Self::Function(tool) => tool.schema.descriptor(),
        }
    }

    fn output_descriptor(&self) -> Option<Value> {
        match self {
            Self::Python(tool) => tool.output_descriptor(),
            Self::Function(_) => None,
        }
    }
}

/// The result of a validation: a contract, or errors.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ToolValidation {
    Valid(ValidTool),
    Invalid(InvalidTool),
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ValidTool {
    /// true
    pub valid: bool,
    pub name: String,
    pub description: String,
    /// `handle`, `run` or `function`.
    pub entry: String,
    /// The input schema, as a model sees it.
    pub input_schema: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    pub warnings: Vec<ErrorDetail>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct InvalidTool {
    /// false
    pub valid: bool,
    pub errors: Vec<ErrorDetail>,
    pub warnings: Vec<ErrorDetail>,
}

impl From<CheckedTool> for ToolValidation {
    fn from(CheckedTool { outcome, warnings }: CheckedTool) -> Self {
        match outcome {
            Ok(tool) => Self::Valid(ValidTool {
                valid: true,
                entry: tool.entry().to_owned(),
                input_schema: tool.descriptor(),
                output_schema: tool.output_descriptor(),
                name: tool.name().to_owned(),
                description: tool.description().to_owned(),
                warnings,
            }),
            Err(errors) => Self::Invalid(InvalidTool { valid: false, errors, warnings }),
        }
    }
}

impl CheckedTool {
    fn invalid(errors: Vec<ErrorDetail>) -> Self {
        Self { outcome: Err(errors), warnings: Vec::new() }
    }

    pub(crate) fn into_contract(self) -> Result<ToolContract, RequestError> {
        self.outcome.map_err(invalid_tool)
    }
}

impl ToolRequest {
    /// Makes a Run Python code tool from a Python file.
    pub fn from_python(tool: PythonToolQuery, source: Vec<u8>) -> Result<Self, RequestError> {
        let source = String::from_utf8(source).map_err(|error| {
            let problem = PythonSource::from_bytes(error.as_bytes()).err();
            invalid_tool(details(problem.into_iter().collect(), ""))
        })?;
        let name_missing =
            || invalid_field("query/name", "is required: pass the name of a Python file in ?name=");
        let name = tool.name.ok_or_else(name_missing)?;
        let description = tool.description.unwrap_or_else(|| format!("Python tool {name}"));
        Ok(Self {
            name: Some(name),
            description: Some(description),
            tool_type: None,
            kind: Some(RUN_PYTHON_CODE.to_owned()),
            configuration: Some(Map::from_iter([("pythonCode".to_owned(), source.into())])),
            environment: tool.environment,
            approval_action: tool.approval_action,
            extended_annotations: tool.extended_annotations,
            kept_variables: VariableTimes::new(),
        })
    }

    /// The request that would create a stored tool.
    pub(crate) fn from_tool(tool: &Tool) -> Self {
        let configuration = tool.definition.get(CONFIGURATION).and_then(Value::as_object);
        let field = |key: &str| tool.definition.get(key).and_then(Value::as_str).map(str::to_owned);
        Self {
            name: Some(tool.name.clone()),
            description: Some(tool.description.clone()),
            tool_type: field("tool_type"),
            kind: field("type"),
            configuration: configuration.cloned(),
            environment: Some(tool.environment.clone()).filter(|name| !name.is_empty()),
            approval_action: Some(tool.approval_action),
            extended_annotations: tool
                .definition
                .get(EXTENDED_ANNOTATIONS)
                .and_then(Value::as_bool),
            kept_variables: tool_variables::variable_times(configuration),
        }
    }

    pub(crate) fn check(&self, source_bytes_max: usize) -> CheckedTool {
        let mut errors = self.size_errors(source_bytes_max);
        errors.extend(self.unknown_kind());
        if !errors.is_empty() {
            return CheckedTool::invalid(errors);
        }
        if self.kind.as_deref() == Some(CALL_FUNCTION) {
            return self.check_call_function();
        }
        let annotations = match self.extended_annotations {
            Some(true) => AnnotationMode::Extended,
            Some(false) | None => AnnotationMode::Strict,
        };
        let json = Value::Object(self.json()).to_string();
        let checked = contract::CodeTool::from_json(&json, annotations);
        let warnings = details(checked.warnings, "");
        match checked.result {
            Err(problems) => CheckedTool { outcome: Err(details(problems, "")), warnings },
            Ok(tool) => CheckedTool { outcome: Ok(ToolContract::Python(Arc::new(tool))), warnings },
        }
    }

    fn check_call_function(&self) -> CheckedTool {
        if self.environment.is_some() {
            let message = "a function has its own environment";
            return CheckedTool::invalid(vec![detail("/environment", message)]);
        }
        let checked = CallFunctionTool::from_json(&self.json());
        let outcome = checked.result.map(|tool| ToolContract::Function(Arc::new(tool)));
        let warnings = details(checked.warnings, "");
        CheckedTool { outcome: outcome.map_err(|problems| details(problems, "")), warnings }
    }

    /// Checks sizes before anything is parsed.
    fn size_errors(&self, source_bytes_max: usize) -> Vec<ErrorDetail> {
        let mut errors = Vec::new();
        let name = self.name.as_deref().map(str::trim).unwrap_or_default();
        // A missing name is reported by the contract, in the words of the vendor document.
        if let Some(error) = names::check_name("/name", name).err().filter(|_| !name.is_empty()) {
            errors.extend(error.details);
        }
        let description = self.description.as_deref().unwrap_or_default();
        if description.chars().count() > DESCRIPTION_CHARS_MAX || description.contains('\0') {
            let most = DESCRIPTION_CHARS_MAX;
            let message = format!("can have at most {most} characters, and no NUL");
            errors.push(detail("/description", message));
        }
        let code = self.code().map_or(0, str::len);
        if code > source_bytes_max {
            let message = format!("Code runner '{name}' source exceeds {source_bytes_max} bytes");
            errors.push(detail(&format!("/{CONFIGURATION}/{}", self.code_key()), message));
        }
        let settings = self.configuration.as_ref().map(|it| size_without(it, self.code_key()));
        if settings.is_some_and(|bytes| bytes > SETTINGS_BYTES_MAX) {
            let message = format!("can have at most {SETTINGS_BYTES_MAX} bytes without the code");
            errors.push(detail("/configuration", message));
        }
        errors
    }

    fn unknown_kind(&self) -> Option<ErrorDetail> {
        let (path, other) = match (self.tool_type.as_deref(), self.kind.as_deref()) {
            (Some(CODE_RUNNER) | None, None) => return None,
            (None, Some(RUN_PYTHON_CODE | CALL_FUNCTION)) => return None,
            (Some(CODE_RUNNER), Some(other)) => ("/type", other),
            (Some(other), _) => ("/tool_type", other),
            (None, Some(other)) => ("/type", other),
        };
        let message = format!(
            "tools of the type '{other}' are not supported; use \"tool_type\": \"{CODE_RUNNER}\", \
             \"type\": \"{RUN_PYTHON_CODE}\" or \"type\": \"{CALL_FUNCTION}\""
        );
        let hint = "this server runs Python tools; Api, Composio, Virtual and Mcp tools are not \
                    supported";
        Some(ErrorDetail { hint: Some(hint.to_owned()), ..detail(path, message) })
    }

    fn json(&self) -> Map<String, Value> {
        let mut configuration = self.configuration.clone();
        configuration
            .iter_mut()
            .for_each(|it| tool_variables::fill_missing_values(it, &self.kept_variables));
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let fields = [
            ("name", text(&self.name)),
            ("description", text(&self.description)),
            ("tool_type", text(&self.tool_type)),
            ("type", text(&self.kind)),
            (CONFIGURATION, configuration.map(Value::from)),
        ];
        let present_fields =
            fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        present_fields.collect()
    }

    pub(crate) fn code_key(&self) -> &'static str {
        code_key(self.kind.as_deref())
    }

    fn code(&self) -> Option<&str> {
        self.configuration.as_ref()?.get(self.code_key())?.as_str()
    }

    /// The tool as it is stored and returned.
    pub(crate) fn into_tool(
        mut self,
        contract: &ToolContract,
        environment: String,
        identity: ToolIdentity,
    ) -> Tool {
        let configuration = self.configuration.iter_mut();
        configuration.for_each(|it| {
            tool_variables::strip_values(it, &self.kept_variables, identity.updated_at)
        });
        let code = self.code().unwrap_or_default();
        let code_sha256 = hex(&Sha256::digest(code.as_bytes()));
        let extended = self.extended_annotations.filter(|extended| *extended);
        let fields = [
            ("tool_type", self.tool_type.map(Value::from)),
            ("type", self.kind.map(Value::from)),
            (CONFIGURATION, self.configuration.map(Value::from)),
            (EXTENDED_ANNOTATIONS, extended.map(Value::from)),
        ];
        let present_fields =
            fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let environment = match contract {
            ToolContract::Python(_) => environment,
            ToolContract::Function(_) => String::new(),
        };
        Tool {
            id: identity.id,
            name: contract.name().to_owned(),
            owner: identity.owner,
            author: identity.author,
            description: contract.description().to_owned(),
            definition: present_fields.collect(),
            entry: contract.entry().to_owned(),
            environment,
            approval_action: self.approval_action.unwrap_or_else(|| contract.default_action()),
            input_schema: contract.descriptor(),
            output_schema: contract.output_descriptor(),
            code_sha256,
            deployment_id: identity.workspace,
            created_at: identity.created_at,
            updated_at: identity.updated_at,
        }
    }
}

pub(crate) fn code_work_kind(tool: &contract::CodeTool) -> WorkKind {
    match tool.entry {
        ToolEntryPoint::Handle { .. } => WorkKind::RunPythonCode,
        ToolEntryPoint::Run { .. } => WorkKind::CodeRunner,
    }
}

/// Removes the code from a tool, because it is stored separately.
pub(crate) fn take_code(tool: &mut Tool) -> String {
    match code_of(tool).map(Value::take) {
        Some(Value::String(code)) => code,
        _ => String::new(),
    }
}

pub(crate) fn insert_code(tool: &mut Tool, code: String) {
    if let Some(code_value) = code_of(tool) {
        *code_value = code.into();
    }
}

/// The tool without its code, for lists.
pub(crate) fn without_code(mut tool: Tool) -> Tool {
    let key = code_key(tool.definition.get("type").and_then(Value::as_str));
    let configuration = tool.definition.get_mut(CONFIGURATION).and_then(Value::as_object_mut);
    configuration.map(|configuration| configuration.shift_remove(key));
    tool
}

fn code_of(tool: &mut Tool) -> Option<&mut Value> {
    let key = code_key(tool.definition.get("type").and_then(Value::as_str));
    tool.definition.get_mut(CONFIGURATION)?.get_mut(key)
}

fn code_key(kind: Option<&str>) -> &'static str {
    if kind == Some(RUN_PYTHON_CODE) { "pythonCode" } else { "code" }
}

fn size_without(configuration: &Map<String, Value>, key: &str) -> usize {
    let others = configuration.iter().filter(|(name, _)| *name != key);
    others.map(|(name, value)| name.len() + value.to_string().len()).sum()
}

/// One error for all errors of a tool.
pub(crate) fn invalid_tool(details: Vec<ErrorDetail>) -> RequestError {
    let (message, hint) = match details.as_slice() {
        [] => ("the tool has errors".to_owned(), None),
        [only] => (only.message.clone(), only.hint.clone()),
        [first, more @ ..] => {
            (format!("{} (and {} more)", first.message, more.len()), first.hint.clone())
        }
    };
    let error = Error { hint, ..Error::new(ErrorCode::ToolInvalid, message) };
    RequestError { error: Box::new(error), details }
}

/// The errors of a contract, with their paths in the request.
pub(crate) fn details(problems: Vec<Diagnostic>, within: &str) -> Vec<ErrorDetail> {
    let detail = |problem: Diagnostic| {
        let path = format!("{within}{}", json_pointer(&problem.path.unwrap_or_default()));
        let (line, column) = problem.place.map(|place| (place.line, place.column)).unzip();
        ErrorDetail {
            path: Some(path).filter(|path| !path.is_empty()),
            message: problem.message,
            code: Some(problem.code),
            line,
            column,
            hint: problem.hint,
        }
    };
    problems.into_iter().map(detail).collect()
}

/// From `$.configuration.input_schema[0].name` to `/configuration/input_schema/0/name`.
fn json_pointer(path: &str) -> String {
    let path = path.strip_prefix('$').unwrap_or(path).replace('~', "~0").replace('/', "~1");
    path.replace(['.', '['], "/").replace(']', "")
}

fn detail(path: &str, message: impl Into<String>) -> ErrorDetail {
    ErrorDetail {
        path: Some(path.to_owned()),
        message: message.into(),
        code: Some(ErrorCode::ArgsInvalid),
        ..ErrorDetail::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use uuid::Uuid;

    const MEDIA_PROBE: &str =
        include_str!("../../../../tests/conformance/seed-003/media_probe.json");

    fn request(value: Value) -> ToolRequest {
        serde_json::from_value(value).unwrap()
    }

    fn code_runner(code: &str, more: Value) -> ToolRequest {
        let mut configuration = json!({"type": "CodeRunner", "code": code});
        for (key, value) in more.as_object().unwrap() {
            configuration[key] = value.clone();
        }
        request(json!({"name": "n", "tool_type": "code_runner", "configuration": configuration}))
    }

    fn errors(request: &ToolRequest) -> Vec<ErrorDetail> {
        request.check(contract::SOURCE_BYTES_MAX).outcome.unwrap_err()
    }

    fn kept(request: ToolRequest) -> Tool {
        let contract = request.check(contract::SOURCE_BYTES_MAX).into_contract().unwrap();
        let identity = ToolIdentity {
            id: ToolId::new(Uuid::from_u128(1)),
            owner: PrincipalId::new(Uuid::from_u128(2)),
            author: PrincipalId::new(Uuid::from_u128(2)),
            workspace: WorkspaceId::new(Uuid::from_u128(3)),
            created_at: DateTime::UNIX_EPOCH,
            updated_at: DateTime::UNIX_EPOCH,
        };
        request.into_tool(&contract, "default".to_owned(), identity)
    }

    #[test]
    fn a_tool_that_is_kept_is_made_of_what_its_author_wrote() {
        let written: Value = serde_json::from_str(MEDIA_PROBE).unwrap();
        let tool = kept(request(written.clone()));
        let shown = serde_json::to_value(&tool).unwrap();
        for (key, value) in written.as_object().unwrap() {
            assert_eq!(&shown[key], value, "{key}");
        }
        assert_eq!(tool.entry, "run");
        assert_eq!(tool.input_schema["required"], json!(["media_path"]));
    }

    #[test]
    fn code_that_was_kept_beside_a_tool_comes_back_to_its_place() {
        let code = "\u{feff}def run(input):\r\n\treturn 'ü\\n'\n\n";
        let whole = kept(code_runner(code, json!({"timeout_seconds": 7})));
        let mut parted = whole.clone();
        assert_eq!(take_code(&mut parted), code);
        assert!(!serde_json::to_string(&parted).unwrap().contains("return"));
        insert_code(&mut parted, code.to_owned());
        assert_eq!(
            serde_json::to_string(&parted).unwrap(),
            serde_json::to_string(&whole).unwrap(),
            "in the same order, too"
        );
        let listed = serde_json::to_value(without_code(whole)).unwrap();
        assert_eq!(listed["configuration"], json!({"type": "CodeRunner", "timeout_seconds": 7}));
    }

    #[test]
    fn a_tool_that_is_kept_makes_the_same_contract_again() {
        let python = PythonToolQuery {
            name: Some("maybe".to_owned()),
            extended_annotations: Some(true),
            ..PythonToolQuery::default()
        };
        let source = "def handle(a: int | None = None):\n    return a\n";
        let tool = kept(ToolRequest::from_python(python, source.into()).unwrap());
        let again = kept(ToolRequest::from_tool(&tool));
        assert_eq!(again, tool);
        assert_eq!(tool.description, "Python tool maybe");
    }

    // proves W-030
    #[test]
    fn the_bound_of_a_source_and_of_an_input_is_the_operators() {
        let code = format!("def run(input):\n    return 1\n#{}", "x".repeat(98_304));
        let tool = code_runner(&code, json!({}));
        let error = tool.check(98_304).outcome.unwrap_err();
        assert_eq!(error[0].message, "Code runner 'n' source exceeds 98304 bytes");
        assert_eq!(error[0].path.as_deref(), Some("/configuration/code"));
        assert!(tool.check(200_000).outcome.is_ok());

        let ToolContract::Python(tool) = tool.check(200_000).outcome.unwrap() else { panic!() };
        let mut tool = (*tool).clone();
        let input = json!({"text": "x".repeat(98_304)});
        assert!(tool.validate_call(input.clone()).is_ok());
        tool.input_bytes_max = 98_304;
        let error = tool.validate_call(input).unwrap_err();
        assert_eq!(error.message, "Code runner 'n' input exceeds 98304 bytes");
    }

    #[test]
    fn places_in_the_json_are_pointers_into_the_request() {
        let schema = json!([{"name": "a", "field_type": "OBJECT", "properties": [
            {"name": "b", "field_type": "string"},
        ]}]);
        let wrong = errors(&code_runner("def run(input): ...", json!({"input_schema": schema})));
        let path = "/configuration/input_schema/0/properties/0/field_type";
        assert_eq!(wrong[0].path.as_deref(), Some(path), "{wrong:?}");
    }

    #[test]
    fn what_belongs_to_another_product_is_refused_by_its_name() {
        for (field, kind) in [("tool_type", "api"), ("tool_type", "mcp"), ("type", "Composio")] {
            let wrong = errors(&request(json!({"name": "n", field: kind, "configuration": {}})));
            assert_eq!(wrong.len(), 1);
            assert_eq!(wrong[0].path, Some(format!("/{field}")));
            assert!(wrong[0].message.contains(&format!("'{kind}'")), "{wrong:?}");
        }
    }

    #[test]
    fn values_of_environment_variables_are_no_part_of_what_is_kept() {
        let variables = json!({"env_variables": [{"name": " TOKEN ", "value": "hunter2"}]});
        let made = code_runner("def run(input): ...", variables);
        let tool = kept(made);
        assert!(!serde_json::to_string(&tool).unwrap().contains("hunter2"));
        let named = json!([{"name": "TOKEN", "updated_at": "1970-01-01T00:00:00Z"}]);
        assert_eq!(tool.definition["configuration"]["env_variables"], named);
        // The stored tool makes the same contract again; a variable without a value does not.
        assert_eq!(kept(ToolRequest::from_tool(&tool)), tool);
        let without = json!({"env_variables": [{"name": "TOKEN"}]});
        let wrong = errors(&code_runner("def run(input): ...", without));
        assert_eq!(wrong[0].message, "the value of 'TOKEN' must be a string without NUL");
    }

    #[test]
    fn settings_are_bounded_apart_from_the_code() {
        let long = "x".repeat(SETTINGS_BYTES_MAX);
        let wrong = errors(&code_runner("def run(input): ...", json!({"runtime": long})));
        assert_eq!(wrong[0].path.as_deref(), Some("/configuration"));
    }
}
