//! Parses the specification of an agent: its tools, its settings, and whether it may run code.
//!
//! A pure function of untrusted text. Its size, its depth and the expansion of its aliases are
//! bounded. A duplicate key is an error, because two parsers could each use another one of its
//! values.

mod code_execution;
mod code_tools;
mod edit;
mod embedded_tool;
mod mcp_servers;
mod orchestration;

pub(crate) use code_execution::{CODE_EXECUTION, CodeExecutionSection};
pub use code_tools::CodeToolName;
pub(crate) use edit::{SpecificationEdit, edit_specification};
pub(crate) use embedded_tool::EmbeddedTool;
pub use mcp_servers::{McpServerAddress, McpServerEntry};
pub use orchestration::{
    Orchestration, ROUNDS_MAX, SECONDS_MAX, SkillLoad, SkillReference, ToolChoice,
};

use crate::catalog::tool_definition::{RUN_PYTHON_CODE, details, invalid_tool};
use crate::data::volumes::privilege_for;
use crate::error::{ErrorDetail, RequestError, invalid_field};
use code_execution::{integration_path, volume_path};
use contract::AnnotationMode;
use orchestration::skill_path;
use serde::de::{IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use types::{JsonMembers, MembersError, Privilege, SpecificationFormat};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// The limit of the published format.
const BYTES_MAX: usize = 100_000;
/// Deeper than any real specification.
const DEPTH_MAX: usize = 64;
/// Limit of values, including those that aliases repeat: as many as [`BYTES_MAX`] can contain.
const VALUES_MAX: usize = 100_000;
/// Limit of the values that aliases repeat. People repeat a block or two; in a hostile text a few bytes
/// are an alias for thousands of values, which take CPU time and memory like written ones.
const ALIASED_VALUES_MAX: usize = 10_000;
/// Limit of the bytes of all values together.
const TEXT_BYTES_MAX: usize = 10 * BYTES_MAX;

/// The names of the built-in tools of a model. A tool of the agent with such a name would be
/// shadowed.
const RESERVED_TOOL_NAMES: [&str; 5] = [
    CodeToolName::CodeExecution.name(),
    CodeToolName::CodeInterpreter.name(),
    CodeToolName::ExecutePython.name(),
    "load_skill",
    "run_skill_script",
];

const NO_ENTRY: &str =
    "tools requires an entry with tool_spec: {type: code_execution, name: code_execution}";
const NO_SECTION: &str = "tool_resources requires a section code_execution, which may be empty";

/// An object of the workspace that a specification names, and the path of the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedObject {
    pub(crate) kind: NamedKind,
    pub(crate) name: String,
    pub(crate) path: String,
    /// The privilege that this use requires.
    pub(crate) privilege: Privilege,
}

impl NamedObject {
    /// Whether both name the same object for the same use.
    pub(crate) fn is_same_use(&self, other: &Self) -> bool {
        (self.kind, &self.name, self.privilege) == (other.kind, &other.name, other.privilege)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamedKind {
    Integration,
    Volume,
    Skill,
}

impl NamedKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Integration => "integration",
            Self::Volume => "volume",
            Self::Skill => "skill",
        }
    }
}

/// An entry of `tools`, of any type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedTool {
    pub(crate) name: String,
    /// Why this server does not run it.
    pub(crate) warning: Option<String>,
}

/// Whether the agent may run code, and if not, why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CodeExecution {
    pub enabled: bool,
    /// Missing parts of the specification, in sentences.
    pub missing: Vec<String>,
}

/// A specification in a request: a string, or a JSON object whose source text is stored. It is
/// deserialized from a request in which [`as_text`] has made it a string.
#[derive(Debug, Clone)]
pub struct SpecificationText(pub(crate) String);

impl<'de> Deserialize<'de> for SpecificationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_string(SpecificationTextVisitor)
    }
}

/// Names the expected types if the value has another one. If the field is missing, the error is
/// serde's.
struct SpecificationTextVisitor;

