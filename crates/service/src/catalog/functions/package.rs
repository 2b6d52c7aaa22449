//! The source of a function: a directory of files, read and checked before anything is stored.

use crate::catalog::tool_definition::{details, invalid_tool};
use crate::data::staging::hex;
use crate::error::{ErrorDetail, RequestError, field_error, invalid_field};
use crate::names;
use crate::serde_helpers::objects;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::{HANDLER, PythonSource};
use engine::{
    BuildRequest, FileContent, InputFile, Name, PythonChoice, SourceKind, UnlockedDefinition,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use types::FunctionFile;
use utoipa::ToSchema;

/// More files belong into a package in requirements.txt.
const FILES_MAX: usize = 200;
/// Limit for all files together: they are one JSON request, and written to every sandbox.
const BYTES_MAX: usize = 4 * 1024 * 1024;
const DESCRIPTION_CHARS_MAX: usize = 1_000;
const REQUIREMENTS: &str = "requirements.txt";
const SETTINGS: &str = "function.toml";
/// 96 bits of the digest of requirements and Python version, so that equal ones share an
/// environment.
const ENVIRONMENT_HEX: usize = 24;
/// The prefix of the names of environments of functions.
pub(crate) const ENVIRONMENT_PREFIX: &str = "fn-";

/// The deployment of a function: a directory with `handler.py`, which has a function `handle`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionRequest {
    /// The name; overrides `function.toml`.
    pub name: Option<String>,
    /// `handler.py`, further modules and data, and optionally `requirements.txt` and `function.toml`.
    #[serde(deserialize_with = "objects")]
    pub files: Vec<FunctionSource>,
}

/// A file of a function: exactly one of `text` and `base64`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FunctionSource {
    /// Relative to the directory.
    #[schema(required)]
    pub name: String,
    pub text: Option<String>,
    pub base64: Option<String>,
}

impl FunctionRequest {
    /// The name in the request or in `function.toml`, before the source is checked.
    pub(super) fn declared_name(&self) -> Option<String> {
        self.name.clone().or_else(|| {
            let settings = self.files.iter().find(|file| file.name == SETTINGS)?;
            let settings: FunctionSettings = toml::from_str(settings.text.as_deref()?).ok()?;
            Some(settings.name)
        })
    }
}

/// The parsed source of a deployment.
#[derive(Debug)]
pub(super) struct FunctionPackage {
    pub(super) settings: FunctionSettings,
    pub(super) files: FunctionFiles,
    /// The request for an environment of its own, if it needs one.
    pub(super) build_request: Option<BuildRequest>,
}

/// The content of `function.toml`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FunctionSettings {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) python: Option<String>,
    pub(super) memory_mb: Option<u64>,
    pub(super) timeout_seconds: Option<u64>,
    pub(super) integrations: Vec<String>,
}

/// The files of a function, as they are stored and written to a working directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FunctionFiles(BTreeMap<String, Vec<u8>>);

/// The files as they are stored: base64 by name.
#[derive(Debug, Serialize, Deserialize)]
struct EncodedFiles(BTreeMap<String, String>);

impl FunctionPackage {
    pub(super) fn read(request: FunctionRequest) -> Result<Self, RequestError> {
        let files = FunctionFiles::validate(request.files)?;
        files.handler()?;
        let mut settings = files.settings()?;
        if let Some(name) = request.name {
            settings.name = name;
        }
        if settings.name.is_empty() {
            return Err(invalid_field(
                "/name",
                "is required: pass it here, or set it in function.toml",
            ));
        }
        names::check_name("/name", &settings.name)?;
        if settings.description.chars().count() > DESCRIPTION_CHARS_MAX {
            let message =
                format!("description can have at most {DESCRIPTION_CHARS_MAX} characters");
            return Err(invalid_field(&file_pointer(SETTINGS), message));
        }
        let build_request = files.build_request(&settings)?;
        Ok(Self { settings, files, build_request })
    }

    /// The name of the environment of its own, if it needs one.
    pub(super) fn environment(&self) -> Option<&str> {
        self.build_request.as_ref().map(|build_request| build_request.draft.name().as_str())
    }
}

