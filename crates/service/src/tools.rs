//! Tools: made, looked at, changed and deleted by those who may.
//!
//! A tool is kept only with a contract that is right, and the contract that a call is checked
//! against is read anew from what is kept.

use crate::apart::aside;
use crate::caller::Caller;
use crate::definition::{
    Checked, Contract, FUNCTION_ENTRY, Identity, ToolRequest, Validation, details, invalid_tool,
    put_code, take_code, without_code,
};
use crate::functions::no_function;
use crate::network::gone_integration;
use crate::objects::ObjectQuery;
use crate::page::{Listed, page};
use crate::refused::{Detail, Refused, not_found};
use crate::service::Service;
use crate::variables;
use chrono::{DateTime, Utc};
use engine::Engine;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use store::{AuditLine, ObjectFilter, StoreError, Tx};
use types::{ApprovalAction, Code, Fault, Object, Privilege, Tool, ToolId, WorkspaceId};
use utoipa::ToSchema;
use uuid::Uuid;

/// What is absent stays as it is.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolChange {
    pub name: Option<String>,
    pub description: Option<String>,
    /// The whole of it, with the code.
    pub configuration: Option<Map<String, Value>>,
    pub environment: Option<String>,
    pub approval_action: Option<ApprovalAction>,
}

impl ToolChange {
    /// Whether it says what runs, and where.
    fn is_of_code(&self) -> bool {
        self.configuration.is_some() || self.environment.is_some()
    }

    fn apply(self, tool: &Tool) -> ToolRequest {
        let before = ToolRequest::of(tool);
        ToolRequest {
            name: self.name.or(before.name),
            description: self.description.or(before.description),
            configuration: self.configuration.or(before.configuration),
            environment: self.environment.or(before.environment),
            approval_action: self.approval_action.or(before.approval_action),
            ..before
        }
    }
}

/// Contracts that were read, since every call needs one.
#[derive(Debug, Default)]
pub(crate) struct Contracts(Mutex<HashMap<ToolId, Known>>);

#[derive(Debug)]
struct Known {
    /// Of the tool that it was read from.
    code_sha256: String,
    updated_at: DateTime<Utc>,
    contract: Contract,
}

impl Contracts {
    /// Of some kilobytes each, and of a megabyte if somebody wants it so.
    const MOST: usize = 64;

    fn get(&self, tool: &Tool) -> Option<Contract> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |found: &&Known| {
            found.code_sha256 == tool.code_sha256 && found.updated_at == tool.updated_at
        };
        known.get(&tool.id).filter(is_same).map(|found| found.contract.clone())
    }

    fn keep(&self, of: &Tool, contract: Contract) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= Self::MOST {
            let any = known.keys().next().copied();
            any.map(|id| known.remove(&id));
        }
        let (code_sha256, updated_at) = (of.code_sha256.clone(), of.updated_at);
        known.insert(of.id, Known { code_sha256, updated_at, contract });
    }
}

impl Service {
    /// The contract of a tool or its errors; nothing is kept.
    pub async fn validate_tool(
        &self,
        caller: &Caller,
        request: ToolRequest,
    ) -> Result<Validation, Refused> {
        self.require_maker(caller)?;
        self.check_environment(request.environment.as_deref())?;
        let most = self.config.tool_bytes_max;
        let environment = self.environment(request.environment.clone());
        let engine = Arc::clone(&self.engine);
        let checked = aside(move || {
            let mut checked = request.check(most);
            if let Ok(Contract::Python(tool)) = &checked.outcome {
                checked.warnings.extend(missing(&engine, &environment, tool, request.code_key()));
            }
            checked
        });
        let mut checked = checked.await?;
        if let Ok(contract) = &checked.outcome
            && let Err(wrong) = self.check_needed(caller, contract)
        {
            checked = Checked { outcome: Err(vec![wrong]), ..checked };
        }
        Ok(checked.into())
    }

    /// A tool is made for a function, and leaves by integrations, that are there and that whoever
    /// writes it may use.
    fn check_needed(&self, caller: &Caller, contract: &Contract) -> Result<(), Detail> {
        let (checked, path) = match contract {
            Contract::Function(tool) => {
                (self.check_function(caller, &tool.external_id), "/configuration/externalId")
            }
            Contract::Python(tool) => {
                let who = (&caller.principal, "who writes it");
                let checked = self.check_integrations(caller.workspace, who, &tool.integrations);
                (checked.map_err(|refused| *refused.fault), "/configuration/integrations")
            }
        };
        checked.map_err(|fault| Detail {
            path: Some(path.to_owned()),
            message: fault.message,
            code: Some(fault.code),
            hint: fault.hint,
            ..Detail::default()
        })
    }

