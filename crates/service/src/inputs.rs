//! Files that a request brings along: from a document, from a URL, or in the request itself.

use crate::caller::Caller;
use crate::documents::NewDocument;
use crate::refused::{Refused, invalid};
use crate::service::Service;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine::{Content, FileIn};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use types::{File, FileId, FileSource};
use utoipa::ToSchema;

/// More are brought in an archive.
const FILES_MAX: usize = 100;

/// A file for the working directory: exactly one of `document_id`, `url`, `text` and `base64`.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FileInput {
    /// What it is called there; a document and a URL have a name of their own.
    pub name: Option<String>,
    /// A document that was uploaded before.
    pub document_id: Option<FileId>,
    /// Fetched by the server.
    pub url: Option<String>,
    pub text: Option<String>,
    pub base64: Option<String>,
}

impl Service {
    /// Everything is there before anything runs; what cannot be had is named by its place.
    pub(crate) async fn bring_in(
        &self,
        caller: &Caller,
        inputs: Vec<FileInput>,
    ) -> Result<Vec<FileIn>, Refused> {
        check_count(&inputs)?;
        let mut files = Vec::with_capacity(inputs.len());
        for (index, input) in inputs.into_iter().enumerate() {
            let path = format!("/files/{index}");
            files.push(self.bring_one(caller, input, &path).await?);
        }
        distinct_names(files.iter_mut().map(|file| &mut file.name));
        Ok(files)
    }

    /// The same as a document, which stays when the request is answered.
    pub(crate) async fn as_document(
        self: &Arc<Self>,
        caller: &Caller,
        input: FileInput,
        path: &str,
    ) -> Result<File, Refused> {
        let new = match (input.document_id, input.url.clone()) {
            (Some(id), None) => return self.document(caller, id),
            (None, Some(url)) => {
                let (fetched, staged) = self.fetch(&url).await?;
                let name = input.name.unwrap_or(fetched.name);
                NewDocument { name, staged, source: FileSource::Url, url: Some(url) }
            }
            _ => {
                let FileIn { name, content } = self.bring_one(caller, input, path).await?;
                let mut staging = self.stage().await?;
                if let Content::Bytes(bytes) = &content {
                    staging.write(bytes).await?;
                }
                let staged = staging.finish().await?;
                NewDocument { name, staged, source: FileSource::Upload, url: None }
            }
        };
        let kept = self.keep_documents(caller, vec![new]).await?.pop();
        kept.ok_or_else(|| invalid(path, "was not kept"))
    }

    async fn bring_one(
        &self,
        caller: &Caller,
        input: FileInput,
        path: &str,
    ) -> Result<FileIn, Refused> {
        let named = |name: Option<String>| {
            name.ok_or_else(|| invalid(&format!("{path}/name"), "is needed for a file without one"))
        };
        match (input.document_id, input.url, input.text, input.base64) {
            (Some(id), None, None, None) => {
                let (document, bytes) = self.open_document(caller, id)?;
                let name = input.name.unwrap_or(document.name);
                Ok(FileIn { name, content: Content::File(Arc::new(bytes)) })
            }
            (None, Some(url), None, None) => {
                let (fetched, staged) = self.fetch(&url).await?;
                let name = input.name.unwrap_or(fetched.name);
                Ok(FileIn { name, content: Content::File(Arc::new(staged.open()?)) })
            }
            (None, None, Some(text), None) => {
                Ok(FileIn { name: named(input.name)?, content: Content::Bytes(text.into_bytes()) })
            }
            (None, None, None, Some(text)) => {
                let bytes = STANDARD
                    .decode(text)
                    .map_err(|error| invalid(&format!("{path}/base64"), error.to_string()))?;
                Ok(FileIn { name: named(input.name)?, content: Content::Bytes(bytes) })
            }
            _ => Err(invalid(path, "has exactly one of document_id, url, text and base64")),
        }
    }
}

pub(crate) fn check_count(inputs: &[FileInput]) -> Result<(), Refused> {
    if inputs.len() > FILES_MAX {
        return Err(invalid("/files", format!("has at most {FILES_MAX} files")));
    }
    Ok(())
}

/// Two files of one name are two files: `a.csv` and `a-1.csv`.
pub(crate) fn distinct_names<'a>(names: impl Iterator<Item = &'a mut String>) {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for name in names {
        let given = name.clone();
        let mut number = 0;
        while !taken.insert(name.clone()) {
            number += 1;
            *name = numbered(&given, number);
        }
    }
}

fn numbered(name: &str, number: usize) -> String {
    let path = Path::new(name);
    match (path.file_stem().and_then(|stem| stem.to_str()), path.extension()) {
        (Some(stem), Some(extension)) => {
            let file = format!("{stem}-{number}.{}", extension.to_string_lossy());
            path.with_file_name(file).to_string_lossy().into_owned()
        }
        _ => format!("{name}-{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves U-014
    #[test]
    fn files_of_one_name_stay_two_files() {
        let mut names = ["a.csv", "a.csv", "a-1.csv", "d/a", "d/a"].map(str::to_owned);
        distinct_names(names.iter_mut());
        assert_eq!(names, ["a.csv", "a-1.csv", "a-1-1.csv", "d/a", "d/a-1"]);
    }
}
