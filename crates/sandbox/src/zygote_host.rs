//! The host of a zygote: a Python with its modules imported, its warden, and the spawning of sandboxes
//! from them.

use crate::control::{
    ControlSockets, ControlState, JailWaiter, ReceivedJail, SpawnedProcess, seqpacket_pair,
};
use crate::reaper::{ExitedSandbox, Reaper, Slot, Slots};
use crate::runner_files::RunnerFiles;
use crate::sandbox::Sandbox;
use crate::sandbox_spec::{self, SandboxSpec};
use crate::uids::{HostUids, UIDS_PER_HOST};
use jail::cgroup::{Cgroup, CgroupLimits, CgroupParent};
use jail::{
    IsolationLayer, JailError, JailRequest, SandboxPlan, SpawnRequest, VolumeMount, WardenPlan,
    WardenRequest, message,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, Uid, getrlimit, pidfd_open, pidfd_send_signal,
    setrlimit,
};
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, Once};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use types::Limits;

/// The first argument by which the binary knows that it is to be the warden.
pub const WARDEN_ARGUMENT: &str = "__warden";

/// Importing numpy, pandas and matplotlib on a slow, busy machine.
const ZYGOTE_START_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum time in which a warden exits whose control socket is closed. It exits at once.
const END_MAX: Duration = Duration::from_secs(5);
/// A fork and its isolation take milliseconds; a longer time means that something is stuck.
pub(crate) const SPAWN_TIMEOUT: Duration = Duration::from_secs(20);
/// Address space that a process may reserve beyond its memory limit: the mappings of libraries and
/// the arenas of allocators.
const ADDRESS_HEADROOM_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// Descriptors that sandboxes with the user id of the server leave to it. Linux counts descriptors in
/// unread messages for each user, and refuses one more to a process whose limit is lower than their
/// number: a sandbox with all of its descriptors in messages would keep the server from creating
/// another sandbox. Two messages of 253 descriptors, the most that one can hold, may exceed the limit
/// of a sandbox at once.
pub const DESCRIPTORS_RESERVED: u64 = 512;
/// The caller that took the last prepared jail is served before more are prepared: on a small
/// machine the two would compete for a core.
pub(crate) const REFILL_DELAY: Duration = Duration::from_millis(5);
const DIAGNOSTICS_BYTES_MAX: usize = 8 * 1024;

/// Whether the zygote imports the environment's modules before it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preload {
    /// For many sandboxes: the import time is spent once.
    Modules,
    /// For one execution from the command line, which may not need them.
    Nothing,
}

