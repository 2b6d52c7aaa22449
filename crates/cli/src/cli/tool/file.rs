//! Reads a tool from a file: Python with a `handle`, or the JSON of a tool.

use crate::cli::CliError;
use crate::cli::request_args::read_bounded;
use contract::{AnnotationMode, CodeTool, Diagnostic, PythonSource, SourceCheck};
use serde_json::{Map, Value};
use std::fs::File;
use std::path::{Component, Path, PathBuf};

/// The size of a source of 1 MiB as JSON, if every character is escaped, with its schemas.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A tool that was read, and the name of its source.
#[derive(Debug)]
pub(super) struct ToolFile {
    /// Path as passed by the caller.
    pub(super) path: PathBuf,
    pub(super) check: SourceCheck<CodeTool>,
    /// Name of the Python source, which may be in another file than the tool.
    pub(super) source_name: String,
}

impl ToolFile {
    pub(super) fn read(path: &Path, annotations: AnnotationMode) -> Result<Self, CliError> {
        let bytes = read_file(path)?;
        let is = |extension: &str| path.extension().is_some_and(|it| it == extension);
        let (source_name, mut checked) = if is("py") {
            (file_name(path)?, read_python(path, &bytes, annotations)?)
        } else if is("json") {
            read_json(path, bytes, annotations)?
        } else {
            let message = "the file name must end in .py or .json";
            return Err(CliError::usage(format!("{}: {message}", path.display())));
        };
        if let Ok(tool) = &mut checked.result {
            tool.file.clone_from(&source_name);
        }
        Ok(Self { path: path.to_owned(), check: checked, source_name })
    }
}

/// A tool as the server expects it; the server validates it.
#[derive(Debug)]
pub(super) enum ToolUpload {
    Python { name: String, source: Vec<u8> },
    Json(Map<String, Value>),
}

impl ToolUpload {
    pub(super) fn read(path: &Path) -> Result<Self, CliError> {
        if path.extension().is_some_and(|extension| extension == "py") {
            let name = file_name(path)?.trim_end_matches(".py").to_owned();
            return Ok(Self::Python { name, source: read_file(path)? });
        }
        let failed = |reason: &str| CliError::usage(format!("{}: {reason}", path.display()));
        let text = String::from_utf8(read_file(path)?).map_err(|_| failed("not UTF-8 text"))?;
        let tool = match code_file(&text) {
            None => serde_json::from_str(&text).map_err(|error| failed(&error.to_string()))?,
            Some((mut tool, name)) => {
                let source = read_file(&sibling_path(path, &name)?)?;
                let source =
                    String::from_utf8(source).map_err(|_| failed("the code is not UTF-8 text"))?;
                if let Some(code) = tool.pointer_mut("/configuration/code") {
                    *code = source.into();
                }
                tool
            }
        };
        match tool {
            Value::Object(tool) => Ok(Self::Json(tool)),
            _ => Err(failed("must be a JSON object")),
        }
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, CliError> {
    let bytes = File::open(path).and_then(|file| read_bounded(file, FILE_BYTES_MAX));
    bytes.map_err(|error| CliError::usage(format!("{}: {error}", path.display())))
}

fn file_name(path: &Path) -> Result<String, CliError> {
    let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    name.ok_or_else(|| {
        CliError::usage(format!("{}: the file name is not UTF-8 text", path.display()))
    })
}

fn read_python(
    path: &Path,
    bytes: &[u8],
    annotations: AnnotationMode,
) -> Result<SourceCheck<CodeTool>, CliError> {
    let name = file_name(path)?;
    let name = name.strip_suffix(".py").unwrap_or(&name);
    Ok(match PythonSource::from_bytes(bytes) {
        Ok(source) => CodeTool::from_python(name, source, annotations),
        Err(problem) => invalid_tool(problem),
    })
}

fn read_json(
    path: &Path,
    bytes: Vec<u8>,
    annotations: AnnotationMode,
) -> Result<(String, SourceCheck<CodeTool>), CliError> {
    let text = String::from_utf8(bytes)
        .map_err(|_| CliError::usage(format!("{}: not UTF-8 text", path.display())))?;
    match code_file(&text) {
        None => Ok((file_name(path)?, CodeTool::from_json(&text, annotations))),
        Some((mut tool, name)) => {
            let path = sibling_path(path, &name)?;
            let checked = match PythonSource::from_bytes(&read_file(&path)?) {
                Err(problem) => invalid_tool(problem),
                Ok(source) => {
                    if let Some(code) = tool.pointer_mut("/configuration/code") {
                        *code = source.as_str().into();
                    }
                    CodeTool::from_json(&tool.to_string(), annotations)
                }
            };
            Ok((file_name(&path)?, checked))
        }
    }
}

/// `"code": "@probe.py"` refers to a file beside the JSON, because Python in a JSON string is hard
/// to edit. No valid source starts like that, since a decorator needs a definition.
fn code_file(text: &str) -> Option<(Value, String)> {
    let tool: Value = serde_json::from_str(text).ok()?;
    let name = tool.pointer("/configuration/code")?.as_str()?.strip_prefix('@')?;
    let name = name.ends_with(".py").then(|| name.to_owned()).filter(|it| !it.contains('\n'))?;
    Some((tool, name))
}

/// Rejects paths outside the directory of the tool: a tool from another author must not choose
/// which files are read.
fn sibling_path(tool: &Path, name: &str) -> Result<PathBuf, CliError> {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if !Path::new(name).components().all(plain) {
        let message = format!("'@{name}' must be a file in the same directory or below");
        return Err(CliError::usage(format!("{}: {message}", tool.display())));
    }
    Ok(tool.parent().unwrap_or(Path::new("")).join(name))
}

fn invalid_tool(problem: Diagnostic) -> SourceCheck<CodeTool> {
    SourceCheck { result: Err(vec![problem]), warnings: Vec::new() }
}
