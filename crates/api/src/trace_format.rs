//! Renders the trace of a run in the format that the client requests.

use super::extract::Json;
use super::files::content_disposition;
use agent::RunDetails;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

const NOTEBOOK: &str = "application/x-ipynb+json";
const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
/// The page shows untrusted text: it gets no origin and may load nothing.
const PAGE_CSP: &str = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TraceFormat {
    #[default]
    Json,
    Ipynb,
    Html,
    Text,
}

#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct TraceQuery {
    /// Defaults to `json`.
    #[serde(default)]
    #[param(inline)]
    pub(crate) format: TraceFormat,
}

pub(crate) fn render_run(run: &RunDetails, format: TraceFormat) -> Response {
    match format {
        TraceFormat::Json => Json(&run.trace).into_response(),
        TraceFormat::Ipynb => {
            let name = format!("run-{}.ipynb", run.execution.id);
            let headers = [
                (CONTENT_TYPE, HeaderValue::from_static(NOTEBOOK)),
                (CONTENT_DISPOSITION, content_disposition(&name, false)),
            ];
            (headers, run.to_notebook().to_string()).into_response()
        }
        TraceFormat::Html => {
            let headers = [(CONTENT_TYPE, HTML), (CONTENT_SECURITY_POLICY, PAGE_CSP)];
            (headers, run.to_html()).into_response()
        }
        TraceFormat::Text => ([(CONTENT_TYPE, TEXT)], run.to_text()).into_response(),
    }
}
