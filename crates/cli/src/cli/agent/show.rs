//! `belljar agent show`: prints an agent, or the trace of a run.

use crate::cli::one_shot::print_record;
use crate::cli::remote::Remote;
use crate::cli::resource_names::ResourceKind;
use crate::cli::terminal::sanitize_plain;
use crate::cli::{CliError, terminal};
use crate::client::{ApiRequest, ClientError};
use std::path::{Path, PathBuf};
use types::ExecutionId;

const NOT_FOUND: u16 = 404;

#[derive(Debug, clap::Args)]
pub(super) struct ShowAgentArgs {
    /// Name or id of an agent, or id of a run
    #[arg(value_name = "AGENT | RUN")]
    what: String,

    /// Output format of a run [default: text]
    #[arg(long, value_name = "FORMAT")]
    format: Option<RunFormat>,

    /// Write the run to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RunFormat {
    Text,
    Json,
    /// A Jupyter notebook
    Ipynb,
    /// A self-contained page with the charts
    Html,
}

impl RunFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Ipynb => "ipynb",
            Self::Html => "html",
        }
    }
}

pub(super) async fn show(remote: &Remote, args: ShowAgentArgs) -> Result<(), CliError> {
    let ShowAgentArgs { what, format, out } = args;
    let is_run = format.is_some() || out.is_some();
    match what.parse::<ExecutionId>() {
        Ok(id) if is_run || !is_agent(remote, id).await? => {
            let default_format = if remote.json { RunFormat::Json } else { RunFormat::Text };
            let format = format.unwrap_or(default_format);
            let call = ApiRequest::get(format!("/v1/executions/{id}/trace"));
            let trace = remote.client.text(call.query("format", Some(format.name()))).await?;
            write_output(&trace, format, out.as_deref())
        }
        Err(_) if is_run => {
            let message = "--format and --out require the id of a run";
            Err(CliError::usage(message))
        }
        _ => {
            remote
                .show(ApiRequest::get(
                    remote.client.resolve_path(ResourceKind::Agent, &what).await?,
                ))
                .await
        }
    }
}

/// Returns whether the id is that of an agent: ids have no kind.
async fn is_agent(remote: &Remote, id: ExecutionId) -> Result<bool, ClientError> {
    match remote.client.send(ApiRequest::get(format!("{}/{id}", ResourceKind::Agent.path()))).await
    {
        Ok(_) => Ok(true),
        Err(ClientError::Problem(problem)) if problem.status == NOT_FOUND => Ok(false),
        Err(error) => Err(error),
    }
}

fn write_output(text: &str, format: RunFormat, out: Option<&Path>) -> Result<(), CliError> {
    let Some(path) = out else {
        let text = if format == RunFormat::Text {
            sanitize_plain(text)
        } else {
            terminal::for_stdout(text)
        };
        return print_record(text.trim_end());
    };
    let failed = |error| CliError::internal(format!("cannot write {}: {error}", path.display()));
    std::fs::write(path, text).map_err(failed)?;
    eprintln!("belljar: wrote the run to {}", path.display());
    Ok(())
}
