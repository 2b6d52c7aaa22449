//! Executions: a summary that lists read, and the events that all output is folded from. The code and
//! arguments of one that waits for an approval are in a row of their own, which its end does not rewrite.

use crate::columns::{from_json_column, parse_variant, to_json, to_nanos, variant_name};
use crate::{DatabaseError, NewAuditEntry, PageRequest, Reader, RowPage, Tx};
use chrono::{DateTime, Utc};
use rusqlite::Row;
use rusqlite::types::Type;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::{Borrow, Cow};
use types::{
    Error, ErrorCode, Event, Execution, ExecutionId, ExecutionStatus, FunctionId, JsonMembers,
    MembersError, PrincipalId, SandboxId, Transcript, WorkspaceId,
};
use uuid::Uuid;

/// The beginning of a query of summaries with their inputs, for [`summary_from_row`].
pub(crate) const WITH_INPUTS: &str = "SELECT executions.id, summary, inputs.body AS inputs \
    FROM executions LEFT JOIN execution_inputs inputs \
    ON inputs.workspace = executions.workspace AND inputs.execution = executions.id";

/// What is long about an execution that has not begun.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ExecutionInputs<'a> {
    pub(crate) code: Cow<'a, str>,
    arguments: Cow<'a, Option<Value>>,
}

/// The record of an execution as JSON text, without output and results. A tree of a value would take
/// up to two hundred times the memory of its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionJson(String);

impl ExecutionJson {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text after a change that keeps its form.
    pub fn map(self, change: impl FnOnce(String) -> String) -> Self {
        Self(change(self.0))
    }

    pub fn parse(&self) -> Result<Execution, DatabaseError> {
        serde_json::from_str(&self.0).map_err(|_| DatabaseError::Corrupt { what: "execution" })
    }
}

/// What decides who may see an execution, and what can be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutionState {
    pub principal: Option<PrincipalId>,
    pub status: ExecutionStatus,
}

/// What is absent is not asked for.
#[derive(Debug, Clone, Default)]
pub struct ExecutionFilter {
    pub principal: Option<PrincipalId>,
    pub sandbox_id: Option<SandboxId>,
    pub status: Option<ExecutionStatus>,
    pub tool: Option<String>,
}

/// The texts of a finished execution. They can be long, so the finishing task makes them and
/// not by the one thread that writes.
#[derive(Debug)]
pub struct FinishedExecutionRow {
    id: ExecutionId,
    principal: Option<PrincipalId>,
    sandbox_id: Option<SandboxId>,
    tool: Option<String>,
    function: Option<FunctionId>,
    status: String,
    created_at: DateTime<Utc>,
    summary: String,
    events: Vec<u8>,
    events_before: u64,
}

/// Events of one execution that follow each other, in the form in which they are kept.
#[derive(Debug)]
pub struct EventBatch {
    first: u64,
    count: u64,
    body: Vec<u8>,
}

impl EventBatch {
    /// `first` is the number of the first of `events`.
    pub fn new(
        first: u64,
        events: &[impl Borrow<Event> + Serialize],
    ) -> Result<Self, DatabaseError> {
        let body = to_json("execution", &events)?.into_bytes();
        Ok(Self { first, count: events.len() as u64, body })
    }
}

impl FinishedExecutionRow {
    /// The same for an execution whose first `count` events were kept as [`EventBatch`]es.
    pub fn with_stored_events(self, count: u64) -> Self {
        Self { events_before: count, ..self }
    }

    pub fn new(
        execution: &Execution,
        events: &[impl Borrow<Event> + Serialize],
    ) -> Result<Self, DatabaseError> {
        Ok(Self {
            id: execution.id,
            principal: execution.principal,
            sandbox_id: execution.sandbox_id,
            tool: execution.tool.clone(),
            function: execution.function_id,
            created_at: execution.created_at,
            status: variant_name("execution", &execution.status)?,
            summary: summary_json(execution)?,
            events: to_json("execution", &events)?.into_bytes(),
            events_before: 0,
        })
    }
}

