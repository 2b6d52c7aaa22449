//! One exchange with a runner: sends a request and handles all events until it is answered or stopped.
//! The deadline and stop requests are handled first, before anything that the sandbox sends.

use super::{ExitCause, Sandbox};
use crate::channel::{ProtocolError, ReceivedFrame};
use crate::execution_group::RunDuration;
use crate::execution_meter::{ExecutionMeter, Overrun};
use crate::frames::{RunnerEvent, RunnerRequest};
use crate::install_tracker::{
    self, ConcurrentInstall, InstallFailure, InstallSuccess, InstallTracker,
};
use crate::stop_handle::StopRequest;
use crate::time_slice::TimeSlice;
use crate::usage::{self, UsageReading};
use std::time::{Duration, Instant};
use tokio::time::{sleep_until, timeout};

/// A runner ignores interrupts between requests. An interrupt is delayed until this time after the
/// request was sent, so that the runner has begun with it.
const PICKUP_TIME: Duration = Duration::from_millis(50);

/// CPU time after which an execution counts as long: shorter ones then have priority if cores are
/// scarce. Imports of modules that a zygote has not preloaded take less.
const SHORT_CPU_MAX: Duration = Duration::from_millis(200);

/// Maximum time to send a reply that the runner waits for; it is small.
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
    /// Output is available on the stream with this index.
    OutputReady(usize),
    Received(Result<ReceivedFrame, ProtocolError>),
    /// An install has finished after this time.
    InstallDone(Duration, Result<InstallSuccess, InstallFailure>),
    Exited,
}

/// The timers of an exchange, which no sandbox can delay.
struct ExchangeTimers {
    /// The runner ignores interrupts before this time.
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

    /// When the next timer is due.
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
    /// Sends one request and handles events until the exchange is over; returns why it is over.
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
            let paused_until = run.paused_until();
            let [stdout, stderr] = &mut self.streams;
            // Checked each time: a sandbox that never stops sending must not delay the timers, and the
            // timers of the runtime fire only when no other future is ready.
            let event = match clock.due(run, installs) {
                Some(event) => event,
                None => tokio::select! {
                    biased;
                    () = sleep_until(clock.next_wakeup(run, installs).into()) => continue,
                    () = run.stop_request_changed() => continue,
                    reading = self.meter.next_reading() => ExchangeEvent::Measured(reading),
                    () = stdout.ready(), if paused_until.is_none() => {
                        ExchangeEvent::OutputReady(0)
                    }
                    () = stderr.ready(), if paused_until.is_none() => {
                        ExchangeEvent::OutputReady(1)
                    }
                    () = sleep_until(paused_until.unwrap_or_else(Instant::now).into()),
                        if paused_until.is_some() => continue,
                    received = self.channel.receive(), if paused_until.is_none() => {
                        ExchangeEvent::Received(received)
                    }
                    (elapsed, result) = installs.next_result() => ExchangeEvent::InstallDone(elapsed, result),
                    _ = self.process.readable() => ExchangeEvent::Exited,
                },
            };
            if let Err(cause) = self.handle_event(event, run, installs).await {
                return cause;
            }
        }
    }

    async fn send_request(
        &mut self,
        request: &RunnerRequest<'_>,
        run: &mut ExecutionMeter<'_>,
    ) -> Result<(), ExitCause> {
        let (limits, value_budget) = (run.limits, run.value_budget);
        let send = async {
            // A response that was sent before this request must not count as its response.
            self.channel.begin_request(limits, value_budget).await?;
            self.channel.send(request).await.map_err(|_| ExitCause::NotStarted)
        };
        tokio::select! {
            biased;
            sent = send => sent,
            // A runner that does not read, or never stops sending, must delay neither the supervisor nor
            // a stop request.
            () = sleep_until(run.deadline.into()) => Err(ExitCause::TimeLimit),
            _ = run.stop_requests.wait_for(|stop| *stop != StopRequest::NotRequested) => Err(ExitCause::Stopped),
        }
    }

    /// Handles one event; an error is the reason why the exchange is over.
    async fn handle_event(
        &mut self,
        event: ExchangeEvent,
        run: &mut ExecutionMeter<'_>,
        installs: &mut InstallTracker<'_>,
    ) -> Result<(), ExitCause> {
        match event {
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
            ExchangeEvent::InstallDone(elapsed, result) => {
                run.extend_deadline(elapsed);
                Ok(self.send_install_reply(&result).await?)
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
        self.adjust_cpu_shares(match run.cpu_used(reading) > SHORT_CPU_MAX {
            true => RunDuration::Long,
            false => RunDuration::Short,
        });
        match run.check_limits(reading) {
            None => Ok(()),
            Some(Overrun::Memory) => Err(ExitCause::MemoryLimit),
            Some(Overrun::ProcessSessions) => Err(ExitCause::ProcessSessionsLimit),
            Some(Overrun::Unmeasured) => Err(ExitCause::Unmeasured),
            Some(overrun) => {
                self.cancel_install(installs).await?;
                self.interrupt();
                run.request_end(overrun);
                Ok(())
            }
        }
    }

    /// Interrupts the code at the first deadline, and ends the execution at the second.
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
                // Output that was printed before the result is in the pipes already.
                self.streams.iter_mut().for_each(|source| run.drain(source));
                run.emit_result(data, main, cut);
                Ok(())
            }
            RunnerEvent::ResultsDropped { results } => {
                run.count_unsent(results);
                Ok(())
            }
            RunnerEvent::ConnectionRefused { destination } => {
                run.record_refused_connection(&destination);
                Ok(())
            }
            RunnerEvent::Install { requirements } => match installs.begin(requirements) {
                Ok(None) => Ok(()),
                Ok(Some(failure)) => Ok(self.send_install_reply(&Err(failure)).await?),
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
        result: &Result<InstallSuccess, InstallFailure>,
    ) -> Result<(), ProtocolError> {
        match timeout(REPLY_TIMEOUT, self.channel.send(&install_tracker::to_runner_request(result)))
            .await
        {
            // The exit of a runner meanwhile is found by the next event.
            Ok(_) => Ok(()),
            Err(_) => Err(ProtocolError::NotReading),
        }
    }

    /// Cancels a running install, so that the runner that waits for it can handle an interrupt.
    async fn cancel_install(&self, installs: &mut InstallTracker<'_>) -> Result<(), ProtocolError> {
        match installs.cancel() {
            Some(failure) => self.send_install_reply(&Err(failure)).await,
            None => Ok(()),
        }
    }
}
