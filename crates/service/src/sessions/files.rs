//! The working directory of a session, file by file.

use crate::caller::Caller;
use crate::refused::Refused;
use crate::service::Service;
use crate::staging::Staged;
use serde::Serialize;
use std::fs::File;
use types::{SandboxId, SkippedFile};
use utoipa::ToSchema;

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionFile {
    /// Relative to the working directory.
    pub name: String,
    pub size: u64,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionFiles {
    pub files: Vec<SessionFile>,
    /// What is not brought out, and why.
    pub skipped: Vec<SkippedFile>,
}

impl Service {
    pub async fn session_files(
        &self,
        caller: &Caller,
        id: SandboxId,
    ) -> Result<SessionFiles, Refused> {
        self.fit_session(caller, Some(id)).await?;
        let listing = self.engine.list_files(id).await?;
        let files = listing.files.into_iter();
        let skipped = listing.skipped.into_iter();
        Ok(SessionFiles {
            files: files.map(|(name, file)| SessionFile { name, size: file.size }).collect(),
            skipped: skipped.map(|(name, reason)| SkippedFile { name, reason }).collect(),
        })
    }

    /// An open file of the working directory, and its size.
    pub async fn read_session_file(
        &self,
        caller: &Caller,
        id: SandboxId,
        name: String,
    ) -> Result<(File, u64), Refused> {
        self.fit_session(caller, Some(id)).await?;
        Ok(self.engine.open_file(id, name).await?)
    }

    pub async fn write_session_file(
        &self,
        caller: &Caller,
        id: SandboxId,
        name: String,
        content: Staged,
    ) -> Result<SessionFile, Refused> {
        self.fit_session(caller, Some(id)).await?;
        let size = self.engine.write_file(id, name.clone(), content.open()?).await?;
        Ok(SessionFile { name, size })
    }

    pub async fn delete_session_file(
        &self,
        caller: &Caller,
        id: SandboxId,
        name: String,
    ) -> Result<(), Refused> {
        self.fit_session(caller, Some(id)).await?;
        Ok(self.engine.delete_file(id, name).await?)
    }
}
