//! `belljar skill add`: uploads a skill to a server.

use super::find;
use crate::cli::CliError;
use crate::cli::remote::{Remote, RemoteArgs};
use crate::cli::request_args::read_bounded;
use crate::cli::resource_names::ResourceKind;
use crate::client::ApiRequest;
use skill::{SkillFiles, UPLOAD_BYTES_MAX};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const ZIP: &str = "application/zip";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    /// Replace the files of the skill with this name
    #[arg(long)]
    replace: bool,

    /// Directory of the skill, or a ZIP archive of it
    #[arg(value_name = "DIR | FILE")]
    skill: PathBuf,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, CliError> {
    let files = read_files(&args.skill)?;
    let invalid =
        |reason: String| CliError::rejected(format!("{}: {reason}", args.skill.display()));
    let archive = files.to_archive();
    let name = files.into_skill().map_err(|error| invalid(error.to_string()))?.summary.name;
    args.remote.run(async |remote| {
        let call = match args.replace {
            true => ApiRequest::put(skill_path(remote, &name).await?),
            false => ApiRequest::post(ResourceKind::Skill.path()),
        };
        remote.show(call.bytes(ZIP, archive)).await
    })
}

pub(super) async fn skill_path(remote: &Remote, skill: &str) -> Result<String, CliError> {
    remote.client.resolve_path(ResourceKind::Skill, skill).await
}

/// Reads and checks the files, so that errors are found before anything is sent.
fn read_files(path: &Path) -> Result<SkillFiles, CliError> {
    let failed = |reason: String| CliError::rejected(format!("{}: {reason}", path.display()));
    let files = if path.is_dir() {
        let found = find::find_original(&directory_text(path))?;
        let files = found.contents()?.files.into_iter();
        let directory = path.canonicalize().map_err(|error| failed(error.to_string()))?;
        let directory = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let nested = files.map(|(name, content)| (format!("{directory}/{name}"), content));
        SkillFiles::from_files(nested.collect())
    } else {
        // More than its files and their names can have.
        let most = UPLOAD_BYTES_MAX * 2;
        let bytes = File::open(path).and_then(|file| read_bounded(file, most));
        SkillFiles::from_archive(&bytes.map_err(|error| failed(error.to_string()))?)
    };
    files.map_err(|error| failed(error.to_string()))
}

/// A path with a slash, which is never taken for the name of a built-in skill.
fn directory_text(path: &Path) -> String {
    let text = path.display().to_string();
    if text.contains('/') { text } else { format!("./{text}") }
}
