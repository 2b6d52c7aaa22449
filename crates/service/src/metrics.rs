//! Metrics in the text format of Prometheus, version 0.0.4.
//!
//! Names and label values are constants of the program, so the number of time series is bounded
//! and no value needs escaping.

use crate::service::Service;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use types::ExecutionStatus;

/// Upper bounds of histogram buckets, in seconds: from a warm run to the longest default limit.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];

/// Counters that differ in the value of one label.
#[derive(Debug)]
pub struct CounterFamily {
    name: &'static str,
    label: &'static str,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl CounterFamily {
    pub fn new(name: &'static str, label: &'static str) -> Self {
        Self { name, label, counts: Mutex::default() }
    }

    pub fn increment(&self, value: &'static str) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(value).or_default() += 1;
    }

    pub fn render(&self, text: &mut String) {
        render_type(text, self.name, "counter");
        for (value, count) in &*self.counts.lock().unwrap_or_else(PoisonError::into_inner) {
            let labelled = format!("{}{{{}=\"{value}\"}}", self.name, self.label);
            render_sample(text, &labelled, count);
        }
    }
}

/// Durations, counted in [`BUCKETS`].
#[derive(Debug)]
pub struct Histogram {
    name: &'static str,
    observed: Mutex<Observed>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Observed {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: Duration,
}

impl Histogram {
    pub fn new(name: &'static str) -> Self {
        Self { name, observed: Mutex::default() }
    }

    pub fn record(&self, took: Duration) {
        let mut observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner);
        for (count, bound) in observed.buckets.iter_mut().zip(BUCKETS) {
            *count += u64::from(took.as_secs_f64() <= bound);
        }
        observed.count += 1;
        observed.sum = observed.sum.saturating_add(took);
    }

    pub fn render(&self, text: &mut String) {
        let Self { name, observed } = self;
        let observed = *observed.lock().unwrap_or_else(PoisonError::into_inner);
        render_type(text, name, "histogram");
        for (count, bound) in observed.buckets.iter().zip(BUCKETS) {
            render_sample(text, &format!("{name}_bucket{{le=\"{bound}\"}}"), count);
        }
        render_sample(text, &format!("{name}_bucket{{le=\"+Inf\"}}"), observed.count);
        render_sample(text, &format!("{name}_sum"), observed.sum.as_secs_f64());
        render_sample(text, &format!("{name}_count"), observed.count);
    }
}

/// Metrics of executions.
#[derive(Debug)]
pub(crate) struct ExecutionMetrics {
    total: CounterFamily,
    seconds: Histogram,
}

impl ExecutionMetrics {
    pub(crate) fn new() -> Self {
        Self {
            total: CounterFamily::new("belljar_executions_total", "status"),
            seconds: Histogram::new("belljar_execution_seconds"),
        }
    }

    /// `wall_time` is absent if the record of the execution was lost.
    pub(crate) fn record(&self, status: ExecutionStatus, wall_time: Option<Duration>) {
        self.total.increment(status.name());
        if let Some(wall_time) = wall_time {
            self.seconds.record(wall_time);
        }
    }
}

impl Service {
    /// The metrics of executions, and the current load.
    pub fn render_metrics(&self) -> String {
        let mut text = String::new();
        self.execution_metrics.total.render(&mut text);
        self.execution_metrics.seconds.render(&mut text);
        let load = self.engine.load();
        render_gauge(&mut text, "belljar_sandboxes_in_use", load.in_use);
        render_gauge(&mut text, "belljar_sandboxes_max", load.max);
        render_gauge(&mut text, "belljar_requests_queued", load.waiting);
        render_gauge(&mut text, "belljar_output_bytes", self.output_budget.in_use());
        render_gauge(&mut text, "belljar_executions_running", self.started_executions().len());
        text
    }
}

fn render_gauge(text: &mut String, name: &str, value: impl Display) {
    render_type(text, name, "gauge");
    render_sample(text, name, value);
}

fn render_type(text: &mut String, name: &str, kind: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# TYPE {name} {kind}");
}

fn render_sample(text: &mut String, name: &str, value: impl Display) {
    let _ = writeln!(text, "{name} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_written_once_per_value_of_its_label() {
        let requests = CounterFamily::new("requests_total", "status");
        requests.increment("2xx");
        requests.increment("4xx");
        requests.increment("2xx");
        let mut text = String::new();
        requests.render(&mut text);
        let expected = "# TYPE requests_total counter\n\
                        requests_total{status=\"2xx\"} 2\n\
                        requests_total{status=\"4xx\"} 1\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_buckets_of_a_histogram_are_cumulative() {
        let seconds = Histogram::new("seconds");
        seconds.record(Duration::from_millis(5));
        seconds.record(Duration::from_millis(300));
        seconds.record(Duration::from_secs(1000));
        let mut text = String::new();
        seconds.render(&mut text);
        for line in [
            "# TYPE seconds histogram",
            "seconds_bucket{le=\"0.001\"} 0",
            "seconds_bucket{le=\"0.005\"} 1",
            "seconds_bucket{le=\"0.25\"} 1",
            "seconds_bucket{le=\"0.5\"} 2",
            "seconds_bucket{le=\"120\"} 2",
            "seconds_bucket{le=\"+Inf\"} 3",
            "seconds_sum 1000.305",
            "seconds_count 3",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in {text}");
        }
    }
}
