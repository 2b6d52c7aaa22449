//! The warden: builds the root, starts the zygote, creates jails and reaps the zygote's children.
//!
//! The supervisor starts it as a separate program, with the control socket as stdin, the zygote's
//! socket as stdout and a pipe for diagnostics as stderr, and sends it the [`WardenPlan`] in the
//! first message. The warden ends when the control socket closes, for whatever reason. It is pid 1
//! of a pid namespace, so every zygote and sandbox below it ends with it.

use crate::clone::{Forked, clone3};
use crate::plan::{
    HostIdentity, IsolationLayer, JailError, JailRequest, JailStep, ProgramSpec, SandboxPlan,
    WardenPlan, WardenReply, WardenRequest,
};
use crate::userns::{IdMap, MapTarget};
use crate::{cgroup, init, message, mount, probe, userns};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::mount::{MountFlags, mount as mount_fs};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus, set_dumpable_behavior,
    set_parent_process_death_signal,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Space for files that the zygote itself creates in `/tmp` and `/workspace` while it imports.
const ZYGOTE_SCRATCH_BYTES: u64 = 64 * 1024 * 1024;
const ZYGOTE_SCRATCH_INODES: u64 = 4096;
const HIGHEST_SIGNAL: i32 = 64;
/// Numbers of the zygote's two descriptors.
const ZYGOTE_SOCKET_FD: i32 = 3;
const ZYGOTE_PLAN_FD: i32 = 4;
const JAIL_NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;
const WARDEN_NAMESPACES: i32 = libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Runs the warden on descriptors 0 and 1, and returns the exit code of the process.
pub fn main() -> i32 {
    // SAFETY: the supervisor has put a socket on 0 and another on 1, and nothing else in this
    // process uses stdin or stdout.
    let (control, spawn) = unsafe { (OwnedFd::from_raw_fd(0), OwnedFd::from_raw_fd(1)) };
    match launch(&control, spawn) {
        Ok(code) => code,
        Err(error) => {
            let _ = message::send(&control, &WardenReply::WardenFailed { error }, &[]);
            1
        }
    }
}

/// Builds the root and starts the actual warden in its namespaces; this process then only waits.
fn launch(control: &OwnedFd, spawn: OwnedFd) -> Result<i32, JailError> {
    let (plan, _): (WardenPlan, _) = message::receive(control)
        .map_err(|error| JailStep::ReadPlan.failed(error))?
        .ok_or_else(|| JailStep::ReadPlan.failed(io::Error::from_raw_os_error(libc::EPIPE)))?;
    let cgroups = cgroup::CgroupSweeper::open(&plan.cgroups);
    let flags = match plan.identity {
        // Root reads the sources of the mounts with its own rights, and drops them afterwards.
        HostIdentity::Range { .. } => {
            unshare(UnshareFlags::NEWNS).map_err(|error| JailStep::UnshareMounts.failed(error))?;
            WARDEN_NAMESPACES | libc::CLONE_NEWUSER
        }
        HostIdentity::Own { .. } => {
            unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
                .map_err(|error| JailStep::UnshareUser.failed(error))?;
            IdMap::warden(plan.identity)
                .write(MapTarget::Itself)
                .map_err(|error| JailStep::MapIds.failed(error))?;
            WARDEN_NAMESPACES
        }
    };
    // The warden owns the root and the users of the sandboxes read it, whatever the inherited umask
    // is.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    mount::build_root(&plan.root)?;
    let (wait_go, go) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| JailStep::NewNamespaces.failed(error))?;
    match clone3(flags, libc::SIGCHLD).map_err(|error| JailStep::NewNamespaces.failed(error))? {
        Forked::Child => {
            drop(go);
            let code = Warden::start(plan, control, spawn, wait_go).map_or_else(
                |error| {
                    let _ = message::send(control, &WardenReply::WardenFailed { error }, &[]);
                    1
                },
                |mut warden| warden.serve(control),
            );
            std::process::exit(code)
        }
        Forked::Parent { pid, .. } => {
            drop((spawn, wait_go));
            if matches!(plan.identity, HostIdentity::Range { .. }) {
                IdMap::warden(plan.identity)
                    .write(MapTarget::Child(pid))
                    .map_err(|error| JailStep::MapIds.failed(error))?;
                enable_favordynmods();
            }
            rustix::io::write(&go, &[1]).map_err(|error| JailStep::NewNamespaces.failed(error))?;
            let status = rustix::process::waitpid(Some(pid), WaitOptions::empty());
            cgroups.sweep();
            Ok(status.ok().flatten().and_then(|(_, status)| status.exit_status()).unwrap_or(1))
        }
    }
}

