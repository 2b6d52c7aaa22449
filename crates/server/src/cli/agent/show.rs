//! `belljar agent show`: an agent as it is, or a run in a form that people read.

use crate::cli::named::Noun;
use crate::cli::once::print_record;
use crate::cli::remote::Remote;
use crate::cli::terminal::inert;
use crate::cli::{Failure, terminal};
use crate::client::{Call, ClientError};
use std::path::{Path, PathBuf};
use types::ExecutionId;

const NOT_FOUND: u16 = 404;

#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// An agent by its name or id, or a run by its id
    #[arg(value_name = "AGENT | RUN")]
    what: String,

    /// How a run is told [default: text]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,

    /// Write a run to this file instead of to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
    /// A Jupyter notebook
    Ipynb,
    /// A page with its charts in it
    Html,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Ipynb => "ipynb",
            Self::Html => "html",
        }
    }
}

pub(super) async fn show(remote: &Remote, args: Show) -> Result<(), Failure> {
    let Show { what, format, output } = args;
    let is_run = format.is_some() || output.is_some();
    match what.parse::<ExecutionId>() {
        Ok(id) if is_run || !is_agent(remote, id).await? => {
            let usual = if remote.json { Format::Json } else { Format::Text };
            let format = format.unwrap_or(usual);
            let call = Call::get(format!("/v1/executions/{id}/trace"));
            let told = remote.client.text(call.query("format", Some(format.name()))).await?;
            put(&told, format, output.as_deref())
        }
        Err(_) if is_run => {
            let message = "--format and --output are for a run, which is named by its id";
            Err(Failure::usage(message))
        }
        _ => remote.show(Call::get(remote.client.path(Noun::Agent, &what).await?)).await,
    }
}

/// Ids do not say what they are of.
async fn is_agent(remote: &Remote, id: ExecutionId) -> Result<bool, ClientError> {
    match remote.client.send(Call::get(format!("{}/{id}", Noun::Agent.path()))).await {
        Ok(_) => Ok(true),
        Err(ClientError::Refused(refusal)) if refusal.status == NOT_FOUND => Ok(false),
        Err(error) => Err(error),
    }
}

fn put(text: &str, format: Format, output: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = output else {
        let shown = if format == Format::Text { inert(text) } else { terminal::for_stdout(text) };
        return print_record(shown.trim_end());
    };
    let failed = |error| Failure::belljar(format!("{} was not written: {error}", path.display()));
    std::fs::write(path, text).map_err(failed)?;
    eprintln!("belljar: the run is in {}", path.display());
    Ok(())
}
