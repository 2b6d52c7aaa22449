//! One request to a kernel, and all that can happen until it is answered, or overdue. Whatever the
//! sandbox does, the clock and whoever wants to stop it are heard first.

use super::{Cause, Sandbox};
use crate::books::{Overrun, Run};
use crate::channel::{ProtocolError, Received};
use crate::frames::{FromKernel, ToKernel};
use crate::installs::{self, AskedTwice, Installed, Installs, NotInstalled};
use crate::stopper::Wish;
use crate::time_slice::TimeSlice;
use crate::watch::{self, Reading};
use std::time::{Duration, Instant};
use tokio::time::{sleep_until, timeout};

/// A kernel ignores interrupts between requests, so that none hits what it was not meant for. One
/// that comes before it can have taken the request up is held back for so long.
const TAKING_UP: Duration = Duration::from_millis(50);

/// An answer that a kernel has asked for is small, and it waits for it.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// What the supervisor is woken by.
enum Happened {
    Deadline,
    /// Somebody wants it to stop, and it can have taken the request up by now.
    Interrupt,
    Kill,
    Tick,
    /// What the processes have used was added up.
    Measured(Reading),
    /// There is something to read on this one of the streams.
    Printed(usize),
    Heard(Result<Received, ProtocolError>),
    /// The packages that it asked for, and how long that took.
    Packages(Duration, Result<Installed, NotInstalled>),
    Ended,
}

/// When something is due that no sandbox can put off.
struct Clock {
    /// An interrupt cannot be heard before.
    heard_from: Instant,
    interrupt_at: Option<Instant>,
    tick_at: Instant,
}

impl Clock {
    fn begin() -> Self {
        let now = Instant::now();
        Self { heard_from: now + TAKING_UP, interrupt_at: None, tick_at: now + watch::TICK }
    }

    /// What is due now, the most urgent first.
    fn due(&mut self, run: &mut Run<'_>, installs: &Installs<'_>) -> Option<Happened> {
        let now = Instant::now();
        if !installs.is_under_way() && now >= run.deadline {
            return Some(Happened::Deadline);
        }
        match run.new_wish() {
            Some(Wish::Die) => return Some(Happened::Kill),
            Some(_) => self.interrupt_at = Some(self.heard_from.max(now)),
            None => {}
        }
        if self.interrupt_at.is_some_and(|at| now >= at) {
            self.interrupt_at = None;
            return Some(Happened::Interrupt);
        }
        if now >= self.tick_at {
            self.tick_at = now + watch::TICK;
            return Some(Happened::Tick);
        }
        None
    }

    /// When to look again.
    fn next(&self, run: &Run<'_>, installs: &Installs<'_>) -> Instant {
        let deadline = (!installs.is_under_way()).then_some(run.deadline);
        let earlier = [deadline, self.interrupt_at].into_iter().flatten().min();
        earlier.map_or(self.tick_at, |earlier| earlier.min(self.tick_at))
    }
}

impl From<ProtocolError> for Cause {
    fn from(error: ProtocolError) -> Self {
        Self::Broke(error)
    }
}

impl Sandbox {
    /// Sends one request and serves the sandbox until it is over, and says why it is.
    pub(super) async fn exchange(
        &mut self,
        request: &ToKernel<'_>,
        run: &mut Run<'_>,
        installs: &mut Installs<'_>,
    ) -> Cause {
        if let Err(cause) = self.send(request, run).await {
            return cause;
        }
        let mut clock = Clock::begin();
        let mut slice = TimeSlice::start();
        loop {
            slice.yield_if_used().await;
            let [stdout, stderr] = &mut self.streams;
            // Looked at each time: a sandbox that never stops talking must not outtalk the clock, nor
            // us, and the runtime's own timers wait until nothing else is to be done.
            let happened = match clock.due(run, installs) {
                Some(happened) => happened,
                None => tokio::select! {
                    biased;
                    () = sleep_until(clock.next(run, installs).into()) => continue,
                    () = run.wished() => continue,
                    reading = self.meter.taken() => Happened::Measured(reading),
                    () = stdout.ready() => Happened::Printed(0),
                    () = stderr.ready() => Happened::Printed(1),
                    received = self.channel.receive() => Happened::Heard(received),
                    (took, answer) = installs.answered() => Happened::Packages(took, answer),
                    _ = self.process.readable() => Happened::Ended,
                },
            };
            if let Err(cause) = self.respond(happened, run, installs).await {
                return cause;
            }
        }
    }

