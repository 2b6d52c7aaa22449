//! The output files of executions: files that code wrote, and charts that it displayed.

use crate::data::file_urls::FileRef;
use crate::data::staging::{TempPath, file_write_error, hex};
use crate::error::{RequestError, not_found};
use crate::identity::caller::Caller;
use crate::runs::executions::RunContext;
use crate::service::Service;
use crate::tasks::run_blocking;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::TimeDelta;
use db::{Blobs, DatabaseError};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::{
    Event, Execution, ExecutionId, File, FileId, FileKind, FileSource, OutputFile, Warning,
};
use uuid::Uuid;

/// MIME types of charts, and their file extensions.
const CHARTS: [(&str, &str); 3] =
    [("image/png", "png"), ("image/jpeg", "jpg"), ("image/gif", "gif")];

/// An output file of an execution whose content is in a temporary file.
pub(crate) struct ProducedFile {
    out: OutputFile,
    bytes: TempPath,
}

/// An image that code displayed without saving it; it has no name yet.
struct DisplayedImage {
    result: Arc<Event>,
    mime: &'static str,
    extension: &'static str,
}

impl Service {
    /// Stores the bytes of every file of an execution, and sets their URLs in its record. A file
    /// that exceeds the quota of the workspace is left out with a warning. The caller writes the
    /// rows; if that fails, the caller must remove the bytes.
    pub(crate) async fn persist_output_files(
        &self,
        mut execution: Execution,
        events: &[Arc<Event>],
        copies: Vec<(String, PathBuf)>,
        context: &RunContext,
    ) -> Result<(Execution, Vec<File>), RequestError> {
        let directory = copies.first().and_then(|(_, path)| path.parent()).map(Path::to_owned);
        let mut stored = Vec::new();
        let result = match self.collect_produced_files(&execution, events, copies).await {
            Ok(produced) => {
                self.persist_produced_files(&mut execution, produced, context, &mut stored).await
            }
            Err(error) => Err(error),
        };
        if let Some(directory) = directory {
            // The directory is empty by now; otherwise the next start deletes it.
            let _ = fs::remove_dir(directory);
        }
        if let Err(error) = result {
            self.db.remove_blobs(stored.iter().map(|file| file.id).collect()).await?;
            return Err(error);
        }
        Ok((execution, stored))
    }

    async fn persist_produced_files(
        &self,
        execution: &mut Execution,
        produced: Vec<ProducedFile>,
        context: &RunContext,
        stored: &mut Vec<File>,
    ) -> Result<(), RequestError> {
        let (workspace, most) = (context.workspace, self.config.workspace_bytes_max);
        let used_bytes = self.db.read(|rows| rows.file_bytes(workspace))?;
        let mut free_bytes = most.saturating_sub(used_bytes);
        for ProducedFile { out, bytes } in produced {
            if out.size > free_bytes {
                let error = DatabaseError::QuotaExceeded { most }.into();
                execution.warnings.push(not_stored_warning(&out.name, &error));
                continue;
            }
            free_bytes -= out.size;
            let file = self.file_row(&out, execution, context);
            let id = file.id;
            stored.push(file);
            self.db.persist_blob(bytes.as_path().to_owned(), id).await?;
            let asset = FileRef::Asset { execution: execution.id, name: out.name.clone() };
            let url = asset.encoded_path();
            match execution.files_out.iter_mut().find(|output| output.name == out.name) {
                Some(output) => output.url = Some(url),
                None => execution.files_out.push(OutputFile { url: Some(url), ..out }),
            }
        }
        Ok(())
    }

