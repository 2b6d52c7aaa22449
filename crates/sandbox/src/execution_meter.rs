//! Metering of one execution: the deadline that `wall_ms` sets, the other limits, the output and results
//! so far.
//!
//! `wall_ms` is the limit of wall-clock time that a request calls `timeout`. The deadline is the instant
//! at which it ends; it moves while the supervisor keeps the code waiting.

use crate::execution_group::ExecutionGroup;
use crate::frames::RunnerOutcome;
use crate::output_chunks::OutputChunks;
use crate::output_pipe::{CaptureBudget, OutputPipe};
use crate::sandbox::ExitCause;
use crate::stop_handle::{StopHandle, StopRequest};
use crate::usage::UsageReading;
use crate::value_budget::ValueBudget;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use types::{DisplayData, Event, Limits, NetworkAttempt};

/// Time for cleanup after an interrupt, before the kill. With the time that the kill takes, an execution
/// ends within a second of its limit.
const INTERRUPT_GRACE: Duration = Duration::from_millis(500);
/// CPU time that code needs to react to an interrupt. Code on a busy machine that has had less since its
/// interrupt gets [`STARVED_GRACE`] once, so that the session keeps its state.
const RESPONSE_CPU_MIN: Duration = Duration::from_millis(50);
const STARVED_GRACE: Duration = Duration::from_secs(3);
/// Maximum time by which the deadline of one execution moves because its messages wait for the
/// supervisor: many times what ordinary ones wait, and a bound for code that sends to gain time.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Displayed results of one execution, together.
const RESULTS_BYTES_MAX: usize = 32 * 1024 * 1024;
const RESULTS_MAX: usize = 256;
/// Maximum count of dropped results. A larger number would be of no use to the caller.
const RESULTS_DROPPED_MAX: usize = 1_000_000;
/// Refused connections in a record. More of them would show nothing new.
const REFUSED_CONNECTIONS_MAX: usize = 1_000;
/// The longest name (RFC 1035).
const HOST_BYTES_MAX: usize = 253;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overrun {
    Time,
    Cpu,
    Memory,
    ProcessSessions,
    Unmeasured,
    Stopped,
}

/// Limits, deadline, output and results of one execution.
pub(crate) struct ExecutionMeter<'a> {
    pub(crate) limits: &'a Limits,
    /// Stop requests from outside.
    pub(crate) stop_requests: watch::Receiver<StopRequest>,
    pub(crate) sink: &'a mut (dyn FnMut(Event) + Send),
    /// Memory budget for its value.
    pub(crate) value_budget: &'a ValueBudget,
    pub(crate) started: Instant,
    /// When the execution is interrupted, and after that, when it is killed.
    pub(crate) deadline: Instant,
    pub(crate) overrun: Option<Overrun>,
    queue_wait_left: Duration,
    paused_until: Option<Instant>,
    stopped_at_cpu: Option<Duration>,
    pub(crate) interrupt_outcome: Option<RunnerOutcome>,
    pub(crate) budget: CaptureBudget,
    chunks: OutputChunks,
    pub(crate) results_bytes: usize,
    pub(crate) results: usize,
    pub(crate) results_dropped: usize,
    pub(crate) refused_connections: Vec<NetworkAttempt>,
    pub(crate) usage_before: UsageReading,
    pub(crate) background_excluded: bool,
    pub(crate) memory_peak: u64,
}

impl<'a> ExecutionMeter<'a> {
    pub(crate) fn new(
        limits: &'a Limits,
        stop_handle: &StopHandle,
        sink: &'a mut (dyn FnMut(Event) + Send),
        value_budget: &'a ValueBudget,
        usage_before: UsageReading,
        group: ExecutionGroup,
    ) -> Self {
        let started = Instant::now();
        Self {
            limits,
            stop_requests: stop_handle.subscribe(),
            sink,
            value_budget,
            started,
            deadline: started + Duration::from_millis(limits.wall_ms),
            overrun: None,
            queue_wait_left: QUEUE_WAIT_MAX,
            paused_until: None,
            stopped_at_cpu: None,
            interrupt_outcome: None,
            budget: CaptureBudget::new(limits.output_bytes, group),
            chunks: OutputChunks::default(),
            results_bytes: 0,
            results: 0,
            results_dropped: 0,
            refused_connections: Vec::new(),
            usage_before,
            background_excluded: false,
            memory_peak: 0,
        }
    }

