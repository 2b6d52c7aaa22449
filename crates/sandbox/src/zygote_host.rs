//! A warm Python and its warden, and the births of sandboxes from them.

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
/// A warden that is told to end does so at once.
const END_MAX: Duration = Duration::from_secs(5);
/// A fork and its isolation take milliseconds; a longer time means that something is stuck.
pub(crate) const SPAWN_TIMEOUT: Duration = Duration::from_secs(20);
/// Address space that a process may reserve beyond its memory limit: the libraries' own
/// mappings and the arenas of allocators.
const ADDRESS_HEADROOM_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// Descriptors that sandboxes of the server's own user leave it. Linux counts those on their way in
/// messages for each user, and refuses one more to a process with a lower limit than their number: with
/// all of its own on their way a sandbox would keep the server from making another one. Two messages
/// of 253, the most that one can hold, may pass the limit of a sandbox at once.
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
    /// `None` once it is served or closed. Open, it keeps the network namespace alive.
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
    /// Pidfds, to end what hangs. The launcher takes all below it along.
    launcher: OwnedFd,
    zygote: OwnedFd,
    /// Dropped with this, by which the launcher is known to be at its end.
    _in_use: oneshot::Sender<Infallible>,
    readers: [AbortHandle; 2],
    jails_ready: usize,
    next_jail: AtomicU64,
    spawns: AtomicU64,
    /// The generators that a sandbox must confirm as reseeded before it may serve.
    pub(crate) must_reseed: Vec<&'static str>,
    slots: Slots,
    /// Let go of before the undertaker, whose threads then have it alone.
    shared: Arc<ZygoteHostShared>,
    pub(crate) reaper: Reaper,
}

/// What the sandboxes of a zygote host need until the last of them is gone.
#[derive(Debug)]
struct ZygoteHostShared {
    uids: HostUids,
    cgroups: Option<CgroupParent>,
    /// Closed after the others: nothing is left then.
    terminated: watch::Sender<()>,
}

static ZYGOTE_HOSTS: AtomicU64 = AtomicU64::new(0);