    pub async fn create_tool(
        &self,
        caller: &Caller,
        request: ToolRequest,
    ) -> Result<Tool, Refused> {
        self.require_maker(caller)?;
        let now = Utc::now();
        let identity = Identity {
            id: ToolId::new(Uuid::now_v7()),
            owner: caller.id(),
            author: caller.id(),
            workspace: caller.workspace,
            created_at: now,
            updated_at: now,
        };
        let given = variables::given(request.configuration.as_ref());
        let tool = self.read_tool(caller, request, identity).await?;
        let grant = caller.owning(Object::Tool(tool.id), now);
        let entry = caller.did("tool.create", Object::Tool(tool.id), &tool.name);
        let (workspace, mut kept, vault) = (caller.workspace, tool.clone(), self.sealing().await);
        let sealed = variables::seal(&vault, workspace, &tool, &given)?;
        let written = self.store.write(move |tx| {
            // No new key until it is kept.
            let _vault = vault;
            if let Some(gone) = needed_is_gone(tx, workspace, &kept)? {
                return Ok(Err(gone));
            }
            let code = take_code(&mut kept);
            tx.insert_tool(workspace, &kept, &code)?;
            variables::keep(tx, workspace, &kept, &sealed)?;
            tx.insert_grant(workspace, &grant)?;
            tx.audit(&entry)?;
            Ok(Ok(()))
        });
        written.await??;
        self.tools_changed(workspace);
        Ok(tool)
    }

    /// Newest first, without their code.
    pub async fn tools(
        &self,
        caller: &Caller,
        query: ObjectQuery,
    ) -> Result<Listed<Tool>, Refused> {
        let page = page(query.limit, query.cursor.as_deref())?;
        let filter = ObjectFilter { search: query.search, seen_by: self.viewers(caller)? };
        let workspace = caller.workspace;
        let listed = self.store.read_long(move |rows| rows.tools(workspace, &filter, page));
        let mut listed = Listed::from(listed.await?);
        listed.items = listed.items.into_iter().map(without_code).collect();
        Ok(listed)
    }

    /// The tool, if the caller may do anything with it.
    pub fn tool(&self, caller: &Caller, id: ToolId) -> Result<Tool, Refused> {
        match self.kept_tool(caller.workspace, id)? {
            Some(tool) if self.sees(caller, Object::Tool(id))? => Ok(tool),
            _ => Err(not_found("tool", id)),
        }
    }

    pub async fn change_tool(
        &self,
        caller: &Caller,
        id: ToolId,
        change: ToolChange,
    ) -> Result<Tool, Refused> {
        // Again if somebody else has changed it in between: neither change is lost.
        loop {
            let before = self.tool(caller, id)?;
            self.require(caller, Privilege::Modify, Object::Tool(id))?;
            // Who changes what is only said about it has not written its code.
            let author = match change.is_of_code() {
                true => {
                    let whose = (before.owner, before.author);
                    self.author_of_change(caller, Object::Tool(id), whose)?
                }
                false => before.author,
            };
            let identity = Identity {
                id,
                owner: before.owner,
                author,
                workspace: caller.workspace,
                created_at: before.created_at,
                updated_at: Utc::now(),
            };
            let request = change.clone().apply(&before);
            let given = variables::given(request.configuration.as_ref());
            let tool = self.read_tool(caller, request, identity).await?;
            if tool.name != before.name {
                self.check_renamed(caller.workspace, id, &tool.name).await?;
            }
            let entry = caller.did("tool.change", Object::Tool(id), &tool.name);
            let (workspace, mut kept, vault) =
                (caller.workspace, tool.clone(), self.sealing().await);
            let sealed = variables::seal(&vault, workspace, &tool, &given)?;
            let code = take_code(&mut kept);
            let written = self.store.write(move |tx| {
                // No new key until it is kept.
                let _vault = vault;
                if let Some(gone) = needed_is_gone(tx, workspace, &kept)? {
                    return Ok(Err(gone));
                }
                let replaced =
                    replace_tool(tx, workspace, &kept, &code, before.updated_at, &entry)?;
                if replaced {
                    variables::keep(tx, workspace, &kept, &sealed)?;
                }
                Ok(Ok(replaced))
            });
            if written.await?? {
                self.tools_changed(workspace);
                return Ok(tool);
            }
        }
    }

    pub async fn delete_tool(&self, caller: &Caller, id: ToolId) -> Result<(), Refused> {
        let tool = self.tool(caller, id)?;
        let object = Object::Tool(id);
        self.require(caller, Privilege::Ownership, object)?;
        let entry = caller.did("tool.delete", object, &tool.name);
        let workspace = caller.workspace;
        let deleted = self.store.write(move |tx| {
            let using = tx.agents_using(workspace, id)?;
            if using.is_empty() {
                tx.delete_tool(workspace, id)?;
                tx.delete_grants_on(workspace, object)?;
                tx.forget_tool(workspace, id)?;
                tx.audit(&entry)?;
            }
            Ok(using)
        });
        let using: Vec<String> = deleted.await?.into_iter().map(|(_, name)| name).collect();
        if !using.is_empty() {
            return Err(in_use(&using));
        }
        self.tools_changed(workspace);
        Ok(())
    }