impl Visitor<'_> for SpecificationTextVisitor {
    type Value = SpecificationText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or an object")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        self.visit_string(text.to_owned())
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Self::Value, E> {
        Ok(SpecificationText(text))
    }
}

/// The same JSON object, in which the member `name`, if it is an object, is a string with the exact
/// source text of that object.
pub(crate) fn as_text(request: &str, name: &str) -> Result<String, MembersError> {
    let quoted = |text: &str| Value::from(text).to_string();
    let mut members = Vec::new();
    for member in JsonMembers::of(request) {
        let (key, json) = member?;
        let is_wanted = key == name && json.starts_with('{');
        let json = if is_wanted { Cow::Owned(quoted(json)) } else { Cow::Borrowed(json) };
        members.push(format!("{}:{json}", quoted(&key)));
    }
    Ok(format!("{{{}}}", members.join(",")))
}

impl PartialSchema for SpecificationText {
    fn schema() -> RefOr<Schema> {
        let object = ObjectBuilder::new().schema_type(Type::Object);
        let text = ObjectBuilder::new().schema_type(Type::String);
        let one_of = OneOfBuilder::new().item(text).item(object);
        one_of.description(Some("YAML or JSON as a string, or a JSON object")).into()
    }
}

impl ToSchema for SpecificationText {}

#[derive(Debug, PartialEq)]
pub(crate) struct Specification {
    /// The name of the agent.
    pub(crate) name: Option<String>,
    pub(crate) format: SpecificationFormat,
    pub(crate) code_execution: CodeExecution,
    /// The tools with which its model runs code.
    pub(crate) code_tools: Vec<CodeToolName>,
    /// Access of its code.
    pub(crate) section: CodeExecutionSection,
    /// Settings of its model.
    pub(crate) orchestration: Orchestration,
    /// The tools whose code is part of the specification.
    pub(crate) embedded: Vec<EmbeddedTool>,
    /// The servers whose tools its model may call.
    pub(crate) mcp_servers: Vec<McpServerEntry>,
    /// All entries of `tools`, in their order.
    pub(crate) named_tools: Vec<NamedTool>,
    /// Keys of `tool_resources`.
    resources: Vec<String>,
    warnings: Vec<String>,
}

impl Specification {
    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.named_tools.iter().any(|tool| tool.name == name)
    }

    /// Whether this is the name of one of its tools that run code.
    pub(crate) fn is_code_tool(&self, name: &str) -> bool {
        self.code_tools.iter().any(|tool| tool.name() == name)
    }

    pub(crate) fn has_mcp_server(&self, name: &str) -> bool {
        self.mcp_servers.iter().any(|server| server.name == name)
    }

    pub(crate) fn names_skill(&self, name: &str) -> bool {
        self.orchestration.skills.iter().any(|skill| skill.name == name)
    }

    /// Whether `tool_resources` has a section of this name.
    pub(crate) fn has_resources(&self, name: &str) -> bool {
        self.resources.iter().any(|key| key == name)
    }

    /// All objects that the specification names, including those in its embedded tools. Skills may
    /// be those of the server.
    pub(crate) fn references(&self) -> Vec<NamedObject> {
        let integration = |name: &str, path| NamedObject {
            kind: NamedKind::Integration,
            name: name.to_owned(),
            path,
            privilege: Privilege::Usage,
        };
        let of_agent = self.section.integrations.iter().enumerate();
        let of_agent = of_agent.map(|(index, name)| integration(name, integration_path(index)));
        let of_tools = self.embedded.iter().flat_map(|tool| {
            let integrations = tool.contract.integrations.iter().enumerate();
            integrations.map(|(index, name)| {
                let path = format!("{}/configuration/integrations/{index}", tool.path);
                integration(name, path)
            })
        });
        let of_servers = self.mcp_servers.iter().enumerate().flat_map(|(server, entry)| {
            let named = entry.integrations().iter().enumerate();
            named.map(move |(index, name)| {
                integration(name, mcp_servers::integration_path(server, index))
            })
        });
        let volumes = self.section.volumes.iter().enumerate();
        let volumes = volumes.map(|(index, grant)| NamedObject {
            kind: NamedKind::Volume,
            name: grant.name.clone(),
            path: volume_path(index),
            privilege: privilege_for(grant.access),
        });
        let skills = self.orchestration.skills.iter().enumerate();
        let skills = skills.map(|(index, skill)| NamedObject {
            kind: NamedKind::Skill,
            name: skill.name.clone(),
            path: skill_path(index),
            privilege: Privilege::Usage,
        });
        of_agent.chain(of_tools).chain(of_servers).chain(volumes).chain(skills).collect()
    }

    /// The integrations of its embedded tools and of its MCP servers.
    pub(crate) fn integrations_of_tools(&self) -> Vec<String> {
        let of_tools = self.embedded.iter().flat_map(|tool| &tool.contract.integrations);
        let of_servers = self.mcp_servers.iter().flat_map(McpServerEntry::integrations);
        of_tools.chain(of_servers).cloned().collect()
    }

    /// Warnings for an agent with these attached tools.
    pub(crate) fn warnings(&self, attached: &[&str]) -> Vec<String> {
        let is_known =
            |key: &str| key == CODE_EXECUTION || self.has_tool(key) || attached.contains(&key);
        let unknown = self.resources.iter().filter(|key| !is_known(key)).map(|key| {
            format!("tool_resources.{key} is ignored: the agent has no tool named {key}")
        });
        self.warnings.iter().cloned().chain(unknown).collect()
    }
}

