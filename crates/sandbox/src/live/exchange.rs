//! One request to a kernel, and all that can happen until it is answered, or overdue. Whatever the
//! sandbox does, the clock and whoever wants to stop it are heard first.

use super::{Cause, Sandbox};
use crate::books::{Overrun, Run};
use crate::channel::{ProtocolError, Received};
use crate::frames::{FromKernel, ToKernel};
use crate::installs::{self, AskedTwice, Installed, Installs, NotInstalled};
use crate::stopper::Wish;
use crate::watch;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

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
    /// There is something to read on this one of the streams.
    Printed(usize),
    Heard(Result<Received, ProtocolError>),
    /// The packages that it asked for, and how long that took.
    Packages(Duration, Result<Installed, NotInstalled>),
    Ended,
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
        let heard_from = Instant::now() + TAKING_UP;
        let mut interrupt_at = None;
        let mut tick = interval(watch::TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.reset();
        loop {
            let [stdout, stderr] = &mut self.streams;
            let happened = tokio::select! {
                biased;
                // First of all: a sandbox that never stops talking must not outtalk the clock, nor us.
                () = sleep_until(run.deadline.into()), if !installs.is_under_way() => Happened::Deadline,
                wish = run.next_wish() => {
                    if wish != Wish::Die {
                        interrupt_at = Some(heard_from.max(Instant::now()));
                        continue;
                    }
                    Happened::Kill
                }
                () = sleep_until(interrupt_at.unwrap_or(heard_from)), if interrupt_at.is_some() => {
                    interrupt_at = None;
                    Happened::Interrupt
                }
                _ = tick.tick() => Happened::Tick,
                () = stdout.ready() => Happened::Printed(0),
                () = stderr.ready() => Happened::Printed(1),
                received = self.channel.receive() => Happened::Heard(received),
                (took, answer) = installs.answered() => Happened::Packages(took, answer),
                _ = self.process.readable() => Happened::Ended,
            };
            if let Err(cause) = self.respond(happened, run, installs).await {
                return cause;
            }
        }
    }

    async fn send(&mut self, request: &ToKernel<'_>, run: &mut Run<'_>) -> Result<(), Cause> {
        // An answer that nobody has asked for yet must not pass for the one to this request.
        self.channel.discard_results()?;
        tokio::select! {
            biased;
            sent = self.channel.send(request) => sent.map_err(|_| Cause::Absent),
            // A kernel that does not read must hold up neither us nor who wants to stop it.
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
            Happened::Tick => match run.tick(&self.reading(run.limits), self.has_group()) {
                None => Ok(()),
                Some(Overrun::Memory) => Err(Cause::MemoryLimit),
                Some(overrun) => {
                    self.abandon(installs).await?;
                    self.interrupt();
                    run.ask_to_end(overrun);
                    Ok(())
                }
            },
            Happened::Printed(stream) => {
                run.drain(&mut self.streams[stream]);
                Ok(())
            }
            Happened::Heard(Ok(Received::Frame(frame))) => self.heard(frame, run, installs).await,
            Happened::Heard(Err(error)) => Err(error.into()),
            Happened::Packages(took, answer) => {
                run.excuse(took);
                Ok(self.tell(&answer).await?)
            }
            Happened::Heard(Ok(Received::Closed)) | Happened::Ended => Err(run.died()),
        }
    }

    /// The first time it is asked to end, the second time it has to.
    fn overdue(&self, run: &mut Run<'_>) -> Result<(), Cause> {
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
            FromKernel::Result { data, main, dropped } => {
                // What was printed before it is in the pipes, whichever was heard of first.
                self.streams.iter_mut().for_each(|source| run.drain(source));
                run.result(data, main, dropped);
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
