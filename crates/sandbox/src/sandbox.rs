//! One live sandbox: an isolated interpreter, and one execution in it at a time.

mod exchange;

use crate::channel::{ControlChannel, ProtocolError};
use crate::control::SpawnedProcess;
use crate::execution_group::{ExecutionGroup, LONG_SHARE, RunDuration};
use crate::execution_meter::{ExecutionMeter, millis};
use crate::files::{DirectoryListing, SandboxDirectory};
use crate::frames::{ReturnedValue, RunnerEvent, RunnerOutcome, RunnerRequest};
use crate::install_tracker::{InstallCallback, InstallTracker};
use crate::output_pipe::OutputPipe;
use crate::reaper::{self, ExitedSandbox};
use crate::stop_handle::StopHandle;
use crate::usage::{self, IdleWatch, UsageMeter, UsageReading};
use crate::value_budget::ValueBudget;
use crate::zygote_host::{self, PreparedJail, SpawnError, ZygoteHost, cgroup_limits};
use jail::cgroup::CpuShares;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::time::timeout;
use types::{Event, Limits, NetworkAttempt, OutputStream, ResourceUsage};

/// Maximum delay of the wait status after the end of the process.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);

/// Why an execution is over.
#[derive(Debug)]
pub enum ExitCause {
    /// The runner reported it.
    Done(RunnerOutcome),
    TimeLimit,
    CpuLimit,
    /// Only without a cgroup; with one, the Linux kernel kills the process.
    MemoryLimit,
    /// Only without a cgroup: more process sessions than [`PROCESS_SESSIONS_MAX`](crate::PROCESS_SESSIONS_MAX).
    ProcessSessionsLimit,
    /// Only without a cgroup: the usage of its processes could not be read in time.
    Unmeasured,
    Stopped,
    /// The interpreter had exited before the request: nothing was run.
    NotStarted,
    /// The interpreter exited, with this wait status if it is known.
    Died {
        status: Option<i32>,
    },
    ProtocolViolation(ProtocolError),
}

/// An execution that is over, as seen from outside.
#[derive(Debug)]
pub struct ExitReport {
    pub cause: ExitCause,
    /// The outcome that the runner reported after it was interrupted: the traceback of the interrupt.
    pub interrupt_outcome: Option<RunnerOutcome>,
    /// Whether the interpreter is alive, with its state.
    pub alive: bool,
    pub usage: ResourceUsage,
    pub output_dropped_bytes: u64,
    pub results_dropped: usize,
    /// The hosts that the code has tried to reach without egress.
    pub refused_connections: Vec<NetworkAttempt>,
    /// Processes of this execution that were killed for lack of memory.
    pub oom_kills: u64,
    pub forks_refused: u64,
    /// Names and versions of packages that the code has installed.
    pub installed: Vec<(String, String)>,
}

impl ExitReport {
    /// Takes the returned value out of the report.
    pub fn take_returned(&mut self) -> Option<ReturnedValue> {
        match &mut self.cause {
            ExitCause::Done(RunnerOutcome::Value(returned)) => Some(std::mem::take(returned)),
            _ => None,
        }
    }

    /// Length of the returned value, as JSON.
    pub fn returned_bytes(&self) -> usize {
        match &self.cause {
            ExitCause::Done(RunnerOutcome::Value(returned)) => returned.bytes,
            _ => 0,
        }
    }

