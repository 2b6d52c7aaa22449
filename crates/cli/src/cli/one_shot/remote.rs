//! Runs one execution on a server and displays it like a local one.
//!
//! The server ends an execution when its stream closes. Ctrl-C cancels it explicitly, since a call
//! with a pending approval would otherwise keep waiting.

use super::{ExecutionDisplay, OutcomeArgs, StdoutUse, write_output_file};
use crate::cli::remote::{ServerArgs, print_json};
use crate::cli::{CliError, display, engine_args};
use crate::client::{ApiClient, ApiRequest, ClientError, EventStream, asset_path};
use reqwest::header::{ACCEPT, HeaderName, HeaderValue, LOCATION};
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use types::{Event, Execution};

const EXECUTIONS: &str = "/v1/executions/";
const PREFER: HeaderName = HeaderName::from_static("prefer");
/// Time for a cancelled execution to end: long enough for a sandbox, and short enough for a user
/// who waits.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

pub(in crate::cli) fn run_on_server(
    server: &ServerArgs,
    call: impl AsyncFnOnce(&ApiClient) -> Result<ApiRequest, CliError>,
    outcome: &OutcomeArgs,
    stdout: StdoutUse,
) -> Result<ExitCode, CliError> {
    let mut display = ExecutionDisplay::new(outcome, stdout)?;
    let client = server.connect()?;
    let execution = engine_args::build_runtime()?.block_on(async {
        let call = call(&client).await?;
        let execution = follow_execution(&client, call, &mut display).await?;
        if let Some(out) = &outcome.out {
            download_files(&client, &execution, out).await?;
        }
        Ok::<Execution, CliError>(execution)
    })?;
    // On a server, images are files of the execution and listed among them.
    display.finish(&execution, &[])
}

/// Starts an execution or requests its approval, and displays its record so far.
pub(in crate::cli) fn start_on_server(
    server: &ServerArgs,
    call: impl AsyncFnOnce(&ApiClient) -> Result<ApiRequest, CliError>,
    json: bool,
) -> Result<ExitCode, CliError> {
    let client = server.connect()?;
    let record = engine_args::build_runtime()?.block_on(async {
        let mut call = call(&client).await?;
        call.headers.insert(PREFER, HeaderValue::from_static("respond-async"));
        Ok::<Value, CliError>(client.json(call).await?)
    })?;
    if json {
        print_json(&record)?
    } else {
        display::print_fields(&record)?
    }
    Ok(ExitCode::SUCCESS)
}

/// Displays each event, and returns the final record.
pub(in crate::cli) async fn follow_execution(
    client: &ApiClient,
    mut call: ApiRequest,
    display: &mut ExecutionDisplay<'_>,
) -> Result<Execution, CliError> {
    call.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let answer = client.send(call).await?;
    let location = answer.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let location = location.filter(|location| location.starts_with(EXECUTIONS)).map(str::to_owned);
    let location =
        location.ok_or_else(|| interrupted_error("the response has no Location header"))?;
    let mut events = EventStream::from_response(answer)
        .map_err(|_| interrupted_error("the response is not an event stream"))?;
    tokio::select! {
        shown_all = show_events(&mut events, display) => shown_all?,
        Ok(()) = tokio::signal::ctrl_c() => {
            // Otherwise the approval would stay pending, and the call would run without a client.
            client.json(ApiRequest::post(format!("{location}/cancel"))).await?;
            let _ = tokio::time::timeout(CANCEL_TIMEOUT, show_events(&mut events, display)).await;
        }
    }
    let record = client.json(ApiRequest::get(location)).await?;
    let unknown = |error: serde_json::Error| interrupted_error(&error.to_string());
    Ok(serde_json::from_value(record).map_err(unknown)?)
}

async fn show_events(
    events: &mut EventStream,
    display: &mut ExecutionDisplay<'_>,
) -> Result<(), ClientError> {
    while let Some(data) = events.next_data().await? {
        match serde_json::from_str(&data) {
            // The run ends with its pending approvals instead of waiting for them.
            Ok(Event::Approval { .. }) if display.reports_approvals_at_end => {}
            Ok(Event::Approval { approval_id: id }) => display.terminal.print_note(&format!(
                "belljar: waiting for approval {id}: review it with `belljar approvals show {id}`, allow it with `belljar approvals allow {id}`, or press Ctrl-C to cancel"
            )),
            Ok(event) => display.show_event(&event),
            // Events of a newer server are ignored; the record contains what matters.
            Err(_) => {}
        }
    }
    Ok(())
}

fn interrupted_error(reason: &str) -> ClientError {
    ClientError::Interrupted { reason: reason.to_owned() }
}

async fn download_files(
    client: &ApiClient,
    execution: &Execution,
    out: &Path,
) -> Result<(), CliError> {
    for file in &execution.files_out {
        if let Some(path) = file.url.as_deref().and_then(asset_path) {
            let answer = client.send(ApiRequest::get(path)).await?;
            let bytes =
                answer.bytes().await.map_err(|error| interrupted_error(&error.to_string()))?;
            write_output_file(out, &file.name, &bytes)?;
        }
    }
    Ok(())
}