fn unshare(namespaces: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: none of the flags used here unshares the descriptor table, the one case in which
    // owners of descriptors elsewhere could be surprised.
    unsafe { unshare_unsafe(namespaces) }
}

/// Speeds up moves between cgroups. In cgroup v1 a move waits for an RCU grace period, 7 to 15 ms
/// on an idle machine, unless a mounted hierarchy has `favordynmods`. This one is private to this
/// mount namespace, has no controllers, and goes away with it. It affects speed only.
fn enable_favordynmods() {
    let options = c"none,name=belljar,favordynmods";
    let _ = mount_fs("none", "/tmp", "cgroup", MountFlags::empty(), Some(options));
}

struct Warden {
    identity: HostIdentity,
    sandbox: SandboxPlan,
    zygote: Pid,
    inits: Vec<Pid>,
    child_ended: File,
}

impl Warden {
    fn start(
        plan: WardenPlan,
        control: &OwnedFd,
        spawn: OwnedFd,
        go: OwnedFd,
    ) -> Result<Self, JailError> {
        let mut byte = [0];
        rustix::io::read(&go, &mut byte).map_err(|error| JailStep::NewNamespaces.failed(error))?;
        if matches!(plan.identity, HostIdentity::Range { .. }) {
            userns::become_user(0)
                .and_then(|()| userns::drop_groups())
                .map_err(|error| JailStep::TakeIdentity.failed(error))?;
            // Changing ids has closed the /proc entries of this process, and those of the inits to
            // be forked from it, whose id maps it writes.
            set_dumpable_behavior(DumpableBehavior::Dumpable)
                .map_err(|error| JailStep::TakeIdentity.failed(error))?;
        }
        // Set after the change of ids, which would have cleared it.
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|error| JailStep::NewNamespaces.failed(error))?;
        rustix::process::setsid().map_err(|error| JailStep::NewNamespaces.failed(error))?;
        mount::proc(None)?;
        mount::tmpfs("/workspace", ZYGOTE_SCRATCH_BYTES, ZYGOTE_SCRATCH_INODES, "0755")?;
        mount::tmpfs("/tmp", ZYGOTE_SCRATCH_BYTES, ZYGOTE_SCRATCH_INODES, "1777")?;
        for directory in init::SCRATCH_DIRECTORIES {
            std::fs::create_dir(directory)
                .map_err(|error| JailStep::MountScratch(directory.into()).failed(error))?;
        }
        if !plan.sandbox.without.contains(&IsolationLayer::Seccomp) {
            // Probed here, because an init that cannot load its filter can no longer report that.
            probe::seccomp_filter()
                .map_err(|unsupported| JailStep::Seccomp.failed(unsupported.error))?;
        }
        let child_ended = open_sigchld_fd().map_err(|error| JailStep::StartZygote.failed(error))?;
        skip_pid_2().map_err(|error| JailStep::StartZygote.failed(error))?;
        let zygote = start_zygote(&plan.zygote, &plan.sandbox, control, spawn)?;
        let WardenPlan { identity, sandbox, .. } = plan;
        Ok(Self { identity, sandbox, zygote, inits: Vec::new(), child_ended })
    }

    /// Serves requests until the supervisor closes the control socket.
    fn serve(&mut self, control: &OwnedFd) -> i32 {
        loop {
            let mut ready = [
                PollFd::new(control, PollFlags::IN),
                PollFd::new(&self.child_ended, PollFlags::IN),
            ];
            match poll(&mut ready, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return 1,
            }
            let (has_request, ended) =
                (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
            if ended {
                self.reap(control);
            }
            if has_request {
                match message::receive(control) {
                    Ok(Some((WardenRequest::Jail(request), _))) => {
                        self.make_jail(&request, control);
                    }
                    Ok(Some((WardenRequest::Ping, _))) => {
                        let _ = message::send(control, &WardenReply::Pong, &[]);
                    }
                    Ok(None) | Err(_) => return 0,
                }
            }
        }
    }

    fn make_jail(&mut self, request: &JailRequest, control: &OwnedFd) {
        if let Err(error) = self.fork_init(request, control) {
            let reply = WardenReply::JailFailed { jail: request.jail, error };
            let _ = message::send(control, &reply, &[]);
        }
    }

    fn fork_init(&mut self, request: &JailRequest, control: &OwnedFd) -> Result<(), JailError> {
        let failed = |error: rustix::io::Errno| JailStep::NewNamespaces.failed(error);
        let (wait_go, go) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        let control = control.try_clone().map_err(|error| JailStep::NewNamespaces.failed(error))?;
        match clone3(JAIL_NAMESPACES, libc::SIGCHLD)
            .map_err(|error| JailStep::NewNamespaces.failed(error))?
        {
            Forked::Child => {
                drop(go);
                init::main(request, &self.sandbox, control, wait_go)
            }
            Forked::Parent { pid, .. } => {
                self.inits.push(pid);
                IdMap::sandbox(self.identity, request.slot)
                    .write(MapTarget::Child(pid))
                    .map_err(|error| JailStep::MapIds.failed(error))?;
                rustix::io::write(&go, &[1]).map_err(failed)?;
                Ok(())
            }
        }
    }

    /// Reports every ended process to the supervisor except the inits, whose end it observes by
    /// itself.
    fn reap(&mut self, control: &OwnedFd) {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        let _ = self.child_ended.read(&mut record);
        while let Some((pid, status)) = next_exited_child() {
            if let Some(index) = self.inits.iter().position(|init| *init == pid) {
                self.inits.swap_remove(index);
                continue;
            }
            let status = status.as_raw();
            let reply = if pid == self.zygote {
                WardenReply::ZygoteExited { status }
            } else {
                WardenReply::Exited { pid: pid.as_raw_nonzero().get(), status }
            };
            let _ = message::send(control, &reply, &[]);
        }
    }
}