    pub(crate) fn drain(&mut self, source: &mut OutputPipe) {
        let Self { sink, started, budget, chunks, .. } = self;
        let t = millis(started.elapsed());
        let pause = source.drain(budget, |stream, text| chunks.push(t, stream, text, *sink));
        chunks.emit_due(t, *sink);
        if !pause.is_zero() {
            self.paused_until = Some(Instant::now() + pause);
            // Code that is over its own limit of output waits because of itself.
            if self.budget.is_open() {
                self.extend_for_queue(pause);
            }
        }
    }

    /// Until when nothing of the sandbox is read, because its caller is over the rate of output. Its
    /// messages wait as well: each of them would have the output before it read.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.paused_until.filter(|until| *until > Instant::now())
    }

    /// Emits all output that was held.
    pub(crate) fn flush_output(&mut self) {
        self.chunks.emit(millis(self.started.elapsed()), self.sink);
    }

    pub(crate) fn flush(&mut self, source: &mut OutputPipe) {
        let Self { sink, started, chunks, .. } = self;
        let t = millis(started.elapsed());
        source.flush(|stream, text| chunks.push(t, stream, text, *sink));
    }

    pub(crate) fn emit_result(
        &mut self,
        data: Option<BTreeMap<String, Value>>,
        main: bool,
        cut: bool,
    ) {
        let accepted = data.and_then(|data| self.take_if_fits(DisplayData { data, main }));
        if cut || accepted.is_none() {
            self.results_dropped += 1;
        }
        if let Some(result) = accepted {
            self.flush_output();
            (self.sink)(Event::Result(result));
        }
    }

    /// Returns the result if it fits into the limits of results, and counts it.
    fn take_if_fits(&mut self, result: DisplayData) -> Option<DisplayData> {
        let size = result.memory_bytes();
        let fits = self.results_bytes + size <= RESULTS_BYTES_MAX && self.results < RESULTS_MAX;
        if fits {
            self.results_bytes += size;
            self.results += 1;
        }
        fits.then_some(result)
    }

    /// Counts results that the runner has not sent, as the runner reports them.
    pub(crate) fn count_unsent(&mut self, results: u32) {
        let dropped = self.results_dropped.saturating_add(results as usize);
        self.results_dropped = dropped.min(RESULTS_DROPPED_MAX);
    }

    /// Records a host that the code has tried to reach without egress, as the runner reports it.
    pub(crate) fn record_refused_connection(&mut self, destination: &str) {
        let (host, port) = match destination.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().unwrap_or_default()),
            None => (destination, 0),
        };
        let host = host.trim_matches(['[', ']']);
        if self.refused_connections.len() < REFUSED_CONNECTIONS_MAX && host.len() <= HOST_BYTES_MAX
        {
            self.refused_connections.push(NetworkAttempt {
                t: millis(self.started.elapsed()),
                host: host.to_owned(),
                port,
                integration: None,
                allowed: false,
                reason: Some("the network policy of this sandbox does not allow it".to_owned()),
            });
        }
    }

    /// Moves the deadline by a time in which the code had to wait for the supervisor.
    pub(crate) fn extend_deadline(&mut self, time: Duration) {
        if self.overrun.is_none() {
            self.deadline += time;
        }
    }

    /// Moves the deadline by the time that an arrived message waited until the supervisor read it.
    pub(crate) fn extend_for_queue(&mut self, wait: Duration) {
        let granted = wait.min(self.queue_wait_left);
        self.queue_wait_left -= granted;
        self.extend_deadline(granted);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.overrun.is_some()
    }

    /// The stop request since the last call.
    pub(crate) fn take_stop_request(&mut self) -> Option<StopRequest> {
        let changed = self.stop_requests.has_changed().unwrap_or_default();
        changed.then(|| *self.stop_requests.borrow_and_update())
    }

    /// Waits for a stop request and leaves it for [`Self::take_stop_request`].
    pub(crate) async fn stop_request_changed(&mut self) {
        match self.stop_requests.changed().await {
            Ok(()) => self.stop_requests.mark_changed(),
            // All senders are gone.
            Err(_) => std::future::pending().await,
        }
    }

    /// Records how much CPU time was used at the interrupt.
    pub(crate) fn record_interrupt(&mut self, cpu: Duration) {
        if self.overrun.is_none() {
            self.stopped_at_cpu = Some(cpu);
        }
        self.request_end(Overrun::Stopped);
    }

    /// Gives an interrupted execution more time if it has had no CPU time; returns whether it did.
    pub(crate) fn extend_if_starved(&mut self, cpu: Duration) -> bool {
        let used = self.stopped_at_cpu.take().map(|used_before| cpu.saturating_sub(used_before));
        let starved = used.is_some_and(|used| used < RESPONSE_CPU_MIN);
        if starved {
            self.deadline = Instant::now() + STARVED_GRACE;
        }
        starved
    }

    pub(crate) fn request_end(&mut self, overrun: Overrun) {
        if self.overrun.is_none() {
            self.overrun = Some(overrun);
            self.deadline = Instant::now() + INTERRUPT_GRACE;
        }
    }

    /// Excludes the CPU time of background threads since the last execution: this execution cannot have
    /// used more than its CPU share of the time since it started.
    pub(crate) fn exclude_background_usage(&mut self, reading: &UsageReading) {
        if !std::mem::replace(&mut self.background_excluded, true) {
            let share = self.started.elapsed().mul_f64(self.limits.cpu_percent as f64 / 100.0);
            self.usage_before.cpu = self.usage_before.cpu.max(reading.cpu.saturating_sub(share));
        }
    }

    /// Emits output that was held for a moment.
    pub(crate) fn flush_due_output(&mut self) {
        self.chunks.emit_due(millis(self.started.elapsed()), self.sink);
    }

    /// Whether the readings exceed the limits.
    pub(crate) fn check_limits(&mut self, reading: &UsageReading) -> Option<Overrun> {
        self.exclude_background_usage(reading);
        self.memory_peak = self.memory_peak.max(reading.memory_bytes);
        if reading.over_memory {
            return Some(Overrun::Memory);
        }
        if reading.over_process_sessions {
            return Some(Overrun::ProcessSessions);
        }
        if reading.unmeasured {
            return Some(Overrun::Unmeasured);
        }
        let cpu = self.cpu_used(reading);
        let over = self.overrun.is_none() && cpu > Duration::from_millis(self.limits.cpu_ms);
        over.then_some(Overrun::Cpu)
    }

    /// CPU time of this execution up to a reading.
    pub(crate) fn cpu_used(&self, reading: &UsageReading) -> Duration {
        reading.cpu.saturating_sub(self.usage_before.cpu)
    }

    /// The exit cause of an execution that was stopped, by what stopped it.
    pub(crate) fn stop_cause(&self) -> ExitCause {
        match self.overrun {
            Some(Overrun::Time) | None => ExitCause::TimeLimit,
            Some(Overrun::Cpu) => ExitCause::CpuLimit,
            Some(Overrun::Memory) => ExitCause::MemoryLimit,
            Some(Overrun::ProcessSessions) => ExitCause::ProcessSessionsLimit,
            Some(Overrun::Unmeasured) => ExitCause::Unmeasured,
            Some(Overrun::Stopped) => ExitCause::Stopped,
        }
    }

    /// The exit cause for a report of the runner. After an exceeded limit, the limit is the cause.
    pub(crate) fn done_cause(&mut self, done: RunnerOutcome) -> ExitCause {
        if self.overrun.is_none() {
            return ExitCause::Done(done);
        }
        self.interrupt_outcome = Some(done);
        self.stop_cause()
    }

    pub(crate) fn death_cause(&self) -> ExitCause {
        if self.overrun.is_none() { ExitCause::Died { status: None } } else { self.stop_cause() }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t164_the_clock_stands_still_while_a_message_waits_and_no_longer_than_its_bound() {
        let (stop_handle, mut sink) = (StopHandle::default(), |_| {});
        let value_budget = ValueBudget::default();
        let (limits, usage_before) = (Limits::DEFAULT, UsageReading::default());
        let mut run = ExecutionMeter::new(
            &limits,
            &stop_handle,
            &mut sink,
            &value_budget,
            usage_before,
            ExecutionGroup::default(),
        );
        let deadline = run.deadline;
        run.extend_for_queue(Duration::from_secs(1));
        assert_eq!(run.deadline, deadline + Duration::from_secs(1));
        run.extend_for_queue(QUEUE_WAIT_MAX);
        run.extend_for_queue(QUEUE_WAIT_MAX);
        assert_eq!(run.deadline, deadline + QUEUE_WAIT_MAX, "code that sends gains no more time");
    }
}
