//! Calls of functions. A call starts at once, and its status, response and logs are read by its id.
//!
//! A call is an execution, with the same limits, records and retention.

use crate::error::{RequestError, not_found};
use crate::identity::caller::Caller;
use crate::page::{Page, page_request};
use crate::runs::executions::{ResponseBudget, SubmitOptions};
use crate::runs::launch::Submitted;
use crate::runs::run_request::{RunRequest, RunTarget, no_arguments};
use crate::service::Service;
use chrono::{DateTime, TimeDelta, Utc};
use db::Reader;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use types::{
    Error, ErrorCode, Event, Execution, ExecutionId, FunctionCall, FunctionCallStatus, FunctionId,
    FunctionResponse, LimitsRequest, LogLine, OutputChunk, OutputStream,
};
use utoipa::{IntoParams, ToSchema};

/// Limits of the lines of a log and of their bytes, because the response is built in memory. The
/// events of the execution have the rest.
const LOG_LINES_MAX: usize = 20_000;
const LOG_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionCallRequest {
    /// The argument `data` of `handle`; default: an empty object.
    #[serde(default = "no_arguments")]
    pub data: Value,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FunctionCallQuery {
    /// Number of items, 1 to 200; default 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

impl Service {
    /// Starts a call, which continues if the client disconnects.
    pub async fn call_function(
        self: &Arc<Self>,
        caller: &Caller,
        id: FunctionId,
        request: FunctionCallRequest,
        options: SubmitOptions,
    ) -> Result<FunctionCall, RequestError> {
        self.function(caller, id)?;
        let target = RunTarget::Function { id, arguments: request.data };
        let limits = LimitsRequest::default();
        let request = RunRequest { target, session: None, files: Vec::new(), limits };
        let options = SubmitOptions { announce_id: true, ..options };
        let started = match self.run(caller, request, options).await? {
            Submitted::Started(handle) | Submitted::AwaitingApproval(handle) => handle.detach(),
        };
        FunctionCall::from_execution(&started).ok_or_else(|| not_found("call", started.id))
    }

    /// Calls of a function, newest first.
    pub async fn function_calls(
        &self,
        caller: &Caller,
        id: FunctionId,
        query: FunctionCallQuery,
    ) -> Result<Page<FunctionCall>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        self.function(caller, id)?;
        let (workspace, principal) = (caller.workspace, self.owner_filter(caller)?);
        let read = move |rows: &Reader<'_>| rows.function_calls(workspace, id, principal, page);
        let Page { items, next_cursor } = Page::from(self.db.read_off_thread(read).await?);
        let items = items.iter().filter_map(FunctionCall::from_execution).collect();
        Ok(Page { items, next_cursor })
    }

    pub async fn function_call(
        &self,
        caller: &Caller,
        function: FunctionId,
        id: ExecutionId,
    ) -> Result<FunctionCall, RequestError> {
        self.call_record(caller, function, id).await.map(|(call, ..)| call)
    }

    async fn call_record(
        &self,
        caller: &Caller,
        function: FunctionId,
        id: ExecutionId,
    ) -> Result<(FunctionCall, Execution, Option<ResponseBudget>), RequestError> {
        let call_not_found = || not_found("call", id);
        let (execution, budget) = self.execution_summary(caller, id).await.map_err(|error| {
            if error.error.code == ErrorCode::ObjectNotFound { call_not_found() } else { error }
        })?;
        let call =
            FunctionCall::from_execution(&execution).filter(|call| call.function_id == function);
        call.map(|call| (call, execution, budget)).ok_or_else(call_not_found)
    }

    /// The return value of a finished call.
    pub async fn function_response(
        &self,
        caller: &Caller,
        function: FunctionId,
        id: ExecutionId,
    ) -> Result<FunctionResponse, RequestError> {
        let (call, execution, _budget) = self.call_record(caller, function, id).await?;
        match call.status {
            FunctionCallStatus::Completed => Ok(FunctionResponse {
                call_id: id,
                function_id: function,
                response: execution.value.unwrap_or_default(),
            }),
            FunctionCallStatus::Running => {
                let message = format!("call {id} is still running");
                Err(Error::new(ErrorCode::ResponsePending, message).hint("retry later").into())
            }
            FunctionCallStatus::Failed | FunctionCallStatus::Timeout => {
                let why = call.error.map(|error| format!(": {}", error.message));
                let message = format!("call {id} has no response{}", why.unwrap_or_default());
                Err(Error::new(ErrorCode::ObjectNotFound, message)
                    .hint("check its error and its logs")
                    .into())
            }
        }
    }

    /// The output of a call, so far if it is still running: the first lines, if there are too many.
    pub async fn function_logs(
        self: &Arc<Self>,
        caller: &Caller,
        function: FunctionId,
        id: ExecutionId,
    ) -> Result<Vec<LogLine>, RequestError> {
        let (call, ..) = self.call_record(caller, function, id).await?;
        let mut log = FunctionLog::new(call.started_at.unwrap_or_else(|| self.now()));
        let live_events = self.active_executions().get(&id).map(|running| running.live.events());
        let from_memory = live_events.unwrap_or_default();
        from_memory.iter().for_each(|event| log.push(event));
        let mut number = from_memory.len() as u64;
        while !log.is_full() {
            let workspace = caller.workspace;
            let read = move |rows: &Reader<'_>| rows.events_after(workspace, id, number);
            let events = self.db.read_off_thread(read).await?.unwrap_or_default();
            if events.is_empty() {
                break;
            }
            number += events.len() as u64;
            events.iter().for_each(|event| log.push(event));
        }
        Ok(log.lines)
    }

    /// Cancels a call. Returns whether it was running.
    pub async fn cancel_function_call(
        self: &Arc<Self>,
        caller: &Caller,
        function: FunctionId,
        id: ExecutionId,
    ) -> Result<bool, RequestError> {
        self.call_record(caller, function, id).await?;
        self.cancel_execution(caller, id).await
    }
}

/// The output of a function in whole lines of each stream, in the order of their starts.
struct FunctionLog {
    started: DateTime<Utc>,
    lines: Vec<LogLine>,
    /// For each stream, the index of its last line if that has no line break yet.
    open: [Option<usize>; 2],
    bytes: usize,
}

impl FunctionLog {
    fn new(started: DateTime<Utc>) -> Self {
        Self { started, lines: Vec::new(), open: [None; 2], bytes: 0 }
    }

    fn is_full(&self) -> bool {
        self.lines.len() > LOG_LINES_MAX || self.bytes > LOG_BYTES_MAX
    }

    /// Appends the output of an event, up to the limits.
    fn push(&mut self, event: &Event) {
        let Event::Output(OutputChunk { t, stream, text }) = event else { return };
        let (started, stream) = (self.started, *stream);
        let since = i64::try_from(*t).ok().and_then(TimeDelta::try_milliseconds);
        let time = since.and_then(|since| started.checked_add_signed(since)).unwrap_or(started);
        for part in text.split_inclusive('\n') {
            if self.is_full() {
                return;
            }
            let open = &mut self.open[usize::from(stream == OutputStream::Stderr)];
            let index = *open.get_or_insert_with(|| {
                self.lines.push(LogLine { time, stream, message: String::new() });
                self.lines.len() - 1
            });
            let whole = part.strip_suffix('\n');
            if let Some(line) = self.lines.get_mut(index) {
                line.message.push_str(whole.unwrap_or(part));
            }
            if whole.is_some() {
                *open = None;
            }
            self.bytes += part.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_printed_in_pieces_is_told_in_lines_of_each_stream() {
        let piece =
            |t, stream, text: &str| Event::Output(OutputChunk { t, stream, text: text.to_owned() });
        let pieces = [
            piece(1, OutputStream::Stdout, "a"),
            piece(2, OutputStream::Stderr, "x\ny"),
            piece(3, OutputStream::Stdout, "b\n\nc"),
            piece(4, OutputStream::Stderr, "z\n"),
        ];
        let mut log = FunctionLog::new(DateTime::UNIX_EPOCH);
        pieces.iter().for_each(|event| log.push(event));
        let lines = log.lines.into_iter();
        let lines = lines.map(|it| (it.time.timestamp_millis(), it.stream, it.message));
        let (out, err) = (OutputStream::Stdout, OutputStream::Stderr);
        let expected = [(1, out, "ab"), (2, err, "x"), (2, err, "yz"), (3, out, ""), (3, out, "c")];
        let expected = expected.map(|(t, stream, text)| (t, stream, text.to_owned()));
        assert_eq!(lines.collect::<Vec<_>>(), expected);
    }
}
