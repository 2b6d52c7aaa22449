//! Input files of a request: from a document, from a URL, or in the request itself.

use crate::data::documents::{NewDocument, document_name};
use crate::error::{RequestError, field_error, invalid_field};
use crate::identity::caller::Caller;
use crate::service::Service;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine::{FileContent, InputFile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use types::{File, FileId, FileSource};
use utoipa::ToSchema;

/// Clients send more files in an archive.
const FILES_MAX: usize = 100;

/// A file for the working directory: exactly one of `document_id`, `url`, `text` and `base64`.
#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FileInput {
    /// Name in the working directory; documents and URLs have one by default.
    pub name: Option<String>,
    /// A document that was uploaded before.
    pub document_id: Option<FileId>,
    /// Fetched by the server.
    pub url: Option<String>,
    pub text: Option<String>,
    pub base64: Option<String>,
}

/// A valid input, as far as the request alone shows.
#[derive(Debug)]
pub(crate) enum InputSource {
    Document { id: FileId, name: Option<String> },
    Url { url: String, name: Option<String> },
    Bytes { bytes: Vec<u8>, name: String },
}

impl Service {
    /// Loads all inputs before anything runs; an error names the path of the input.
    #[boxed::future]
    pub(crate) async fn load_inputs(
        &self,
        caller: &Caller,
        inputs: Vec<FileInput>,
    ) -> Result<Vec<InputFile>, RequestError> {
        let mut files = Vec::with_capacity(inputs.len());
        for input in parse_inputs(inputs)? {
            files.push(self.load_input(caller, input).await?);
        }
        make_names_unique(files.iter_mut().map(|file| &mut file.name));
        Ok(files)
    }

    async fn load_input(
        &self,
        caller: &Caller,
        input: InputSource,
    ) -> Result<InputFile, RequestError> {
        match input {
            InputSource::Document { id, name } => {
                let (document, bytes) = self.open_document(caller, id)?;
                let name = name.unwrap_or(document.name);
                Ok(InputFile { name, content: FileContent::File(Arc::new(bytes)) })
            }
            InputSource::Url { url, name } => {
                let (fetched, staged) = self.fetch_url(&url).await?;
                let name = name.unwrap_or(fetched.name);
                Ok(InputFile { name, content: FileContent::File(Arc::new(staged.open()?)) })
            }
            InputSource::Bytes { bytes, name } => {
                Ok(InputFile { name, content: FileContent::Bytes(bytes) })
            }
        }
    }

    /// Stores an input as a document, which outlives the request, and returns its name in the
    /// working directory.
    pub(crate) async fn persist_input(
        self: &Arc<Self>,
        caller: &Caller,
        input: InputSource,
    ) -> Result<(String, File), RequestError> {
        let (name, staged, source, url) = match input {
            InputSource::Document { id, name } => {
                let document = self.document(caller, id)?;
                return Ok((name.unwrap_or_else(|| document.name.clone()), document));
            }
            InputSource::Url { url, name } => {
                let (fetched, staged) = self.fetch_url(&url).await?;
                (name.unwrap_or(fetched.name), staged, FileSource::Url, Some(url))
            }
            InputSource::Bytes { bytes, name } => {
                let mut staging = self.stage().await?;
                staging.write(&bytes).await?;
                (name, staging.finish().await?, FileSource::Upload, None)
            }
        };
        let new = NewDocument { name: document_name(&name)?, staged, source, url };
        let stored = self.persist_documents(caller, vec![new]).await?.pop();
        Ok((name, stored.ok_or_else(|| invalid_field("/files", "were not stored"))?))
    }
}

/// Parses inputs, with the same checks whether a call starts at once or needs an approval first.
pub(crate) fn parse_inputs(inputs: Vec<FileInput>) -> Result<Vec<InputSource>, RequestError> {
    if inputs.len() > FILES_MAX {
        return Err(invalid_field("/files", format!("can have at most {FILES_MAX} files")));
    }
    let pointer = |index| format!("/files/{index}");
    inputs.into_iter().enumerate().map(|(index, input)| input.parse(&pointer(index))).collect()
}

impl FileInput {
    fn parse(self, path: &str) -> Result<InputSource, RequestError> {
        let Self { name, document_id, url, text, base64 } = self;
        if let Some(name) = &name {
            engine::check_file_name(name)
                .map_err(|error| field_error(&format!("{path}/name"), error))?;
        }
        let required_name = |name: Option<String>| {
            name.ok_or_else(|| {
                invalid_field(&format!("{path}/name"), "is required for text and base64")
            })
        };
        match (document_id, url, text, base64) {
            (Some(id), None, None, None) => Ok(InputSource::Document { id, name }),
            (None, Some(url), None, None) => Ok(InputSource::Url { url, name }),
            (None, None, Some(text), None) => {
                Ok(InputSource::Bytes { bytes: text.into_bytes(), name: required_name(name)? })
            }
            (None, None, None, Some(text)) => {
                let bytes = STANDARD.decode(text).map_err(|error| {
                    invalid_field(
                        &format!("{path}/base64"),
                        format!("is not valid base64: {error}"),
                    )
                })?;
                Ok(InputSource::Bytes { bytes, name: required_name(name)? })
            }
            _ => Err(invalid_field(
                path,
                "requires exactly one of document_id, url, text and base64",
            )),
        }
    }
}

/// Renames inputs with equal names: `a.csv` and `a-1.csv`.
pub(crate) fn make_names_unique<'a>(names: impl Iterator<Item = &'a mut String>) {
    let mut used: BTreeSet<String> = BTreeSet::new();
    for name in names {
        let original = name.clone();
        let mut number = 0;
        while !used.insert(name.clone()) {
            number += 1;
            *name = numbered_name(&original, number);
        }
    }
}

pub(crate) fn numbered_name(name: &str, number: usize) -> String {
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
        make_names_unique(names.iter_mut());
        assert_eq!(names, ["a.csv", "a-1.csv", "a-1-1.csv", "d/a", "d/a-1"]);
    }
}
