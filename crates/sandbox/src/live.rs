//! One live sandbox: an interpreter behind its walls, and one execution in it at a time.

mod exchange;

use crate::books::{Run, millis};
use crate::capture::Source;
use crate::channel::{Channel, ProtocolError};
use crate::files::{Files, Listing};
use crate::frames::{Answer, FromKernel, Returned, ToKernel};
use crate::installs::{Install, Installs};
use crate::nursery::{self, BirthError, Jail, Nursery, allowance};
use crate::stopper::Stopper;
use crate::undertaker::{self, Remains};
use crate::value_room::ValueRoom;
use crate::watch::{self, IdleWatch, Meter, Reading};
use crate::wires::Spawned;
use crate::work::Work;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::time::timeout;
use types::{Event, Limits, NetworkAttempt, Stream, Usage};

/// How long the wait status may trail behind the end of the process itself.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);

/// Why an execution is over.
#[derive(Debug)]
pub enum Cause {
    /// The kernel said so.
    Done(Answer),
    TimeLimit,
    CpuLimit,
    /// Only without a cgroup, which otherwise does the killing itself.
    MemoryLimit,
    Stopped,
    /// The interpreter had ended before it was asked: nothing was run.
    Absent,
    /// The interpreter ended, with this wait status if it could be had.
    Died {
        status: Option<i32>,
    },
    Broke(ProtocolError),
}

/// An execution that is over, as seen from outside.
#[derive(Debug)]
pub struct Ending {
    pub cause: Cause,
    /// What the kernel said although the end was not of its choosing: the traceback of an
    /// interrupt.
    pub last_words: Option<Answer>,
    /// Whether the interpreter is still there, with its state.
    pub alive: bool,
    pub usage: Usage,
    pub output_dropped_bytes: u64,
    pub results_dropped: usize,
    /// Whom the code has tried to reach where there is no way out.
    pub refused: Vec<NetworkAttempt>,
    /// Processes of this execution that were killed for lack of memory.
    pub oom_kills: u64,
    pub forks_refused: u64,
    /// Names and versions of packages that the code has installed.
    pub installed: Vec<(String, String)>,
}

impl Ending {
    /// The value that it has ended with. Its place is left without one.
    pub fn take_returned(&mut self) -> Option<Returned> {
        match &mut self.cause {
            Cause::Done(Answer::Value(returned)) => Some(std::mem::take(returned)),
            _ => None,
        }
    }

    /// Length of the value that it has ended with, as JSON.
    pub fn returned_bytes(&self) -> usize {
        match &self.cause {
            Cause::Done(Answer::Value(returned)) => returned.bytes,
            _ => 0,
        }
    }