impl Tx<'_> {
    /// One that runs, or is about to.
    pub fn insert_execution(
        &self,
        workspace: WorkspaceId,
        execution: &Execution,
    ) -> Result<(), DatabaseError> {
        self.insert_unfinished(workspace, execution, None)
    }

    /// One that waits for an approval; `plan` is what is needed to run it later.
    pub fn insert_waiting_execution(
        &self,
        workspace: WorkspaceId,
        execution: &Execution,
        plan: &[u8],
    ) -> Result<(), DatabaseError> {
        let (code, arguments) = (Cow::from(&execution.code), Cow::Borrowed(&execution.arguments));
        let inputs = to_json("execution", &ExecutionInputs { code, arguments })?;
        let short = Execution { code: String::new(), arguments: None, ..execution.clone() };
        self.insert_unfinished(workspace, &short, Some(plan))?;
        self.execute_unversioned(
            "INSERT INTO execution_inputs (workspace, execution, body) VALUES (?1, ?2, ?3)",
            (workspace.uuid(), execution.id.uuid(), inputs),
        )?;
        Ok(())
    }

    fn insert_unfinished(
        &self,
        workspace: WorkspaceId,
        execution: &Execution,
        plan: Option<&[u8]>,
    ) -> Result<(), DatabaseError> {
        self.execute_unversioned(
            "INSERT INTO executions \
             (workspace, id, principal, sandbox_id, tool, status, created_at, summary, plan, \
             function) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            (
                workspace.uuid(),
                execution.id.uuid(),
                execution.principal.map(PrincipalId::uuid),
                execution.sandbox_id.map(SandboxId::uuid),
                &execution.tool,
                variant_name("execution", &execution.status)?,
                to_nanos(execution.created_at),
                summary_json(execution)?,
                plan,
                execution.function_id.map(FunctionId::uuid),
            ),
        )?;
        Ok(())
    }

    /// One that was over before anything was said about it.
    pub fn insert_finished(
        &self,
        workspace: WorkspaceId,
        finished: &FinishedExecutionRow,
    ) -> Result<(), DatabaseError> {
        self.execute_unversioned(
            "INSERT INTO executions \
             (workspace, id, principal, sandbox_id, tool, status, created_at, summary, events, \
             function, events_before) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            (
                workspace.uuid(),
                finished.id.uuid(),
                finished.principal.map(PrincipalId::uuid),
                finished.sandbox_id.map(SandboxId::uuid),
                &finished.tool,
                &finished.status,
                to_nanos(finished.created_at),
                &finished.summary,
                &finished.events,
                finished.function.map(FunctionId::uuid),
                finished.events_before,
            ),
        )?;
        Ok(())
    }

    /// Events of one that has not ended yet. They are part of its record once its end says so; a
    /// batch with the same first event is replaced.
    pub fn insert_events(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
        batch: &EventBatch,
    ) -> Result<(), DatabaseError> {
        self.execute_unversioned(
            "INSERT OR REPLACE INTO execution_events (workspace, execution, first, count, body) \
             VALUES (?1, ?2, ?3, ?4, ?5)",
            (workspace.uuid(), id.uuid(), batch.first, batch.count, &batch.body),
        )?;
        Ok(())
    }

    /// What is new about one that has not ended. False if there is none such.
    pub fn update_execution(
        &self,
        workspace: WorkspaceId,
        execution: &Execution,
    ) -> Result<bool, DatabaseError> {
        let changed = self.execute_unversioned(
            "UPDATE executions SET sandbox_id = ?3, status = ?4, summary = ?5 \
             WHERE workspace = ?1 AND id = ?2 \
             AND status IN ('waiting_approval', 'queued', 'running')",
            (
                workspace.uuid(),
                execution.id.uuid(),
                execution.sandbox_id.map(SandboxId::uuid),
                variant_name("execution", &execution.status)?,
                summary_json(execution)?,
            ),
        )?;
        if changed == 1 {
            self.delete_inputs(workspace, execution.id)?;
        }
        Ok(changed == 1)
    }

    /// They are in the summary from now on, as the run has left them.
    fn delete_inputs(&self, workspace: WorkspaceId, id: ExecutionId) -> Result<(), DatabaseError> {
        let sql = "DELETE FROM execution_inputs WHERE workspace = ?1 AND execution = ?2";
        self.execute_unversioned(sql, (workspace.uuid(), id.uuid())).map(drop)
    }

    /// False if there is none, or it has ended: an end is final.
    pub fn set_execution_status(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
        status: ExecutionStatus,
    ) -> Result<bool, DatabaseError> {
        match self.execution_summary(workspace, id)? {
            Some(found) => self.update_execution(workspace, &Execution { status, ..found }),
            None => Ok(false),
        }
    }

    /// False if there is none, or it has ended before: an end is final.
    pub fn finish_execution(
        &self,
        workspace: WorkspaceId,
        finished: &FinishedExecutionRow,
    ) -> Result<bool, DatabaseError> {
        let changed =
            self.finish_in(workspace, finished, "'waiting_approval', 'queued', 'running'")?;
        if changed {
            self.delete_inputs(workspace, finished.id)?;
        }
        Ok(changed)
    }

    /// The end of one that has not begun, made of its record [without inputs]: those stay where they
    /// are. False if there is none, or it does not wait for an answer any more.
    ///
    /// [without inputs]: Reader::execution_without_inputs
    pub fn finish_waiting_execution(
        &self,
        workspace: WorkspaceId,
        finished: &FinishedExecutionRow,
    ) -> Result<bool, DatabaseError> {
        self.finish_in(workspace, finished, "'waiting_approval'")
    }

    fn finish_in(
        &self,
        workspace: WorkspaceId,
        finished: &FinishedExecutionRow,
        states: &str,
    ) -> Result<bool, DatabaseError> {
        let changed = self.execute_unversioned(
            &format!(
                "UPDATE executions \
                 SET sandbox_id = ?3, status = ?4, summary = ?5, plan = NULL, events = ?6, \
                 events_before = ?7 \
                 WHERE workspace = ?1 AND id = ?2 AND status IN ({states})"
            ),
            (
                workspace.uuid(),
                finished.id.uuid(),
                finished.sandbox_id.map(SandboxId::uuid),
                &finished.status,
                &finished.summary,
                &finished.events,
                finished.events_before,
            ),
        )?;
        Ok(changed == 1)
    }

    /// At the start of a server, in all workspaces: what ran is not run a second time, since
    /// their progress is unknown. Executions that wait for an approval keep waiting. Each has an entry in the
    /// audit log, as one that ends by itself.
    pub fn interrupt_all_executions(
        &self,
        now: DateTime<Utc>,
    ) -> Result<Vec<ExecutionId>, DatabaseError> {
        let under_way = self.query_many(
            "SELECT workspace, id FROM executions WHERE status IN ('queued', 'running')",
            [],
            |row| Ok((WorkspaceId::new(row.get("workspace")?), ExecutionId::new(row.get("id")?))),
        )?;
        let mut ids = Vec::with_capacity(under_way.len());
        for (workspace, id) in under_way {
            // One by one: each may have megabytes of code.
            let Some(execution) = self.execution_summary(workspace, id)? else { continue };
            ids.push(id);
            let (status, error) = (ExecutionStatus::Failed, Some(interrupted_error()));
            let ended = Execution { status, error, ended_at: Some(now), ..execution };
            let events = [Event::Error(interrupted_error()), Event::End { status }];
            self.finish_execution(workspace, &FinishedExecutionRow::new(&ended, &events)?)?;
            self.append_audit_entry(&NewAuditEntry {
                at: now,
                workspace,
                principal: ended.principal,
                key: None,
                action: "execution.run".to_owned(),
                object: id.to_string(),
                detail: status.name().to_owned(),
            })?;
        }
        Ok(ids)
    }
}

