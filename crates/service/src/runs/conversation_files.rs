//! The conversation of an agent, as files that the code in its session can read.
//!
//! Each session of an agent has a directory of its own for this, which ends with the session. Code
//! cannot write to it, and no other session sees it.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::service::Service;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use types::SandboxId;

/// Code of an agent finds the conversation in this directory.
pub(crate) const CONVERSATION_ROOT: &str = "/mnt/conversation";

impl Service {
    /// Shows these files to the code of a session, instead of the ones before. A session that has no
    /// directory for them is unchanged.
    pub async fn show_conversation(
        &self,
        caller: &Caller,
        id: SandboxId,
        files: BTreeMap<String, Vec<u8>>,
    ) -> Result<(), RequestError> {
        self.usable_session(caller, id)?;
        let grants = self.engine.session_grants(id)?;
        let is_conversation = |path: &Path| path == Path::new(CONVERSATION_ROOT);
        let granted = grants.directories.iter().find(|granted| is_conversation(&granted.path));
        let Some(granted) = granted else { return Ok(()) };
        Ok(self.engine.replace_shared_files(Arc::clone(&granted.directory), files).await?)
    }
}
