//! Tools: made, looked at, changed and deleted by those who may.
//!
//! A tool is kept only with a contract that is right, and the contract that a call is checked
//! against is read again from the stored definition.

use crate::catalog::functions::no_function_error;
use crate::catalog::tool_definition::{
    CheckedTool, FUNCTION_ENTRY, ToolContract, ToolIdentity, ToolRequest, ToolValidation,
    code_work_kind, details, insert_code, invalid_tool, take_code, without_code,
};
use crate::catalog::{TOOLS_MAX, too_many};
use crate::error::{ErrorDetail, RequestError, not_found};
use crate::identity::caller::Caller;
use crate::identity::ownership::ObjectQuery;
use crate::network::missing_integration_error;
use crate::page::{Page, page_request};
use crate::secrets::tool_variables;
use crate::service::Service;
use chrono::{DateTime, Utc};
use db::{DatabaseError, NewAuditEntry, ObjectFilter, Tx};
use engine::Engine;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use types::{
    ApprovalAction, Error, ErrorCode, ObjectRef, Privilege, Tool, ToolId, WorkKind, WorkspaceId,
};
use utoipa::ToSchema;
use uuid::Uuid;

/// Absent fields do not change.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolChange {
    pub name: Option<String>,
    pub description: Option<String>,
    /// The complete configuration, with the code.
    pub configuration: Option<Map<String, Value>>,
    pub environment: Option<String>,
    pub approval_action: Option<ApprovalAction>,
}

impl ToolChange {
    /// Whether it says what runs, and where.
    fn changes_code(&self) -> bool {
        self.configuration.is_some() || self.environment.is_some()
    }

