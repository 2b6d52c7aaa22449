//! Telemetry: JSON log lines on standard error, and traces if a collector is configured.
//!
//! Text of users is inside JSON strings and can never start a log line.

use super::config::ServeConfig;
use super::traces::TraceExporter;
use crate::cli::CliError;
use engine::Progress;
use std::process::ExitCode;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

pub(super) fn init_telemetry(config: &ServeConfig) -> Result<TraceExporter, CliError> {
    let filter = EnvFilter::try_new(&config.log)
        .map_err(|error| CliError::usage(format!("--log {}: {error}", config.log)))?;
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_writer(std::io::stderr)
        .with_filter(filter);
    let exporter = TraceExporter::start(config.otlp_endpoint.as_deref())?;
    Registry::default()
        .with(lines)
        .with(exporter.layer())
        .try_init()
        .map_err(|error| CliError::internal(error.to_string()))?;
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let panic_message = panic.payload_as_str().unwrap_or_default();
        tracing::error!(location, panic_message, "a thread of the server panicked");
    }));
    Ok(exporter)
}

/// Logs the progress of a build.
pub(super) fn log_progress() -> impl FnMut(Progress) + Send + 'static {
    |progress| tracing::info!(%progress, "building an environment")
}

/// Logs why the server ended, as the last line.
pub(super) fn log_failure(error: &CliError) -> ExitCode {
    let details = error.details.join("; ");
    tracing::error!(%error, details, "belljar serve failed");
    ExitCode::from(error.exit)
}