impl Reader<'_> {
    /// The whole record, with its output and results.
    pub fn execution(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<Option<Execution>, DatabaseError> {
        let Some(summary) = self.execution_summary(workspace, id)? else {
            return Ok(None);
        };
        let events = self.execution_events(workspace, id)?.unwrap_or_default();
        let Transcript { output, results } = events.into_iter().collect();
        Ok(Some(Execution { output, results, ..summary }))
    }

    /// The record without its output and results, whatever memory it takes. [`execution_json`] is the
    /// same as text, which can be measured first.
    ///
    /// [`execution_json`]: Self::execution_json
    pub fn execution_summary(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<Option<Execution>, DatabaseError> {
        let sql = format!("{WITH_INPUTS} WHERE executions.workspace = ?1 AND id = ?2");
        self.query_one(&sql, (workspace.uuid(), id.uuid()), summary_from_row)
    }

    /// The same as text.
    pub fn execution_json(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<Option<ExecutionJson>, DatabaseError> {
        let sql = format!("{WITH_INPUTS} WHERE executions.workspace = ?1 AND id = ?2");
        self.query_one(&sql, (workspace.uuid(), id.uuid()), summary_text_from_row)
    }

    /// Who requested it, and how far it is.
    pub fn execution_state(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<Option<ExecutionState>, DatabaseError> {
        let sql = "SELECT principal, status FROM executions WHERE workspace = ?1 AND id = ?2";
        self.query_one(sql, (workspace.uuid(), id.uuid()), |row| {
            let principal: Option<Uuid> = row.get("principal")?;
            let status: String = row.get("status")?;
            Ok(ExecutionState {
                principal: principal.map(PrincipalId::new),
                status: parse_variant("execution", &status)?,
            })
        })
    }

    /// The same, without code and arguments if they are in a row of their own.
    pub fn execution_without_inputs(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<Option<Execution>, DatabaseError> {
        let sql = "SELECT summary FROM executions WHERE workspace = ?1 AND id = ?2";
        self.query_one(sql, (workspace.uuid(), id.uuid()), |row| {
            from_json_column("execution", row, "summary")
        })
    }

    /// All events. Absent while the execution has not ended, too.
    pub fn execution_events(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<Option<Vec<Event>>, DatabaseError> {
        let mut events = Vec::new();
        while let Some(mut next) = self.events_after(workspace, id, events.len() as u64)? {
            if next.is_empty() {
                return Ok(Some(events));
            }
            events.append(&mut next);
        }
        Ok(None)
    }

    /// Some of those that come after the one with this number, so that no more than one batch is in
    /// memory; none after the last. Absent while it has not ended, too.
    pub fn events_after(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
        number: u64,
    ) -> Result<Option<Vec<Event>>, DatabaseError> {
        let key = (workspace.uuid(), id.uuid());
        let sql = "SELECT events_before FROM executions \
                   WHERE workspace = ?1 AND id = ?2 AND events IS NOT NULL";
        let Some(before) =
            self.query_one(sql, key, |row| Ok(row.get::<_, u64>("events_before")?))?
        else {
            return Ok(None);
        };
        let found = if number < before {
            let sql = "SELECT first, body FROM execution_events \
                       WHERE workspace = ?1 AND execution = ?2 AND first <= ?3 \
                       ORDER BY first DESC LIMIT 1";
            self.query_one(sql, (key.0, key.1, number + 1), |row| {
                Ok((row.get::<_, u64>("first")?, from_json_column("execution", row, "body")?))
            })?
        } else {
            let sql = "SELECT events FROM executions WHERE workspace = ?1 AND id = ?2";
            self.query_one(sql, key, |row| {
                Ok((before + 1, from_json_column("execution", row, "events")?))
            })?
        };
        let (first, mut events): (u64, Vec<Event>) =
            found.ok_or(DatabaseError::Corrupt { what: "execution" })?;
        let seen = number.saturating_add(1).saturating_sub(first);
        events.drain(..usize::try_from(seen).unwrap_or(usize::MAX).min(events.len()));
        Ok(Some(events))
    }

    /// The stored size of the events of an execution.
    pub fn event_bytes(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<u64, DatabaseError> {
        let sql = "SELECT coalesce(length(events), 0) + (\
                       SELECT coalesce(sum(length(body)), 0) FROM execution_events \
                       WHERE workspace = ?1 AND execution = ?2 AND first <= events_before\
                   ) AS bytes FROM executions WHERE workspace = ?1 AND id = ?2";
        let bytes =
            self.query_one(sql, (workspace.uuid(), id.uuid()), |row| Ok(row.get("bytes")?))?;
        Ok(bytes.unwrap_or_default())
    }

    /// The size of the largest batch of events, which a reader has in memory at once.
    pub fn largest_event_batch(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<u64, DatabaseError> {
        let sql = "SELECT max(coalesce(length(events), 0), coalesce((\
                       SELECT max(length(body)) FROM execution_events \
                       WHERE workspace = ?1 AND execution = ?2 AND first <= events_before\
                   ), 0)) AS bytes FROM executions WHERE workspace = ?1 AND id = ?2";
        let bytes =
            self.query_one(sql, (workspace.uuid(), id.uuid()), |row| Ok(row.get("bytes")?))?;
        Ok(bytes.unwrap_or_default())
    }

    pub fn pending_call_json(
        &self,
        workspace: WorkspaceId,
        id: ExecutionId,
    ) -> Result<Option<Vec<u8>>, DatabaseError> {
        let sql = "SELECT plan FROM executions WHERE workspace = ?1 AND id = ?2";
        let plan =
            self.query_one(sql, (workspace.uuid(), id.uuid()), |row| Ok(row.get("plan")?))?;
        Ok(plan.flatten())
    }

    /// Summaries, as text: a page has as many bytes as its records, whatever their values are.
    pub fn executions(
        &self,
        workspace: WorkspaceId,
        filter: &ExecutionFilter,
        page: PageRequest,
    ) -> Result<RowPage<ExecutionJson>, DatabaseError> {
        let status = filter.status.map(|status| variant_name("execution", &status)).transpose()?;
        // A condition that is not always there is not looked up by an index.
        let of_status = if status.is_some() { "status = ?6" } else { "?6 IS NULL" };
        self.query_page(
            page,
            &format!(
                "{WITH_INPUTS} WHERE executions.workspace = ?3 AND id < ?1 \
                 AND (?4 IS NULL OR principal = ?4) AND (?5 IS NULL OR sandbox_id = ?5) \
                 AND {of_status} AND (?7 IS NULL OR tool = ?7) \
                 ORDER BY id DESC LIMIT ?2"
            ),
            &[
                &workspace.uuid(),
                &filter.principal.map(PrincipalId::uuid),
                &filter.sandbox_id.map(SandboxId::uuid),
                &status,
                &filter.tool,
            ],
            summary_text_from_row,
        )
    }

    /// Oldest first.
    pub fn executions_in_session(
        &self,
        workspace: WorkspaceId,
        sandbox: SandboxId,
    ) -> Result<Vec<ExecutionId>, DatabaseError> {
        self.query_many(
            "SELECT id FROM executions WHERE workspace = ?1 AND sandbox_id = ?2 ORDER BY id",
            (workspace.uuid(), sandbox.uuid()),
            |row| Ok(ExecutionId::new(row.get("id")?)),
        )
    }
}

/// A summary of [`WITH_INPUTS`].
pub(crate) fn summary_from_row(row: &Row<'_>) -> Result<Execution, DatabaseError> {
    let execution = from_json_column("execution", row, "summary")?;
    if row.get_ref("inputs")?.data_type() == Type::Null {
        return Ok(execution);
    }
    let ExecutionInputs { code, arguments } = from_json_column("execution", row, "inputs")?;
    Ok(Execution { code: code.into_owned(), arguments: arguments.into_owned(), ..execution })
}

/// The same as text.
fn summary_text_from_row(row: &Row<'_>) -> Result<ExecutionJson, DatabaseError> {
    const CORRUPT: DatabaseError = DatabaseError::Corrupt { what: "execution" };
    let read = |column| {
        let bytes = row.get_ref(column)?.as_bytes_or_null().map_err(|_| CORRUPT)?;
        bytes.map(std::str::from_utf8).transpose().map_err(|_| CORRUPT)
    };
    let summary = read("summary")?.ok_or(CORRUPT)?;
    let text = match read("inputs")? {
        None => summary.to_owned(),
        Some(inputs) => replace_members(summary, inputs).map_err(|_| CORRUPT)?,
    };
    Ok(ExecutionJson(text))
}

/// The text of an object with the members of another object in the place of its own. A member that is
/// null is left out.
fn replace_members(object: &str, members: &str) -> Result<String, MembersError> {
    let given: Vec<_> = JsonMembers::of(members).collect::<Result<_, _>>()?;
    let own = JsonMembers::of(object)
        .filter(|own| !own.as_ref().is_ok_and(|(name, _)| given.iter().any(|(it, _)| it == name)));
    let given = given.iter().filter(|(_, value)| *value != "null").cloned().map(Ok);
    let mut text = String::with_capacity(object.len() + members.len());
    text.push('{');
    for (number, member) in given.chain(own).enumerate() {
        let (name, value) = member?;
        let comma = if number == 0 { "" } else { "," };
        text.push_str(&format!("{comma}{}:", Value::from(name)));
        text.push_str(value);
    }
    text.push('}');
    Ok(text)
}

/// Output and results are told by the events alone.
fn summary_json(execution: &Execution) -> Result<String, DatabaseError> {
    if execution.output.is_empty() && execution.results.is_empty() {
        return to_json("execution", execution);
    }
    let short = Execution { output: Vec::new(), results: Vec::new(), ..execution.clone() };
    to_json("execution", &short)
}

fn interrupted_error() -> Error {
    Error::new(
        ErrorCode::ExecutionInterrupted,
        "the server stopped during the execution; it was not run again",
    )
    .hint("outcome unknown: check whether it took effect before you run it again")
}