    fn apply(self, tool: &Tool) -> ToolRequest {
        let before = ToolRequest::from_tool(tool);
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

/// Memory of all contracts that are kept, in bytes: most have some kilobytes, and one with the largest
/// schema and patterns has some megabytes.
const CONTRACTS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Memory of an entry of the cache beside its contract, in bytes.
const CONTRACT_ENTRY_BYTES: usize = 1024;

/// Contracts that were read, since every call needs one.
#[derive(Debug, Default)]
pub(crate) struct ContractCache(Mutex<CachedContracts>);

#[derive(Debug, Default)]
struct CachedContracts {
    by_tool: HashMap<ToolId, CachedContract>,
    bytes: usize,
}

#[derive(Debug)]
struct CachedContract {
    /// Of the tool that it was read from.
    code_sha256: String,
    updated_at: DateTime<Utc>,
    contract: ToolContract,
    bytes: usize,
}

impl CachedContracts {
    fn remove(&mut self, id: ToolId) {
        self.bytes -= self.by_tool.remove(&id).map_or(0, |removed| removed.bytes);
    }
}

impl ContractCache {
    fn get(&self, tool: &Tool) -> Option<ToolContract> {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |found: &&CachedContract| {
            found.code_sha256 == tool.code_sha256 && found.updated_at == tool.updated_at
        };
        cache.by_tool.get(&tool.id).filter(is_same).map(|found| found.contract.clone())
    }

    /// Keeps a contract, and drops others if they need too much memory together.
    fn insert(&self, of: &Tool, contract: ToolContract, contract_bytes: usize) {
        let bytes = contract_bytes + CONTRACT_ENTRY_BYTES;
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.remove(of.id);
        while cache.bytes + bytes > CONTRACTS_BYTES_MAX
            && let Some(any) = cache.by_tool.keys().next().copied()
        {
            cache.remove(any);
        }
        if cache.bytes + bytes <= CONTRACTS_BYTES_MAX {
            let (code_sha256, updated_at) = (of.code_sha256.clone(), of.updated_at);
            let kept = CachedContract { code_sha256, updated_at, contract, bytes };
            cache.by_tool.insert(of.id, kept);
            cache.bytes += bytes;
        }
    }
}

impl Service {
    /// The contract of a tool or its errors; nothing is kept.
    pub async fn validate_tool(
        &self,
        caller: &Caller,
        request: ToolRequest,
    ) -> Result<ToolValidation, RequestError> {
        self.require_create(caller)?;
        self.check_environment(request.environment.as_deref())?;
        let most = self.config.tool_bytes_max;
        let environment = self.tool_environments(request.environment.as_deref());
        let engine = Arc::clone(&self.engine);
        let checked = self.check_slots.run_check(caller.workspace, move || {
            let mut checked = request.check(most);
            if let Ok(ToolContract::Python(tool)) = &checked.outcome {
                checked.warnings.extend(missing_dependencies(
                    &engine,
                    &environment(code_work_kind(tool)),
                    tool,
                    request.code_key(),
                ));
            }
            checked
        });
        let mut checked = checked.await?;
        if let Ok(contract) = &checked.outcome
            && let Err(wrong) = self.check_tool_references(caller, contract)
        {
            checked = CheckedTool { outcome: Err(vec![wrong]), ..checked };
        }
        Ok(checked.into())
    }

    /// A tool is made for a function, and leaves by integrations, that exist and that the principal who
    /// writes it may use.
    fn check_tool_references(
        &self,
        caller: &Caller,
        contract: &ToolContract,
    ) -> Result<(), ErrorDetail> {
        let (checked, path) = match contract {
            ToolContract::Function(tool) => {
                (self.check_function(caller, &tool.external_id), "/configuration/externalId")
            }
            ToolContract::Python(tool) => {
                let names = &tool.integrations;
                let checked =
                    self.check_named_integrations(caller, "the principal who writes it", names);
                (checked.map_err(|refused| *refused.error), "/configuration/integrations")
            }
        };
        checked.map_err(|error| ErrorDetail {
            path: Some(path.to_owned()),
            message: error.message,
            code: Some(error.code),
            hint: error.hint,
            ..ErrorDetail::default()
        })
    }

    pub async fn create_tool(
        &self,
        caller: &Caller,
        request: ToolRequest,
    ) -> Result<Tool, RequestError> {
        self.require_create(caller)?;
        let now = self.now();
        let identity = ToolIdentity {
            id: ToolId::new(Uuid::now_v7()),
            owner: caller.id(),
            author: caller.id(),
            workspace: caller.workspace,
            created_at: now,
            updated_at: now,
        };
        let given = tool_variables::given_values(request.configuration.as_ref());
        let tool = self.read_tool(caller, request, identity).await?;
        let grant = caller.ownership_grant(ObjectRef::Tool(tool.id), now);
        let entry = caller.audit_entry("tool.create", ObjectRef::Tool(tool.id), &tool.name);
        let (workspace, mut kept, vault) =
            (caller.workspace, tool.clone(), self.lock_vault_for_sealing().await);
        let sealed = tool_variables::seal_values(&vault, workspace, &tool, &given)?;
        let written = self.db.write(move |tx| {
            // No new key until it is kept.
            let _vault = vault;
            if let Some(gone) = needed_is_gone(tx, workspace, &kept)? {
                return Ok(Err(gone));
            }
            if tx.count_tools(workspace)? >= TOOLS_MAX {
                return Ok(Err(too_many("tools", TOOLS_MAX)));
            }
            let code = take_code(&mut kept);
            tx.insert_tool(workspace, &kept, &code)?;
            tool_variables::persist_values(tx, workspace, &kept, &sealed)?;
            tx.insert_grant(workspace, &grant)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(()))
        });
        written.await??;
        self.notify_tools_changed(workspace);
        Ok(tool)
    }

    /// Newest first, without their code.
    pub async fn tools(
        &self,
        caller: &Caller,
        query: ObjectQuery,
    ) -> Result<Page<Tool>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = ObjectFilter { search: query.search, seen_by: self.viewers(caller)? };
        let workspace = caller.workspace;
        let listed = self.db.read_off_thread(move |rows| rows.tools(workspace, &filter, page));
        let mut listed = Page::from(listed.await?);
        listed.items = listed.items.into_iter().map(without_code).collect();
        Ok(listed)
    }

