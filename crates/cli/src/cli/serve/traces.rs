//! Traces for a collector (OTLP). They contain only spans of this program, because spans of
//! libraries would reveal headers and addresses.

use crate::cli::CliError;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

/// Exporter of traces.
#[derive(Debug)]
pub(super) struct TraceExporter(Option<SdkTracerProvider>);

impl TraceExporter {
    pub(super) fn start(endpoint: Option<&str>) -> Result<Self, CliError> {
        endpoint.map(trace_provider).transpose().map(Self)
    }

    pub(super) fn layer<S>(&self) -> Option<impl Layer<S> + use<S>>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    {
        let layer = self.0.as_ref().map(|provider| {
            tracing_opentelemetry::layer().with_tracer(provider.tracer("belljar"))
        })?;
        Some(layer.with_filter(Targets::new().with_target("belljar", LevelFilter::INFO)))
    }

    /// Sends the pending traces.
    pub(super) fn finish(self) {
        if let Some(Err(error)) = self.0.map(|provider| provider.shutdown()) {
            tracing::warn!(%error, "cannot send the last traces");
        }
    }
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
