//! The MCP servers whose tools an agent may call.
//!
//! Each entry names a URL, or a command that the operator of the server has configured. An author
//! can neither start a process nor pass it arguments.

use super::specification_pointer;
use crate::error::{RequestError, invalid_field};
use serde::Deserialize;
use serde_json::{Map, Value};
use types::ApprovalAction;

/// Limit of the servers of one agent: each is connected to before a run.
const SERVERS_MAX: usize = 8;
/// Limit of the tools that one entry allows by name.
const ALLOWED_TOOLS_MAX: usize = 64;
/// Limit of a name, in characters: it is the first part of the names of tools.
const NAME_CHARS_MAX: usize = 24;
const KEYS: [&str; 7] = [
    "name",
    "url",
    "command",
    "integrations",
    "allowed_tools",
    "approval_action",
    "trust_annotations",
];

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum McpServerAddress {
    /// By its URL, through these integrations.
    Url { url: String, integrations: Vec<String> },
    /// The name of a command of the operator.
    Command(String),
}

/// An MCP server of an agent.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct McpServerEntry {
    pub name: String,
    pub address: McpServerAddress,
    /// The tools that may be called; all, if absent.
    pub allowed_tools: Option<Vec<String>>,
    /// Default `confirm`: the caller of the agent is asked about each call.
    pub approval_action: ApprovalAction,
    /// Whether a tool that says that it only reads needs no approval.
    pub trust_annotations: bool,
}

impl McpServerEntry {
    /// The integrations through which the server is reached.
    pub(crate) fn integrations(&self) -> &[String] {
        match &self.address {
            McpServerAddress::Url { integrations, .. } => integrations,
            McpServerAddress::Command(_) => &[],
        }
    }

    pub(crate) fn allows(&self, tool: &str) -> bool {
        self.allowed_tools.as_ref().is_none_or(|allowed| allowed.iter().any(|it| it == tool))
    }
}

/// The path of an integration of an entry.
pub(super) fn integration_path(server: usize, integration: usize) -> String {
    specification_pointer(&format!("/mcp_servers/{server}/integrations/{integration}"))
}

pub(super) fn read_mcp_servers(
    root: &Map<String, Value>,
) -> Result<Vec<McpServerEntry>, RequestError> {
    let path = specification_pointer("/mcp_servers");
    let list = match root.get("mcp_servers") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= SERVERS_MAX => list,
        Some(Value::Array(_)) => {
            let message = format!("can have at most {SERVERS_MAX} servers");
            return Err(invalid_field(&path, message));
        }
        Some(_) => return Err(invalid_field(&path, "must be a list")),
    };
    let mut servers: Vec<McpServerEntry> = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let entry = EntryReader { path: format!("{path}/{index}"), value };
        let server = entry.read()?;
        if servers.iter().any(|other| other.name == server.name) {
            let message = format!("another server is already named {:?}", server.name);
            return Err(entry.invalid("/name", message));
        }
        servers.push(server);
    }
    Ok(servers)
}

struct EntryReader<'a> {
    path: String,
    value: &'a Value,
}

