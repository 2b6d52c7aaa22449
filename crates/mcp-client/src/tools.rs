//! The tools of a server as a model is offered them: renamed, counted and bounded.

use rmcp::model::Tool;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Limit of the tools of one server that a model is offered: each takes a part of every request.
pub(crate) const TOOLS_MAX: usize = 64;
/// Limit of the pages of a list. A server could otherwise list forever.
pub(crate) const PAGES_MAX: usize = 16;
/// Limit of a name that providers of models accept, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Limit of a description, in bytes: the first paragraphs say what a tool is for.
const DESCRIPTION_BYTES_MAX: usize = 1_024;
/// Limit of an input schema, in bytes of JSON.
const SCHEMA_BYTES_MAX: usize = 8 * 1024;
/// Limit of the depth of an input schema.
const SCHEMA_DEPTH_MAX: usize = 16;
/// What stands between the names of a server and its tool.
const SEPARATOR: &str = "__";
/// The hexadecimal digits that tell names apart which would otherwise become equal.
const HASH_DIGITS: usize = 8;

/// Which tools of a server an agent may use.
#[derive(Debug, Clone, Copy)]
pub struct ToolFilter<'a> {
    /// The name of the server in the specification.
    pub server: &'a str,
    /// All tools, if absent.
    pub allowed: Option<&'a [String]>,
}

/// A tool of a server that a model may be offered.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteTool {
    /// The name by which the server knows it.
    pub name: String,
    /// The name by which the model calls it.
    pub offered: String,
    pub description: String,
    pub input_schema: Value,
    /// Whether the server says that it only reads.
    pub read_only: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RemoteTools {
    pub tools: Vec<RemoteTool>,
    /// Why tools are left out, in sentences.
    pub warnings: Vec<String>,
}

/// The name by which a model calls a tool: `server__tool`. A name that providers of models would
/// refuse is replaced by a similar one with a hash of the original.
pub fn offered_name(server: &str, tool: &str) -> String {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let whole = format!("{server}{SEPARATOR}{tool}");
    if !tool.is_empty() && whole.len() <= NAME_BYTES_MAX && tool.bytes().all(fits) {
        return whole;
    }
    let replaced = |letter: char| match letter {
        letter if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-') => letter,
        _ => '_',
    };
    let digest = Sha256::digest(tool.as_bytes());
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let room = NAME_BYTES_MAX - HASH_DIGITS - 1;
    let start: String = whole.chars().map(replaced).take(room).collect();
    format!("{start}_{}", &hash[..HASH_DIGITS])
}

/// Whether an offered name is one of a tool of this server.
pub fn is_offered_by(server: &str, offered: &str) -> bool {
    offered.strip_prefix(server).is_some_and(|rest| rest.starts_with(SEPARATOR))
}

impl RemoteTools {
    /// Adds the tools of one page.
    pub(crate) fn add(&mut self, filter: ToolFilter<'_>, page: Vec<Tool>) {
        for tool in page {
            let name = tool.name.as_ref();
            if filter.allowed.is_some_and(|allowed| !allowed.iter().any(|it| it == name)) {
                continue;
            }
            let shown = crate::error::printable(name);
            match offer(filter.server, tool) {
                _ if self.tools.len() >= TOOLS_MAX => {
                    self.warn_once(filter.server);
                    return;
                }
                Err(why) => self.leave_out(filter.server, &shown, why),
                Ok(tool) if self.tools.iter().any(|it| it.offered == tool.offered) => {
                    self.leave_out(filter.server, &shown, "has the name of another tool");
                }
                Ok(tool) => self.tools.push(tool),
            }
        }
    }

    fn leave_out(&mut self, server: &str, tool: &str, why: &str) {
        if self.warnings.len() < TOOLS_MAX {
            self.warnings
                .push(format!("tool {tool:?} of MCP server {server:?} is left out: it {why}"));
        }
    }