#[derive(Debug, Clone)]
pub struct ZygoteHostConfig {
    /// The program that becomes the warden when started with [`WARDEN_ARGUMENT`].
    pub warden_program: PathBuf,
    pub runtime: RunnerFiles,
    pub spec: SandboxSpec,
    pub preload: Preload,
    pub allowed_missing_layers: Vec<IsolationLayer>,
    /// Number of prepared jails for new sandboxes.
    pub jails_ready: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("the warden could not be started: {0}")]
    Warden(#[source] io::Error),
    #[error("{0}")]
    Isolation(#[from] JailError),
    #[error("Python did not start: {0}")]
    Zygote(String),
    #[error("the zygote has exited")]
    ZygoteGone,
    #[error("the warden did not respond and was killed")]
    WardenGone,
    #[error("a sandbox did not start within {} s", SPAWN_TIMEOUT.as_secs())]
    Timeout,
    #[error("a sandbox did not confirm that it reseeded its random generators")]
    NotReseeded,
    #[error("a sandbox exited before it was ready")]
    EndedBeforeReady,
    #[error("creating a sandbox failed: {0}")]
    Io(#[from] io::Error),
    #[error("no user id is free for another sandbox")]
    NoSlot,
}

/// A prepared jail without a process in it yet.
#[derive(Debug)]
pub(crate) struct PreparedJail {
    pub(crate) init: OwnedFd,
    pub(crate) workspace: OwnedFd,
    pub(crate) proc: OwnedFd,
    /// `None` once the proxy has it or it is closed. Open, it keeps the network namespace alive.
    pub(crate) proxy_socket: Option<TcpListener>,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) slot: Slot,
    pub(crate) volumes: Vec<OwnedFd>,
    disk: DiskLimits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DiskLimits {
    bytes: u64,
    inodes: u64,
}

impl DiskLimits {
    fn of(limits: &Limits) -> Self {
        Self { bytes: limits.disk_bytes, inodes: limits.disk_inodes }
    }
}

#[derive(Debug)]
pub struct ZygoteHost {
    pub(crate) control: Arc<ControlSockets>,
    /// Pidfds, to kill a launcher or a zygote that hangs. Everything below the launcher ends with it.
    launcher: OwnedFd,
    zygote: OwnedFd,
    /// Dropped with the host; `reap_launcher` then expects the exit of the launcher.
    _in_use: oneshot::Sender<Infallible>,
    readers: [AbortHandle; 2],
    jails_ready: usize,
    next_jail: AtomicU64,
    spawns: AtomicU64,
    /// The generators that a sandbox must confirm as reseeded before it may serve.
    pub(crate) must_reseed: Vec<&'static str>,
    slots: Slots,
    /// Dropped before the reaper, whose threads then hold it alone.
    shared: Arc<ZygoteHostShared>,
    pub(crate) reaper: Reaper,
}

/// Resources that the sandboxes of a zygote host need until the last of them has exited.
#[derive(Debug)]
struct ZygoteHostShared {
    uids: HostUids,
    cgroups: Option<CgroupParent>,
    /// Closed last: no process of the host or its sandboxes is left then.
    terminated: watch::Sender<()>,
}

static ZYGOTE_HOSTS: AtomicU64 = AtomicU64::new(0);

impl ZygoteHost {
    /// Starts a warden and a zygote, and waits until sandboxes can be spawned.
    #[boxed::future]
    pub async fn start(config: ZygoteHostConfig) -> Result<Arc<Self>, SpawnError> {
        allow_many_descriptors();
        let uids = HostUids::claim()?;
        let number = ZYGOTE_HOSTS.fetch_add(1, Ordering::Relaxed);
        // Without cgroups, rlimits and the watchdog of the supervisor enforce the limits: `doctor` says so.
        let cgroups = CgroupParent::create(number).ok();
        let root = sandbox_spec::rootfs_steps(&config.spec, config.runtime.path());
        let plan = WardenPlan {
            identity: uids.identity(),
            zygote: sandbox_spec::zygote_program(
                &config.spec,
                config.preload == Preload::Modules,
                cgroups.is_some(),
            ),
            sandbox: SandboxPlan {
                hostname: sandbox_spec::HOSTNAME.into(),
                landlock: sandbox_spec::landlock_rules(&root),
                processes: config.spec.processes,
                memory_counted: cgroups.is_some(),
                hidden: sandbox_spec::hidden_paths(&config.spec),
                without: config.allowed_missing_layers.clone(),
            },
            root,
            cgroups: cgroups.as_ref().map(CgroupParent::paths).unwrap_or_default(),
        };
        let (control, warden_control) = seqpacket_pair()?;
        let (spawn, warden_spawn) = seqpacket_pair()?;
        let mut warden = Command::new(&config.warden_program)
            .arg(WARDEN_ARGUMENT)
            .env_clear()
            // Ctrl-C at a terminal goes to the supervisor, which interrupts sandboxes itself.
            .process_group(0)
            .stdin(Stdio::from(warden_control))
            .stdout(Stdio::from(warden_spawn))
            .stderr(Stdio::piped())
            .spawn()
            .map_err(SpawnError::Warden)?;
        let launcher = pidfd_of(&warden)?;
        message::send(&control, &plan, &[])?;
        let control = Arc::new(ControlSockets::new(control, spawn)?);
        let mut diagnostics = warden.stderr.take();
        let ready = timeout(ZYGOTE_START_TIMEOUT, control.wait_until_ready()).await;
        let zygote = match ready.unwrap_or(Err(SpawnError::ZygoteGone)) {
            Ok(zygote) => zygote,
            Err(error) => {
                // Without its control socket the warden exits, and with it all that could still write.
                drop(control);
                let message = timeout(END_MAX, drain_diagnostics(&mut diagnostics)).await;
                let message = message.unwrap_or_default();
                let _ = warden.start_kill();
                let _ = warden.wait().await;
                let is_gone = matches!(error, SpawnError::ZygoteGone);
                return Err(if is_gone { SpawnError::Zygote(message) } else { error });
            }
        };
        let shared =
            Arc::new(ZygoteHostShared { uids, cgroups, terminated: watch::Sender::default() });
        let reaper = Reaper::start(&shared)?;
        let (in_use, host_dropped) = oneshot::channel();
        tokio::spawn(reap_launcher(warden, diagnostics, host_dropped));
        let host = Arc::new(Self {
            readers: ControlSockets::spawn_readers(&control),
            control,
            launcher,
            zygote,
            _in_use: in_use,
            jails_ready: config.jails_ready,
            next_jail: AtomicU64::new(0),
            spawns: AtomicU64::new(0),
            must_reseed: required_reseeds(&config),
            slots: Slots::new(UIDS_PER_HOST - 1),
            reaper,
            shared,
        });
        host.refill_jails();
        Ok(host)
    }

    /// Number of sandboxes that were spawned here.
    pub fn spawn_count(&self) -> u64 {
        self.spawns.load(Ordering::Relaxed)
    }

    pub fn is_gone(&self) -> bool {
        self.state().gone
    }

    /// Ends when nothing is left of the zygote host and its sandboxes, after the last handle
    /// to one of them was dropped.
    pub(crate) fn terminated(&self) -> impl Future<Output = ()> + use<> {
        let mut terminated = self.shared.terminated.subscribe();
        async move { while terminated.changed().await.is_ok() {} }
    }

    fn state(&self) -> MutexGuard<'_, ControlState> {
        self.control.state()
    }

    /// A new sandbox under the given limits, with every isolation layer applied and no code run in it.
    pub async fn spawn(
        self: &Arc<Self>,
        limits: &Limits,
        volumes: &[VolumeMount],
    ) -> Result<Sandbox, SpawnError> {
        match timeout(SPAWN_TIMEOUT, self.spawn_without_timeout(limits, volumes)).await {
            Ok(spawned) => spawned,
            Err(_) => Err(SpawnError::Timeout),
        }
    }

    #[boxed::future]
    async fn spawn_without_timeout(
        self: &Arc<Self>,
        limits: &Limits,
        volumes: &[VolumeMount],
    ) -> Result<Sandbox, SpawnError> {
        let jail = PendingJail::new(self, self.take_jail(limits, volumes).await?);
        if let Some(group) = &jail.get()?.cgroup
            && cgroup_limits(limits) != cgroup_limits(&Limits::DEFAULT)
        {
            group.set_limits(&cgroup_limits(limits))?;
        }
        let (channel, runner_channel) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(io::Error::from)?;
        rustix::io::ioctl_fionbio(&channel, true).map_err(io::Error::from)?;
        let owner = self.shared.uids.uid_of(&jail.get()?.slot);
        let (stdout, runner_stdout) = output_pipe(owner)?;
        let (stderr, runner_stderr) = output_pipe(owner)?;
        let descriptors = [
            jail.get()?.init.as_fd(),
            runner_channel.as_fd(),
            runner_stdout.as_fd(),
            runner_stderr.as_fd(),
        ];
        let reply =
            self.control.with_zygote_watchdog(self.request_spawn(limits, &descriptors)).await;
        let spawned = match reply {
            Some(result) => result?,
            None => return Err(self.kill_zygote()),
        };
        drop((runner_channel, runner_stdout, runner_stderr));
        self.spawns.fetch_add(1, Ordering::Relaxed);
        let grouped = match &jail.get()?.cgroup {
            Some(group) => host_pid(&spawned.pidfd).and_then(|pid| group.add_process(pid)),
            None => Ok(()),
        };
        let streams = [channel, stdout, stderr];
        let mut sandbox = Sandbox::new(Arc::clone(self), owner, spawned, streams, *limits)?;
        sandbox.attach_jail(jail.take()?);
        // A child that could not be isolated has reported why and exited; that error comes first.
        sandbox.await_ready().await?;
        grouped?;
        Ok(sandbox)
    }

    async fn request_spawn(
        &self,
        limits: &Limits,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<SpawnedProcess, SpawnError> {
        let request = SpawnRequest {
            open_files: limits.open_files.min(self.shared.uids.open_files_max()),
            // The init of the jail has the same user id. With a cgroup, the cgroup must refuse first,
            // because it also counts refusals.
            processes: limits.processes + if self.shared.cgroups.is_some() { 2 } else { 1 },
            file_bytes: limits.disk_bytes.max(limits.memory_bytes),
            address_bytes: limits.memory_bytes + ADDRESS_HEADROOM_BYTES,
        };
        let (sender, reply) = oneshot::channel();
        loop {
            {
                let mut state = self.state();
                if state.gone {
                    return Err(SpawnError::ZygoteGone);
                }
                // Sent under the lock: answers come in the order of the requests.
                match self.control.send_spawn(&request, descriptors) {
                    Ok(()) => {
                        state.pending_spawns.push_back(sender);
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return Err(SpawnError::ZygoteGone),
                }
            }
            self.control.spawn.writable().await?;
        }
        Ok(reply.await.map_err(|_| SpawnError::ZygoteGone)??)
    }

    /// Kills a zygote that does not answer. No sandbox is spawned here any more; spawned ones continue.
    fn kill_zygote(&self) -> SpawnError {
        let _ = pidfd_send_signal(&self.zygote, Signal::KILL);
        self.control.mark_zygote_gone();
        SpawnError::ZygoteGone
    }

    /// Waits for `work`, which needs the warden. A warden that does not answer meanwhile is killed with
    /// all its sandboxes, because no other process can reap those that have exited.
    async fn with_warden_watchdog<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, SpawnError> {
        let done = self.control.with_warden_watchdog(work).await;
        done.ok_or_else(|| {
            let _ = pidfd_send_signal(&self.launcher, Signal::KILL);
            self.control.mark_warden_gone();
            SpawnError::WardenGone
        })
    }

    /// Waits for the end of a sandbox of this zygote host, which comes in any case.
    pub(crate) async fn await_end(&self, mut exited: oneshot::Receiver<()>) {
        if self.with_warden_watchdog(&mut exited).await.is_err() {
            // Everything below the launcher ends with it, whatever the warden does.
            let _ = exited.await;
        }
    }

    /// Returns a jail for these limits: a prepared one, or a new one.
    async fn take_jail(
        self: &Arc<Self>,
        limits: &Limits,
        volumes: &[VolumeMount],
    ) -> Result<PreparedJail, SpawnError> {
        let spare = {
            let mut state = self.state();
            let fits =
                |jail: &PreparedJail| volumes.is_empty() && jail.disk == DiskLimits::of(limits);
            let matching = state.spare_jails.iter().position(fits);
            matching.map(|index| state.spare_jails.swap_remove(index))
        };
        match spare {
            Some(jail) => {
                self.refill_jails();
                Ok(jail)
            }
            None => self.make_jail(DiskLimits::of(limits), volumes).await,
        }
    }

    fn refill_jails(self: &Arc<Self>) {
        let missing = {
            let mut state = self.state();
            let missing = self
                .jails_ready
                .saturating_sub(state.spare_jails.len() + state.spare_jails_starting);
            state.spare_jails_starting += missing;
            missing
        };
        for _ in 0..missing {
            let host = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(REFILL_DELAY).await;
                let prepared = host.make_jail(DiskLimits::of(&Limits::DEFAULT), &[]).await;
                let mut state = host.state();
                state.spare_jails_starting -= 1;
                if let Ok(jail) = prepared {
                    state.spare_jails.push(jail);
                }
            });
        }
    }

    async fn make_jail(
        &self,
        disk: DiskLimits,
        volumes: &[VolumeMount],
    ) -> Result<PreparedJail, SpawnError> {
        let slot = self.slots.take().ok_or(SpawnError::NoSlot)?;
        let number = self.next_jail.fetch_add(1, Ordering::Relaxed);
        let request = WardenRequest::Jail(JailRequest {
            jail: number,
            slot: slot.number,
            disk_bytes: disk.bytes,
            disk_inodes: disk.inodes,
            volumes: volumes.to_vec(),
        });
        let (sender, reply) = oneshot::channel();
        self.state().pending_jails.insert(number, JailWaiter(sender));
        loop {
            match self.control.send_control(&request) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.with_warden_watchdog(self.control.control.writable())
                        .await?
                        .map_err(SpawnError::Io)?;
                }
                Err(_) => return Err(SpawnError::ZygoteGone),
            }
        }
        let group = match &self.shared.cgroups {
            Some(parent) => {
                let group = parent.create_cgroup(&slot.number.to_string())?;
                // Written in advance: a spawn then writes only limits that differ.
                group.set_limits(&cgroup_limits(&Limits::DEFAULT))?;
                Some(group)
            }
            None => None,
        };
        let reply = self.with_warden_watchdog(reply).await?;
        let unclaimed = reply.map_err(|_| SpawnError::ZygoteGone)??;
        let ReceivedJail { init, workspace, proc, proxy_socket, volumes } = unclaimed.take()?;
        Ok(PreparedJail {
            init,
            workspace,
            proc,
            proxy_socket: Some(proxy_socket),
            cgroup: group,
            slot,
            volumes,
            disk,
        })
    }
}

