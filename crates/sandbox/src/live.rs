//! One live sandbox: an interpreter behind its walls, and one execution in it at a time.

mod exchange;

use crate::books::{Run, millis};
use crate::capture::Source;
use crate::channel::{Channel, ProtocolError, Received};
use crate::files::{self, Files, Listing};
use crate::frames::{Answer, FromKernel, ToKernel};
use crate::installs::{Install, Installs};
use crate::nursery::{self, BirthError, Jail, Nursery, allowance};
use crate::stopper::Stopper;
use crate::undertaker::{self, Remains};
use crate::watch::{self, Reading};
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
    /// As of the end of the last execution.
    reading: Reading,
    allowed: Limits,
}

impl Sandbox {
    pub(crate) fn new(
        nursery: Arc<Nursery>,
        uid: u32,
        pid: i32,
        pidfd: OwnedFd,
        [channel, stdout, stderr]: [OwnedFd; 3],
        allowed: Limits,
    ) -> Result<Self, BirthError> {
        Ok(Self {
            exit: nursery.wires.exit_of(pid),
            nursery,
            jail: None,
            uid,
            pid,
            process: pipe::Receiver::from_owned_fd_unchecked(pidfd)?,
            channel: Channel::new(channel)?,
            streams: [Source::new(Stream::Stdout, stdout)?, Source::new(Stream::Stderr, stderr)?],
            listing: Listing::default(),
            reading: Reading::default(),
            allowed,
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
        match self.channel.receive().await {
            Ok(Received::Frame(FromKernel::Ready { reseeded })) => {
                let must = &self.nursery.must_reseed;
                let all = must.iter().all(|name| reseeded.iter().any(|done| done == name));
                if all { Ok(()) } else { Err(BirthError::NotReseeded) }
            }
            Ok(Received::Frame(FromKernel::Wall(error))) => Err(error.into()),
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
        match timeout(nursery::BIRTH_MAX, self.channel.receive()).await {
            Ok(Ok(Received::Frame(FromKernel::Done(_)))) => Ok(()),
            _ => Err(BirthError::Stillborn),
        }
    }

    /// Puts the limits of the next execution in force, as far as they can change.
    pub fn allow(&mut self, limits: &Limits) -> std::io::Result<()> {
        if let Some(group) = self.jail.as_ref().and_then(|jail| jail.group.as_ref())
            && self.allowed != *limits
        {
            group.allow(&allowance(limits))?;
            self.allowed = *limits;
        }
        Ok(())
    }

    /// Runs code to its end, whatever that is, and tells what happens on the way.
    pub async fn run(
        &mut self,
        work: &Work<'_>,
        limits: &Limits,
        stopper: &Stopper,
        sink: &mut (dyn FnMut(Event) + Send),
        install: Install<'_>,
    ) -> Ending {
        let mut run = Run::new(limits, stopper, sink, self.reading);
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
        let reading = self.reading(run.limits);
        run.settle(&reading);
        self.reading = reading;
        if !alive {
            self.kill();
        }
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

    async fn status(&mut self) -> Option<i32> {
        match timeout(STATUS_PATIENCE, &mut self.exit).await {
            Ok(Ok(status)) => Some(status),
            Ok(Err(_)) | Err(_) => None,
        }
    }

    fn has_group(&self) -> bool {
        self.jail.as_ref().is_some_and(|jail| jail.group.is_some())
    }

    fn reading(&self, limits: &Limits) -> Reading {
        self.jail.as_ref().map_or_else(Reading::default, |jail| {
            watch::read(jail.group.as_ref(), &jail.proc, &jail.workspace, limits)
        })
    }

    fn interrupt(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::INT);
    }

    fn kill(&self) {
        if let Some(jail) = &self.jail {
            undertaker::kill(&jail.init);
        }
    }

    /// Ends the sandbox, and returns when no process of it is left.
    pub async fn end(mut self) {
        let (sender, gone) = oneshot::channel();
        self.bury(Some(sender));
        let _ = gone.await;
    }

    fn bury(&mut self, gone: Option<oneshot::Sender<()>>) {
        if let Some(jail) = self.jail.take() {
            self.nursery.wires.forget_exit_of(self.pid);
            // The largest process starts to end while the init is still being woken.
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
            self.nursery.undertaker.take(Remains::of(jail, gone));
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

    fn list_files(&self) -> Listing {
        let jail = self.jail.as_ref();
        jail.map_or_else(Listing::default, |jail| files::list(&jail.workspace, self.uid))
    }

    /// Notes files that were put there from outside: they are not what the code made.
    pub fn overlook<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let mut now = self.list_files();
        for name in names {
            self.listing.files.extend(now.files.remove_entry(name));
        }
    }

    /// What is new or different in the working directory since the last time this was asked.
    pub fn changed_files(&mut self) -> (Vec<String>, Listing) {
        let now = self.list_files();
        let changed = now.changed_since(&self.listing).cloned().collect();
        self.listing = now.clone();
        (changed, now)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.bury(None);
    }
}
