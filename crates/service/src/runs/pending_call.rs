//! A pending call: everything that is needed to run it after its approval, stored with its record.

use crate::data::inputs::{FileInput, make_names_unique, parse_inputs};
use crate::data::staging::{file_write_error, hex};
use crate::error::{RequestError, not_found};
use crate::identity::caller::Caller;
use crate::runs::run_request::{RunRequest, RunTarget};
use crate::service::Service;
use engine::{FileContent, InputFile};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::Arc;
use types::{Error, ErrorCode, ExecutionId, FileId, Warning, WorkspaceId};

const PIECE_BYTES: usize = 64 * 1024;

/// A call that waits for an approval, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PendingCall {
    /// Without submitted code and without files.
    pub(crate) request: RunRequest,
    pub(crate) inputs: StoredInputs,
    /// The model run that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<ExecutionId>,
}

/// What the working directory of a call that waits has to contain when it starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredInputs {
    pub(crate) files: Vec<StoredInput>,
    /// For code in a session: the digest of its working directory when the approval was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) working_directory: Option<String>,
    /// About files that have other names than they were given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<Warning>,
}

/// An input file whose bytes are stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredInput {
    pub(crate) name: String,
    pub(crate) id: FileId,
    pub(crate) sha256: String,
}

impl PendingCall {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// `code` is that of the record.
    pub(crate) fn from_bytes(bytes: &[u8], code: String) -> Option<Self> {
        let mut pending: Self = serde_json::from_slice(bytes).ok()?;
        if let RunTarget::Code(submitted) = &mut pending.request.target {
            submitted.code = code;
        }
        Some(pending)
    }
}

impl Service {
    /// Stores the bytes of every input until the approval is decided.
    pub(crate) async fn persist_inputs(
        self: &Arc<Self>,
        caller: &Caller,
        inputs: Vec<FileInput>,
    ) -> Result<(Vec<StoredInput>, Vec<Warning>), RequestError> {
        let mut stored = Vec::with_capacity(inputs.len());
        for input in parse_inputs(inputs)? {
            let (name, document) = self.persist_input(caller, input).await?;
            stored.push(StoredInput { name, id: document.id, sha256: document.sha256 });
        }
        let warnings = make_names_unique(stored.iter_mut().map(|file| &mut file.name));
        Ok((stored, warnings))
    }

    /// The bytes of every input, which must be those that were submitted for approval.
    pub(crate) async fn open_stored_inputs(
        &self,
        workspace: WorkspaceId,
        files: &[StoredInput],
    ) -> Result<Vec<InputFile>, RequestError> {
        let mut opened = Vec::with_capacity(files.len());
        for file in files {
            let row = self.db.read(|rows| rows.file(workspace, file.id))?;
            let bytes = row.map(|_| self.db.blobs().open_file(file.id)).transpose()?.flatten();
            let bytes = bytes.ok_or_else(|| not_found("document", file.id))?;
            let hashed = tokio::task::spawn_blocking(move || hash_file(bytes)).await;
            let (bytes, hash) = match hashed {
                Ok(hashed) => hashed.map_err(|error| file_write_error(&error))?,
                Err(error) => return Err(file_write_error(&error.into())),
            };
            if hash != file.sha256 {
                let message =
                    format!("{} is not the file that was submitted for approval", file.name);
                return Err(Error::new(ErrorCode::ApprovalInvalid, message).into());
            }
            opened.push(InputFile {
                name: file.name.clone(),
                content: FileContent::File(Arc::new(bytes)),
            });
        }
        Ok(opened)
    }
}

pub(crate) fn hash_file(mut file: File) -> io::Result<(File, String)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    file.rewind()?;
    Ok((file, hex(&hash.finalize())))
}
