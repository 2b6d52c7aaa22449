//! `execute_python`: runs a complete script and returns a compact result.

use crate::arguments;
use crate::run_result::{PythonResult, json_object};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::json;
use service::{EntryKind, ExecuteRequest, FileInput};
use types::{Error, ErrorCode, LimitsRequest, SandboxId};

pub(crate) const NAME: &str = "execute_python";

const DESCRIPTION: &str = "Run a complete Python script in an isolated sandbox and get its result back: for \
mathematics, statistics, data transforms, parsing, and files such as CSV and Excel. Print the result, \
or bind it to `result`. There is no network; pass files by URL in `files` and open them by their names, \
never paste their content into the code. Each call is a fresh interpreter, unless `session` names one \
made by create_session.";

#[derive(Debug, Deserialize)]
struct ExecutePythonArguments {
    code: String,
    #[serde(default)]
    files: Option<Vec<String>>,
    #[serde(default)]
    session: Option<String>,
    #[serde(default)]
    visuals: Option<bool>,
    #[serde(default)]
    timeout: Option<u64>,
}

/// A parsed call.
pub(crate) struct ExecutePythonCall {
    pub(crate) session: Option<SandboxId>,
    pub(crate) request: ExecuteRequest,
    pub(crate) visuals: bool,
}

impl ExecutePythonCall {
    pub(crate) fn parse(arguments: Option<JsonObject>) -> Result<Self, Error> {
        let ExecutePythonArguments { code, files, session, visuals, timeout } =
            arguments::parse_arguments(arguments, input_schema())?;
        if code.trim().is_empty() {
            let error = Error::new(ErrorCode::ArgsInvalid, "argument \"code\" is empty");
            return Err(error.hint("send a complete Python script"));
        }
        let milliseconds = timeout.map(|seconds| seconds.saturating_mul(1000));
        let files = files.unwrap_or_default();
        let files = files.into_iter().enumerate().map(|(index, url)| file_input(index, url));
        Ok(Self {
            session: session.as_deref().map(arguments::parse_session).transpose()?,
            visuals: visuals.unwrap_or(false),
            request: ExecuteRequest {
                code,
                entry: EntryKind::Answer,
                argv: Vec::new(),
                files: files.collect::<Result<_, _>>()?,
                limits: LimitsRequest {
                    wall_ms: milliseconds,
                    cpu_ms: milliseconds,
                    ..LimitsRequest::default()
                },
                environment: None,
                integrations: Vec::new(),
                allow_network: false,
            },
        })
    }
}

fn file_input(index: usize, url: String) -> Result<FileInput, Error> {
    let bad =
        |message: String| Error::new(ErrorCode::ArgsInvalid, format!("files[{index}]: {message}"));
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return Err(bad(format!("{url:?} is not a URL"))
            .hint("pass http or https URLs, and open the files in the code by their names"));
    }
    Ok(FileInput { url: Some(url), refuse_pdf: true, ..FileInput::default() })
}

fn input_schema() -> JsonObject {
    json_object(json!({
        "type": "object",
        "properties": {
            "code": {
                "type": "string",
                "description": "A complete Python script, up to 4 MiB. Print or assign the result; standard output and the value of the last expression are returned.",
            },
            "files": {
                "type": "array",
                "items": {"type": "string", "format": "uri"},
                "description": "URLs of files (CSV, Excel) that are downloaded into the working directory before the run. Open each by its file name.",
            },
            "session": {
                "type": "string",
                "description": "A handle of create_session: variables, imports and files persist between calls.",
            },
            "visuals": {
                "type": "boolean",
                "description": "Also return charts as images; otherwise the result contains data only.",
            },
            "timeout": {
                "type": "integer",
                "minimum": 1,
                "description": "Seconds that the code may take; 30 if absent.",
            },
        },
        "required": ["code"],
        "additionalProperties": false,
    }))
}

pub(crate) fn tool() -> Tool {
    let annotations = ToolAnnotations::with_title("Code Interpreter")
        .read_only(false)
        .destructive(false)
        .idempotent(false)
        .open_world(false);
    Tool::new(NAME, DESCRIPTION, input_schema())
        .with_title("Code Interpreter")
        .with_raw_output_schema(PythonResult::schema().into())
        .with_annotations(annotations)
}
