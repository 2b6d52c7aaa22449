//! Files of executions as resources: a result links to them, and callers who may see the execution
//! can read them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rmcp::ErrorData;
use rmcp::model::{ContentBlock, ReadResourceResult, ResourceContents, ResourceTemplate};
use serde_json::json;
use service::{Caller, FileRef, FileUrlSigner, Service};
use std::io::Read;
use types::Execution;

/// Characters that need no percent-encoding in a URI path.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b'~').remove(b'/');
const PREFIX: &str = "belljar://executions/";
/// Clients fetch larger files over REST.
const READ_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Memory of a message with a file, for each byte of the file: its content, its base64, and the JSON.
const MESSAGE_BYTES_PER_BYTE: u64 = 4;
/// Image types that models accept.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const PICTURES_MAX: usize = 8;
const PICTURES_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The URI of a file of an execution: a URL that any client can fetch, or one that only this server
/// can read if it has no address.
pub(crate) fn file_uri(file: &FileRef, urls: &FileUrlSigner) -> Option<String> {
    let FileRef::Asset { execution, name } = file else { return None };
    let own = || format!("{PREFIX}{execution}/files/{}", utf8_percent_encode(name, PATH));
    Some(urls.absolute_url(file).unwrap_or_else(own))
}

/// The file that a URI names, in either form. A signature is not looked at: the caller has rights.
fn file_of_uri(service: &Service, uri: &str) -> Option<FileRef> {
    let Some(rest) = uri.strip_prefix(PREFIX) else { return service.own_file(uri).ok()? };
    let (execution, name) = rest.split_once("/files/")?;
    let name = percent_decode_str(name).decode_utf8().ok()?.into_owned();
    Some(FileRef::Asset { execution: execution.parse().ok()?, name })
}

pub(crate) fn template() -> ResourceTemplate {
    ResourceTemplate::new(
        format!("{PREFIX}{{execution_id}}/files/{{+name}}"),
        "file of an execution",
    )
    .with_description("A file that an execution wrote to its working directory.")
}

pub(crate) async fn read_resource(
    service: &Service,
    caller: &Caller,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let missing = || {
        let message = format!("resource {uri} not found");
        ErrorData::resource_not_found(message, Some(json!({"uri": uri})))
    };
    let file = file_of_uri(service, uri).ok_or_else(missing)?;
    let (file, open) = service.open_file(caller, &file).await.map_err(|_| missing())?;
    if file.size > READ_BYTES_MAX {
        let message = format!("{uri} has {} bytes; fetch it from /v1/assets", file.size);
        return Err(ErrorData::invalid_params(message, None));
    }
    // Counted until the message exists; then it counts as an unread response.
    let reserved = service.reserve_response(caller.workspace(), file.size * MESSAGE_BYTES_PER_BYTE);
    let _budget = reserved
        .map_err(|error| ErrorData::internal_error(format!("{uri}: {}", error.message), None))?;
    let content = tokio::task::spawn_blocking(move || {
        let mut content = Vec::new();
        open.take(READ_BYTES_MAX).read_to_end(&mut content).map(|_| content)
    });
    let failed = |error: String| ErrorData::internal_error(format!("{uri}: {error}"), None);
    let content = content.await.map_err(|error| failed(error.to_string()))?;
    let content = content.map_err(|error| failed(error.to_string()))?;
    let contents = match String::from_utf8(content) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => ResourceContents::blob(STANDARD.encode(error.into_bytes()), uri),
    };
    Ok(ReadResourceResult::new(vec![contents.with_mime_type(file.mime)]))
}

/// Images that the code saved, shown like its charts: after saving a figure, code has usually
/// closed it.
pub(crate) async fn saved_images(
    service: &Service,
    caller: &Caller,
    record: &Execution,
) -> Vec<ContentBlock> {
    let mut pictures = Vec::new();
    let mut room = PICTURES_BYTES_MAX;
    let saved = record.files_out.iter().filter(|file| PICTURES.contains(&file.mime.as_str()));
    for file in saved.take(PICTURES_MAX) {
        let Some(left) = room.checked_sub(file.size) else { continue };
        let Ok((asset, open)) = service.asset(caller, record.id, &file.name).await else {
            continue;
        };
        let read = tokio::task::spawn_blocking(move || {
            let mut content = Vec::new();
            open.take(PICTURES_BYTES_MAX).read_to_end(&mut content).map(|_| content)
        });
        if let Ok(Ok(content)) = read.await {
            room = left;
            pictures.push(ContentBlock::image(STANDARD.encode(content), asset.mime));
        }
    }
    pictures
}