fn next_exited_child() -> Option<(Pid, WaitStatus)> {
    rustix::process::wait(WaitOptions::NOHANG).ok().flatten()
}

/// A descriptor that becomes readable when a child has ended.
fn open_sigchld_fd() -> io::Result<File> {
    // SAFETY: an all-zero sigset is initialised by sigemptyset before it is used, and every
    // pointer outlives its call.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) == -1 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd == -1 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(fd)) }
    }
}

/// Every sandbox sees itself as pid 2. OpenSSL and tempfile detect a fork only by a changed pid, so
/// the zygote must have another one.
fn skip_pid_2() -> io::Result<()> {
    match clone3(0, libc::SIGCHLD)? {
        // SAFETY: ends the copy at once.
        Forked::Child => unsafe { libc::_exit(0) },
        Forked::Parent { pid, .. } => {
            rustix::process::waitpid(Some(pid), WaitOptions::empty())?;
            Ok(())
        }
    }
}

fn start_zygote(
    program: &ProgramSpec,
    sandbox: &SandboxPlan,
    control: &OwnedFd,
    spawn: OwnedFd,
) -> Result<Pid, JailError> {
    let failed = |error: io::Error| JailStep::StartZygote.failed(error);
    let plan = sandbox_plan_file(sandbox).map_err(failed)?;
    let exec = ExecArgs::new(program).map_err(failed)?;
    match clone3(0, libc::SIGCHLD).map_err(failed)? {
        Forked::Child => {
            let error = match hide_from_zygote(sandbox) {
                Ok(()) => JailStep::StartZygote.failed(exec_zygote(&exec, &spawn, &plan)),
                Err(error) => error,
            };
            let _ = message::send(control, &WardenReply::WardenFailed { error }, &[]);
            // SAFETY: ends the copy at once.
            unsafe { libc::_exit(1) }
        }
        Forked::Parent { pid, .. } => Ok(pid),
    }
}

