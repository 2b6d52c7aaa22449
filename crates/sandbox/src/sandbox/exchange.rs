//! One request to a runner, and all that can happen until it is answered, or overdue. Whatever the
//! sandbox does, the clock and requests to stop are handled first.

use super::{ExitCause, Sandbox};
use crate::channel::{ProtocolError, ReceivedFrame};
use crate::execution_meter::{ExecutionMeter, Overrun};
use crate::frames::{RunnerEvent, RunnerRequest};
use crate::install_tracker::{
    self, ConcurrentInstall, InstallFailure, InstallSuccess, InstallTracker,
};
use crate::stop_handle::StopRequest;
use crate::time_slice::TimeSlice;
use crate::usage::{self, UsageReading};
use jail::cgroup::CpuPriority;
use std::time::{Duration, Instant};
use tokio::time::{sleep_until, timeout};

/// A runner ignores interrupts between requests, so that none hits what it was not meant for. One
/// that comes before it can have taken the request up is held back for so long.
const PICKUP_TIME: Duration = Duration::from_millis(50);

/// CPU time after which an execution is a long one: others, which are over sooner than that, then
/// come first where cores are scarce. Imports of what a zygote has not preloaded take less.
const SHORT_CPU_MAX: Duration = Duration::from_millis(200);

/// An answer that a kernel has asked for is small, and it waits for it.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// The events that wake the supervisor.
enum ExchangeEvent {
    Deadline,
    /// A stop was requested, and the sandbox has had time to read the request.
    Interrupt,
    Kill,
    Tick,
    /// A reading of the resource usage is complete.
    Measured(UsageReading),
    /// There is something to read on this one of the streams.
    OutputReady(usize),
    Received(Result<ReceivedFrame, ProtocolError>),
    /// The packages that it asked for, and how long that took.
    InstallDone(Duration, Result<InstallSuccess, InstallFailure>),
    Exited,
}

/// When something is due that no sandbox can put off.
struct ExchangeTimers {
    /// An interrupt cannot be heard before.
    interruptible_from: Instant,
    interrupt_at: Option<Instant>,
    tick_at: Instant,
}

impl ExchangeTimers {
    fn start() -> Self {
        let now = Instant::now();
        Self {
            interruptible_from: now + PICKUP_TIME,
            interrupt_at: None,
            tick_at: now + usage::TICK,
        }
    }

    /// The events that are due, the most urgent first.
    fn due(
        &mut self,
        run: &mut ExecutionMeter<'_>,
        installs: &InstallTracker<'_>,
    ) -> Option<ExchangeEvent> {
        let now = Instant::now();
        if !installs.is_pending() && now >= run.deadline {
            return Some(ExchangeEvent::Deadline);
        }
        match run.take_stop_request() {
            Some(StopRequest::Kill) => return Some(ExchangeEvent::Kill),
            Some(_) => self.interrupt_at = Some(self.interruptible_from.max(now)),
            None => {}
        }
        if self.interrupt_at.is_some_and(|at| now >= at) {
            self.interrupt_at = None;
            return Some(ExchangeEvent::Interrupt);
        }
        if now >= self.tick_at {
            self.tick_at = now + usage::TICK;
            return Some(ExchangeEvent::Tick);
        }
        None
    }

    /// When to look again.
    fn next_wakeup(&self, run: &ExecutionMeter<'_>, installs: &InstallTracker<'_>) -> Instant {
        let deadline = (!installs.is_pending()).then_some(run.deadline);
        let earlier = [deadline, self.interrupt_at].into_iter().flatten().min();
        earlier.map_or(self.tick_at, |earlier| earlier.min(self.tick_at))
    }
}

impl From<ProtocolError> for ExitCause {
    fn from(error: ProtocolError) -> Self {
        Self::ProtocolViolation(error)
    }
}

impl Sandbox {
    /// Sends one request and serves the sandbox until it is over, and says why it is.
    pub(super) async fn exchange(
        &mut self,
        request: &RunnerRequest<'_>,
        run: &mut ExecutionMeter<'_>,
        installs: &mut InstallTracker<'_>,
    ) -> ExitCause {
        if let Err(cause) = self.send_request(request, run).await {
            return cause;
        }
        let mut clock = ExchangeTimers::start();
        let mut slice = TimeSlice::start();
        loop {
            slice.yield_if_used().await;
            run.extend_for_queue(self.channel.take_queue_wait());
            let [stdout, stderr] = &mut self.streams;
            // Looked at each time: a sandbox that never stops talking must not outtalk the clock, nor
            // us, and the runtime's own timers wait until nothing else is to be done.
            let happened = match clock.due(run, installs) {
                Some(happened) => happened,
                None => tokio::select! {
                    biased;
                    () = sleep_until(clock.next_wakeup(run, installs).into()) => continue,
                    () = run.stop_request_changed() => continue,
                    reading = self.meter.next_reading() => ExchangeEvent::Measured(reading),
                    () = stdout.ready() => ExchangeEvent::OutputReady(0),
                    () = stderr.ready() => ExchangeEvent::OutputReady(1),
                    received = self.channel.receive() => ExchangeEvent::Received(received),
                    (took, answer) = installs.next_result() => ExchangeEvent::InstallDone(took, answer),
                    _ = self.process.readable() => ExchangeEvent::Exited,
                },
            };
            if let Err(cause) = self.handle_event(happened, run, installs).await {
                return cause;
            }
        }
    }