/// Whether the name belongs to a built-in tool.
pub(crate) fn is_reserved_tool_name(name: &str) -> bool {
    RESERVED_TOOL_NAMES.contains(&name)
}

pub(crate) fn parse_specification(text: &str) -> Result<Specification, RequestError> {
    let root = parse_yaml(text)?;
    let entries = tool_entries(&root)?;
    check_tool_names(&entries)?;
    let resources = resources(&root)?;
    let mut warnings = Vec::new();
    let embedded = parse_embedded_tools(&entries, &mut warnings)?;
    let named_tools: Vec<NamedTool> = entries.iter().map(ToolEntry::named).collect();
    warnings.extend(named_tools.iter().filter_map(|tool| tool.warning.clone()));
    let section = CodeExecutionSection::read(resources, &mut warnings)?;
    let orchestration = Orchestration::read(&root, &mut warnings)?;
    let code_tools = code_tools(&entries)?;
    let has_entry = !code_tools.is_empty();
    let missing: Vec<String> = [(has_entry, NO_ENTRY), (section.is_some(), NO_SECTION)]
        .into_iter()
        .filter(|(is_present, _)| !is_present)
        .map(|(_, sentence)| sentence.to_owned())
        .collect();
    Ok(Specification {
        name: name(&root),
        format: format(text),
        code_execution: CodeExecution { enabled: missing.is_empty(), missing },
        code_tools,
        section: section.unwrap_or_default(),
        orchestration,
        embedded,
        mcp_servers: mcp_servers::read_mcp_servers(&root)?,
        named_tools,
        resources: resources.into_iter().flat_map(Map::keys).cloned().collect(),
        warnings,
    })
}

/// The name in a specification, if it is valid and has one.
pub fn agent_name(text: &str) -> Option<String> {
    parse_yaml(text).ok().and_then(|root| name(&root))
}

fn name(root: &Map<String, Value>) -> Option<String> {
    root.get("name").and_then(Value::as_str).map(str::to_owned)
}

fn specification_pointer(path: &str) -> String {
    format!("/specification{path}")
}

/// JSON is parsed as YAML; this is only the format that is shown to users.
fn format(text: &str) -> SpecificationFormat {
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => SpecificationFormat::Json,
        Err(_) => SpecificationFormat::Yaml,
    }
}

