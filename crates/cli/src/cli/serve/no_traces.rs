//! A build without OTLP. An operator who configures a collector must not believe that it receives
//! traces, so the server refuses to start.

use crate::cli::CliError;
use tracing_subscriber::layer::Identity;

#[derive(Debug)]
pub(super) struct TraceExporter(());

impl TraceExporter {
    pub(super) fn start(endpoint: Option<&str>) -> Result<Self, CliError> {
        match endpoint {
            None => Ok(Self(())),
            Some(endpoint) => Err(CliError::usage(format!(
                "--otlp-endpoint {endpoint}: this binary was built without OTLP; leave the option \
                 out, or build with `--features otlp`"
            ))),
        }
    }

    pub(super) fn layer(&self) -> Option<Identity> {
        None
    }

    pub(super) fn finish(self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_otlp_refuses_a_collector_and_starts_without_one() {
        let error = TraceExporter::start(Some("http://localhost:4318")).unwrap_err().to_string();
        assert!(error.contains("--otlp-endpoint http://localhost:4318"), "{error}");
        assert!(error.contains("built without OTLP"), "{error}");
        let exporter = TraceExporter::start(None).unwrap();
        assert!(exporter.layer().is_none());
        exporter.finish();
    }
}