    /// Of code that was stopped before it was sent anywhere: nothing was run.
    pub fn withdrawn() -> Self {
        Self {
            cause: Cause::Stopped,
            last_words: None,
            alive: true,
            usage: Usage::default(),
            output_dropped_bytes: 0,
            results_dropped: 0,
            refused: Vec::new(),
            oom_kills: 0,
            forks_refused: 0,
            installed: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub struct Sandbox {
    nursery: Arc<Nursery>,
    /// `None` once it was handed to the undertaker.
    jail: Option<Jail>,
    uid: u32,
    pid: i32,
    /// A pidfd, which for the runtime is something that becomes readable, as a pipe does.
    process: pipe::Receiver,
    exit: oneshot::Receiver<i32>,
    channel: Channel,
    streams: [Source; 2],
    listing: Listing,
    meter: Meter,
    allowed: Limits,
    /// Whether there is another execution after the first.
    stays: bool,
    /// Only between executions: during one, the execution itself watches.
    idle_watch: Option<IdleWatch>,
}

impl Sandbox {
    pub(crate) fn new(
        nursery: Arc<Nursery>,
        uid: u32,
        Spawned { pid, pidfd, exit }: Spawned,
        [channel, stdout, stderr]: [OwnedFd; 3],
        allowed: Limits,
    ) -> Result<Self, BirthError> {
        Ok(Self {
            exit,
            nursery,
            jail: None,
            uid,
            pid,
            process: pipe::Receiver::from_owned_fd_unchecked(pidfd)?,
            channel: Channel::new(channel)?,
            streams: [Source::new(Stream::Stdout, stdout)?, Source::new(Stream::Stderr, stderr)?],
            listing: Listing::default(),
            meter: Meter::default(),
            allowed,
            stays: false,
            idle_watch: None,
        })
    }

    /// Given last, so that whatever fails before leaves the jail with its owner.
    pub(crate) fn move_in(&mut self, jail: Jail) {
        self.jail = Some(jail);
    }

    /// Whether the interpreter is still there.
    pub(crate) fn is_alive(&self) -> bool {
        let mut ended = [PollFd::new(&self.process, PollFlags::IN)];
        matches!(poll(&mut ended, Some(&Timespec::default())), Ok(0)) && !self.nursery.is_gone()
    }

    /// Takes the kernel's word that it is ready, which must say that it is not a copy of its
    /// siblings.
    pub(crate) async fn await_ready(&mut self) -> Result<(), BirthError> {
        match self.channel.receive_whole().await {
            Ok(Some(FromKernel::Ready { reseeded })) => {
                let must = &self.nursery.must_reseed;
                let all = must.iter().all(|name| reseeded.iter().any(|done| done == name));
                if all { Ok(()) } else { Err(BirthError::NotReseeded) }
            }
            Ok(Some(FromKernel::Wall(error))) => Err(error.into()),
            _ => Err(BirthError::Stillborn),
        }
    }

    /// The number that the zygote has for the interpreter; the same for nobody else alive.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// A descriptor of the interpreter's process, for those who look at it from outside.
    pub fn process(&self) -> impl AsFd {
        &self.process
    }

    /// How many processes and threads are inside, where a cgroup counts them.
    pub fn population(&self) -> Option<u64> {
        self.jail.as_ref()?.group.as_ref().map(jail::cgroup::Group::population)
    }

    /// Memory of the interpreter that it shares with nobody, with the tables that map it.
    pub fn private_bytes(&self) -> u64 {
        nursery::host_pid(&self.process).map_or(0, watch::private_bytes)
    }

    /// Touches everything that a first execution needs.
    pub async fn warm(&mut self) -> Result<(), BirthError> {
        self.channel.send(&ToKernel::Warm).await?;
        match timeout(nursery::BIRTH_MAX, self.channel.receive_whole()).await {
            Ok(Ok(Some(FromKernel::Done(_)))) => Ok(()),
            _ => Err(BirthError::Stillborn),
        }
    }

    /// Puts the limits of the next execution in force, as far as they can change.
    pub fn allow(&mut self, limits: &Limits) -> std::io::Result<()> {
        if self.allowed != *limits {
            if let Some(group) = self.jail.as_ref().and_then(|jail| jail.group.as_ref()) {
                group.allow(&allowance(limits))?;
            }
            self.allowed = *limits;
        }
        Ok(())
    }

    /// From here on it is there for more than one execution, and what the first leaves running goes on.
    pub fn stay(&mut self) {
        self.stays = true;
    }

    /// Runs code to its end, whatever that is, and tells what happens on the way. Unless it [stays],
    /// the sandbox is killed then; its files can still be read.
    ///
    /// [stays]: Self::stay
    pub async fn run(
        &mut self,
        work: &Work<'_>,
        limits: &Limits,
        stopper: &Stopper,
        sink: &mut (dyn FnMut(Event) + Send),
        room: &ValueRoom,
        install: Install<'_>,
    ) -> Ending {
        self.idle_watch = None;
        let mut run = Run::new(limits, stopper, sink, room, self.meter.latest);
        let mut installs = Installs::new(install);
        let mut cause = self.exchange(&work.request(limits), &mut run, &mut installs).await;
        if work.is_last() && matches!(cause, Cause::Done(_)) {
            let end = self.exchange(&ToKernel::Finish, &mut run, &mut installs).await;
            if !matches!(end, Cause::Done(_)) {
                cause = end;
            }
        }
        Ending { installed: installs.installed, ..self.conclude(cause, run).await }
    }

    async fn conclude(&mut self, cause: Cause, mut run: Run<'_>) -> Ending {
        let alive = match &cause {
            Cause::Done(_) => true,
            Cause::TimeLimit | Cause::CpuLimit | Cause::Stopped => run.last_words.is_some(),
            Cause::MemoryLimit | Cause::Absent | Cause::Died { .. } | Cause::Broke(_) => false,
        };
        let cause = if let Cause::Died { status: None } = cause {
            Cause::Died { status: self.status().await }
        } else {
            cause
        };
        if !alive || (self.stays && self.watch_on().is_err()) {
            self.kill();
        }
        let reading = self.last_reading(alive, run.limits).await;
        if !self.stays {
            // Nothing is asked of it any more, and nobody watches what it has left running.
            self.kill();
        }
        run.settle(&reading);
        for source in &mut self.streams {
            run.drain(source);
            run.flush(source);
        }
        run.emit_held();
        let before = run.before;
        Ending {
            cause,
            last_words: run.last_words,
            alive,
            usage: Usage {
                wall_ms: millis(run.started.elapsed()),
                cpu_ms: millis(reading.cpu.saturating_sub(before.cpu)),
                rss_peak_bytes: reading.memory_bytes.max(run.memory_peak),
                output_bytes: run.budget.kept + run.budget.dropped,
            },
            output_dropped_bytes: run.budget.dropped,
            results_dropped: run.results_dropped,
            refused: run.refused,
            oom_kills: reading.oom_kills.saturating_sub(before.oom_kills),
            forks_refused: reading.forks_refused.saturating_sub(before.forks_refused),
            installed: Vec::new(),
        }
    }

    /// Holds the limits of what an execution has left running.
    fn watch_on(&mut self) -> std::io::Result<()> {
        let jail = self.jail.as_ref();
        self.idle_watch = jail.map(|jail| IdleWatch::start(jail, self.allowed)).transpose()?;
        Ok(())
    }

    async fn status(&mut self) -> Option<i32> {
        match timeout(STATUS_PATIENCE, &mut self.exit).await {
            Ok(Ok(status)) => Some(status),
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// What was used up to now: as a cgroup counts it, or as it was when last looked at.
    fn reading(&mut self, limits: &Limits) -> Reading {
        let now = self.jail.as_ref().and_then(|jail| self.meter.begin(jail, limits));
        now.unwrap_or(self.meter.latest)
    }

    /// What was used at the end of an execution. A sandbox that is being killed is not waited for:
    /// a cgroup still knows, and of processes the latest reading has to do.
    async fn last_reading(&mut self, alive: bool, limits: &Limits) -> Reading {
        match &self.jail {
            Some(jail) if alive => self.meter.read_now(jail, limits).await,
            Some(jail) if jail.group.is_some() => self.reading(limits),
            _ => self.meter.latest,
        }
    }

    fn interrupt(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::INT);
    }

    fn kill(&self) {
        if let Some(jail) = &self.jail {
            undertaker::kill(&jail.init, jail.group.as_ref());
        }
    }

    /// Ends the sandbox, and returns when no process of it is left.
    pub async fn end(mut self) {
        let (sender, gone) = oneshot::channel();
        self.bury(Some(sender));
        self.nursery.await_end(gone).await;
    }

    fn bury(&mut self, gone: Option<oneshot::Sender<()>>) {
        self.idle_watch = None;
        if let Some(jail) = self.jail.take() {
            // The init first: its death takes all of them along, however many there are.
            self.nursery.undertaker.take(Remains::of(jail, gone));
            // The largest process starts to end while the init is still being woken.
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
        }
    }

    /// The working directory by itself, for whoever uses it elsewhere.
    pub fn files(&self) -> std::io::Result<Files> {
        let jail = self.jail.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        Ok(Files::new(jail.workspace.try_clone()?, self.uid))
    }

    /// The socket on its own loopback by which code inside can reach whoever serves it, once. It does
    /// not block. Dropped, nothing listens there any more.
    pub fn take_outlet(&mut self) -> Option<TcpListener> {
        self.jail.as_mut()?.outlet.take()
    }

    /// The stores that are held, in the order in which they were asked for.
    pub fn stores(&self) -> std::io::Result<Vec<Files>> {
        let jail = self.jail.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        let files = |store: &OwnedFd| Ok(Files::new(store.try_clone()?, self.uid));
        jail.stores.iter().map(files).collect()
    }

    /// Notes files that were put there from outside, as a [`Files::snapshot`] has them: they are not
    /// what the code made.
    pub fn overlook<'a>(&mut self, mut now: Listing, names: impl Iterator<Item = &'a str>) {
        for name in names {
            self.listing.files.extend(now.files.remove_entry(name));
        }
    }

    /// What is new or different in a [`Files::snapshot`] since the last time this was asked.
    pub fn changed_files(&mut self, now: &Listing) -> Vec<String> {
        let changed = now.changed_since(&self.listing).cloned().collect();
        self.listing = now.clone();
        changed
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.bury(None);
    }
}