    async fn collect_produced_files(
        &self,
        execution: &Execution,
        events: &[Arc<Event>],
        copies: Vec<(String, PathBuf)>,
    ) -> Result<Vec<ProducedFile>, RequestError> {
        let mut produced = Vec::new();
        for (name, path) in copies {
            let bytes = TempPath::new(path);
            let output = execution.files_out.iter().find(|out| out.name == name);
            produced.extend(output.map(|out| ProducedFile { out: out.clone(), bytes }));
        }
        let images: Vec<DisplayedImage> = events.iter().filter_map(displayed_image).collect();
        if !images.is_empty() {
            let used_names = execution.files_out.iter().map(|out| out.name.clone()).collect();
            let blobs = self.db.blobs().clone();
            produced
                .extend(run_blocking(move || stage_charts(&blobs, images, &used_names)).await??);
        }
        Ok(produced)
    }

    fn file_row(&self, out: &OutputFile, execution: &Execution, context: &RunContext) -> File {
        let now = self.now();
        let retention = TimeDelta::from_std(self.config.retention).ok();
        File {
            id: FileId::new(Uuid::now_v7()),
            name: out.name.clone(),
            owner: context.principal,
            mime: out.mime.clone(),
            size: out.size,
            sha256: out.sha256.clone(),
            source: FileSource::Code,
            url: None,
            source_url: None,
            sandbox_id: execution.sandbox_id,
            execution_id: Some(execution.id),
            created_at: now,
            expires_at: retention.and_then(|retention| now.checked_add_signed(retention)),
        }
    }

    /// A file that an execution wrote, for callers who may see the execution.
    pub async fn asset(
        &self,
        caller: &Caller,
        id: ExecutionId,
        name: &str,
    ) -> Result<(File, fs::File), RequestError> {
        let workspace = caller.workspace;
        let missing = || not_found("file of that name in execution", id);
        let found = self.db.read(|rows| rows.file_of_execution(workspace, id, name))?;
        match found {
            Some(file) if self.may_see_owned_by(caller, file.owner)? => {
                let bytes = self.db.blobs().open_file(file.id)?.ok_or_else(missing)?;
                Ok((file, bytes))
            }
            _ => Err(missing()),
        }
    }
}

fn displayed_image(event: &Arc<Event>) -> Option<DisplayedImage> {
    CHARTS.iter().find_map(|&(mime, extension)| {
        base64(event, mime)?;
        Some(DisplayedImage { result: Arc::clone(event), mime, extension })
    })
}

/// The content of a result with this MIME type.
fn base64<'e>(event: &'e Event, mime: &str) -> Option<&'e str> {
    match event {
        Event::Result(result) => result.data.get(mime)?.as_str(),
        _ => None,
    }
}

/// Decodes displayed images into files named `plot_0.png` and so on, without names that code has
/// used.
fn stage_charts(
    blobs: &Blobs,
    images: Vec<DisplayedImage>,
    used_names: &HashSet<String>,
) -> Result<Vec<ProducedFile>, RequestError> {
    let mut staged = Vec::new();
    let mut number = 0;
    for DisplayedImage { result, mime, extension } in images {
        let content = base64(&result, mime).and_then(|text| STANDARD.decode(text).ok());
        let Some(content) = content else { continue };
        let mut name = format!("plot_{number}.{extension}");
        while used_names.contains(&name) {
            number += 1;
            name = format!("plot_{number}.{extension}");
        }
        number += 1;
        let bytes = TempPath::new(blobs.staging_path());
        fs::write(bytes.as_path(), &content).map_err(|error| file_write_error(&error))?;
        let out = OutputFile {
            name,
            mime: mime.to_owned(),
            size: content.len() as u64,
            sha256: hex(&Sha256::digest(&content)),
            kind: FileKind::Media,
            url: None,
        };
        staged.push(ProducedFile { out, bytes });
    }
    Ok(staged)
}

/// The record of an execution whose files could not be stored in the end.
pub(crate) fn without_files(record: Execution, files: &[File], error: &RequestError) -> Execution {
    let mut warnings = record.warnings;
    warnings.extend(files.iter().map(|file| not_stored_warning(&file.name, error)));
    Execution { warnings, ..record }
}

fn not_stored_warning(name: &str, error: &RequestError) -> Warning {
    Warning {
        code: error.error.code.to_string(),
        message: format!("file {name} was not stored: {}", error.error.message),
    }
}
