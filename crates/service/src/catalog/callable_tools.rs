//! The tools that a caller may use, in the form that a model sees.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::identity::ownership::ObjectQuery;
use crate::service::Service;
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::broadcast::error::RecvError;
use types::{ApprovalAction, ObjectRef, Privilege, Tool, WorkspaceId};

/// More than a model can choose from; the rest is called by id.
const CALLABLE_TOOLS_MAX: usize = 1_000;
const PAGE: u32 = 200;

impl Service {
    /// The tools that the caller may call directly, by name.
    pub async fn callable_tools(&self, caller: &Caller) -> Result<Vec<Tool>, RequestError> {
        let mut callable = Vec::new();
        let mut cursor = None;
        loop {
            let query = ObjectQuery { limit: Some(PAGE), cursor, ..ObjectQuery::default() };
            let page = self.tools(caller, query).await?;
            for tool in page.items {
                if callable.len() < CALLABLE_TOOLS_MAX && self.may_call(caller, &tool)? {
                    callable.push(tool);
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() || callable.len() == CALLABLE_TOOLS_MAX {
                callable.sort_by(|one, other| one.name.cmp(&other.name));
                return Ok(callable);
            }
        }
    }

    pub fn callable_tool(&self, caller: &Caller, name: &str) -> Result<Option<Tool>, RequestError> {
        let found = self.db.read(|rows| rows.tool_by_name(caller.workspace, name))?;
        match found {
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