    /// The tool, if the caller may do anything with it.
    pub async fn tool(&self, caller: &Caller, id: ToolId) -> Result<Tool, RequestError> {
        match self.stored_tool(caller.workspace, id).await? {
            Some(tool) if self.can_see(caller, ObjectRef::Tool(id))? => Ok(tool),
            _ => Err(not_found("tool", id)),
        }
    }

    pub async fn change_tool(
        &self,
        caller: &Caller,
        id: ToolId,
        change: ToolChange,
    ) -> Result<Tool, RequestError> {
        // Again if another request has changed it in between: neither change is lost.
        loop {
            let before = self.tool(caller, id).await?;
            self.require_privilege(caller, Privilege::Modify, ObjectRef::Tool(id))?;
            // Who changes what is only said about it has not written its code.
            let author = match change.changes_code() {
                true => {
                    let owner_and_author = (before.owner, before.author);
                    self.author_of_change(caller, ObjectRef::Tool(id), owner_and_author)?
                }
                false => before.author,
            };
            let identity = ToolIdentity {
                id,
                owner: before.owner,
                author,
                workspace: caller.workspace,
                created_at: before.created_at,
                updated_at: self.now(),
            };
            let request = change.clone().apply(&before);
            let given = tool_variables::given_values(request.configuration.as_ref());
            let tool = self.read_tool(caller, request, identity).await?;
            if tool.name != before.name {
                self.check_new_tool_name(caller.workspace, id, &tool.name).await?;
            }
            let entry = caller.audit_entry("tool.change", ObjectRef::Tool(id), &tool.name);
            let (workspace, mut kept, vault) =
                (caller.workspace, tool.clone(), self.lock_vault_for_sealing().await);
            let sealed = tool_variables::seal_values(&vault, workspace, &tool, &given)?;
            let code = take_code(&mut kept);
            let written = self.db.write(move |tx| {
                // No new key until it is kept.
                let _vault = vault;
                if let Some(gone) = needed_is_gone(tx, workspace, &kept)? {
                    return Ok(Err(gone));
                }
                let replaced =
                    replace_tool(tx, workspace, &kept, &code, before.updated_at, &entry)?;
                if replaced {
                    tool_variables::persist_values(tx, workspace, &kept, &sealed)?;
                }
                Ok(Ok(replaced))
            });
            if written.await?? {
                self.notify_tools_changed(workspace);
                return Ok(tool);
            }
        }
    }

    pub async fn delete_tool(&self, caller: &Caller, id: ToolId) -> Result<(), RequestError> {
        let tool = self.tool(caller, id).await?;
        let object = ObjectRef::Tool(id);
        self.require_privilege(caller, Privilege::Ownership, object)?;
        let entry = caller.audit_entry("tool.delete", object, &tool.name);
        let workspace = caller.workspace;
        let deleted = self.db.write(move |tx| {
            let using = tx.agents_using(workspace, id)?;
            if using.is_empty() {
                tx.delete_tool(workspace, id)?;
                tx.delete_grants_on(workspace, object)?;
                tx.delete_remembered_approvals_of_tool(workspace, id)?;
                tx.append_audit_entry(&entry)?;
            }
            Ok(using)
        });
        let using: Vec<String> = deleted.await?.into_iter().map(|(_, name)| name).collect();
        if !using.is_empty() {
            return Err(tool_in_use_error(&using));
        }
        self.notify_tools_changed(workspace);
        Ok(())
    }

