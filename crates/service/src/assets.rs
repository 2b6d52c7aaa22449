//! What executions leave behind: files that code made, and charts that it showed.

use crate::caller::Caller;
use crate::documents::over_quota;
use crate::executions::Whose;
use crate::refused::{Refused, not_found};
use crate::service::Service;
use crate::staging::{Temporary, cannot_keep, hex};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{TimeDelta, Utc};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use types::{
    Code, Execution, ExecutionId, File, FileId, FileKind, FileOut, FileSource, Rich, Warning,
};
use uuid::Uuid;

/// What a chart is shown as, and how such a file ends.
const CHARTS: [(&str, &str); 3] =
    [("image/png", "png"), ("image/jpeg", "jpg"), ("image/gif", "gif")];
/// What may stand in the path of a URL as it is.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b'~').remove(b'/');

/// The bytes of one file of an execution, in a temporary file.
pub(crate) struct Left {
    out: FileOut,
    bytes: Temporary,
}

impl Service {
    /// Keeps the bytes of every file of an execution, and says in its record where they are. What
    /// the workspace has no room for is left out, and said.
    pub(crate) async fn keep_files(
        &self,
        execution: &mut Execution,
        copies: Vec<(String, PathBuf)>,
        whose: &Whose,
    ) -> Result<Vec<File>, Refused> {
        let directory = copies.first().and_then(|(_, path)| path.parent()).map(Path::to_owned);
        let left = self.left_by(execution, copies)?;
        if left.is_empty() {
            return Ok(Vec::new());
        }
        let workspace = whose.workspace;
        let mut room = self
            .config
            .workspace_bytes_max
            .saturating_sub(self.store.read(|rows| rows.file_bytes(workspace))?);
        let mut kept = Vec::with_capacity(left.len());
        for Left { out, bytes } in left {
            if out.size > room {
                execution.warnings.push(no_room(&out.name, self.config.workspace_bytes_max));
                continue;
            }
            room -= out.size;
            let file = self.row(&out, execution, whose);
            self.store.keep_blob(bytes.as_path().to_owned(), file.id).await?;
            let url =
                format!("/v1/assets/{}/{}", execution.id, utf8_percent_encode(&out.name, PATH));
            match execution.files_out.iter_mut().find(|known| known.name == out.name) {
                Some(known) => known.url = Some(url),
                None => execution.files_out.push(FileOut { url: Some(url), ..out }),
            }
            kept.push(file);
        }
        if let Some(directory) = directory {
            // Empty by now; the next start wipes what is left of it.
            let _ = fs::remove_dir(directory);
        }
        Ok(kept)
    }

    fn left_by(
        &self,
        execution: &Execution,
        copies: Vec<(String, PathBuf)>,
    ) -> Result<Vec<Left>, Refused> {
        let mut left = Vec::new();
        for (name, path) in copies {
            let bytes = Temporary::new(path);
            let named = execution.files_out.iter().find(|out| out.name == name);
            left.extend(named.map(|out| Left { out: out.clone(), bytes }));
        }
        let images: Vec<(Vec<u8>, &str, &str)> =
            execution.results.iter().filter_map(chart).collect();
        let mut number = 0;
        for (content, mime, extension) in images {
            let mut name = format!("plot_{number}.{extension}");
            while execution.files_out.iter().any(|out| out.name == name) {
                number += 1;
                name = format!("plot_{number}.{extension}");
            }
            number += 1;
            left.push(self.stage_chart(name, mime, &content)?);
        }
        Ok(left)
    }

    fn stage_chart(&self, name: String, mime: &str, content: &[u8]) -> Result<Left, Refused> {
        let bytes = Temporary::new(self.store.blobs().staging_path());
        fs::write(bytes.as_path(), content).map_err(|error| cannot_keep(&error))?;
        let out = FileOut {
            name,
            mime: mime.to_owned(),
            size: content.len() as u64,
            sha256: hex(&Sha256::digest(content)),
            kind: FileKind::Media,
            url: None,
        };
        Ok(Left { out, bytes })
    }

    fn row(&self, out: &FileOut, execution: &Execution, whose: &Whose) -> File {
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

    /// A file that an execution has left, for whoever may see the execution.
    pub async fn asset(
        &self,
        caller: &Caller,
        id: ExecutionId,
        name: &str,
    ) -> Result<(File, fs::File), Refused> {
        let workspace = caller.workspace;
        let missing = || not_found("file of that name in execution", id);
        let found = self.store.read(|rows| rows.file_of_execution(workspace, id, name))?;
        match found {
            Some(file) if self.may_see(caller, file.owner)? => {
                let bytes = self.store.blobs().open_file(file.id)?.ok_or_else(missing)?;
                Ok((file, bytes))
            }
            _ => Err(missing()),
        }
    }
}

/// A picture that was shown and not saved has no name of its own.
fn chart(result: &Rich) -> Option<(Vec<u8>, &'static str, &'static str)> {
    CHARTS.iter().find_map(|(mime, extension)| {
        let content = STANDARD.decode(result.data.get(*mime)?.as_str()?).ok()?;
        Some((content, *mime, *extension))
    })
}

fn no_room(name: &str, most: u64) -> Warning {
    let fault = over_quota(most).fault;
    Warning {
        code: Code::QuotaExceeded.to_string(),
        message: format!("{name} was not kept: {}", fault.message),
    }
}
