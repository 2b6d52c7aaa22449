//! Metrics of HTTP requests.

use axum::http::StatusCode;
use service::metrics::{CounterFamily, Histogram};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct HttpMetrics {
    requests: CounterFamily,
    seconds: Histogram,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        Self {
            requests: CounterFamily::new("belljar_http_requests_total", "status"),
            seconds: Histogram::new("belljar_http_request_seconds"),
        }
    }
}

impl HttpMetrics {
    pub(crate) fn record(&self, status: StatusCode, took: Duration) {
        let class = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];
        let class = class.get(usize::from(status.as_u16() / 100)).copied().unwrap_or("other");
        self.requests.increment(class);
        self.seconds.record(took);
    }

    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        self.requests.render(&mut text);
        self.seconds.render(&mut text);
        text
    }
}