impl Drop for ZygoteHost {
    fn drop(&mut self) {
        for listener in &self.readers {
            listener.abort();
        }
        let spare_jails = std::mem::take(&mut self.state().spare_jails);
        for jail in spare_jails {
            self.reaper.reap(ExitedSandbox::of(jail, None));
        }
    }
}

impl ExitedSandbox {
    pub(crate) fn of(jail: PreparedJail, on_exit: Option<oneshot::Sender<()>>) -> Self {
        let PreparedJail { init, cgroup: group, slot, .. } = jail;
        Self { init, cgroup: group, slot, on_exit }
    }
}

/// The jail of a sandbox that is being spawned. Dropping it, after an error or a timeout, hands the
/// jail to the reaper.
struct PendingJail<'a> {
    host: &'a ZygoteHost,
    jail: Option<PreparedJail>,
}

impl<'a> PendingJail<'a> {
    fn new(host: &'a ZygoteHost, jail: PreparedJail) -> Self {
        Self { host, jail: Some(jail) }
    }

    fn get(&self) -> Result<&PreparedJail, SpawnError> {
        self.jail.as_ref().ok_or(SpawnError::EndedBeforeReady)
    }

    fn take(mut self) -> Result<PreparedJail, SpawnError> {
        self.jail.take().ok_or(SpawnError::EndedBeforeReady)
    }
}