    async fn send(&mut self, request: &ToKernel<'_>, run: &mut Run<'_>) -> Result<(), Cause> {
        let (limits, room) = (run.limits, run.room);
        let send = async {
            // An answer that nobody has asked for yet must not pass for the one to this request.
            self.channel.begin(limits, room).await?;
            self.channel.send(request).await.map_err(|_| Cause::Absent)
        };
        tokio::select! {
            biased;
            sent = send => sent,
            // A kernel that does not read, or never stops talking, must hold up neither us nor who
            // wants to stop it.
            () = sleep_until(run.deadline.into()) => Err(Cause::TimeLimit),
            _ = run.wishes.wait_for(|wish| *wish != Wish::GoOn) => Err(Cause::Stopped),
        }
    }

    /// Goes on, or says why it is over.
    async fn respond(
        &mut self,
        happened: Happened,
        run: &mut Run<'_>,
        installs: &mut Installs<'_>,
    ) -> Result<(), Cause> {
        match happened {
            Happened::Deadline => self.overdue(run),
            Happened::Interrupt => {
                self.abandon(installs).await?;
                run.stop(self.reading(run.limits).cpu);
                self.interrupt();
                Ok(())
            }
            Happened::Kill => Err(Cause::Stopped),
            Happened::Tick => {
                run.emit_due();
                let jail = self.jail.as_ref();
                match jail.and_then(|jail| self.meter.begin(jail, run.limits)) {
                    Some(reading) => self.judge(&reading, run, installs).await,
                    None => Ok(()),
                }
            }
            Happened::Measured(reading) => self.judge(&reading, run, installs).await,
            Happened::Printed(stream) => {
                run.drain(&mut self.streams[stream]);
                Ok(())
            }
            Happened::Heard(Ok(Received::Frame(frame))) => self.heard(frame, run, installs).await,
            Happened::Heard(Ok(Received::Part)) => Ok(()),
            Happened::Heard(Err(error)) => Err(error.into()),
            Happened::Packages(took, answer) => {
                run.excuse(took);
                Ok(self.tell(&answer).await?)
            }
            Happened::Heard(Ok(Received::Closed)) | Happened::Ended => Err(run.died()),
        }
    }

    async fn judge(
        &self,
        reading: &Reading,
        run: &mut Run<'_>,
        installs: &mut Installs<'_>,
    ) -> Result<(), Cause> {
        match run.judge(reading) {
            None => Ok(()),
            Some(Overrun::Memory) => Err(Cause::MemoryLimit),
            Some(overrun) => {
                self.abandon(installs).await?;
                self.interrupt();
                run.ask_to_end(overrun);
                Ok(())
            }
        }
    }

    /// The first time it is asked to end, the second time it has to.
    fn overdue(&mut self, run: &mut Run<'_>) -> Result<(), Cause> {
        if !run.overdue() {
            self.interrupt();
            run.ask_to_end(Overrun::Time);
            return Ok(());
        }
        let waits = run.wait_if_starved(self.reading(run.limits).cpu);
        if waits { Ok(()) } else { Err(run.verdict()) }
    }

    async fn heard(
        &mut self,
        frame: FromKernel,
        run: &mut Run<'_>,
        installs: &mut Installs<'_>,
    ) -> Result<(), Cause> {
        match frame {
            FromKernel::Done(done) => Err(run.finished(done)),
            FromKernel::Result { data, main, cut } => {
                // What was printed before it is in the pipes, whichever was heard of first.
                self.streams.iter_mut().for_each(|source| run.drain(source));
                run.result(data, main, cut);
                Ok(())
            }
            FromKernel::Unsent { results } => {
                run.unsent(results);
                Ok(())
            }
            FromKernel::Refused { place } => {
                run.refused(&place);
                Ok(())
            }
            FromKernel::Install { requirements } => match installs.begin(requirements) {
                Ok(None) => Ok(()),
                Ok(Some(refused)) => Ok(self.tell(&Err(refused)).await?),
                Err(AskedTwice) => Err(ProtocolError::OutOfOrder.into()),
            },
            FromKernel::Ready { .. } | FromKernel::Wall(_) => Err(ProtocolError::OutOfOrder.into()),
        }
    }

    /// Answers a kernel that waits for packages.
    async fn tell(&self, answer: &Result<Installed, NotInstalled>) -> Result<(), ProtocolError> {
        match timeout(ANSWER_PATIENCE, self.channel.send(&installs::reply(answer))).await {
            // One that has gone meanwhile is found to be gone.
            Ok(_) => Ok(()),
            Err(_) => Err(ProtocolError::Deaf),
        }
    }

    /// Lets a kernel that waits for packages hear the interrupt that is meant for it.
    async fn abandon(&self, installs: &mut Installs<'_>) -> Result<(), ProtocolError> {
        match installs.abandon() {
            Some(refused) => self.tell(&Err(refused)).await,
            None => Ok(()),
        }
    }
}