    fn warn_once(&mut self, server: &str) {
        let warning = format!(
            "MCP server {server:?} has more than {TOOLS_MAX} tools; the others are left out: name \
             the needed ones in allowed_tools"
        );
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Notes allowed tools that the server does not have.
    pub(crate) fn note_missing(&mut self, filter: ToolFilter<'_>) {
        for name in filter.allowed.into_iter().flatten() {
            let known = self.tools.iter().any(|tool| tool.name == *name);
            let noted = self.warnings.iter().any(|it| it.contains(&format!("{name:?}")));
            if !known && !noted {
                let server = filter.server;
                self.warnings.push(format!("MCP server {server:?} has no tool {name:?}"));
            }
        }
    }
}

fn offer(server: &str, tool: Tool) -> Result<RemoteTool, &'static str> {
    let schema = Value::Object(Map::clone(&tool.input_schema));
    if depth(&schema) > SCHEMA_DEPTH_MAX {
        return Err("has a schema that is too deep");
    }
    if schema.to_string().len() > SCHEMA_BYTES_MAX {
        return Err("has a schema that is too long");
    }
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Err("has a schema that is not one of an object");
    }
    let hints = tool.annotations.unwrap_or_default();
    let description = tool.description.unwrap_or_default();
    let end = description.floor_char_boundary(DESCRIPTION_BYTES_MAX);
    Ok(RemoteTool {
        offered: offered_name(server, &tool.name),
        name: tool.name.into_owned(),
        description: description[..end].to_owned(),
        input_schema: schema,
        read_only: hints.read_only_hint == Some(true) && hints.destructive_hint != Some(true),
    })
}

/// The depth of a value. The parser has bounded it.
fn depth(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tools(listed: Value, allowed: Option<&[String]>) -> RemoteTools {
        let filter = ToolFilter { server: "docs", allowed };
        let mut tools = RemoteTools::default();
        tools.add(filter, serde_json::from_value(listed).unwrap_or_default());
        tools.note_missing(filter);
        tools
    }

    fn names(tools: &RemoteTools) -> Vec<&str> {
        tools.tools.iter().map(|tool| tool.offered.as_str()).collect()
    }

    fn tool(name: &str) -> Value {
        json!({"name": name, "description": "x", "inputSchema": {"type": "object"}})
    }

    #[test]
    fn a_name_is_accepted_by_every_provider_and_no_two_tools_share_one() {
        assert_eq!(offered_name("docs", "find"), "docs__find");
        let long = "x".repeat(100);
        let odd = ["a.b", "a/b", "a b", "", "é", long.as_str(), &format!("{long}x")];
        let mut offered: Vec<String> = odd.iter().map(|name| offered_name("docs", name)).collect();
        for name in &offered {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            assert!(name.len() <= NAME_BYTES_MAX && name.bytes().all(fits), "{name}");
            assert!(is_offered_by("docs", name) && !is_offered_by("doc", name), "{name}");
        }
        offered.sort();
        offered.dedup();
        assert_eq!(offered.len(), odd.len());
    }

    #[test]
    fn a_list_is_filtered_and_what_is_missing_is_named() {
        let allowed = ["find".to_owned(), "gone".to_owned()];
        let found = tools(json!([tool("find"), tool("drop")]), Some(&allowed));
        assert_eq!(names(&found), ["docs__find"]);
        assert_eq!(found.warnings, ["MCP server \"docs\" has no tool \"gone\""]);
        assert_eq!(names(&tools(json!([tool("find"), tool("drop")]), None)).len(), 2);
    }

    #[test]
    fn t283_descriptions_schemas_and_counts_are_bounded() {
        let mut deep = json!({});
        (0..SCHEMA_DEPTH_MAX).for_each(|_| deep = json!({ "properties": deep }));
        let mut listed = vec![
            json!({"name": "deep", "inputSchema": deep}),
            json!({"name": "long", "inputSchema": {"type": "object", "x": "x".repeat(9_000)}}),
            json!({"name": "list", "inputSchema": {"type": "array"}}),
            json!({"name": "talks", "description": "é".repeat(5_000), "inputSchema": {}}),
            tool("twice"),
            tool("twice"),
        ];
        let found = tools(json!(listed), None);
        assert_eq!(names(&found), ["docs__talks", "docs__twice"]);
        assert_eq!(found.warnings.len(), 4, "{:?}", found.warnings);
        assert!(found.tools[0].description.len() <= DESCRIPTION_BYTES_MAX);
        listed = (0..1_000).map(|number| tool(&format!("t{number}"))).collect();
        let found = tools(json!(listed), None);
        assert_eq!((found.tools.len(), found.warnings.len()), (TOOLS_MAX, 1));
    }

    #[test]
    fn only_a_tool_that_says_so_only_reads() {
        let hint = |hints: Value| {
            let listed = json!([{"name": "a", "inputSchema": {}, "annotations": hints}]);
            tools(listed, None).tools[0].read_only
        };
        assert!(hint(json!({"readOnlyHint": true})));
        assert!(!hint(json!({"readOnlyHint": true, "destructiveHint": true})));
        assert!(!hint(json!({"readOnlyHint": false})));
        assert!(!hint(json!({})));
    }
}