impl Drop for PendingJail<'_> {
    fn drop(&mut self) {
        if let Some(jail) = self.jail.take() {
            self.host.reaper.reap(ExitedSandbox::of(jail, None));
        }
    }
}

/// Raises the soft limit of descriptors to the hard limit: a sandbox takes twelve descriptors, and the
/// soft limit of a login shell is 1,024. Once, so that a value that an operator sets later stays.
fn allow_many_descriptors() {
    static ALLOWED: Once = Once::new();
    ALLOWED.call_once(|| {
        let held = getrlimit(Resource::Nofile);
        // If this fails, fewer sandboxes can start; the next one gets an error.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: held.maximum, ..held });
    });
}

/// The random generators that the zygote has loaded, and that its sandboxes would share.
fn required_reseeds(config: &ZygoteHostConfig) -> Vec<&'static str> {
    let preloads_numpy = config.spec.preload.iter().any(|module| module == "numpy");
    let mut names = vec!["random", "tempfile"];
    if config.preload == Preload::Modules && preloads_numpy {
        names.push("numpy");
    }
    names
}

pub(crate) fn cgroup_limits(limits: &Limits) -> CgroupLimits {
    CgroupLimits {
        memory_bytes: limits.memory_bytes,
        processes: limits.processes,
        cpu_percent: limits.cpu_percent,
    }
}

