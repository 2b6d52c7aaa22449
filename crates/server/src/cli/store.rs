//! `belljar store`: directories of a server that outlive sessions.

use super::Failure;
use super::listing::Column;
use super::named::Noun;
use super::once::print_bytes;
use super::remote::{ListArgs, Remote, RemoteArgs};
use crate::client::{Call, ClientError};
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
const FILES: &[Column] = &[("name", "/name"), ("size", "/size")];
/// What stands in the path of a URL as it is.
const IN_A_PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make a store, which code sees if the specification of its agent says so
    New {
        #[arg(value_name = "NAME")]
        name: String,

        /// Of all its files together [default: 256 MiB]
        #[arg(long, value_name = "BYTES")]
        quota: Option<u64>,

        #[arg(long, value_name = "TEXT")]
        comment: Option<String>,
    },
    /// List stores
    Ls(ListArgs),
    /// Show a store and what is in it
    Show(One),
    /// List the files of a store
    Files(One),
    /// Put a file into a store
    Put {
        #[arg(value_name = "NAME | ID")]
        store: String,

        #[arg(value_name = "FILE")]
        file: PathBuf,

        /// How it is called there [default: as it is called here]
        #[arg(value_name = "PATH")]
        path: Option<String>,
    },
    /// Write a file of a store to standard output
    Get {
        #[arg(value_name = "NAME | ID")]
        store: String,

        #[arg(value_name = "PATH")]
        path: String,
    },
    /// Give a store another quota
    Quota {
        #[arg(value_name = "NAME | ID")]
        store: String,

        #[arg(value_name = "BYTES")]
        quota: u64,
    },
    /// Delete a file of a store, or the store with everything in it
    Rm {
        #[arg(value_name = "NAME | ID")]
        store: String,

        #[arg(value_name = "PATH")]
        path: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct One {
    #[arg(value_name = "NAME | ID")]
    store: String,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |remote| match args.verb {
        Verb::New { name, quota, comment } => {
            let new = json!({"name": name, "quota_bytes": quota, "comment": comment});
            remote.show(Call::post(Noun::Store.path()).json(&new)).await
        }
        Verb::Ls(list) => remote.list(Call::get(Noun::Store.path()), list, COLUMNS).await,
        Verb::Show(One { store }) => remote.show(Call::get(at(remote, &store).await?)).await,
        Verb::Files(One { store }) => {
            let mut shown = remote.client.json(Call::get(at(remote, &store).await?)).await?;
            let files = shown["files"].as_array_mut().map(std::mem::take).unwrap_or_default();
            remote.table(files, FILES)
        }
        Verb::Put { store, file, path } => put(remote, &store, &file, path).await,
        Verb::Get { store, path } => {
            let answer =
                remote.client.send(Call::get(file_at(remote, &store, &path).await?)).await?;
            let bytes = answer.bytes().await;
            let broken =
                |error: reqwest::Error| ClientError::Interrupted { reason: error.to_string() };
            print_bytes(&bytes.map_err(broken)?)
        }
        Verb::Quota { store, quota } => {
            let change = json!({"quota_bytes": quota});
            remote.show(Call::patch(at(remote, &store).await?).json(&change)).await
        }
        Verb::Rm { store, path } => {
            let (place, said) = match &path {
                Some(path) => (file_at(remote, &store, path).await?, path),
                None => (at(remote, &store).await?, &store),
            };
            remote.done(Call::delete(place), &format!("{said} is gone")).await
        }
    })
}

async fn at(remote: &Remote, store: &str) -> Result<String, Failure> {
    remote.client.path(Noun::Store, store).await
}

async fn file_at(remote: &Remote, store: &str, path: &str) -> Result<String, Failure> {
    Ok(format!("{}/files/{}", at(remote, store).await?, utf8_percent_encode(path, IN_A_PATH)))
}

async fn put(
    remote: &Remote,
    store: &str,
    file: &Path,
    path: Option<String>,
) -> Result<(), Failure> {
    let unreadable = |reason: String| Failure::usage(format!("{}: {reason}", file.display()));
    let name = file.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let path = path.or(name).ok_or_else(|| unreadable("has no name to be called by".to_owned()))?;
    let bytes = std::fs::read(file).map_err(|error| unreadable(error.to_string()))?;
    let place = file_at(remote, store, &path).await?;
    let call = Call::put(place).bytes("application/octet-stream", bytes);
    remote.done(call, &format!("{path} is there")).await
}