    /// A tool that is kept, and its contract. Whether the caller may call it is not asked here.
    pub(crate) async fn checked_tool(
        &self,
        workspace: WorkspaceId,
        id: ToolId,
    ) -> Result<(Tool, Contract), Refused> {
        let tool = self.kept_tool(workspace, id)?.ok_or_else(|| not_found("tool", id))?;
        if let Some(known) = self.contracts.get(&tool) {
            return Ok((tool, known));
        }
        let request = ToolRequest::of(&tool);
        // Its source was short enough when it was kept.
        let checked = aside(move || request.check(contract::SOURCE_BYTES_MAX)).await?;
        let contract = checked.outcome.map_err(|errors| no_longer_right(&tool, errors))?;
        let contract = contract.taking(self.config.tool_bytes_max);
        self.contracts.keep(&tool, contract.clone());
        Ok((tool, contract))
    }

    fn kept_tool(&self, workspace: WorkspaceId, id: ToolId) -> Result<Option<Tool>, Refused> {
        let found = self.store.read(|rows| rows.tool(workspace, id))?;
        Ok(found.map(|(mut tool, code)| {
            put_code(&mut tool, code);
            tool
        }))
    }

    async fn read_tool(
        &self,
        caller: &Caller,
        request: ToolRequest,
        identity: Identity,
    ) -> Result<Tool, Refused> {
        self.check_environment(request.environment.as_deref())?;
        let environment = self.environment(request.environment.clone());
        let most = self.config.tool_bytes_max;
        let read = move || Ok::<_, Refused>((request.check(most).contract()?, request));
        let (contract, request) = aside(read).await??;
        self.check_needed(caller, &contract).map_err(|wrong| invalid_tool(vec![wrong]))?;
        Ok(request.tool(&contract, environment, identity))
    }
}

/// What the tool will miss where it runs.
fn missing(
    engine: &Engine,
    environment: &str,
    tool: &contract::Tool,
    code_key: &str,
) -> Vec<Detail> {
    // That there is no such environment was told before.
    let missing = engine.contents(environment).map(|contents| contents.missing(tool));
    let placed = missing.unwrap_or_default().into_iter().map(|problem| {
        let path = problem.place.as_ref().map(|_| format!("$.configuration.{code_key}"));
        contract::Problem { path, ..problem }
    });
    details(placed.collect(), "")
}

/// An integration or a function that the tool names, and that went between the check and the change.
fn needed_is_gone(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    tool: &Tool,
) -> Result<Option<Refused>, StoreError> {
    let configuration = tool.definition.get("configuration");
    let named = |key: &str| configuration.and_then(|it| it.get(key));
    let integrations = named("integrations").and_then(Value::as_array).into_iter().flatten();
    let integrations: Vec<String> =
        integrations.filter_map(Value::as_str).map(str::to_owned).collect();
    if let Some(gone) = gone_integration(tx, workspace, &integrations)? {
        return Ok(Some(gone));
    }
    let function =
        named("externalId").and_then(Value::as_str).filter(|_| tool.entry == FUNCTION_ENTRY);
    let Some(function) = function else { return Ok(None) };
    let is_there = tx.function_by_name(workspace, function)?.is_some();
    Ok((!is_there).then(|| no_function(function).into()))
}

/// False if it is no longer the one that was changed.
fn replace_tool(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    tool: &Tool,
    code: &str,
    before: DateTime<Utc>,
    entry: &AuditLine,
) -> Result<bool, StoreError> {
    let now = tx.tool(workspace, tool.id)?;
    if now.is_none_or(|(now, _)| now.updated_at != before) {
        return Ok(false);
    }
    tx.update_tool(workspace, tool, code)?;
    // People have agreed to what it was.
    tx.forget_tool(workspace, tool.id)?;
    tx.audit(entry)?;
    Ok(true)
}

fn in_use(agents: &[String]) -> Refused {
    let names = agents.join(", ");
    let message = format!(
        "Cannot delete tool. The following agents depend on it: {names}. Please remove this tool \
         from these agents first."
    );
    Fault::new(Code::ToolInUse, message).into()
}

fn no_longer_right(tool: &Tool, errors: Vec<Detail>) -> Refused {
    let Refused { fault, details } = invalid_tool(errors);
    let message = format!("tool {:?} cannot be called any more: {}", tool.name, fault.message);
    let fault = Fault::new(Code::ToolUnavailable, message).hint("change the tool");
    Refused { fault: Box::new(fault), details }
}
