//! Options of all commands that run code: files, time and memory.

use super::CliError;
use base64::prelude::{BASE64_STANDARD, Engine};
use engine::InputFile;
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use types::{Error, ErrorCode, LimitsRequest, OperatorCaps};

#[derive(Debug, Clone, clap::Args)]
pub(super) struct RequestArgs {
    /// File to copy into the working directory; repeatable
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,

    /// Wall-clock time limit in seconds [default: 30, or that of the tool]
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = parse_seconds)]
    timeout: Option<u64>,

    /// Memory limit in MiB [default: 512]
    #[arg(long, value_name = "MIB", allow_negative_numbers = true, value_parser = parse_mib)]
    memory: Option<u64>,
}

impl RequestArgs {
    pub(super) fn files(&self) -> Result<Vec<InputFile>, CliError> {
        self.files.iter().map(|path| read_input(path)).collect()
    }

    /// The files in the form of the API.
    pub(super) fn file_inputs_json(&self) -> Result<Vec<Value>, CliError> {
        let encoded = |InputFile { name, content }: InputFile| {
            let mut bytes = Vec::new();
            let read = content.into_reader().read_to_end(&mut bytes);
            read.map_err(|error| CliError::usage(format!("--file {name}: {error}")))?;
            Ok(json!({"name": name, "base64": BASE64_STANDARD.encode(bytes)}))
        };
        self.files()?.into_iter().map(encoded).collect()
    }

    /// Returns the limits. Invalid limits are rejected before a sandbox is started.
    pub(super) fn limits(&self) -> Result<LimitsRequest, CliError> {
        let limits = LimitsRequest {
            wall_ms: self.timeout,
            memory_bytes: self.memory,
            ..LimitsRequest::default()
        };
        limits
            .resolve(&OperatorCaps(OperatorCaps::HIGHEST))
            .map_err(|error| Error::new(ErrorCode::ArgsInvalid, error.to_string()))?;
        Ok(limits)
    }
}

/// Reads at most `max` bytes and rejects larger input without reading it: a device may be endless.
pub(super) fn read_bounded(from: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        let message = format!("larger than the maximum of {max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Keeps milliseconds within 64 bits; the limits of the engine and of a server are far below it.
const SECONDS_MAX: u64 = 1_000_000_000_000;

fn parse_seconds(text: &str) -> Result<u64, String> {
    let invalid = || format!("must be a number of seconds from 0.001 to {SECONDS_MAX}");
    let seconds: f64 = text.parse().map_err(|_| invalid())?;
    let millis = (seconds * 1000.0).round();
    if (1.0..=SECONDS_MAX as f64 * 1000.0).contains(&millis) {
        Ok(millis as u64)
    } else {
        Err(invalid())
    }
}

fn parse_mib(text: &str) -> Result<u64, String> {
    const MIB: u64 = 1024 * 1024;
    let invalid = || format!("must be a whole number of MiB from 1 to {}", u64::MAX / MIB);
    let mib: u64 = text.parse().map_err(|_| invalid())?;
    mib.checked_mul(MIB).filter(|bytes| *bytes > 0).ok_or_else(invalid)
}

pub(super) fn read_input(path: &Path) -> Result<InputFile, CliError> {
    let failed = |reason: &str| CliError::usage(format!("--file {}: {reason}", path.display()));
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| failed("the file name is not UTF-8 text"))?.to_owned();
    let content = fs::read(path).map_err(|error| failed(&error.to_string()))?;
    Ok(InputFile { name, content: content.into() })
}
