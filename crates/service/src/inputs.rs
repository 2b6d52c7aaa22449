//! Files that a request brings along: from a document, from a URL, or in the request itself.

use crate::caller::Caller;
use crate::documents::{NewDocument, document_name};
use crate::refused::{Refused, about, invalid};
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

/// One that can be had, as far as the request alone can tell.
#[derive(Debug)]
pub(crate) enum Input {
    Document { id: FileId, name: Option<String> },
    Url { url: String, name: Option<String> },
    Bytes { bytes: Vec<u8>, name: String },
}

impl Service {
    /// Everything is there before anything runs; what cannot be had is named by its place.
    pub(crate) async fn bring_in(
        &self,
        caller: &Caller,
        inputs: Vec<FileInput>,
    ) -> Result<Vec<FileIn>, Refused> {
        let mut files = Vec::with_capacity(inputs.len());
        for input in checked(inputs)? {
            files.push(self.bring_one(caller, input).await?);
        }
        distinct_names(files.iter_mut().map(|file| &mut file.name));
        Ok(files)
    }

    async fn bring_one(&self, caller: &Caller, input: Input) -> Result<FileIn, Refused> {
        match input {
            Input::Document { id, name } => {
                let (document, bytes) = self.open_document(caller, id)?;
                let name = name.unwrap_or(document.name);
                Ok(FileIn { name, content: Content::File(Arc::new(bytes)) })
            }
            Input::Url { url, name } => {
                let (fetched, staged) = self.fetch(&url).await?;
                let name = name.unwrap_or(fetched.name);
                Ok(FileIn { name, content: Content::File(Arc::new(staged.open()?)) })
            }
            Input::Bytes { bytes, name } => Ok(FileIn { name, content: Content::Bytes(bytes) }),
        }
    }

    /// The same as a document, which stays when the request is answered, and what it is called in
    /// the working directory.
    pub(crate) async fn as_document(
        self: &Arc<Self>,
        caller: &Caller,
        input: Input,
    ) -> Result<(String, File), Refused> {
        let (name, staged, source, url) = match input {
            Input::Document { id, name } => {
                let document = self.document(caller, id)?;
                return Ok((name.unwrap_or_else(|| document.name.clone()), document));
            }
            Input::Url { url, name } => {
                let (fetched, staged) = self.fetch(&url).await?;
                (name.unwrap_or(fetched.name), staged, FileSource::Url, Some(url))
            }
            Input::Bytes { bytes, name } => {
                let mut staging = self.stage().await?;
                staging.write(&bytes).await?;
                (name, staging.finish().await?, FileSource::Upload, None)
            }
        };
        let new = NewDocument { name: document_name(&name)?, staged, source, url };
        let kept = self.keep_documents(caller, vec![new]).await?.pop();
        Ok((name, kept.ok_or_else(|| invalid("/files", "were not kept"))?))
    }
}

/// The same is refused whether a call begins at once or a person is asked first.
pub(crate) fn checked(inputs: Vec<FileInput>) -> Result<Vec<Input>, Refused> {
    if inputs.len() > FILES_MAX {
        return Err(invalid("/files", format!("has at most {FILES_MAX} files")));
    }
    let place = |index| format!("/files/{index}");
    inputs.into_iter().enumerate().map(|(index, input)| input.checked(&place(index))).collect()
}

impl FileInput {
    fn checked(self, path: &str) -> Result<Input, Refused> {
        let Self { name, document_id, url, text, base64 } = self;
        if let Some(name) = &name {
            engine::check_file_name(name).map_err(|fault| about(&format!("{path}/name"), fault))?;
        }
        let named = |name: Option<String>| {
            name.ok_or_else(|| {
                invalid(&format!("{path}/name"), "is needed: text and base64 bring no name")
            })
        };
        match (document_id, url, text, base64) {
            (Some(id), None, None, None) => Ok(Input::Document { id, name }),
            (None, Some(url), None, None) => Ok(Input::Url { url, name }),
            (None, None, Some(text), None) => {
                Ok(Input::Bytes { bytes: text.into_bytes(), name: named(name)? })
            }
            (None, None, None, Some(text)) => {
                let bytes = STANDARD.decode(text).map_err(|error| {
                    invalid(&format!("{path}/base64"), format!("is not base64: {error}"))
                })?;
                Ok(Input::Bytes { bytes, name: named(name)? })
            }
            _ => Err(invalid(path, "has exactly one of document_id, url, text and base64")),
        }
    }
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

pub(crate) fn numbered(name: &str, number: usize) -> String {
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
