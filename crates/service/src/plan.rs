//! A call that waits: what is needed to make it later, kept with its record.

use crate::callee::Callee;
use crate::caller::Caller;
use crate::inputs::{FileInput, checked, distinct_names};
use crate::refused::{Refused, not_found};
use crate::service::Service;
use crate::staging::{cannot_keep, hex};
use engine::{Content, Entry, FileIn};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::Arc;
use types::{
    AgentId, Approval, Code, Execution, ExecutionId, Fault, FileId, Limits, LimitsRequest,
    SandboxId, Status, ToolId, WorkspaceId,
};

const PIECE_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    pub(crate) tool_id: ToolId,
    pub(crate) agent_id: Option<AgentId>,
    pub(crate) sandbox_id: Option<SandboxId>,
    pub(crate) arguments: Value,
    pub(crate) files: Vec<KeptFile>,
    pub(crate) limits: LimitsRequest,
    /// Whether it is the `test()` of the tool that runs, and not the tool.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) test: bool,
    /// Of code in a session: the digest of its working directory when it was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) working_directory: Option<String>,
    /// The run of a model that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<ExecutionId>,
}

/// An input whose bytes are kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptFile {
    pub(crate) name: String,
    pub(crate) id: FileId,
    pub(crate) sha256: String,
}

impl Plan {
    /// Without code that was sent along: the record of the execution has it, and code can be long.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut short = self.clone();
        if let Some(code) = short.sent_code() {
            *code = Value::Null;
        }
        serde_json::to_vec(&short).unwrap_or_default()
    }

    /// `code` is that of the record.
    pub(crate) fn from_bytes(bytes: &[u8], code: String) -> Option<Self> {
        let mut plan: Self = serde_json::from_slice(bytes).ok()?;
        if let Some(place) = plan.sent_code().filter(|place| place.is_null()) {
            *place = Value::String(code);
        }
        Some(plan)
    }

    /// Where the code stands in the arguments of `execute_python`.
    fn sent_code(&mut self) -> Option<&mut Value> {
        let is_sent = self.tool_id == Callee::python_id();
        self.arguments.get_mut("code").filter(|_| is_sent)
    }

    /// The record of a call that waits.
    pub(crate) fn waiting(&self, approval: &Approval, entry: &Entry, limits: Limits) -> Execution {
        Execution {
            sandbox_id: self.sandbox_id,
            environment: approval.environment.clone(),
            status: Status::WaitingApproval,
            entry: entry.name().to_owned(),
            principal: Some(approval.requester),
            run_as: Some(approval.run_as),
            agent: self.agent_id,
            approval_id: Some(approval.id),
            parent: self.parent,
            tool: entry.tool().map(str::to_owned),
            code: approval.code.clone(),
            arguments: entry.tool().map(|_| self.arguments.clone()),
            files_in: self.files.iter().map(|file| file.name.clone()).collect(),
            ..Execution::new(approval.execution_id, limits, approval.created_at)
        }
    }
}

impl Service {
    /// Keeps the bytes of every input until the question is answered.
    pub(crate) async fn keep_inputs(
        self: &Arc<Self>,
        caller: &Caller,
        inputs: Vec<FileInput>,
    ) -> Result<Vec<KeptFile>, Refused> {
        let mut kept = Vec::with_capacity(inputs.len());
        for input in checked(inputs)? {
            let (name, document) = self.as_document(caller, input).await?;
            kept.push(KeptFile { name, id: document.id, sha256: document.sha256 });
        }
        distinct_names(kept.iter_mut().map(|file| &mut file.name));
        Ok(kept)
    }

    /// The bytes of every input, which must be those that were asked about.
    pub(crate) async fn open_kept(
        &self,
        workspace: WorkspaceId,
        files: &[KeptFile],
    ) -> Result<Vec<FileIn>, Refused> {
        let mut opened = Vec::with_capacity(files.len());
        for file in files {
            let row = self.store.read(|rows| rows.file(workspace, file.id))?;
            let bytes = row.map(|_| self.store.blobs().open_file(file.id)).transpose()?.flatten();
            let bytes = bytes.ok_or_else(|| not_found("document", file.id))?;
            let hashed = tokio::task::spawn_blocking(move || hashed(bytes)).await;
            let (bytes, hash) = match hashed {
                Ok(hashed) => hashed.map_err(|error| cannot_keep(&error))?,
                Err(error) => return Err(cannot_keep(&error.into())),
            };
            if hash != file.sha256 {
                let message = format!("{} is not the file that was asked about", file.name);
                return Err(Fault::new(Code::ApprovalInvalid, message).into());
            }
            opened
                .push(FileIn { name: file.name.clone(), content: Content::File(Arc::new(bytes)) });
        }
        Ok(opened)
    }
}

pub(crate) fn hashed(mut file: File) -> io::Result<(File, String)> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => break,
            count => hash.update(&piece[..count]),
        }
    }
    file.rewind()?;
    Ok((file, hex(&hash.finalize())))
}
