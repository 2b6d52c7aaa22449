//! The output files of executions: files that code wrote, and charts that it displayed.

use crate::data::staging::{TempPath, file_write_error, hex};
use crate::error::{RequestError, not_found};
use crate::identity::caller::Caller;
use crate::runs::executions::RunContext;
use crate::service::Service;
use crate::tasks::run_blocking;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{TimeDelta, Utc};
use db::{Blobs, DatabaseError};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
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
/// Characters that need no escape in the path of a URL.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b'~').remove(b'/');

/// The bytes of one file of an execution, in a temporary file.
pub(crate) struct ProducedFile {
    out: OutputFile,
    bytes: TempPath,
}

/// A picture that was shown and not saved: it has no name of its own.
struct DisplayedImage {
    result: Arc<Event>,
    mime: &'static str,
    extension: &'static str,
}

impl Service {
    /// Keeps the bytes of every file of an execution, and says in its record where they are. What
    /// the workspace has no room for is left out, and said. The rows are for the caller to write;
    /// without them the bytes have to go.
    pub(crate) async fn persist_output_files(
        &self,
        mut execution: Execution,
        events: &[Arc<Event>],
        copies: Vec<(String, PathBuf)>,
        whose: &RunContext,
    ) -> Result<(Execution, Vec<File>), RequestError> {
        let directory = copies.first().and_then(|(_, path)| path.parent()).map(Path::to_owned);
        let mut kept = Vec::new();
        let done = match self.collect_produced_files(&execution, events, copies).await {
            Ok(left) => self.persist_produced_files(&mut execution, left, whose, &mut kept).await,
            Err(refused) => Err(refused),
        };
        if let Some(directory) = directory {
            // Empty by now; the next start wipes what is left of it.
            let _ = fs::remove_dir(directory);
        }
        if let Err(refused) = done {
            self.db.remove_blobs(kept.iter().map(|file| file.id).collect()).await?;
            return Err(refused);
        }
        Ok((execution, kept))
    }

    async fn persist_produced_files(
        &self,
        execution: &mut Execution,
        left: Vec<ProducedFile>,
        whose: &RunContext,
        kept: &mut Vec<File>,
    ) -> Result<(), RequestError> {
        let (workspace, most) = (whose.workspace, self.config.workspace_bytes_max);
        let held = self.db.read(|rows| rows.file_bytes(workspace))?;
        let mut room = most.saturating_sub(held);
        for ProducedFile { out, bytes } in left {
            if out.size > room {
                let refused = DatabaseError::QuotaExceeded { most }.into();
                execution.warnings.push(not_stored_warning(&out.name, &refused));
                continue;
            }
            room -= out.size;
            let file = self.file_row(&out, execution, whose);
            let id = file.id;
            kept.push(file);
            self.db.persist_blob(bytes.as_path().to_owned(), id).await?;
            let url =
                format!("/v1/assets/{}/{}", execution.id, utf8_percent_encode(&out.name, PATH));
            match execution.files_out.iter_mut().find(|known| known.name == out.name) {
                Some(known) => known.url = Some(url),
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
        let mut left = Vec::new();
        for (name, path) in copies {
            let bytes = TempPath::new(path);
            let named = execution.files_out.iter().find(|out| out.name == name);
            left.extend(named.map(|out| ProducedFile { out: out.clone(), bytes }));
        }
        let shown: Vec<DisplayedImage> = events.iter().filter_map(displayed_image).collect();
        if !shown.is_empty() {
            let taken = execution.files_out.iter().map(|out| out.name.clone()).collect();
            let blobs = self.db.blobs().clone();
            left.extend(run_blocking(move || stage_charts(&blobs, shown, &taken)).await??);
        }
        Ok(left)
    }

    fn file_row(&self, out: &OutputFile, execution: &Execution, whose: &RunContext) -> File {
        let now = Utc::now();
        let retention = TimeDelta::from_std(self.config.retention).ok();
        File {
            id: FileId::new(Uuid::now_v7()),
            name: out.name.clone(),
            owner: whose.principal,
            mime: out.mime.clone(),
            size: out.size,
            sha256: out.sha256.clone(),
            source: FileSource::Code,
            url: None,
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

/// A form of a result that is bytes.
fn base64<'e>(event: &'e Event, mime: &str) -> Option<&'e str> {
    match event {
        Event::Result(result) => result.data.get(mime)?.as_str(),
        _ => None,
    }
}

/// Numbered as they were shown, around names that code has given itself.
fn stage_charts(
    blobs: &Blobs,
    shown: Vec<DisplayedImage>,
    taken: &HashSet<String>,
) -> Result<Vec<ProducedFile>, RequestError> {
    let mut staged = Vec::new();
    let mut number = 0;
    for DisplayedImage { result, mime, extension } in shown {
        let content = base64(&result, mime).and_then(|text| STANDARD.decode(text).ok());
        let Some(content) = content else { continue };
        let mut name = format!("plot_{number}.{extension}");
        while taken.contains(&name) {
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

/// The record of an execution of whose files none was kept after all.
pub(crate) fn without_files(record: Execution, files: &[File], why: &RequestError) -> Execution {
    let mut warnings = record.warnings;
    warnings.extend(files.iter().map(|file| not_stored_warning(&file.name, why)));
    Execution { warnings, ..record }
}

fn not_stored_warning(name: &str, why: &RequestError) -> Warning {
    Warning {
        code: why.error.code.to_string(),
        message: format!("file {name} was not stored: {}", why.error.message),
    }
}