impl ZygoteHost {
    /// Starts a warden and a zygote, and waits until sandboxes can be born.
    #[boxed::future]
    pub async fn start(config: ZygoteHostConfig) -> Result<Arc<Self>, SpawnError> {
        allow_many_descriptors();
        let uids = HostUids::claim()?;
        let number = ZYGOTE_HOSTS.fetch_add(1, Ordering::Relaxed);
        // Where there are none, limits and the supervisor's own watch have to do: `doctor` says so.
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
        let (control, control_theirs) = seqpacket_pair()?;
        let (spawn, spawn_theirs) = seqpacket_pair()?;
        let mut warden = Command::new(&config.warden_program)
            .arg(WARDEN_ARGUMENT)
            .env_clear()
            // Ctrl-C at a terminal is for us to pass on, not for all that runs below us.
            .process_group(0)
            .stdin(Stdio::from(control_theirs))
            .stdout(Stdio::from(spawn_theirs))
            .stderr(Stdio::piped())
            .spawn()
            .map_err(SpawnError::Warden)?;
        let launcher = pidfd_of(&warden)?;
        message::send(&control, &plan, &[])?;
        let wires = Arc::new(ControlSockets::new(control, spawn)?);
        let mut diagnostics = warden.stderr.take();
        let ready = timeout(ZYGOTE_START_TIMEOUT, wires.wait_until_ready()).await;
        let zygote = match ready.unwrap_or(Err(SpawnError::ZygoteGone)) {
            Ok(zygote) => zygote,
            Err(error) => {
                // Without its control socket the warden ends, and with it all that could still speak.
                drop(wires);
                let said = timeout(END_MAX, drain_diagnostics(&mut diagnostics)).await;
                let said = said.unwrap_or_default();
                let _ = warden.start_kill();
                let _ = warden.wait().await;
                let gone = matches!(error, SpawnError::ZygoteGone);
                return Err(if gone { SpawnError::Zygote(said) } else { error });
            }
        };
        let ground =
            Arc::new(ZygoteHostShared { uids, cgroups, terminated: watch::Sender::default() });
        let undertaker = Reaper::start(&ground)?;
        let (in_use, let_go) = oneshot::channel();
        tokio::spawn(reap_launcher(warden, diagnostics, let_go));
        let host = Arc::new(Self {
            readers: ControlSockets::spawn_readers(&wires),
            control: wires,
            launcher,
            zygote,
            _in_use: in_use,
            jails_ready: config.jails_ready,
            next_jail: AtomicU64::new(0),
            spawns: AtomicU64::new(0),
            must_reseed: required_reseeds(&config),
            slots: Slots::new(UIDS_PER_HOST - 1),
            reaper: undertaker,
            shared: ground,
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
        let mut over = self.shared.terminated.subscribe();
        async move { while over.changed().await.is_ok() {} }
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
            Ok(born) => born,
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
        let (channel, channel_theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(io::Error::from)?;
        rustix::io::ioctl_fionbio(&channel, true).map_err(io::Error::from)?;
        let owner = self.shared.uids.uid_of(&jail.get()?.slot);
        let (stdout, stdout_theirs) = output_pipe(owner)?;
        let (stderr, stderr_theirs) = output_pipe(owner)?;
        let descriptors = [
            jail.get()?.init.as_fd(),
            channel_theirs.as_fd(),
            stdout_theirs.as_fd(),
            stderr_theirs.as_fd(),
        ];
        let asked =
            self.control.with_zygote_watchdog(self.request_spawn(limits, &descriptors)).await;
        let spawned = match asked {
            Some(answer) => answer?,
            None => return Err(self.kill_zygote()),
        };
        drop((channel_theirs, stdout_theirs, stderr_theirs));
        self.spawns.fetch_add(1, Ordering::Relaxed);
        let grouped = match &jail.get()?.cgroup {
            Some(group) => host_pid(&spawned.pidfd).and_then(|pid| group.add_process(pid)),
            None => Ok(()),
        };
        let streams = [channel, stdout, stderr];
        let mut sandbox = Sandbox::new(Arc::clone(self), owner, spawned, streams, *limits)?;
        sandbox.attach_jail(jail.take()?);
        // A child that could not be walled has said so and is gone; that comes before its absence.
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
            // The user id of the sandbox has the init of the jail as well. Where there is a cgroup
            // it must be the one that refuses, because it also counts what it has refused.
            processes: limits.processes + if self.shared.cgroups.is_some() { 2 } else { 1 },
            file_bytes: limits.disk_bytes.max(limits.memory_bytes),
            address_bytes: limits.memory_bytes + ADDRESS_HEADROOM_BYTES,
        };
        let (sender, answer) = oneshot::channel();
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
        Ok(answer.await.map_err(|_| SpawnError::ZygoteGone)??)
    }

    /// Ends a zygote that does not answer: nothing is born here any more, and what was born lives on.
    fn kill_zygote(&self) -> SpawnError {
        let _ = pidfd_send_signal(&self.zygote, Signal::KILL);
        self.control.mark_zygote_gone();
        SpawnError::ZygoteGone
    }

    /// Waits for something that needs the warden. One that does not answer meanwhile is ended, and all
    /// its sandboxes with it: no other process can reap those that have exited there.
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
    pub(crate) async fn await_end(&self, mut gone: oneshot::Receiver<()>) {
        if self.with_warden_watchdog(&mut gone).await.is_err() {
            // With the launcher everything below it ends, whatever the warden does.
            let _ = gone.await;
        }
    }

    /// A jail for these limits: from the stock, or made now.
    async fn take_jail(
        self: &Arc<Self>,
        limits: &Limits,
        volumes: &[VolumeMount],
    ) -> Result<PreparedJail, SpawnError> {
        let stocked = {
            let mut state = self.state();
            let fits =
                |jail: &PreparedJail| volumes.is_empty() && jail.disk == DiskLimits::of(limits);
            let matching = state.spare_jails.iter().position(fits);
            matching.map(|index| state.spare_jails.swap_remove(index))
        };
        match stocked {
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
                let made = host.make_jail(DiskLimits::of(&Limits::DEFAULT), &[]).await;
                let mut state = host.state();
                state.spare_jails_starting -= 1;
                if let Ok(jail) = made {
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
        let (sender, made) = oneshot::channel();
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
                // Written now, off the path of a birth, which has to write only what differs.
                group.set_limits(&cgroup_limits(&Limits::DEFAULT))?;
                Some(group)
            }
            None => None,
        };
        let made = self.with_warden_watchdog(made).await?;
        let newborn = made.map_err(|_| SpawnError::ZygoteGone)??;
        let ReceivedJail { init, workspace, proc, proxy_socket, volumes } = newborn.take()?;
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
        let stock = std::mem::take(&mut self.state().spare_jails);
        for jail in stock {
            self.reaper.reap(ExitedSandbox::of(jail, None));
        }
    }
}

impl ExitedSandbox {
    pub(crate) fn of(jail: PreparedJail, gone: Option<oneshot::Sender<()>>) -> Self {
        let PreparedJail { init, cgroup: group, slot, .. } = jail;
        Self { init, cgroup: group, slot, on_exit: gone }
    }
}

/// A jail during a birth: buried if the birth fails or is given up.
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

/// A sandbox takes twelve descriptors, and the soft limit of a login shell is a thousand. Once: what
/// an operator sets later holds.
fn allow_many_descriptors() {
    static ALLOWED: Once = Once::new();
    ALLOWED.call_once(|| {
        let held = getrlimit(Resource::Nofile);
        // Without it fewer sandboxes fit, and the one too many is told so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: held.maximum, ..held });
    });
}

/// Every generator that the zygote is known to have loaded, and that siblings would share.
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

/// Reaps the launcher when everything below it has ended. That follows soon on the end of the zygote host,
/// unless the warden hangs and does not hear of it.
async fn reap_launcher(
    mut launcher: Child,
    mut diagnostics: Option<ChildStderr>,
    let_go: oneshot::Receiver<Infallible>,
) {
    let overdue = async {
        let _ = let_go.await;
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
    let mut said = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        said.extend_from_slice(&buffer[..count]);
        let excess = said.len().saturating_sub(DIAGNOSTICS_BYTES_MAX);
        said.drain(..excess);
    }
    String::from_utf8_lossy(&said).trim().to_owned()
}

/// A pipe that belongs to the sandbox, so that `/dev/stdout` can be opened there.
fn output_pipe(owner: u32) -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fchown(&write, Some(Uid::from_raw(owner)), None)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((read, write))
}

/// The number that our own pid namespace has for a process of another.
pub(crate) fn host_pid(pidfd: impl AsFd) -> io::Result<i32> {
    let number = pidfd.as_fd().as_raw_fd();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"))?;
    info.lines()
        .find_map(|line| line.strip_prefix("Pid:"))
        .and_then(|pid| pid.trim().parse().ok())
        .filter(|pid| *pid > 0)
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}