    /// The report for code that was stopped before it was sent: nothing was run.
    pub fn cancelled_before_start() -> Self {
        Self {
            cause: ExitCause::Stopped,
            interrupt_outcome: None,
            alive: true,
            usage: ResourceUsage::default(),
            output_dropped_bytes: 0,
            results_dropped: 0,
            refused_connections: Vec::new(),
            oom_kills: 0,
            forks_refused: 0,
            installed: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub struct Sandbox {
    host: Arc<ZygoteHost>,
    /// `None` once the reaper has it.
    jail: Option<PreparedJail>,
    uid: u32,
    pid: i32,
    /// A pidfd, registered with the runtime as a pipe, because it becomes readable as one.
    process: pipe::Receiver,
    exit: oneshot::Receiver<i32>,
    channel: ControlChannel,
    streams: [OutputPipe; 2],
    listing: DirectoryListing,
    meter: UsageMeter,
    limits: Limits,
    cpu_shares: CpuShares,
    /// The executions of its caller.
    group: ExecutionGroup,
    /// Whether the sandbox is used for more than one execution.
    is_kept_alive: bool,
    /// Enforces limits between executions.
    idle_watch: Option<IdleWatch>,
}

impl Sandbox {
    pub(crate) fn new(
        host: Arc<ZygoteHost>,
        uid: u32,
        SpawnedProcess { pid, pidfd, exit }: SpawnedProcess,
        [channel, stdout, stderr]: [OwnedFd; 3],
        allowed: Limits,
    ) -> Result<Self, SpawnError> {
        Ok(Self {
            exit,
            host,
            jail: None,
            uid,
            pid,
            process: pipe::Receiver::from_owned_fd_unchecked(pidfd)?,
            channel: ControlChannel::new(channel)?,
            streams: [
                OutputPipe::new(OutputStream::Stdout, stdout)?,
                OutputPipe::new(OutputStream::Stderr, stderr)?,
            ],
            cpu_shares: CpuShares::DEFAULT,
            group: ExecutionGroup::default(),
            listing: DirectoryListing::default(),
            meter: UsageMeter::default(),
            limits: allowed,
            is_kept_alive: false,
            idle_watch: None,
        })
    }

    /// Attaches the jail. This is the last step, so that an earlier error leaves the jail with its owner.
    pub(crate) fn attach_jail(&mut self, jail: PreparedJail) {
        self.jail = Some(jail);
    }

    /// Whether the interpreter has not exited.
    pub(crate) fn is_alive(&self) -> bool {
        let mut ended = [PollFd::new(&self.process, PollFlags::IN)];
        matches!(poll(&mut ended, Some(&Timespec::default())), Ok(0)) && !self.host.is_gone()
    }

    /// Waits for the runner to be ready. It must confirm that it has reseeded its random generators.
    pub(crate) async fn await_ready(&mut self) -> Result<(), SpawnError> {
        match self.channel.receive_frame().await {
            Ok(Some(RunnerEvent::Ready { reseeded })) => {
                let must = &self.host.must_reseed;
                let all = must.iter().all(|name| reseeded.iter().any(|done| done == name));
                if all { Ok(()) } else { Err(SpawnError::NotReseeded) }
            }
            Ok(Some(RunnerEvent::IsolationFailed(error))) => Err(error.into()),
            _ => Err(SpawnError::EndedBeforeReady),
        }
    }

    /// The pid of the interpreter in the pid namespace of the zygote; unique among live sandboxes.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// A pidfd of the interpreter.
    pub fn process(&self) -> impl AsFd {
        &self.process
    }

    /// Number of processes and threads in the sandbox, if it has a cgroup.
    pub fn task_count(&self) -> Option<u64> {
        self.jail.as_ref()?.cgroup.as_ref().map(jail::cgroup::Cgroup::task_count)
    }

    /// Private memory of the interpreter, with its page tables.
    pub fn private_bytes(&self) -> u64 {
        zygote_host::host_pid(&self.process).map_or(0, usage::private_bytes)
    }

    /// Warms up: touches the pages that the first execution needs.
    pub async fn warm_up(&mut self) -> Result<(), SpawnError> {
        self.channel.send(&RunnerRequest::Warm).await?;
        match timeout(zygote_host::SPAWN_TIMEOUT, self.channel.receive_frame()).await {
            Ok(Ok(Some(RunnerEvent::Done(_)))) => Ok(()),
            _ => Err(SpawnError::EndedBeforeReady),
        }
    }

    /// Sets the limits of the next execution, as far as they can change.
    pub fn set_limits(&mut self, limits: &Limits) -> std::io::Result<()> {
        if self.limits != *limits {
            if let Some(group) = self.jail.as_ref().and_then(|jail| jail.cgroup.as_ref()) {
                group.set_limits(&cgroup_limits(limits))?;
            }
            self.limits = *limits;
        }
        Ok(())
    }

    /// Shares the CPU, and the rate at which output is read, with the other executions of the group.
    pub fn join_group(&mut self, group: ExecutionGroup) {
        self.group = group;
    }

    /// Sets the CPU share of its processes relative to other sandboxes. Without a cgroup, or if Linux
    /// refuses, nothing changes; nothing depends on it.
    pub(crate) fn adjust_cpu_shares(&mut self, duration: RunDuration) {
        let parts = match duration {
            RunDuration::Short => self.group.executions(),
            RunDuration::Long => self.group.executions().saturating_mul(LONG_SHARE),
        };
        let shares = CpuShares::DEFAULT.divided_by(parts);
        let cgroup = self.jail.as_ref().and_then(|jail| jail.cgroup.as_ref());
        if self.cpu_shares != shares
            && cgroup.is_some_and(|cgroup| cgroup.set_cpu_shares(shares).is_ok())
        {
            self.cpu_shares = shares;
        }
    }

    /// Keeps the sandbox for more than one execution; processes that one leaves running continue.
    pub fn keep_alive(&mut self) {
        self.is_kept_alive = true;
    }

    /// Runs code to its end and emits events meanwhile. After that the sandbox is killed, unless it is
    /// [kept alive](Self::keep_alive); its files can still be read.
    pub async fn run(
        &mut self,
        request: &RunnerRequest<'_>,
        limits: &Limits,
        stop_handle: &StopHandle,
        sink: &mut (dyn FnMut(Event) + Send),
        value_budget: &ValueBudget,
        install: InstallCallback<'_>,
    ) -> ExitReport {
        self.idle_watch = None;
        self.adjust_cpu_shares(RunDuration::Short);
        let (usage, group) = (self.meter.latest, self.group.clone());
        let mut run = ExecutionMeter::new(limits, stop_handle, sink, value_budget, usage, group);
        let mut installs = InstallTracker::new(install);
        let mut cause = self.exchange(request, &mut run, &mut installs).await;
        if request.is_last() && matches!(cause, ExitCause::Done(_)) {
            let end = self.exchange(&RunnerRequest::Finish, &mut run, &mut installs).await;
            if !matches!(end, ExitCause::Done(_)) {
                cause = end;
            }
        }
        ExitReport { installed: installs.installed, ..self.build_exit_report(cause, run).await }
    }

    async fn build_exit_report(
        &mut self,
        cause: ExitCause,
        mut run: ExecutionMeter<'_>,
    ) -> ExitReport {
        let alive = match &cause {
            ExitCause::Done(_) => true,
            ExitCause::TimeLimit | ExitCause::CpuLimit | ExitCause::Stopped => {
                run.interrupt_outcome.is_some()
            }
            ExitCause::MemoryLimit
            | ExitCause::ProcessSessionsLimit
            | ExitCause::Unmeasured
            | ExitCause::NotStarted
            | ExitCause::Died { .. }
            | ExitCause::ProtocolViolation(_) => false,
        };
        let cause = if let ExitCause::Died { status: None } = cause {
            ExitCause::Died { status: self.wait_status().await }
        } else {
            cause
        };
        if !alive || (self.is_kept_alive && self.start_idle_watch().is_err()) {
            self.kill();
        }
        let reading = self.final_usage(alive, run.limits).await;
        if !self.is_kept_alive {
            // It gets no more requests, and no limits are enforced on processes that are left running.
            self.kill();
        }
        run.exclude_background_usage(&reading);
        for source in &mut self.streams {
            run.drain(source);
            run.flush(source);
        }
        run.flush_output();
        let before = run.usage_before;
        ExitReport {
            cause,
            interrupt_outcome: run.interrupt_outcome,
            alive,
            usage: ResourceUsage {
                wall_ms: millis(run.started.elapsed()),
                cpu_ms: millis(reading.cpu.saturating_sub(before.cpu)),
                rss_peak_bytes: reading.memory_bytes.max(run.memory_peak),
                output_bytes: run.budget.kept + run.budget.dropped,
            },
            output_dropped_bytes: run.budget.dropped,
            results_dropped: run.results_dropped,
            refused_connections: run.refused_connections,
            oom_kills: reading.oom_kills.saturating_sub(before.oom_kills),
            forks_refused: reading.forks_refused.saturating_sub(before.forks_refused),
            installed: Vec::new(),
        }
    }

    /// Enforces the limits on processes that an execution has left running.
    fn start_idle_watch(&mut self) -> std::io::Result<()> {
        let jail = self.jail.as_ref();
        self.idle_watch = jail.map(|jail| IdleWatch::start(jail, self.limits)).transpose()?;
        Ok(())
    }

    async fn wait_status(&mut self) -> Option<i32> {
        match timeout(STATUS_PATIENCE, &mut self.exit).await {
            Ok(Ok(status)) => Some(status),
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// The usage up to now, from the cgroup; without one, the latest reading.
    fn current_usage(&mut self, limits: &Limits) -> UsageReading {
        let now = self.jail.as_ref().and_then(|jail| self.meter.begin_reading(jail, limits));
        now.unwrap_or(self.meter.latest)
    }

    /// The usage at the end of an execution. For a sandbox that is being killed no new reading is awaited:
    /// the cgroup has the usage, and without one the latest reading is used.
    async fn final_usage(&mut self, alive: bool, limits: &Limits) -> UsageReading {
        match &self.jail {
            Some(jail) if alive => self.meter.read_now(jail, limits).await,
            Some(jail) if jail.cgroup.is_some() => self.current_usage(limits),
            _ => self.meter.latest,
        }
    }

    fn interrupt(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::INT);
    }

    fn kill(&self) {
        if let Some(jail) = &self.jail {
            reaper::kill_init(&jail.init, jail.cgroup.as_ref());
        }
    }

    /// Ends the sandbox, and returns when no process of it is left.
    pub async fn end(mut self) {
        let (sender, exited) = oneshot::channel();
        self.reap(Some(sender));
        self.host.await_end(exited).await;
    }

    fn reap(&mut self, exited: Option<oneshot::Sender<()>>) {
        self.idle_watch = None;
        if let Some(jail) = self.jail.take() {
            // The init first: all other processes are killed with it.
            self.host.reaper.reap(ExitedSandbox::of(jail, exited));
            // The largest process starts to end while the init is still being woken.
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
        }
    }

    /// A handle to the working directory, for use without the sandbox.
    pub fn directory(&self) -> std::io::Result<SandboxDirectory> {
        let jail = self.jail.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        Ok(SandboxDirectory::new(jail.workspace.try_clone()?, self.uid))
    }

    /// Takes the proxy socket on the loopback of the sandbox, through which code reaches the egress proxy.
    /// It is non-blocking. When it is dropped, nothing listens there any more.
    pub fn take_proxy_socket(&mut self) -> Option<TcpListener> {
        self.jail.as_mut()?.proxy_socket.take()
    }

    /// The directories of writable volumes, in the order of the request.
    pub fn volume_directories(&self) -> std::io::Result<Vec<SandboxDirectory>> {
        let jail = self.jail.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        let files = |volume: &OwnedFd| Ok(SandboxDirectory::new(volume.try_clone()?, self.uid));
        jail.volumes.iter().map(files).collect()
    }

    /// Records files of a [`SandboxDirectory::snapshot`] that were written from outside, so that they do
    /// not count as changes of the code.
    pub fn ignore_changes<'a>(
        &mut self,
        mut now: DirectoryListing,
        names: impl Iterator<Item = &'a str>,
    ) {
        for name in names {
            self.listing.files.extend(now.files.remove_entry(name));
        }
    }

    /// The files of a [`SandboxDirectory::snapshot`] that are new or changed since the last call.
    pub fn take_changed_files(&mut self, now: &DirectoryListing) -> Vec<String> {
        let changed = now.changed_since(&self.listing).cloned().collect();
        self.listing = now.clone();
        changed
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.reap(None);
    }
}
