//! Telemetry: JSON log lines on standard error, metrics on request, and traces if a collector is
//! configured.
//!
//! Text of users is inside JSON strings and can never start a log line. Traces contain only spans
//! of this program, because spans of libraries would reveal headers and addresses.

use super::config::ServeConfig;
use crate::cli::CliError;
use engine::Progress;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// Exporter of traces; it sends pending traces on drop.
#[derive(Debug)]
pub(super) struct Telemetry(Option<SdkTracerProvider>);

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.take().map(|provider| provider.shutdown()) {
            tracing::warn!(%error, "the last traces could not be sent");
        }
    }
}

pub(super) fn init_telemetry(config: &ServeConfig) -> Result<Telemetry, CliError> {
    let filter = EnvFilter::try_new(&config.log)
        .map_err(|error| CliError::usage(format!("--log {}: {error}", config.log)))?;
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_writer(std::io::stderr)
        .with_filter(filter);
    let provider = config.otlp_endpoint.as_deref().map(trace_provider).transpose()?;
    let sent = provider
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer("belljar")))
        .map(|layer| layer.with_filter(Targets::new().with_target("belljar", LevelFilter::INFO)));
    Registry::default()
        .with(lines)
        .with(sent)
        .try_init()
        .map_err(|error| CliError::internal(error.to_string()))?;
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let panic_message = panic.payload_as_str().unwrap_or_default();
        tracing::error!(location, panic_message, "a part of the server panicked");
    }));
    Ok(Telemetry(provider))
}

/// How an environment is being built.
pub(super) fn log_progress() -> impl FnMut(Progress) + Send + 'static {
    |progress| tracing::info!(%progress, "an environment is being built")
}

/// Logs why the server ended, as the last line.
pub(super) fn log_failure(error: &CliError) -> ExitCode {
    let details = error.details.join("; ");
    tracing::error!(%error, details, "belljar serve failed");
    ExitCode::from(error.exit)
}

fn trace_provider(endpoint: &str) -> Result<SdkTracerProvider, CliError> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .build()
        .map_err(|error| CliError::usage(format!("--otlp-endpoint {endpoint}: {error}")))?;
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name("belljar").build())
        .build())
}

/// Installs the metrics, which are pulled and not pushed.
pub(super) fn install_metrics() -> Result<PrometheusHandle, CliError> {
    PrometheusBuilder::new()
        .install_recorder()
        .map_err(|error| CliError::internal(error.to_string()))
}