    /// A tool that is kept, and its contract. Whether the caller may call it is not asked here.
    #[boxed::future]
    pub(crate) async fn checked_tool(
        &self,
        workspace: WorkspaceId,
        id: ToolId,
    ) -> Result<(Tool, ToolContract), RequestError> {
        let tool = self.stored_tool(workspace, id).await?.ok_or_else(|| not_found("tool", id))?;
        if let Some(known) = self.contracts.get(&tool) {
            return Ok((tool, known));
        }
        let request = ToolRequest::from_tool(&tool);
        let checked = self.check_slots.run_check(workspace, move || {
            // Its source was short enough when it was kept.
            let contract = request.check(contract::SOURCE_BYTES_MAX).outcome?;
            let bytes = contract.memory_bytes();
            Ok((contract, bytes))
        });
        let checked = checked.await?;
        let (contract, bytes) = checked.map_err(|errors| contract_broken_error(&tool, errors))?;
        let contract = contract.with_input_limit(self.config.tool_bytes_max);
        self.contracts.insert(&tool, contract.clone(), bytes);
        Ok((tool, contract))
    }

    async fn stored_tool(
        &self,
        workspace: WorkspaceId,
        id: ToolId,
    ) -> Result<Option<Tool>, RequestError> {
        let found = self.db.tool(workspace, id).await?;
        Ok(found.map(|(mut tool, code)| {
            insert_code(&mut tool, code);
            tool
        }))
    }

    async fn read_tool(
        &self,
        caller: &Caller,
        request: ToolRequest,
        identity: ToolIdentity,
    ) -> Result<Tool, RequestError> {
        self.check_environment(request.environment.as_deref())?;
        let environment = self.tool_environments(request.environment.as_deref());
        let most = self.config.tool_bytes_max;
        let read = move || Ok::<_, RequestError>((request.check(most).into_contract()?, request));
        let (contract, request) = self.check_slots.run_check(caller.workspace, read).await??;
        self.check_tool_references(caller, &contract).map_err(|wrong| invalid_tool(vec![wrong]))?;
        let environment = contract.work_kind().map(environment).unwrap_or_default();
        Ok(request.into_tool(&contract, environment, identity))
    }

    /// The environment of a tool by its kind, which is known once its code is checked.
    pub(crate) fn tool_environments(
        &self,
        requested: Option<&str>,
    ) -> impl Fn(WorkKind) -> String + Send + use<> {
        let environments = WorkKind::ALL
            .map(|kind| (kind, self.environment_for(kind, requested.map(str::to_owned))));
        let environments = HashMap::from(environments);
        move |kind| environments.get(&kind).cloned().unwrap_or_default()
    }
}

/// Modules and programs that the environment of the tool lacks.
fn missing_dependencies(
    engine: &Engine,
    environment: &str,
    tool: &contract::CodeTool,
    code_key: &str,
) -> Vec<ErrorDetail> {
    // That there is no such environment was told before.
    let missing =
        engine.environment_contents(environment).map(|contents| contents.check_tool(tool));
    let placed = missing.unwrap_or_default().into_iter().map(|problem| {
        let path = problem.place.as_ref().map(|_| format!("$.configuration.{code_key}"));
        contract::Diagnostic { path, ..problem }
    });
    details(placed.collect(), "")
}

/// An integration or a function that the tool names, and that went between the check and the change.
fn needed_is_gone(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    tool: &Tool,
) -> Result<Option<RequestError>, DatabaseError> {
    let configuration = tool.definition.get("configuration");
    let named = |key: &str| configuration.and_then(|it| it.get(key));
    let integrations = named("integrations").and_then(Value::as_array).into_iter().flatten();
    let integrations: Vec<String> =
        integrations.filter_map(Value::as_str).map(str::to_owned).collect();
    if let Some(gone) = missing_integration_error(tx, workspace, &integrations)? {
        return Ok(Some(gone));
    }
    let function =
        named("externalId").and_then(Value::as_str).filter(|_| tool.entry == FUNCTION_ENTRY);
    let Some(function) = function else { return Ok(None) };
    let is_there = tx.function_by_name(workspace, function)?.is_some();
    Ok((!is_there).then(|| no_function_error(function).into()))
}

