//! Workspace tools for the suite: Python in the sandbox, called through the real MCP server.

use rmcp::model::{Tool, object as json_object};
use serde_json::{Value, json};
use service::{Caller, PythonToolQuery, RequestError, Service, ToolRequest};
use types::ApprovalAction;

pub(super) const SIMPLE_TEXT: &str = "test_simple_text";
const HEADER: &str = "test_custom_header";
const SCHEMA: &str = "json_schema_2020_12_tool";
pub(super) const SLOW: &str = "slow_compute";
pub(super) const FAILING: &str = "failing_job";
/// Tools that always run as tasks for clients that support tasks, however quick they are.
pub(super) const ARE_TASKS: &[&str] = &[SLOW, FAILING];

const PICTURE: &str = r#"
import base64, struct, zlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

def handle() -> str:
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    red = zlib.compress(b"\x00\xff\x00\x00")
    parts = chunk(b"IHDR", header), chunk(b"IDAT", red), chunk(b"IEND", b"")
    png = b"\x89PNG\r\n\x1a\n" + b"".join(parts)
    display({"image/png": base64.b64encode(png).decode()}, raw=True)
    return "one red pixel"
"#;

const PROGRESS: &str = r#"
import time

def handle() -> str:
    for done in (0, 50, 100):
        print(done, "of 100", flush=True)
        time.sleep(0.05)
    return "done"
"#;

const CONTACT: &str = r#"
def handle(
    name: str = "",
    address: dict[str, str] | None = None,
    contactMethod: str = "email",
    phone: str = "",
    email: str = "",
) -> str:
    return f"{name} by {contactMethod}: {phone or email}"
"#;

/// Name, code and approval action of each tool.
const TOOLS: &[(&str, &str, ApprovalAction)] = &[
    (
        SIMPLE_TEXT,
        "def handle() -> str:\n    return 'This is a simple text response for testing.'\n",
        ApprovalAction::Allow,
    ),
    ("test_image_content", PICTURE, ApprovalAction::Allow),
    (
        "test_error_handling",
        "def handle() -> str:\n    raise ValueError('This tool intentionally returns an error for testing')\n",
        ApprovalAction::Allow,
    ),
    ("test_tool_with_progress", PROGRESS, ApprovalAction::Allow),
    (
        "test_reconnection",
        "import time\n\ndef handle() -> str:\n    time.sleep(0.1)\n    return 'still here'\n",
        ApprovalAction::Allow,
    ),
    (HEADER, "def handle(value: str) -> str:\n    return value\n", ApprovalAction::Allow),
    (SCHEMA, CONTACT, ApprovalAction::Allow),
    (
        "greet",
        "def handle(name: str) -> str:\n    return f'Hello, {name}!'\n",
        ApprovalAction::Allow,
    ),
    (
        SLOW,
        "import time\n\ndef handle(seconds: float = 1.0, label: str = 'it') -> str:\n    time.sleep(seconds)\n    return f'{label} took {seconds} s'\n",
        ApprovalAction::Allow,
    ),
    (
        FAILING,
        "import time\n\ndef handle() -> str:\n    time.sleep(1)\n    raise RuntimeError('it was bound to fail')\n",
        ApprovalAction::Allow,
    ),
    // The state that makes a round trip through the client is that of an approval.
    (
        "test_input_required_result_request_state",
        "def handle() -> str:\n    return 'state-ok'\n",
        ApprovalAction::Review,
    ),
    (
        "test_input_required_result_tampered_state",
        "def handle() -> str:\n    return 'state-ok'\n",
        ApprovalAction::Review,
    ),
];

pub(super) async fn add_tools(service: &Service, caller: &Caller) -> Result<(), RequestError> {
    for (name, code, action) in TOOLS {
        let tool = PythonToolQuery {
            name: Some((*name).to_owned()),
            approval_action: Some(*action),
            extended_annotations: Some(true),
            ..PythonToolQuery::default()
        };
        service.create_tool(caller, ToolRequest::from_python(tool, (*code).into())?).await?;
    }
    Ok(())
}

/// Replaces the schema of two tools by one that no Python signature can express.
pub(super) fn apply_suite_schema(mut tool: Tool) -> Tool {
    let schema = match tool.name.as_ref() {
        HEADER => header_schema(),
        SCHEMA => full_vocabulary_schema(),
        _ => return tool,
    };
    tool.input_schema = json_object(schema).into();
    tool
}

/// The tool whose argument is also in a header; the transport compares the two.
pub(super) fn with_header(name: &str) -> Option<Tool> {
    let tool = || Tool::new(HEADER, "Gives it back.", json_object(header_schema()));
    (name == HEADER).then(tool)
}

fn header_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"value": {"type": "string", "x-mcp-header": "Value"}},
        "required": ["value"],
    })
}

fn full_vocabulary_schema() -> Value {
    let text = json!({"type": "string"});
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": text, "city": text},
            },
        },
        "properties": {
            "name": text,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": text,
            "email": text,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}
