//! Files of runs as resources: found by a link in a result, and read by whoever may see the run.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, ResourceContents, ResourceTemplate};
use serde_json::json;
use service::{Caller, Service};
use std::io::Read;
use types::ExecutionId;

/// What may stand in a URI as it is.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b'~').remove(b'/');
const PREFIX: &str = "belljar://executions/";
/// Larger files are fetched over REST.
const READ_BYTES_MAX: u64 = 8 * 1024 * 1024;

pub(crate) fn uri(execution: ExecutionId, name: &str) -> String {
    format!("{PREFIX}{execution}/files/{}", utf8_percent_encode(name, PATH))
}

pub(crate) fn template() -> ResourceTemplate {
    ResourceTemplate::new(format!("{PREFIX}{{execution_id}}/files/{{+name}}"), "file of a run")
        .with_description("A file that a run has left in its working directory.")
}

pub(crate) async fn read(
    service: &Service,
    caller: &Caller,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let missing = || {
        let message = format!("there is no resource {uri}");
        ErrorData::resource_not_found(message, Some(json!({"uri": uri})))
    };
    let rest = uri.strip_prefix(PREFIX).ok_or_else(missing)?;
    let (execution, name) = rest.split_once("/files/").ok_or_else(missing)?;
    let execution: ExecutionId = execution.parse().map_err(|_| missing())?;
    let name = percent_decode_str(name).decode_utf8().map_err(|_| missing())?;
    let (file, open) = service.asset(caller, execution, &name).await.map_err(|_| missing())?;
    if file.size > READ_BYTES_MAX {
        let message = format!("{uri} has {} bytes; fetch it from /v1/assets", file.size);
        return Err(ErrorData::invalid_params(message, None));
    }
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