/// Hides directories from the zygote: it runs packages that users chose, and every sandbox is a
/// copy of it.
fn hide_from_zygote(sandbox: &SandboxPlan) -> Result<(), JailError> {
    if sandbox.hidden.is_empty() {
        return Ok(());
    }
    // The warden, from which each jail inherits its mounts, still sees them.
    unshare(UnshareFlags::NEWNS).map_err(|error| JailStep::UnshareMounts.failed(error))?;
    sandbox.hidden.iter().try_for_each(|path| mount::hide(path))
}

fn sandbox_plan_file(sandbox: &SandboxPlan) -> io::Result<File> {
    let fd = rustix::fs::memfd_create("plan", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(fd);
    file.write_all(&serde_json::to_vec(sandbox)?)?;
    file.rewind()?;
    Ok(file)
}

/// The arguments of `execve`, allocated before the fork.
struct ExecArgs {
    path: CString,
    args: Vec<CString>,
    env: Vec<CString>,
}

impl ExecArgs {
    fn new(program: &ProgramSpec) -> io::Result<Self> {
        let path = CString::new(program.path.as_os_str().as_bytes())?;
        let mut args = vec![path.clone()];
        for arg in &program.args {
            args.push(CString::new(arg.as_str())?);
        }
        let mut env = Vec::new();
        for (name, value) in &program.env {
            env.push(CString::new(format!("{name}={value}"))?);
        }
        Ok(Self { path, args, env })
    }
}

/// Executes the zygote; returns only on failure.
fn exec_zygote(exec: &ExecArgs, spawn: &OwnedFd, plan: &File) -> io::Error {
    match zygote_descriptors(spawn, plan) {
        Ok(()) => {}
        Err(error) => return error,
    }
    let pointers = |strings: &[CString]| {
        let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        pointers.push(std::ptr::null());
        pointers
    };
    let (args, env) = (pointers(&exec.args), pointers(&exec.env));
    // SAFETY: both arrays are ended by a null pointer, and they and their strings outlive the
    // calls; unblocking a signal touches no memory but the set.
    unsafe {
        // The parent of the warden may ignore some signals, and that disposition is inherited.
        for signal in 1..=HIGHEST_SIGNAL {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::execve(exec.path.as_ptr(), args.as_ptr(), env.as_ptr());
    }
    io::Error::last_os_error()
}

/// The descriptors of the zygote: empty stdin, diagnostics on both outputs, its socket and its
/// plan.
fn zygote_descriptors(spawn: &OwnedFd, plan: &File) -> io::Result<()> {
    rustix::process::chdir("/workspace")?;
    let null = File::open("/dev/null")?;
    // Duplicated to high numbers first: a source may itself be one of the target numbers.
    let above =
        |source: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(source, ZYGOTE_PLAN_FD + 1);
    let (null, spawn, plan) = (above(null.as_fd())?, above(spawn.as_fd())?, above(plan.as_fd())?);
    let numbers = [
        (null.as_raw_fd(), 0),
        (2, 1),
        (spawn.as_raw_fd(), ZYGOTE_SOCKET_FD),
        (plan.as_raw_fd(), ZYGOTE_PLAN_FD),
    ];
    for (source, number) in numbers {
        // SAFETY: dup2 over low numbers on purpose, just before execve replaces this process.
        if unsafe { libc::dup2(source, number) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    close_above_on_exec(ZYGOTE_PLAN_FD)
}

/// Marks every descriptor above `last` close-on-exec, including those that the parent has leaked.
fn close_above_on_exec(last: i32) -> io::Result<()> {
    // SAFETY: sets a flag on descriptors and touches no memory.
    let result = unsafe {
        libc::syscall(libc::SYS_close_range, last + 1, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