    async fn send_request(
        &mut self,
        request: &RunnerRequest<'_>,
        run: &mut ExecutionMeter<'_>,
    ) -> Result<(), ExitCause> {
        let (limits, room) = (run.limits, run.room);
        let send = async {
            // A response that was sent before this request must not count as its response.
            self.channel.begin_request(limits, room).await?;
            self.channel.send(request).await.map_err(|_| ExitCause::NotStarted)
        };
        tokio::select! {
            biased;
            sent = send => sent,
            // A runner that does not read, or never stops talking, must hold up neither us nor who
            // wants to stop it.
            () = sleep_until(run.deadline.into()) => Err(ExitCause::TimeLimit),
            _ = run.stop_requests.wait_for(|wish| *wish != StopRequest::NotRequested) => Err(ExitCause::Stopped),
        }
    }

    /// Goes on, or says why it is over.
    async fn handle_event(
        &mut self,
        happened: ExchangeEvent,
        run: &mut ExecutionMeter<'_>,
        installs: &mut InstallTracker<'_>,
    ) -> Result<(), ExitCause> {
        match happened {
            ExchangeEvent::Deadline => self.handle_deadline(run),
            ExchangeEvent::Interrupt => {
                self.cancel_install(installs).await?;
                run.record_interrupt(self.current_usage(run.limits).cpu);
                self.interrupt();
                Ok(())
            }
            ExchangeEvent::Kill => Err(ExitCause::Stopped),
            ExchangeEvent::Tick => {
                run.flush_due_output();
                let jail = self.jail.as_ref();
                match jail.and_then(|jail| self.meter.begin_reading(jail, run.limits)) {
                    Some(reading) => self.enforce_limits(&reading, run, installs).await,
                    None => Ok(()),
                }
            }
            ExchangeEvent::Measured(reading) => self.enforce_limits(&reading, run, installs).await,
            ExchangeEvent::OutputReady(stream) => {
                run.drain(&mut self.streams[stream]);
                Ok(())
            }
            ExchangeEvent::Received(Ok(ReceivedFrame::Frame(frame))) => {
                self.handle_frame(frame, run, installs).await
            }
            ExchangeEvent::Received(Ok(ReceivedFrame::Partial)) => Ok(()),
            ExchangeEvent::Received(Err(error)) => Err(error.into()),
            ExchangeEvent::InstallDone(took, answer) => {
                run.extend_deadline(took);
                Ok(self.send_install_reply(&answer).await?)
            }
            ExchangeEvent::Received(Ok(ReceivedFrame::Closed)) | ExchangeEvent::Exited => {
                Err(run.death_cause())
            }
        }
    }

    async fn enforce_limits(
        &mut self,
        reading: &UsageReading,
        run: &mut ExecutionMeter<'_>,
        installs: &mut InstallTracker<'_>,
    ) -> Result<(), ExitCause> {
        if run.cpu_used(reading) > SHORT_CPU_MAX {
            self.set_cpu_priority(CpuPriority::Long);
        }
        match run.check_limits(reading) {
            None => Ok(()),
            Some(Overrun::Memory) => Err(ExitCause::MemoryLimit),
            Some(Overrun::Sessions) => Err(ExitCause::SessionsLimit),
            Some(Overrun::Unmeasured) => Err(ExitCause::Unmeasured),
            Some(overrun) => {
                self.cancel_install(installs).await?;
                self.interrupt();
                run.request_end(overrun);
                Ok(())
            }
        }
    }

    /// The first time it is asked to end, the second time it has to.
    fn handle_deadline(&mut self, run: &mut ExecutionMeter<'_>) -> Result<(), ExitCause> {
        if !run.is_stopping() {
            self.interrupt();
            run.request_end(Overrun::Time);
            return Ok(());
        }
        let waits = run.extend_if_starved(self.current_usage(run.limits).cpu);
        if waits { Ok(()) } else { Err(run.stop_cause()) }
    }

    async fn handle_frame(
        &mut self,
        frame: RunnerEvent,
        run: &mut ExecutionMeter<'_>,
        installs: &mut InstallTracker<'_>,
    ) -> Result<(), ExitCause> {
        match frame {
            RunnerEvent::Done(done) => Err(run.done_cause(done)),
            RunnerEvent::Result { data, main, cut } => {
                // What was printed before it is in the pipes, whichever was heard of first.
                self.streams.iter_mut().for_each(|source| run.drain(source));
                run.emit_result(data, main, cut);
                Ok(())
            }
            RunnerEvent::ResultsDropped { results } => {
                run.count_unsent(results);
                Ok(())
            }
            RunnerEvent::ConnectionRefused { place } => {
                run.record_refused_connection(&place);
                Ok(())
            }
            RunnerEvent::Install { requirements } => match installs.begin(requirements) {
                Ok(None) => Ok(()),
                Ok(Some(refused)) => Ok(self.send_install_reply(&Err(refused)).await?),
                Err(ConcurrentInstall) => Err(ProtocolError::OutOfOrder.into()),
            },
            RunnerEvent::Ready { .. } | RunnerEvent::IsolationFailed(_) => {
                Err(ProtocolError::OutOfOrder.into())
            }
        }
    }

    /// Answers a runner that waits for packages.
    async fn send_install_reply(
        &self,
        answer: &Result<InstallSuccess, InstallFailure>,
    ) -> Result<(), ProtocolError> {
        match timeout(REPLY_TIMEOUT, self.channel.send(&install_tracker::to_runner_request(answer)))
            .await
        {
            // One that has gone meanwhile is found to be gone.
            Ok(_) => Ok(()),
            Err(_) => Err(ProtocolError::NotReading),
        }
    }

    /// Lets a runner that waits for packages hear the interrupt that is meant for it.
    async fn cancel_install(&self, installs: &mut InstallTracker<'_>) -> Result<(), ProtocolError> {
        match installs.cancel() {
            Some(refused) => self.send_install_reply(&Err(refused)).await,
            None => Ok(()),
        }
    }
}
