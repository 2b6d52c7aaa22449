//! Input files of a request: from a document, from a URL, or in the request itself.

use crate::data::documents::{NewDocument, document_name};
use crate::data::staging::file_write_error;
use crate::error::{RequestError, field_error, invalid_field};
use crate::identity::caller::Caller;
use crate::service::Service;
use crate::tasks::run_blocking;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine::{FileContent, InputFile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::sync::Arc;
use types::{Error, ErrorCode, File, FileId, FileSource, Warning};
use utoipa::ToSchema;

/// Clients send more files in an archive.
const FILES_MAX: usize = 100;
/// Part of a file in which a PDF begins: more white space than any program writes.
const PDF_SEARCHED_BYTES: u64 = 1024;
/// The code of the warning about an input file with another name than it was given.
const FILE_RENAMED: &str = "file.renamed";

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
    /// Refuses a PDF, which `execute_python` does not support.
    #[serde(skip)]
    #[schema(ignore)]
    pub refuse_pdf: bool,
}

/// A valid input, as far as the request alone shows.
#[derive(Debug)]
pub(crate) enum InputSource {
    Document { id: FileId, name: Option<String> },
    Url { url: String, name: Option<String>, refuse_pdf: bool },
    Bytes { bytes: Vec<u8>, name: String },
}

impl Service {
    /// Loads all inputs before anything runs; an error names the path of the input.
    #[boxed::future]
    pub(crate) async fn load_inputs(
        &self,
        caller: &Caller,
        inputs: Vec<FileInput>,
    ) -> Result<(Vec<InputFile>, Vec<Warning>), RequestError> {
        let mut files = Vec::with_capacity(inputs.len());
        for input in parse_inputs(inputs)? {
            files.push(self.load_input(caller, input).await?);
        }
        let warnings = make_names_unique(files.iter_mut().map(|file| &mut file.name));
        Ok((files, warnings))
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
            InputSource::Url { url, name, refuse_pdf } => {
                let (own_name, file) = match self.own_file(&url)? {
                    Some(own) => {
                        let (file, bytes) = self.open_file(caller, &own).await?;
                        (last_segment(&file.name).to_owned(), bytes)
                    }
                    None => {
                        let (fetched, staged) = self.fetch_url(&url).await?;
                        (fetched.name, staged.open()?)
                    }
                };
                let file = if refuse_pdf { check_no_pdf(&url, file).await? } else { file };
                let name = name.unwrap_or(own_name);
                Ok(InputFile { name, content: FileContent::File(Arc::new(file)) })
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
            InputSource::Url { url, name, refuse_pdf } => {
                let (own_name, staged) = self.fetch_or_copy(caller, &url).await?;
                if refuse_pdf {
                    check_no_pdf(&url, staged.open()?).await?;
                }
                (name.unwrap_or(own_name), staged, FileSource::Url, Some(url))
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
        let Self { name, document_id, url, text, base64, refuse_pdf } = self;
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
            (None, Some(url), None, None) => Ok(InputSource::Url { url, name, refuse_pdf }),
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

/// Renames inputs with equal names, such as to `a.csv` and `a-1.csv`, and returns a warning for each
/// that has another name than it was given.
pub(crate) fn make_names_unique<'a>(names: impl Iterator<Item = &'a mut String>) -> Vec<Warning> {
    let (mut used, mut warnings) = (BTreeSet::new(), Vec::new());
    for (index, name) in names.enumerate() {
        let original = name.clone();
        let mut number = 0;
        while !used.insert(name.clone()) {
            number += 1;
            *name = numbered_name(&original, number);
        }
        if *name != original {
            let message = format!(
                "files[{index}] is in the working directory as {name:?}, because another file has \
                 the name {original:?}"
            );
            warnings.push(Warning { code: FILE_RENAMED.to_owned(), message });
        }
    }
    warnings
}

/// The name of a file without its directories.
pub(crate) fn last_segment(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Refuses a PDF by its content: a URL can have any ending. Returns the file from its beginning.
async fn check_no_pdf(url: &str, mut file: fs::File) -> Result<fs::File, RequestError> {
    let read = run_blocking(move || {
        let mut begin = Vec::new();
        (&mut file).take(PDF_SEARCHED_BYTES).read_to_end(&mut begin)?;
        file.rewind()?;
        Ok((file, begin))
    });
    let (file, begin) = read.await?.map_err(|error: io::Error| file_write_error(&error))?;
    if !is_pdf(&begin) {
        return Ok(file);
    }
    let message = format!("{url} is a PDF: PDF is not supported; CSV and Excel files are");
    Err(Error::new(ErrorCode::FileUnsupported, message)
        .hint("convert the file to CSV or Excel, or pass its text")
        .into())
}

/// Whether a file begins as a PDF does, after white space or a byte order mark.
fn is_pdf(begin: &[u8]) -> bool {
    let begin = begin.strip_prefix(b"\xef\xbb\xbf").unwrap_or(begin);
    begin.trim_ascii_start().starts_with(b"%PDF-")
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
        let warnings = make_names_unique(names.iter_mut());
        assert_eq!(names, ["a.csv", "a-1.csv", "a-1-1.csv", "d/a", "d/a-1"]);
        let messages: Vec<_> = warnings.iter().map(|warning| warning.message.as_str()).collect();
        assert_eq!(messages.len(), 3, "{messages:?}");
        let second = r#"files[1] is in the working directory as "a-1.csv", because another file has the name "a.csv""#;
        assert_eq!(messages[0], second);
    }

    #[test]
    fn a_pdf_is_known_by_its_beginning() {
        for pdf in ["%PDF-1.7\n", "\u{feff}%PDF-1.4", "\r\n %PDF-2.0"] {
            assert!(is_pdf(pdf.as_bytes()), "{pdf:?}");
        }
        for other in ["", "%PDF", "name,kind\na,%PDF-1.7", "PK\u{3}\u{4}", "%!PS-Adobe"] {
            assert!(!is_pdf(other.as_bytes()), "{other:?}");
        }
    }
}
