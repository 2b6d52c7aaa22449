//! The tools that a caller may use, in the form that a model sees.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::service::Service;
use db::ObjectFilter;
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::broadcast::error::RecvError;
use types::{ApprovalAction, ObjectRef, Privilege, Tool, WorkspaceId};

/// Memory of the tools in one page: all tools of most workspaces. A schema takes up to a hundred
/// times its text.
const PAGE_MEMORY_BYTES: usize = 8 * 1024 * 1024;

/// A page of the tools that a caller may use, by name, without their definitions.
#[derive(Debug, Default)]
pub struct CallableTools {
    pub tools: Vec<Tool>,
    /// The name after which the next page begins; absent on the last one.
    pub next: Option<String>,
}

impl Service {
    /// The tools after a name that the caller may call directly.
    pub async fn callable_tools(
        &self,
        caller: &Caller,
        after: Option<String>,
    ) -> Result<CallableTools, RequestError> {
        let workspace = caller.workspace;
        let filter = ObjectFilter { search: None, seen_by: self.viewers(caller)? };
        let (mut tools, mut bytes, mut after) = (Vec::new(), 0, after.unwrap_or_default());
        loop {
            let (filter, left) = (filter.clone(), PAGE_MEMORY_BYTES - bytes);
            let read = self
                .db
                .read_off_thread(move |rows| rows.tools_after(workspace, &filter, &after, left));
            let part = read.await?;
            after = part.tools.last().map(|tool| tool.name.clone()).unwrap_or_default();
            for tool in part.tools {
                if self.may_call(caller, &tool)? {
                    bytes += tool.memory_bytes();
                    tools.push(tool);
                }
            }
            if !part.more {
                return Ok(CallableTools { tools, next: None });
            }
            if bytes >= PAGE_MEMORY_BYTES {
                return Ok(CallableTools { tools, next: Some(after) });
            }
        }
    }

    pub async fn callable_tool(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Option<Tool>, RequestError> {
        let (workspace, name) = (caller.workspace, name.to_owned());
        let found = self.db.read_off_thread(move |rows| rows.tool_by_name(workspace, &name));
        match found.await? {
            Some((tool, _)) if self.may_call(caller, &tool)? => Ok(Some(tool)),
            _ => Ok(None),
        }
    }

    fn may_call(&self, caller: &Caller, tool: &Tool) -> Result<bool, RequestError> {
        let (workspace, object) = (caller.workspace, ObjectRef::Tool(tool.id));
        let permit = self.permit(workspace, &caller.principal, Privilege::Usage, object)?;
        Ok(permit.is_some() && tool.approval_action != ApprovalAction::Deny)
    }

    /// Something for each time that the list may have become another one.
    pub fn tool_changes(&self, caller: &Caller) -> impl Stream<Item = ()> + Send + use<> {
        let (news, workspace) = (self.tool_changes.subscribe(), caller.workspace);
        let changes = stream::unfold(news, |mut news| async move {
            match news.recv().await {
                Ok(workspace) => Some((Some(workspace), news)),
                // A slow subscriber has missed some changes, and one may concern it.
                Err(RecvError::Lagged(_)) => Some((None, news)),
                Err(RecvError::Closed) => None,
            }
        });
        changes.filter_map(move |changed| async move {
            changed.is_none_or(|changed: WorkspaceId| changed == workspace).then_some(())
        })
    }

    /// Notifies about changes of the list, after they are on the disk.
    pub(crate) fn notify_tools_changed(&self, workspace: WorkspaceId) {
        // There may be no subscriber.
        let _ = self.tool_changes.send(workspace);
    }
}
