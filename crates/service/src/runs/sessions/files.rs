//! Files in the working directory of a session.

use crate::data::inputs::numbered_name;
use crate::data::staging::StagedFile;
use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::runs::pending_call::hash_file;
use crate::service::Service;
use crate::tasks::run_blocking;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::File;
use types::{FileId, SandboxId, SkippedFile};
use utoipa::ToSchema;

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionFile {
    /// Path relative to the working directory.
    pub name: String,
    pub size: u64,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionFiles {
    pub files: Vec<SessionFile>,
    /// Files that are not collected, and why.
    pub skipped: Vec<SkippedFile>,
}

impl Service {
    pub async fn session_files(
        &self,
        caller: &Caller,
        id: SandboxId,
    ) -> Result<SessionFiles, RequestError> {
        self.check_session_access(caller.workspace, &caller.principal, Some(id)).await?;
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
    ) -> Result<(File, u64), RequestError> {
        self.check_session_access(caller.workspace, &caller.principal, Some(id)).await?;
        Ok(self.engine.open_file(id, name).await?)
    }

    pub async fn write_session_file(
        &self,
        caller: &Caller,
        id: SandboxId,
        name: String,
        content: StagedFile,
    ) -> Result<SessionFile, RequestError> {
        self.check_session_access(caller.workspace, &caller.principal, Some(id)).await?;
        let size = self.engine.write_file(id, name.clone(), content.open()?).await?;
        Ok(SessionFile { name, size })
    }

    /// Adds documents to the working directory, and returns the name of each. A document that is
    /// already there with the same bytes stays unchanged.
    #[boxed::future]
    pub async fn copy_documents(
        &self,
        caller: &Caller,
        id: SandboxId,
        documents: &[FileId],
    ) -> Result<Vec<String>, RequestError> {
        self.check_session_access(caller.workspace, &caller.principal, Some(id)).await?;
        // The files of a session cannot be listed while it runs something.
        if documents.is_empty() {
            return Ok(Vec::new());
        }
        let mut opened = Vec::with_capacity(documents.len());
        for document in documents {
            opened.push(self.open_document(caller, *document)?);
        }
        let listing = self.engine.list_files(id).await?;
        let mut used_names: BTreeSet<String> = listing.files.into_keys().collect();
        let mut names = Vec::with_capacity(opened.len());
        for (document, bytes) in opened {
            let mut name = document.name.clone();
            let mut number = 0;
            while used_names.contains(&name) && !self.has_document(id, &name, &document).await? {
                number += 1;
                name = numbered_name(&document.name, number);
            }
            if used_names.insert(name.clone()) {
                self.engine.write_file(id, name.clone(), bytes).await?;
            }
            names.push(name);
        }
        Ok(names)
    }

    /// Whether the working directory has this document under this name.
    async fn has_document(
        &self,
        id: SandboxId,
        name: &str,
        document: &types::File,
    ) -> Result<bool, RequestError> {
        let (file, size) = self.engine.open_file(id, name.to_owned()).await?;
        if size != document.size {
            return Ok(false);
        }
        let hash = run_blocking(move || hash_file(file)).await?;
        Ok(hash.is_ok_and(|(_, hash)| hash == document.sha256))
    }

    pub async fn delete_session_file(
        &self,
        caller: &Caller,
        id: SandboxId,
        name: String,
    ) -> Result<(), RequestError> {
        self.check_session_access(caller.workspace, &caller.principal, Some(id)).await?;
        Ok(self.engine.delete_file(id, name).await?)
    }
}