impl EntryReader<'_> {
    fn read(&self) -> Result<McpServerEntry, RequestError> {
        let Value::Object(fields) = self.value else {
            return Err(self.invalid("", "must be a mapping"));
        };
        if fields.contains_key("args") {
            let message = "is not allowed: the operator of the server sets the arguments of its \
                           commands";
            return Err(self.invalid("/args", message));
        }
        // A field that is ignored could be a restriction that is misspelt.
        if let Some(key) = fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let message = format!("is not a field; use {}", KEYS.join(", "));
            return Err(self.invalid(&format!("/{key}"), message));
        }
        Ok(McpServerEntry {
            name: self.name()?,
            address: self.address()?,
            allowed_tools: self.names("allowed_tools", ALLOWED_TOOLS_MAX)?,
            approval_action: self.approval_action()?,
            trust_annotations: match self.field("trust_annotations") {
                None => false,
                Some(Value::Bool(trusts)) => *trusts,
                Some(_) => return Err(self.invalid("/trust_annotations", "must be true or false")),
            },
        })
    }

    fn invalid(&self, field: &str, message: impl Into<String>) -> RequestError {
        invalid_field(&format!("{}{field}", self.path), message)
    }

    fn field(&self, key: &str) -> Option<&Value> {
        self.value.get(key).filter(|value| !value.is_null())
    }

    fn text(&self, key: &str) -> Result<Option<String>, RequestError> {
        match self.field(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.invalid(&format!("/{key}"), "must be a string")),
        }
    }

    fn name(&self) -> Result<String, RequestError> {
        let name = self.text("name")?.unwrap_or_default();
        let fits =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
        // Two underscores separate it from the name of a tool.
        let is_valid = name.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
            && name.len() <= NAME_CHARS_MAX
            && name.bytes().all(fits)
            && !name.contains("__")
            && !name.ends_with('_');
        if is_valid {
            return Ok(name);
        }
        let message = format!(
            "must be a name of up to {NAME_CHARS_MAX} lower-case letters, digits, `-` and single `_`, \
             such as docs"
        );
        Err(self.invalid("/name", message))
    }

    fn address(&self) -> Result<McpServerAddress, RequestError> {
        let integrations = self.names("integrations", ALLOWED_TOOLS_MAX)?;
        match (self.text("url")?, self.text("command")?) {
            (Some(url), None) => {
                self.check_url(&url)?;
                Ok(McpServerAddress::Url { url, integrations: integrations.unwrap_or_default() })
            }
            (None, Some(_)) if integrations.is_some() => {
                Err(self.invalid("/integrations", "are only for a server with a url"))
            }
            (None, Some(command)) => Ok(McpServerAddress::Command(command)),
            (Some(_), Some(_)) | (None, None) => {
                Err(self.invalid("", "requires either a url, or a command of the operator"))
            }
        }
    }

    fn check_url(&self, text: &str) -> Result<(), RequestError> {
        let is_valid = text.len() <= policy::URL_BYTES_MAX
            && url::Url::parse(text).is_ok_and(|url| {
                matches!(url.scheme(), "http" | "https")
                    && url.has_host()
                    && url.username().is_empty()
                    && url.password().is_none()
            });
        if is_valid {
            return Ok(());
        }
        let message = "must be an https URL without a user name, such as \
                       https://mcp.example.com/mcp; a credential belongs into a secret";
        Err(self.invalid("/url", message))
    }

    fn names(&self, key: &str, most: usize) -> Result<Option<Vec<String>>, RequestError> {
        let invalid =
            || self.invalid(&format!("/{key}"), format!("must be a list of up to {most} names"));
        let list = match self.field(key) {
            None => return Ok(None),
            Some(Value::Array(list)) if list.len() <= most => list,
            Some(_) => return Err(invalid()),
        };
        let names = list.iter().map(|name| name.as_str().map(str::to_owned));
        names.collect::<Option<Vec<String>>>().map(Some).ok_or_else(invalid)
    }

    fn approval_action(&self) -> Result<ApprovalAction, RequestError> {
        let Some(action) = self.field("approval_action") else {
            return Ok(ApprovalAction::Confirm);
        };
        let invalid =
            |_| self.invalid("/approval_action", "must be allow, confirm, review or deny");
        ApprovalAction::deserialize(action).map_err(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_specification;
    use super::*;

    fn read(entry: &str) -> Result<McpServerEntry, RequestError> {
        let specification = parse_specification(&format!("mcp_servers: [{entry}]"))?;
        Ok(specification.mcp_servers[0].clone())
    }

    #[test]
    fn a_server_is_a_url_or_a_command_of_the_operator() {
        let docs =
            read("{name: docs, url: 'https://docs.example/mcp', integrations: [docs]}").unwrap();
        assert_eq!(docs.integrations(), ["docs"]);
        assert_eq!(
            (docs.approval_action, docs.trust_annotations),
            (ApprovalAction::Confirm, false)
        );
        assert!(docs.allows("anything"));
        let files = "{name: files, command: files, allowed_tools: [read], approval_action: allow, \
                     trust_annotations: true}";
        let files = read(files).unwrap();
        assert_eq!(files.address, McpServerAddress::Command("files".to_owned()));
        assert_eq!((files.approval_action, files.trust_annotations), (ApprovalAction::Allow, true));
        assert!(files.allows("read") && !files.allows("write"));
    }

    #[test]
    fn t282_an_author_cannot_write_a_command_line_or_a_credential() {
        for (entry, path) in [
            ("1", "/0"),
            ("{name: a}", "/0"),
            ("{name: a, url: 'https://a.example', command: b}", "/0"),
            ("{name: a, command: sh, args: ['-c', 'id']}", "/0/args"),
            ("{name: a, command: [sh, -c]}", "/0/command"),
            ("{name: a, command: b, env: {A: 1}}", "/0/env"),
            ("{name: a, command: b, integrations: [c]}", "/0/integrations"),
            ("{name: a, url: 'file:///etc/passwd'}", "/0/url"),
            ("{name: a, url: 'https://me:pw@a.example/'}", "/0/url"),
            ("{name: a, url: 'https://a.example', headers: {authorization: x}}", "/0/headers"),
            ("{name: a__b, command: c}", "/0/name"),
            ("{name: A, command: c}", "/0/name"),
            ("{name: a_, command: c}", "/0/name"),
            ("{name: 1, command: c}", "/0/name"),
            ("{command: c}", "/0/name"),
            ("{name: a, command: c, allowed_tool: [x]}", "/0/allowed_tool"),
            ("{name: a, command: c, allowed_tools: x}", "/0/allowed_tools"),
            ("{name: a, command: c, approval_action: maybe}", "/0/approval_action"),
            ("{name: a, command: c, trust_annotations: 1}", "/0/trust_annotations"),
            ("{name: a, command: c}, {name: a, command: d}", "/1/name"),
        ] {
            let error = read(entry).unwrap_err();
            let expected = format!("/specification/mcp_servers{path}");
            assert_eq!(error.details[0].path.as_deref(), Some(&*expected), "{entry}");
        }
        let many: Vec<String> = (0..9).map(|at| format!("{{name: a{at}, command: c}}")).collect();
        assert!(read(&many[..8].join(", ")).is_ok());
        assert!(read(&many.join(", ")).is_err());
        assert!(parse_specification("mcp_servers: {a: b}").is_err());
        assert!(parse_specification("mcp_servers:\n").unwrap().mcp_servers.is_empty());
    }
}
