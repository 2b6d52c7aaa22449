//! `belljar agent show`: an agent as it is, or a run in a form that people read.

use crate::cli::listing::inert;
use crate::cli::named::Noun;
use crate::cli::once::print_record;
use crate::cli::remote::Remote;
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
    let usual = if remote.json { Format::Json } else { Format::Text };
    let id: Option<ExecutionId> = what.parse().ok();
    let is_run = format.is_some() || output.is_some();
    if let Some(id) = id {
        match told(remote, id, format.unwrap_or(usual)).await {
            Ok(text) => return put(&text, format.unwrap_or(usual), output.as_deref()),
            // It may be the id of an agent.
            Err(ClientError::Refused(refusal)) if refusal.status == NOT_FOUND && !is_run => {}
            Err(error) => return Err(error.into()),
        }
    } else if is_run {
        return Err(Failure::usage(
            "--format and --output are for a run, which is named by its id",
        ));
    }
    remote.show(Call::get(remote.client.path(Noun::Agent, &what).await?)).await
}

async fn told(remote: &Remote, id: ExecutionId, format: Format) -> Result<String, ClientError> {
    let call = Call::get(format!("/v1/executions/{id}/trace"));
    remote.client.text(call.query("format", Some(format.name()))).await
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