/// Reaps the launcher when everything below it has exited. It is killed if that takes longer than
/// [`END_MAX`] after the host was dropped, because the warden hangs.
async fn reap_launcher(
    mut launcher: Child,
    mut diagnostics: Option<ChildStderr>,
    host_dropped: oneshot::Receiver<Infallible>,
) {
    let overdue = async {
        let _ = host_dropped.await;
        tokio::time::sleep(END_MAX).await;
    };
    tokio::select! {
        _ = drain_diagnostics(&mut diagnostics) => {}
        () = overdue => drop(launcher.start_kill()),
    }
    let _ = launcher.wait().await;
}

fn pidfd_of(child: &Child) -> io::Result<OwnedFd> {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    Ok(pidfd_open(pid.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?)
}

async fn drain_diagnostics(pipe: &mut Option<ChildStderr>) -> String {
    let Some(pipe) = pipe else {
        return String::new();
    };
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        bytes.extend_from_slice(&buffer[..count]);
        let excess = bytes.len().saturating_sub(DIAGNOSTICS_BYTES_MAX);
        bytes.drain(..excess);
    }
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// A pipe that belongs to the sandbox, so that `/dev/stdout` can be opened there.
fn output_pipe(owner: u32) -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fchown(&write, Some(Uid::from_raw(owner)), None)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((read, write))
}

/// The pid that a process of another pid namespace has in the pid namespace of the supervisor.
pub(crate) fn host_pid(pidfd: impl AsFd) -> io::Result<i32> {
    let number = pidfd.as_fd().as_raw_fd();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"))?;
    info.lines()
        .find_map(|line| line.strip_prefix("Pid:"))
        .and_then(|pid| pid.trim().parse().ok())
        .filter(|pid| *pid > 0)
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}