fn parse_yaml(text: &str) -> Result<Map<String, Value>, RequestError> {
    if text.len() > BYTES_MAX {
        let message = format!("has {} bytes; at most {BYTES_MAX} are allowed", text.len());
        return Err(invalid_field(&specification_pointer(""), message));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_nodes: VALUES_MAX,
            max_total_scalar_bytes: TEXT_BYTES_MAX,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: ALIASED_VALUES_MAX,
        },
        // `y` and `on` are strings, as in YAML 1.2.
        strict_booleans: true,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options(text, options) {
        Ok(Value::Object(root)) => Ok(root),
        Ok(_) => Err(invalid_field(
            &specification_pointer(""),
            "must be a mapping, such as one with tools",
        )),
        Err(error) => Err(unreadable(&error)),
    }
}

fn unreadable(error: &serde_saphyr::Error) -> RequestError {
    use serde_saphyr::Error;
    let message = match error.without_snippet() {
        Error::DuplicateMappingKey { key, .. } => {
            format!("duplicate key {:?}", key.as_deref().unwrap_or_default())
        }
        Error::MultipleDocuments { .. } => "has more than one document".to_owned(),
        error => format!("is not valid YAML or JSON: {error}"),
    };
    let mut invalid = invalid_field(&specification_pointer(""), message);
    if let (Some(detail), Some(location)) = (invalid.details.first_mut(), error.location()) {
        detail.line = usize::try_from(location.line()).ok();
        detail.column = usize::try_from(location.column()).ok();
    }
    invalid
}

/// An entry in `tools`.
#[derive(Debug)]
struct ToolEntry<'a> {
    path: String,
    name: &'a str,
    tool: ToolEntryKind<'a>,
}

#[derive(Debug, PartialEq)]
enum ToolEntryKind<'a> {
    Code(CodeToolName),
    /// A Run Python code tool, as its author wrote it.
    Embedded(&'a Value),
    Other(&'a str),
}

fn tool_entries(root: &Map<String, Value>) -> Result<Vec<ToolEntry<'_>>, RequestError> {
    match root.get("tools") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => {
            let entry = |(index, value)| {
                ToolEntry::read(specification_pointer(&format!("/tools/{index}")), value)
            };
            list.iter().enumerate().map(entry).collect()
        }
        Some(_) => Err(invalid_field(&specification_pointer("/tools"), "must be a list")),
    }
}

impl<'a> ToolEntry<'a> {
    fn read(path: String, value: &'a Value) -> Result<Self, RequestError> {
        let Value::Object(entry) = value else {
            return Err(invalid_field(&path, "must be a mapping"));
        };
        let spec = match entry.get("tool_spec") {
            Some(Value::Object(spec)) => spec,
            // In the published format, its fields are beside `tool_spec` and not in it.
            None | Some(Value::Null) => entry,
            Some(_) => {
                return Err(invalid_field(&format!("{path}/tool_spec"), "must be a mapping"));
            }
        };
        let field = |key: &str| {
            let field = spec.get(key).and_then(Value::as_str);
            field.ok_or_else(|| {
                invalid_field(&path, format!("its tool_spec requires a {key} (a string)"))
            })
        };
        let (kind, name) = (field("type")?, field("name")?);
        let code_tool = CodeToolName::from_name(name).filter(|_| kind == CODE_EXECUTION);
        let tool = match (kind, code_tool) {
            (_, Some(tool)) => ToolEntryKind::Code(tool),
            (RUN_PYTHON_CODE, None) if std::ptr::eq(spec, entry) => ToolEntryKind::Embedded(value),
            (other, None) => ToolEntryKind::Other(other),
        };
        Ok(Self { path, name, tool })
    }

    fn named(&self) -> NamedTool {
        NamedTool { name: self.name.to_owned(), warning: self.warning() }
    }

    fn warning(&self) -> Option<String> {
        match self.tool {
            ToolEntryKind::Code(_) | ToolEntryKind::Embedded(_) => None,
            ToolEntryKind::Other(CODE_EXECUTION) => Some(format!(
                "tool {:?} is of type code_execution, so its name must be code_execution, \
                 code_interpreter or execute_python",
                self.name
            )),
            ToolEntryKind::Other(kind) => Some(format!(
                "tool {:?} has the type {kind}, which this server does not run; it is stored and \
                 ignored",
                self.name
            )),
        }
    }
}

