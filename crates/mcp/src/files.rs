//! Tools that list, read and write the files of a session.

use crate::arguments;
use crate::create_session::structured_result;
use crate::run_result::json_object;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};
use service::{Caller, RequestError, Service};
use std::io::Read;
use types::{Error, ErrorCode, SandboxId};

pub(crate) const LIST: &str = "list_files";
pub(crate) const READ: &str = "read_file";
pub(crate) const WRITE: &str = "write_file";

/// Maximum size of a file that is read: as much as a model can read at once; code reads larger files in parts.
const READ_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, Deserialize)]
struct ListFilesArguments {
    session: String,
}

#[derive(Debug, Deserialize)]
struct ReadFileArguments {
    session: String,
    name: String,
}

#[derive(Debug, Deserialize)]
struct WriteFileArguments {
    session: String,
    name: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    base64: Option<String>,
}

pub(crate) async fn list(
    service: &Service,
    caller: &Caller,
    arguments: Option<JsonObject>,
) -> Result<CallToolResult, RequestError> {
    let read = |arguments| arguments::parse_arguments(arguments, list_schema());
    let ListFilesArguments { session } =
        arguments::read_arguments(service, caller, arguments, read).await?;
    let files = service.session_files(caller, arguments::parse_session(&session)?).await?;
    Ok(structured_result(serde_json::to_value(files).unwrap_or_default()))
}

pub(crate) async fn read(
    service: &Service,
    caller: &Caller,
    arguments: Option<JsonObject>,
) -> Result<CallToolResult, RequestError> {
    let read = |arguments| arguments::parse_arguments(arguments, read_schema());
    let ReadFileArguments { session, name } =
        arguments::read_arguments(service, caller, arguments, read).await?;
    let id = arguments::parse_session(&session)?;
    let (file, size) = service.read_session_file(caller, id, name.clone()).await?;
    if size > READ_BYTES_MAX {
        let message =
            format!("{name:?} has {size} bytes; at most {READ_BYTES_MAX} can be read at once");
        return Err(Error::new(ErrorCode::OutputTooLarge, message)
            .hint("read the part you need with execute_python in the same session")
            .into());
    }
    let content = tokio::task::spawn_blocking(move || {
        let mut content = Vec::new();
        // The file may grow while it is read.
        file.take(READ_BYTES_MAX).read_to_end(&mut content).map(|_| content)
    });
    let unreadable =
        |error: String| Error::new(ErrorCode::FileNotFound, format!("{name:?}: {error}"));
    let content = content.await.map_err(|error| unreadable(error.to_string()))?;
    let content = content.map_err(|error| unreadable(error.to_string()))?;
    Ok(file_content(&name, content))
}

/// Returns text as text, an image as an image, any other file as base64.
fn file_content(name: &str, content: Vec<u8>) -> CallToolResult {
    match String::from_utf8(content) {
        Ok(text) => structured_result(json!({"name": name, "text": text})),
        Err(error) => {
            let data = STANDARD.encode(error.into_bytes());
            let mime = image_mime(name);
            let mut result = structured_result(json!({"name": name, "base64": data}));
            if let Some(mime) = mime {
                result.content = vec![ContentBlock::image(data, mime)];
            }
            result
        }
    }
}

fn image_mime(name: &str) -> Option<&'static str> {
    let extension = name.rsplit_once('.')?.1.to_ascii_lowercase();
    match extension.as_str() {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "gif" => Some("image/gif"),
        "webp" => Some("image/webp"),
        _ => None,
    }
}

/// The parsed arguments of `write_file`.
struct NewSessionFile {
    session: SandboxId,
    name: String,
    content: Vec<u8>,
}

fn parse_new_file(arguments: Option<JsonObject>) -> Result<NewSessionFile, Error> {
    let WriteFileArguments { session, name, text, base64 } =
        arguments::parse_arguments(arguments, write_schema())?;
    let content = match (text, base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(data)) => STANDARD.decode(data).map_err(|error| {
            Error::new(
                ErrorCode::ArgsInvalid,
                format!("argument \"base64\" is not valid base64: {error}"),
            )
        })?,
        _ => {
            let message = "exactly one of the arguments \"text\" and \"base64\" is required";
            return Err(Error::new(ErrorCode::ArgsInvalid, message));
        }
    };
    Ok(NewSessionFile { session: arguments::parse_session(&session)?, name, content })
}

pub(crate) async fn write(
    service: &Service,
    caller: &Caller,
    arguments: Option<JsonObject>,
) -> Result<CallToolResult, RequestError> {
    let NewSessionFile { session: id, name, content } =
        arguments::read_arguments(service, caller, arguments, parse_new_file).await?;
    service.check_upload(caller, Some(id))?;
    let mut staging = service.stage().await?;
    staging.write(&content).await?;
    let staged = staging.finish().await?;
    let file = service.write_session_file(caller, id, name, staged).await?;
    Ok(structured_result(serde_json::to_value(file).unwrap_or_default()))
}

fn session_schema() -> Value {
    json!({"type": "string", "description": "A handle of create_session."})
}

fn name_schema() -> Value {
    json!({"type": "string", "description": "Relative to the working directory, such as `data.csv`."})
}

fn list_schema() -> JsonObject {
    object_schema(json!({"session": session_schema()}), &["session"])
}

fn read_schema() -> JsonObject {
    object_schema(json!({"session": session_schema(), "name": name_schema()}), &["session", "name"])
}

fn write_schema() -> JsonObject {
    let properties = json!({
        "session": session_schema(),
        "name": name_schema(),
        "text": {"type": "string", "description": "The content of the file as text."},
        "base64": {"type": "string", "description": "The content of the file in base64, if it is \
                                                     not text."},
    });
    object_schema(properties, &["session", "name"])
}

fn object_schema(properties: Value, required: &[&str]) -> JsonObject {
    json_object(json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    }))
}

pub(crate) fn tools() -> [Tool; 3] {
    let reads = |title: &str| ToolAnnotations::with_title(title).read_only(true).open_world(false);
    let writes = ToolAnnotations::with_title("Write a file").idempotent(true).open_world(false);
    [
        Tool::new(LIST, "List the files in the working directory of a session.", list_schema())
            .with_annotations(reads("List files")),
        Tool::new(
            READ,
            "Read a file of a session, up to 1 MiB. Text is returned as text, an image as an image.",
            read_schema(),
        )
        .with_annotations(reads("Read a file")),
        Tool::new(WRITE, "Write a file into the working directory of a session.", write_schema())
            .with_annotations(writes),
    ]
}