/// False if it is no longer the one that was changed.
fn replace_tool(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    tool: &Tool,
    code: &str,
    before: DateTime<Utc>,
    entry: &NewAuditEntry,
) -> Result<bool, DatabaseError> {
    let now = tx.tool(workspace, tool.id)?;
    if now.is_none_or(|(now, _)| now.updated_at != before) {
        return Ok(false);
    }
    tx.update_tool(workspace, tool, code)?;
    // People have agreed to what it was.
    tx.delete_remembered_approvals_of_tool(workspace, tool.id)?;
    tx.append_audit_entry(entry)?;
    Ok(true)
}

fn tool_in_use_error(agents: &[String]) -> RequestError {
    let names = agents.join(", ");
    let message = format!(
        "Cannot delete tool. The following agents depend on it: {names}. Please remove this tool \
         from these agents first."
    );
    Error::new(ErrorCode::ToolInUse, message).into()
}

fn contract_broken_error(tool: &Tool, errors: Vec<ErrorDetail>) -> RequestError {
    let RequestError { error, details } = invalid_tool(errors);
    let message = format!("tool {:?} can no longer be called: {}", tool.name, error.message);
    let error = Error::new(ErrorCode::ToolUnavailable, message).hint("change the tool");
    RequestError { error: Box::new(error), details }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use types::PrincipalId;

    /// A tool that calls a function, with its contract, and as many constants as said.
    fn tool(number: u128, constants: usize) -> (Tool, ToolContract) {
        let request: ToolRequest = serde_json::from_value(json!({
            "type": "callFunction",
            "name": format!("tool {number}"),
            "description": "Calls a function",
            "configuration": {
                "externalId": "f",
                "schema": {"properties": {"a": {"const": vec![0; constants]}}},
            },
        }))
        .unwrap();
        let contract = request.check(contract::SOURCE_BYTES_MAX).into_contract().unwrap();
        let identity = ToolIdentity {
            id: ToolId::new(Uuid::from_u128(number)),
            owner: PrincipalId::new(Uuid::nil()),
            author: PrincipalId::new(Uuid::nil()),
            workspace: WorkspaceId::new(Uuid::nil()),
            created_at: DateTime::UNIX_EPOCH,
            updated_at: DateTime::UNIX_EPOCH,
        };
        (request.into_tool(&contract, String::new(), identity), contract)
    }

    #[test]
    fn t207_contracts_are_kept_by_their_memory_and_not_by_their_number() {
        let cached = |tools: &[(Tool, ToolContract)], bytes: usize| {
            let cache = ContractCache::default();
            tools.iter().for_each(|(tool, contract)| cache.insert(tool, contract.clone(), bytes));
            let found = tools.iter().filter(|(tool, _)| cache.get(tool).is_some()).count();
            let held = cache.0.lock().unwrap().bytes;
            assert!(held <= CONTRACTS_BYTES_MAX, "{held}");
            (found, held)
        };
        let tools: Vec<(Tool, ToolContract)> = (1..=100).map(|number| tool(number, 1)).collect();
        let large = CONTRACTS_BYTES_MAX / 4;
        assert_eq!(cached(&tools, large).0, 3);
        assert_eq!(cached(&tools, CONTRACTS_BYTES_MAX), (0, 0), "one that is too large alone");
        let (found, held) = cached(&tools, 1024);
        assert_eq!((found, held), (100, 100 * 2048), "the twin: small ones are all kept");
        let again: Vec<(Tool, ToolContract)> = vec![tools[0].clone(); 3];
        assert_eq!(cached(&again, 1024), (3, 2048), "a changed tool replaces itself");
    }

    #[test]
    fn t207_the_memory_of_a_contract_grows_with_its_schema() {
        let bytes = |constants: usize| tool(1, constants).1.memory_bytes();
        let (small, large) = (bytes(1), bytes(5_000));
        assert!(small < 20_000, "{small}");
        assert!(large > small + 5_000 * size_of::<Value>(), "{large}");
    }
}