fn check_tool_names(entries: &[ToolEntry<'_>]) -> Result<(), RequestError> {
    let mut names = BTreeSet::new();
    for entry in entries {
        if matches!(entry.tool, ToolEntryKind::Embedded(_)) && is_reserved_tool_name(entry.name) {
            let message = format!("{:?} is the name of a built-in tool", entry.name);
            return Err(invalid_field(&format!("{}/name", entry.path), message));
        }
        if !names.insert(entry.name) {
            let message = format!("another tool of the agent is already named {:?}", entry.name);
            return Err(invalid_field(&entry.path, message));
        }
    }
    Ok(())
}

/// The tools that run code. `code_interpreter` is `code_execution`, so that both are one too many.
fn code_tools(entries: &[ToolEntry<'_>]) -> Result<Vec<CodeToolName>, RequestError> {
    let mut tools: Vec<CodeToolName> = Vec::new();
    for entry in entries {
        let ToolEntryKind::Code(tool) = entry.tool else { continue };
        if tool.takes_requests() && tools.iter().any(|other| other.takes_requests()) {
            let message = "code_interpreter is another name of code_execution; name one of them";
            return Err(invalid_field(&entry.path, message));
        }
        tools.push(tool);
    }
    Ok(tools)
}

/// All embedded tools, or all errors.
fn parse_embedded_tools(
    entries: &[ToolEntry<'_>],
    warnings: &mut Vec<String>,
) -> Result<Vec<EmbeddedTool>, RequestError> {
    let (mut tools, mut errors) = (Vec::new(), Vec::new());
    for entry in entries {
        let ToolEntryKind::Embedded(tool) = entry.tool else { continue };
        let published = EmbeddedTool::without_extensions(tool).to_string();
        let checked = contract::CodeTool::from_json(&published, AnnotationMode::Strict);
        let warning = details(checked.warnings, &entry.path).into_iter();
        warnings.extend(warning.map(|warning| sentence(entry.name, &warning)));
        match checked.result {
            Ok(contract) => tools.push(EmbeddedTool::read(&entry.path, contract, tool)?),
            Err(problems) => errors.append(&mut details(problems, &entry.path)),
        }
    }
    if errors.is_empty() { Ok(tools) } else { Err(invalid_tool(errors)) }
}

fn sentence(tool: &str, warning: &ErrorDetail) -> String {
    let line = warning.line.map(|line| format!(", line {line}")).unwrap_or_default();
    format!("tool {tool:?}{line}: {}", warning.message)
}

fn resources(root: &Map<String, Value>) -> Result<Option<&Map<String, Value>>, RequestError> {
    match root.get("tool_resources") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(resources)) => Ok(Some(resources)),
        Some(_) => {
            Err(invalid_field(&specification_pointer("/tool_resources"), "must be a mapping"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};
    use types::{ApprovalAction, ErrorCode};

    /// With the format and indentation of the vendor document.
    const PUBLISHED: &str = "tools:\n  - tool_spec:\n    type: code_execution\n    \
                             name: code_execution\ntool_resources:\n  code_execution:\n";
    const NESTED: &str = "tools:\n  - tool_spec:\n      type: code_execution\n      \
                          name: code_execution\ntool_resources:\n  code_execution: {}\n";

    fn enabled(text: &str) -> bool {
        parse_specification(text).unwrap().code_execution.enabled
    }

    fn missing(text: &str) -> Vec<String> {
        let CodeExecution { enabled, missing } = parse_specification(text).unwrap().code_execution;
        assert!(!enabled);
        missing
    }

    fn refusal(text: &str) -> (String, String) {
        let error = parse_specification(text).unwrap_err();
        let detail = error.details.into_iter().next().unwrap();
        (detail.path.unwrap(), detail.message)
    }

    #[test]
    fn code_runs_only_where_both_sections_say_so() {
        assert!(enabled(PUBLISHED), "S-004, S-005");
        assert!(enabled(NESTED));
        assert_eq!(missing("instructions: be kind\n"), [NO_ENTRY, NO_SECTION]);
        let entry_alone = "tools: [{tool_spec: {type: code_execution, name: code_execution}}]";
        assert_eq!(missing(entry_alone), [NO_SECTION]);
        assert_eq!(missing("tool_resources: {code_execution: }"), [NO_ENTRY]);
    }

    #[test]
    fn another_name_or_type_enables_nothing() {
        let with = |kind: &str, name: &str| {
            format!(
                "tools: [{{tool_spec: {{type: {kind}, name: {name}}}}}]\n\
                 tool_resources: {{code_execution: {{}}}}"
            )
        };
        assert!(enabled(&with(CODE_EXECUTION, CODE_EXECUTION)));
        assert_eq!(missing(&with(CODE_EXECUTION, "python")), [NO_ENTRY]);
        assert_eq!(missing(&with("generic", CODE_EXECUTION)), [NO_ENTRY]);
        assert_eq!(missing(&with("code_Execution", CODE_EXECUTION)), [NO_ENTRY]);
    }

    #[test]
    fn the_tools_of_the_model_that_run_code_are_those_that_are_named() {
        let named = |names: &[&str]| {
            let entry =
                |name: &&str| format!("{{tool_spec: {{type: code_execution, name: {name}}}}}");
            let entries: Vec<String> = names.iter().map(entry).collect();
            format!("tools: [{}]\ntool_resources: {{code_execution: {{}}}}", entries.join(", "))
        };
        for names in [
            &["code_execution"][..],
            &["code_interpreter"],
            &["execute_python"],
            &["execute_python", "code_interpreter"],
        ] {
            let specification = parse_specification(&named(names)).unwrap();
            assert!(specification.code_execution.enabled, "{names:?}");
            let tools: Vec<&str> =
                specification.code_tools.iter().map(|tool| tool.name()).collect();
            assert_eq!(tools, names);
        }
        let (path, message) = refusal(&named(&["code_execution", "code_interpreter"]));
        assert_eq!(path, "/specification/tools/1");
        assert!(message.contains("another name of code_execution"), "{message}");
    }

    #[test]
    fn an_object_becomes_its_own_text_and_everything_else_stays() {
        let own = "{ \"a\":1.50, \"b\" : \"\\u0041\" ,\n\"specification\":{}}";
        let request = format!(r#"{{"name": "x\"", "specificati\u006fn" : {own} , "other": {{}}}}"#);
        let request: Value =
            serde_json::from_str(&as_text(&request, "specification").unwrap()).unwrap();
        let expected = serde_json::json!({"name": "x\"", "specification": own, "other": {}});
        assert_eq!(request, expected);
        for same in [r#"{"specification":"a: 1"}"#, r#"{"specification":[{}]}"#, "{}"] {
            assert_eq!(as_text(same, "specification").unwrap(), same);
        }
        assert!(as_text("[]", "specification").is_err());
    }

    #[test]
    fn json_says_the_same_as_yaml() {
        let json = r#"{"tools": [{"tool_spec": {"type": "code_execution", "name": "code_execution"}}],
                       "tool_resources": {"code_execution": null}}"#;
        let (json, yaml) =
            (parse_specification(json).unwrap(), parse_specification(NESTED).unwrap());
        assert_eq!(json.format, SpecificationFormat::Json);
        assert_eq!(yaml.format, SpecificationFormat::Yaml);
        assert_eq!(Specification { format: yaml.format, ..json }, yaml);
    }

    #[test]
    fn resources_of_no_tool_are_named_unless_one_is_attached() {
        let text = "tools: [{tool_spec: {type: generic, name: search}}]\n\
                    tool_resources: {search: {}, probe: {}, code_execution: {}}";
        let specification = parse_specification(text).unwrap();
        let about = |attached: &[&str]| {
            let warnings = specification.warnings(attached);
            warnings.into_iter().filter(|warning| warning.contains("tool_resources")).collect()
        };
        let unknown: Vec<String> = about(&[]);
        assert_eq!(unknown.len(), 1, "{unknown:?}");
        assert!(unknown[0].starts_with("tool_resources.probe "), "{unknown:?}");
        let none: Vec<String> = about(&["probe"]);
        assert!(none.is_empty());
    }

    #[test]
    fn what_will_not_be_given_is_named() {
        let text = "tools: [{tool_spec: {type: code_execution, name: code_execution}}]\n\
                    tool_resources:\n  code_execution:\n    \
                    artifact_repositories: [SNOWFLAKE.SNOWPARK.PYPI_SHARED_REPOSITORY]\n    \
                    memory: 1\n";
        let warnings = parse_specification(text).unwrap().warnings(&[]).join("\n");
        for part in ["every package", "code_execution.memory"] {
            assert!(warnings.contains(part), "{warnings}");
        }
        assert!(enabled(text));
    }

    #[test]
    fn what_has_the_wrong_shape_is_refused_at_its_place() {
        let section = |inside: &str| format!("tool_resources: {{code_execution: {inside}}}");
        for (text, path) in [
            ("", "/specification"),
            ("- a", "/specification"),
            ("just text", "/specification"),
            ("tools: {a: b}", "/specification/tools"),
            ("tools: [a]", "/specification/tools/0"),
            ("tools: [{}]", "/specification/tools/0"),
            ("tools: [{type: 1, name: a}]", "/specification/tools/0"),
            ("tools: [{tool_spec: [a]}]", "/specification/tools/0/tool_spec"),
            ("tool_resources: 7", "/specification/tool_resources"),
            (&section("true"), "/specification/tool_resources/code_execution"),
            (
                &section("{external_access_integrations: github}"),
                "/specification/tool_resources/code_execution/external_access_integrations",
            ),
            (
                &section("{artifact_repositories: {a: b}}"),
                "/specification/tool_resources/code_execution/artifact_repositories",
            ),
            (
                &section("{artifact_repositories: [pypi, 1]}"),
                "/specification/tool_resources/code_execution/artifact_repositories/1",
            ),
        ] {
            assert_eq!(refusal(text).0, path, "{text}");
        }
    }

    #[test]
    fn a_tool_that_would_be_taken_for_another_is_refused_by_its_name() {
        let tool = |name: &str| {
            format!(
                "tools:\n  - type: runPythonCode\n    name: {name}\n    description: Always one.\n    \
                 configuration:\n      pythonCode: |\n        def handle():\n          return 1\n"
            )
        };
        for name in RESERVED_TOOL_NAMES {
            let (path, message) = refusal(&tool(name));
            assert_eq!(path, "/specification/tools/0/name");
            assert!(message.contains(name), "{message}");
        }
        assert!(parse_specification(&tool("load")).unwrap().has_tool("load"));
    }

    #[test]
    fn names_are_unique_in_an_agent() {
        let two = "tools: [{type: a, name: x}, {tool_spec: {type: b, name: x}}]";
        assert_eq!(refusal(two).0, "/specification/tools/1");
        assert!(parse_specification("tools: [{type: a, name: x}, {type: a, name: y}]").is_ok());
    }

    #[test]
    fn an_embedded_tool_is_read_or_refused_with_line_and_column() {
        let tool = |code: &str| {
            format!(
                "tools:\n  - type: runPythonCode\n    name: double\n    \
                 description: Doubles a number.\n    configuration:\n      pythonCode: |\n        \
                 {code}\n          return number * 2\n"
            )
        };
        let right = parse_specification(&tool("def handle(number: int):")).unwrap();
        assert_eq!(right.embedded[0].contract.name, "double");
        let code = right.embedded[0].contract.source.original_text();
        assert_eq!(code, "def handle(number: int):\n  return number * 2\n");

        let error = parse_specification(&tool("def handle(number):")).unwrap_err();
        assert_eq!(error.error.code, ErrorCode::ToolInvalid);
        let detail = &error.details[0];
        let place = "/specification/tools/0/configuration/pythonCode";
        assert_eq!(detail.path.as_deref(), Some(place));
        assert_eq!((detail.line, detail.code.clone()), (Some(1), Some(ErrorCode::CodeAnnotation)));
    }

    #[test]
    fn an_embedded_tool_says_whether_a_person_is_asked_and_where_it_runs() {
        let tool = |more: &str| {
            format!(
                "tools:\n  - type: runPythonCode\n    name: one\n    description: Always one.\n{more}    \
                 configuration:\n      pythonCode: |\n        def handle():\n          return 1\n"
            )
        };
        let usual = &parse_specification(&tool("")).unwrap().embedded[0];
        assert_eq!((usual.approval_action, &usual.environment), (ApprovalAction::Confirm, &None));
        let fields = "    approval_action: allow\n    environment: bare\n";
        let embedded = &parse_specification(&tool(fields)).unwrap().embedded[0];
        assert_eq!(embedded.approval_action, ApprovalAction::Allow);
        assert_eq!(embedded.environment.as_deref(), Some("bare"));
        for wrong in ["    approval_action: maybe\n", "    environment: 7\n", "    colour: red\n"] {
            assert!(parse_specification(&tool(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_with_its_line() {
        for text in ["tools:\nx: 1\ntools:\n", "a:\n  b: 1\n  b: 2\n", r#"{"a": 1, "a": 1}"#] {
            let error = parse_specification(text).unwrap_err();
            assert!(error.details[0].message.contains("duplicate key"), "{error:?}");
            assert!(error.details[0].line.is_some());
        }
    }

    #[test]
    fn the_size_is_bounded_to_the_byte() {
        let of = |bytes: usize| format!("a: {}", "x".repeat(bytes - 3));
        assert!(parse_specification(&of(BYTES_MAX)).is_ok());
        let (path, message) = refusal(&of(BYTES_MAX + 1));
        assert_eq!(path, "/specification");
        assert_eq!(message, "has 100001 bytes; at most 100000 are allowed");
    }

    #[test]
    fn text_that_grows_or_digs_is_harmless() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for level in 1..12 {
            let before = vec![format!("*a{}", level - 1); 9].join(",");
            bomb += &format!("a{level}: &a{level} [{before}]\n");
        }
        let alias = format!("a: &a {}\nb: [{}]", "x".repeat(50_000), "*a,".repeat(16_000));
        let deep = [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")].map(|(open, close)| {
            let levels = (BYTES_MAX / 2) / (open.len() + close.len());
            open.repeat(levels) + &close.repeat(levels)
        });
        let itself = "a: &a [*a]".to_owned();
        for text in deep.into_iter().chain([bomb, alias, itself]) {
            let begun = Instant::now();
            assert!(parse_specification(&text).is_err());
            assert!(begun.elapsed() < Duration::from_secs(5), "{}", &text[..20]);
        }
        assert!(
            parse_specification("a: &a [x]\nb: [*a, *a]\n").is_ok(),
            "an alias is nothing bad by itself"
        );
    }

    #[test]
    fn t225_aliases_repeat_blocks_and_not_megabytes() {
        let repeated = |times: usize| {
            format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(100), vec!["*a"; times].join(","))
        };
        assert!(parse_specification(&repeated(50)).is_ok());
        let (_, message) = refusal(&repeated(200));
        assert!(message.contains("alias"), "{message}");
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn nothing_that_anybody_writes_makes_it_fall(text in any::<String>()) {
            let _ = parse_specification(&text);
        }

        #[test]
        fn what_looks_like_a_specification_does_not_either(
            text in "(tools|tool_resources|code_execution|[-:{}\\[\\],&*|>!?#'\"% \n]|a){0,60}",
        ) {
            let _ = parse_specification(&text);
        }

        // JSON allows invisible characters; in YAML they must be escaped.
        #[test]
        fn json_is_read_as_what_it_says_or_not_at_all(value in json()) {
            let text = serde_json::json!({"x": value}).to_string();
            match parse_yaml(&text) {
                Ok(root) => prop_assert_eq!(&root["x"], &value),
                Err(error) => {
                    prop_assert!(error.error.message.contains("unexpected character"))
                }
            }
        }
    }
}
