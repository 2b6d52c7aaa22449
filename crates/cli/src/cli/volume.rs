//! `belljar volume`: manages directories of a server that outlive sessions.

use super::CliError;
use super::display::Column;
use super::one_shot::print_bytes;
use super::remote::{ListArgs, Remote, RemoteArgs};
use super::resource_names::ResourceKind;
use crate::client::{ApiRequest, ClientError};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("name", "/name"),
    ("quota", "/quota_bytes"),
    ("comment", "/comment"),
    ("changed", "/updated_at"),
];
const FILE_COLUMNS: &[Column] = &[("name", "/name"), ("size", "/size")];
/// Characters that are percent-encoded in the path of a URL.
const PATH_ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create a volume
    ///
    /// Use it to keep files between sessions. Code sees a volume if the specification of its agent
    /// lists it.
    #[command(after_help = "Examples:\n  \
        belljar volume new notes --quota 10000000")]
    New {
        /// Name of the volume
        #[arg(value_name = "NAME")]
        name: String,

        /// Maximum total size of the files [default: 256 MiB]
        #[arg(long, value_name = "BYTES")]
        quota: Option<u64>,

        /// Comment for people
        #[arg(long, value_name = "TEXT")]
        comment: Option<String>,
    },
    /// List volumes
    ///
    /// Use it to see which volumes exist, with their quotas.
    #[command(after_help = "Examples:\n  \
        belljar volume ls")]
    Ls(ListArgs),
    /// Show a volume and its files
    ///
    /// Use it to check the quota, the owner and the contents of a volume.
    #[command(after_help = "Examples:\n  \
        belljar volume show notes")]
    Show(VolumeArgs),
    /// List the files of a volume
    ///
    /// Use it to find the path of a file for `get` and `rm`.
    #[command(after_help = "Examples:\n  \
        belljar volume files notes")]
    Files(VolumeArgs),
    /// Upload a file to a volume
    ///
    /// Use it to give code a file. It replaces a file of the same path.
    #[command(after_help = "Examples:\n  \
        belljar volume put notes prices.csv\n  \
        belljar volume put notes prices.csv reference/prices.csv")]
    Put {
        /// Name or id of the volume
        #[arg(value_name = "NAME | ID")]
        volume: String,

        /// Local file to upload
        #[arg(value_name = "FILE")]
        file: PathBuf,

        /// Path in the volume [default: the file name]
        #[arg(value_name = "PATH")]
        path: Option<String>,
    },
    /// Write a file of a volume to standard output
    ///
    /// Use it to download a file that code wrote.
    #[command(after_help = "Examples:\n  \
        belljar volume get notes reference/prices.csv > prices.csv")]
    Get {
        /// Name or id of the volume
        #[arg(value_name = "NAME | ID")]
        volume: String,

        /// Path of the file in the volume
        #[arg(value_name = "PATH")]
        path: String,
    },
    /// Change the quota of a volume
    ///
    /// Use it when a volume is full.
    #[command(after_help = "Examples:\n  \
        belljar volume quota notes 20000000")]
    Quota {
        /// Name or id of the volume
        #[arg(value_name = "NAME | ID")]
        volume: String,

        /// Maximum total size of the files
        #[arg(value_name = "BYTES")]
        quota: u64,
    },
    /// Delete a file of a volume, or the whole volume
    ///
    /// Use it with a path to delete one file. Without a path it deletes the volume and all its
    /// files.
    #[command(after_help = "Examples:\n  \
        belljar volume rm notes reference/prices.csv\n  \
        belljar volume rm notes")]
    Rm {
        /// Name or id of the volume
        #[arg(value_name = "NAME | ID")]
        volume: String,

        /// Path of the file in the volume [default: delete the whole volume]
        #[arg(value_name = "PATH")]
        path: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct VolumeArgs {
    /// Name or id of the volume
    #[arg(value_name = "NAME | ID")]
    volume: String,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| match args.verb {
        Command::New { name, quota, comment } => {
            let new = json!({"name": name, "quota_bytes": quota, "comment": comment});
            remote.show(ApiRequest::post(ResourceKind::Volume.path()).json(&new)).await
        }
        Command::Ls(list) => {
            remote.list(ApiRequest::get(ResourceKind::Volume.path()), list, COLUMNS).await
        }
        Command::Show(VolumeArgs { volume }) => {
            remote.show(ApiRequest::get(volume_path(remote, &volume).await?)).await
        }
        Command::Files(VolumeArgs { volume }) => {
            let mut columns =
                remote.client.json(ApiRequest::get(volume_path(remote, &volume).await?)).await?;
            let files = columns["files"].as_array_mut().map(std::mem::take).unwrap_or_default();
            remote.table(files, FILE_COLUMNS)
        }
        Command::Put { volume, file, path } => put_file(remote, &volume, &file, path).await,
        Command::Get { volume, path } => {
            let answer = remote
                .client
                .send(ApiRequest::get(file_path(remote, &volume, &path).await?))
                .await?;
            let bytes = answer.bytes().await;
            let broken =
                |error: reqwest::Error| ClientError::Interrupted { reason: error.to_string() };
            print_bytes(&bytes.map_err(broken)?)
        }
        Command::Quota { volume, quota } => {
            let change = json!({"quota_bytes": quota});
            remote.show(ApiRequest::patch(volume_path(remote, &volume).await?).json(&change)).await
        }
        Command::Rm { volume, path } => {
            let (url_path, name) = match &path {
                Some(path) => (file_path(remote, &volume, path).await?, path),
                None => (volume_path(remote, &volume).await?, &volume),
            };
            remote.send_and_report(ApiRequest::delete(url_path), &format!("{name} deleted")).await
        }
    })
}

async fn volume_path(remote: &Remote, volume: &str) -> Result<String, CliError> {
    remote.client.resolve_path(ResourceKind::Volume, volume).await
}

async fn file_path(remote: &Remote, volume: &str, path: &str) -> Result<String, CliError> {
    Ok(format!(
        "{}/files/{}",
        volume_path(remote, volume).await?,
        utf8_percent_encode(path, PATH_ENCODED)
    ))
}

async fn put_file(
    remote: &Remote,
    volume: &str,
    file: &Path,
    path: Option<String>,
) -> Result<(), CliError> {
    let unreadable = |reason: String| CliError::usage(format!("{}: {reason}", file.display()));
    let name = file.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let path =
        path.or(name).ok_or_else(|| unreadable("the file name is not UTF-8 text".to_owned()))?;
    let bytes = std::fs::read(file).map_err(|error| unreadable(error.to_string()))?;
    let url_path = file_path(remote, volume, &path).await?;
    let call = ApiRequest::put(url_path).bytes("application/octet-stream", bytes);
    remote.send_and_report(call, &format!("wrote {path}")).await
}