impl FunctionFiles {
    fn validate(sources: Vec<FunctionSource>) -> Result<Self, RequestError> {
        if sources.len() > FILES_MAX {
            return Err(invalid_field("/files", format!("can have at most {FILES_MAX} files")));
        }
        let mut files = BTreeMap::new();
        for (index, source) in sources.into_iter().enumerate() {
            let path = format!("/files/{index}");
            let name = source.name.clone();
            engine::check_file_name(&name)
                .map_err(|error| field_error(&format!("{path}/name"), error))?;
            if files.insert(name, source.bytes(&path)?).is_some() {
                return Err(invalid_field(&format!("{path}/name"), "is listed twice"));
            }
        }
        let inside = |name: &String| {
            let directory = format!("{name}/");
            files
                .range(directory.clone()..)
                .next()
                .is_some_and(|(next, _)| next.starts_with(&directory))
        };
        if let Some(name) = files.keys().find(|name| inside(name)) {
            return Err(invalid_field("/files", format!("{name} is both a file and a directory")));
        }
        if files.values().map(Vec::len).sum::<usize>() > BYTES_MAX {
            return Err(invalid_field("/files", format!("exceed {BYTES_MAX} bytes in total")));
        }
        Ok(Self(files))
    }

    /// The contract of its `handle`, or all errors.
    pub(crate) fn handler(&self) -> Result<contract::FunctionContract, RequestError> {
        let Some(source) = self.0.get(HANDLER) else {
            return Err(invalid_field(
                "/files",
                format!("{HANDLER} with a function `handle` is required"),
            ));
        };
        let checked = PythonSource::from_bytes(source).map_err(|problem| vec![problem]);
        let function = checked.and_then(|it| contract::FunctionContract::from_python(it).result);
        function.map_err(|problems| invalid_tool(details(problems, &file_pointer(HANDLER))))
    }

    fn text(&self, name: &str) -> Result<&str, RequestError> {
        let bytes = self.0.get(name).map_or(&[][..], Vec::as_slice);
        std::str::from_utf8(bytes)
            .map_err(|_| invalid_field(&file_pointer(name), "is not valid UTF-8"))
    }

    fn settings(&self) -> Result<FunctionSettings, RequestError> {
        let text = self.text(SETTINGS)?;
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
            let message = error.message().to_owned();
            let error = invalid_field(&file_pointer(SETTINGS), format!("line {line}: {message}"));
            let at =
                ErrorDetail { line: Some(line), column: Some(column), ..ErrorDetail::default() };
            let detail = ErrorDetail { path: Some(file_pointer(SETTINGS)), message, ..at };
            RequestError { details: vec![detail], ..error }
        })
    }

    /// The environment of its own. It needs one for packages or for another version of Python.
    fn build_request(
        &self,
        settings: &FunctionSettings,
    ) -> Result<Option<BuildRequest>, RequestError> {
        let requirements = self.text(REQUIREMENTS)?;
        let has_content = |line: &str| !line.trim().is_empty() && !line.trim().starts_with('#');
        if !requirements.lines().any(has_content) && settings.python.is_none() {
            return Ok(None);
        }
        let content = json!([requirements, settings.python]).to_string();
        let digest = hex(&Sha256::digest(content.as_bytes()));
        let digest = digest.get(..ENVIRONMENT_HEX).unwrap_or(&digest);
        let name = Name::try_from(format!("{ENVIRONMENT_PREFIX}{digest}"));
        let name = name.map_err(|error| invalid_field("/name", error))?;
        let draft = UnlockedDefinition::parse(SourceKind::Requirements, requirements, Some(&name));
        let draft =
            draft.map_err(|error| invalid_field(&file_pointer(REQUIREMENTS), error.to_string()))?;
        let version = |text: &String| match text.parse() {
            Ok(version) => Ok(PythonChoice::Version(version)),
            Err(_) => Err(invalid_field(
                &file_pointer(SETTINGS),
                "python must be a version such as \"3.12\"",
            )),
        };
        let python = settings.python.as_ref().map(version).transpose()?;
        Ok(Some(BuildRequest { draft, lock: None, python }))
    }

    pub(super) fn list(&self) -> Vec<FunctionFile> {
        let files = self.0.iter();
        files
            .map(|(name, bytes)| FunctionFile { name: name.clone(), size: bytes.len() as u64 })
            .collect()
    }

    /// The digest of names and contents, with lengths, so that different directories have different
    /// digests.
    pub(super) fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for (name, bytes) in &self.0 {
            for part in [name.as_bytes(), bytes] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        hex(&hash.finalize())
    }

    pub(crate) fn to_inputs(&self) -> Vec<InputFile> {
        let files = self.0.iter();
        files
            .map(|(name, bytes)| InputFile {
                name: name.clone(),
                content: FileContent::Bytes(bytes.clone()),
            })
            .collect()
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let files = self.0.iter().map(|(name, bytes)| (name.clone(), STANDARD.encode(bytes)));
        serde_json::to_vec(&EncodedFiles(files.collect())).unwrap_or_default()
    }

    /// Decodes stored files; `None` if they are invalid.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let EncodedFiles(files) = serde_json::from_slice(bytes).ok()?;
        let decoded =
            files.into_iter().map(|(name, text)| Some((name, STANDARD.decode(text).ok()?)));
        decoded.collect::<Option<_>>().map(Self)
    }
}

