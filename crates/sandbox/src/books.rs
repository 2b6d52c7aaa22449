//! The books of one execution: its clock, its limits, and what it has said so far.

use crate::capture::{Budget, Source};
use crate::frames::Answer;
use crate::live::Cause;
use crate::pieces::Pieces;
use crate::stopper::{Stopper, Wish};
use crate::value_room::ValueRoom;
use crate::watch::Reading;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use types::{Event, Limits, NetworkAttempt, Rich};

/// After an interrupt code may tidy up for so long before it is killed; with the time the kill
/// takes, an end comes within a second of the limit.
const INTERRUPT_GRACE: Duration = Duration::from_millis(500);
/// Somebody who interrupts wants to keep the state: code that has not had this much CPU time since
/// then, on a busy machine, cannot have answered yet and is given the longer time, once.
const ANSWER_CPU: Duration = Duration::from_millis(50);
const STARVED_GRACE: Duration = Duration::from_secs(3);
/// Displayed results of one execution, together.
const RESULTS_BYTES_MAX: usize = 32 * 1024 * 1024;
const RESULTS_MAX: usize = 256;
/// Results that were left out and are counted: as many more as the code may say, nobody learns by it.
const RESULTS_DROPPED_MAX: usize = 1_000_000;
/// Code that tries more often has told what it wants.
const REFUSED_MAX: usize = 1_000;
/// The longest name (RFC 1035).
const HOST_BYTES_MAX: usize = 253;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overrun {
    Time,
    Cpu,
    Memory,
    Stopped,
}

/// The books of one execution.
pub(crate) struct Run<'a> {
    pub(crate) limits: &'a Limits,
    /// What somebody elsewhere wants of it.
    pub(crate) wishes: watch::Receiver<Wish>,
    pub(crate) sink: &'a mut (dyn FnMut(Event) + Send),
    /// Asked for the memory of its value.
    pub(crate) room: &'a ValueRoom,
    pub(crate) started: Instant,
    /// When the next step against it is due: first an interrupt, then the kill.
    pub(crate) deadline: Instant,
    pub(crate) overrun: Option<Overrun>,
    stopped_at_cpu: Option<Duration>,
    pub(crate) last_words: Option<Answer>,
    pub(crate) budget: Budget,
    pieces: Pieces,
    pub(crate) results_bytes: usize,
    pub(crate) results: usize,
    pub(crate) results_dropped: usize,
    pub(crate) refused: Vec<NetworkAttempt>,
    pub(crate) before: Reading,
    pub(crate) before_is_settled: bool,
    pub(crate) memory_peak: u64,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        limits: &'a Limits,
        stopper: &Stopper,
        sink: &'a mut (dyn FnMut(Event) + Send),
        room: &'a ValueRoom,
        before: Reading,
    ) -> Self {
        let started = Instant::now();
        Self {
            limits,
            wishes: stopper.wishes(),
            sink,
            room,
            started,
            deadline: started + Duration::from_millis(limits.wall_ms),
            overrun: None,
            stopped_at_cpu: None,
            last_words: None,
            budget: Budget::new(limits.output_bytes),
            pieces: Pieces::default(),
            results_bytes: 0,
            results: 0,
            results_dropped: 0,
            refused: Vec::new(),
            before,
            before_is_settled: false,
            memory_peak: 0,
        }
    }

    pub(crate) fn drain(&mut self, source: &mut Source) {
        let Self { sink, started, budget, pieces, .. } = self;
        let t = millis(started.elapsed());
        source.drain(budget, |stream, text| pieces.take(t, stream, text, *sink));
        pieces.emit_due(t, *sink);
    }

    /// Emits all output that was held.
    pub(crate) fn emit_held(&mut self) {
        self.pieces.emit(millis(self.started.elapsed()), self.sink);
    }

    pub(crate) fn flush(&mut self, source: &mut Source) {
        let Self { sink, started, pieces, .. } = self;
        let t = millis(started.elapsed());
        source.flush(|stream, text| pieces.take(t, stream, text, *sink));
    }

    pub(crate) fn result(&mut self, data: Option<BTreeMap<String, Value>>, main: bool, cut: bool) {
        let fitting = data.and_then(|data| self.fitting(Rich { data, main }));
        if cut || fitting.is_none() {
            self.results_dropped += 1;
        }
        if let Some(result) = fitting {
            self.emit_held();
            (self.sink)(Event::Result(result));
        }
    }

    /// The same, if there is still room for it, which it has then.
    fn fitting(&mut self, result: Rich) -> Option<Rich> {
        let size = result.memory_bytes();
        let fits = self.results_bytes + size <= RESULTS_BYTES_MAX && self.results < RESULTS_MAX;
        if fits {
            self.results_bytes += size;
            self.results += 1;
        }
        fits.then_some(result)
    }

    /// Results that the kernel has not sent, as it says itself.
    pub(crate) fn unsent(&mut self, results: u32) {
        let dropped = self.results_dropped.saturating_add(results as usize);
        self.results_dropped = dropped.min(RESULTS_DROPPED_MAX);
    }

    /// Whom the code has tried to reach where no outlet hears of it, as it says itself.
    pub(crate) fn refused(&mut self, place: &str) {
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().unwrap_or_default()),
            None => (place, 0),
        };
        let host = host.trim_matches(['[', ']']);
        if self.refused.len() < REFUSED_MAX && host.len() <= HOST_BYTES_MAX {
            self.refused.push(NetworkAttempt {
                t: millis(self.started.elapsed()),
                host: host.to_owned(),
                port,
                integration: None,
                allowed: false,
                reason: Some("no way out of this sandbox leads there".to_owned()),
            });
        }
    }

    /// The clock stood still for so long: nothing that the code could have done about it.
    pub(crate) fn excuse(&mut self, time: Duration) {
        if self.overrun.is_none() {
            self.deadline += time;
        }
    }

    pub(crate) fn overdue(&self) -> bool {
        self.overrun.is_some()
    }

    /// What somebody wants since this was asked last.
    pub(crate) fn new_wish(&mut self) -> Option<Wish> {
        let changed = self.wishes.has_changed().unwrap_or_default();
        changed.then(|| *self.wishes.borrow_and_update())
    }

    /// Waits until somebody wants something, which is left for [`Self::new_wish`].
    pub(crate) async fn wished(&mut self) {
        match self.wishes.changed().await {
            Ok(()) => self.wishes.mark_changed(),
            // Whoever could have wished has gone.
            Err(_) => std::future::pending().await,
        }
    }

    /// Notes how much CPU time was used when somebody interrupted.
    pub(crate) fn stop(&mut self, cpu: Duration) {
        if self.overrun.is_none() {
            self.stopped_at_cpu = Some(cpu);
        }
        self.ask_to_end(Overrun::Stopped);
    }

    /// Whether an interrupted execution is given more time, because it has had none.
    pub(crate) fn wait_if_starved(&mut self, cpu: Duration) -> bool {
        let since = self.stopped_at_cpu.take().map(|before| cpu.saturating_sub(before));
        let starved = since.is_some_and(|since| since < ANSWER_CPU);
        if starved {
            self.deadline = Instant::now() + STARVED_GRACE;
        }
        starved
    }

    pub(crate) fn ask_to_end(&mut self, overrun: Overrun) {
        if self.overrun.is_none() {
            self.overrun = Some(overrun);
            self.deadline = Instant::now() + INTERRUPT_GRACE;
        }
    }

    /// Takes out of the account what ran on in the background since the last execution: this one
    /// cannot have used more than its share of the time since it began.
    pub(crate) fn settle(&mut self, reading: &Reading) {
        if !std::mem::replace(&mut self.before_is_settled, true) {
            let share = self.started.elapsed().mul_f64(self.limits.cpu_percent as f64 / 100.0);
            self.before.cpu = self.before.cpu.max(reading.cpu.saturating_sub(share));
        }
    }

    /// Emits output that was held for a moment.
    pub(crate) fn emit_due(&mut self) {
        self.pieces.emit_due(millis(self.started.elapsed()), self.sink);
    }

    /// Whether what was read is more than the limits allow.
    pub(crate) fn judge(&mut self, reading: &Reading) -> Option<Overrun> {
        self.settle(reading);
        self.memory_peak = self.memory_peak.max(reading.memory_bytes);
        if reading.over_memory {
            return Some(Overrun::Memory);
        }
        let cpu = reading.cpu.saturating_sub(self.before.cpu);
        let over = self.overrun.is_none() && cpu > Duration::from_millis(self.limits.cpu_ms);
        over.then_some(Overrun::Cpu)
    }

    /// What an execution is that was asked to end, or was not.
    pub(crate) fn verdict(&self) -> Cause {
        match self.overrun {
            Some(Overrun::Time) | None => Cause::TimeLimit,
            Some(Overrun::Cpu) => Cause::CpuLimit,
            Some(Overrun::Memory) => Cause::MemoryLimit,
            Some(Overrun::Stopped) => Cause::Stopped,
        }
    }

    /// The kernel may call it a success; over the limit it is not one.
    pub(crate) fn finished(&mut self, done: Answer) -> Cause {
        if self.overrun.is_none() {
            return Cause::Done(done);
        }
        self.last_words = Some(done);
        self.verdict()
    }

    pub(crate) fn died(&self) -> Cause {
        if self.overrun.is_none() { Cause::Died { status: None } } else { self.verdict() }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