impl FunctionSource {
    fn bytes(self, path: &str) -> Result<Vec<u8>, RequestError> {
        match (self.text, self.base64) {
            (Some(text), None) => Ok(text.into_bytes()),
            (None, Some(text)) => STANDARD.decode(text).map_err(|error| {
                invalid_field(&format!("{path}/base64"), format!("is not valid base64: {error}"))
            }),
            _ => Err(invalid_field(path, "requires exactly one of text and base64")),
        }
    }
}

fn file_pointer(file: &str) -> String {
    format!("/files/{file}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<FunctionPackage, RequestError> {
        let source = |(name, text): &(&str, &str)| FunctionSource {
            name: (*name).to_owned(),
            text: Some((*text).to_owned()),
            base64: None,
        };
        let files = files.iter().map(source).collect();
        FunctionPackage::read(FunctionRequest { name: Some("f".to_owned()), files })
    }

    const HANDLE: (&str, &str) = (HANDLER, "def handle(data): ...");

    fn refusal(files: &[(&str, &str)]) -> String {
        read(files).unwrap_err().error.message
    }

    #[test]
    fn a_folder_is_read_whole_or_refused_by_its_place() {
        assert_eq!(refusal(&[]), "/files: handler.py with a function `handle` is required");
        let error = read(&[(HANDLER, "\ndef handel(data): ...")]).unwrap_err();
        assert_eq!(error.error.message, "Function 'handle' not found.");
        let detail = &error.details[0];
        assert_eq!((detail.line, detail.column), (Some(2), Some(5)));
        assert_eq!(detail.path.as_deref(), Some("/files/handler.py"));
        for name in ["../a", "/a", "a/../b", ""] {
            assert!(read(&[HANDLE, (name, "")]).is_err(), "{name}");
        }
        assert!(refusal(&[HANDLE, HANDLE]).contains("twice"));
        assert!(refusal(&[HANDLE, ("a", ""), ("a-", ""), ("a/b", "")]).contains("both"));
        assert!(read(&[HANDLE, ("a.py", ""), ("a/b", "")]).is_ok());
    }

    #[test]
    fn settings_that_nobody_knows_are_refused_with_their_line() {
        let settings = "description = \"x\"\ntimeout = 5\n";
        let error = read(&[HANDLE, (SETTINGS, settings)]).unwrap_err();
        assert!(error.error.message.contains("line 2: unknown field `timeout`"), "{error:?}");
        assert_eq!((error.details[0].line, error.details[0].column), (Some(2), Some(1)));
        let known = "name = \"g\"\nmemory_mb = 128\ntimeout_seconds = 5\npython = \"3.12\"";
        let package = read(&[HANDLE, (SETTINGS, known)]).unwrap();
        assert_eq!(package.settings.name, "f", "what is asked for goes before what is written");
        assert!(refusal(&[HANDLE, (SETTINGS, "python = \"/bin/sh\"")]).contains("3.12"));
    }

    #[test]
    fn functions_of_the_same_requirements_have_one_environment() {
        let environment =
            |files: &[(&str, &str)]| read(files).unwrap().environment().map(str::to_owned);
        let six = environment(&[HANDLE, (REQUIREMENTS, "six==1.16.0\n")]).unwrap();
        assert!(six.starts_with("fn-") && six.len() == 27, "{six}");
        let other = (HANDLER, "def handle(): ...");
        assert_eq!(environment(&[other, (REQUIREMENTS, "six==1.16.0\n")]), Some(six.clone()));
        assert_ne!(environment(&[HANDLE, (REQUIREMENTS, "six==1.17.0\n")]), Some(six));
        assert_eq!(environment(&[HANDLE, (REQUIREMENTS, "# nothing\n\n")]), None);
        assert!(environment(&[HANDLE, (SETTINGS, "python = \"3.12\"")]).is_some());
        assert!(refusal(&[HANDLE, (REQUIREMENTS, "six\n-r other")]).contains("line 2"));
    }

    #[test]
    fn files_come_back_as_they_were_and_have_a_hash_of_their_own() {
        let files =
            FunctionFiles([("a".to_owned(), vec![0, 255]), ("b".to_owned(), Vec::new())].into());
        assert_eq!(FunctionFiles::from_bytes(&files.to_bytes()), Some(files.clone()));
        let moved = FunctionFiles([("a".to_owned(), vec![0]), ("b".to_owned(), vec![255])].into());
        assert_ne!(files.sha256(), moved.sha256());
    }
}
