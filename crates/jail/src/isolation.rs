//! The walls that a process raises around itself, in the order in which they must go up: what
//! needs a capability first, then the capabilities go, and the filter on system calls is last.

use crate::plan::{IsolationLayer, JailError, JailStep, SANDBOX_ID, SandboxPlan, SpawnRequest};
use crate::seccomp::BpfProgram;
use crate::{landlock, userns};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, chdir, getrlimit, set_dumpable_behavior, setrlimit, setsid,
    umask,
};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, remove_capability_from_bounding_set,
    set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// The descriptor on which the kernel of a sandbox talks to its supervisor.
pub(crate) const CHANNEL_FD: RawFd = 3;
const INIT_FD: RawFd = 4;
/// Queued signals and message-queue bytes are charged to nobody else, so they are kept small.
const SIGNALS_PENDING_MAX: u64 = 1024;
const MESSAGE_QUEUE_BYTES_MAX: u64 = 1024 * 1024;
const LOCKED_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Too little for a file, and the one value at which a core dump is not piped to a handler either.
const CORE_BYTES: u64 = 1;
/// The stack of a login shell: deep recursion then ends as it does in plain Python.
const STACK_BYTES: u64 = 8 * 1024 * 1024;
/// A third of the weight of an ordinary process: the supervisor comes first, and beside other work of
/// the machine a sandbox still gets on. Alone on a core it changes nothing.
const SANDBOX_NICE: i32 = 5;
const HIGHEST_CAPABILITY: u32 = 63;

/// The descriptors of a new sandbox, which become its 1, 2 and 3.
#[derive(Debug)]
pub(crate) struct ChildDescriptors {
    pub(crate) init: OwnedFd,
    pub(crate) channel: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// Walls the calling process in, inside the namespaces of the jail whose init is given.
pub(crate) fn apply(
    plan: &SandboxPlan,
    filter: &BpfProgram,
    request: &SpawnRequest,
    init: OwnedFd,
) -> Result<(), JailError> {
    enter_namespaces(init).map_err(|error| JailStep::EnterNamespaces.failed(error))?;
    enter_workspace().map_err(|error| JailStep::WorkingDirectory.failed(error))?;
    userns::become_user(SANDBOX_ID).map_err(|error| JailStep::TakeIdentity.failed(error))?;
    if !plan.memory_counted {
        // Where no cgroup gives each sandbox its share, many busy processes would keep supervisor,
        // warden and init from the CPU, and so from ending them.
        nice(SANDBOX_NICE).map_err(|error| JailStep::Limits.failed(error))?;
    }
    set_rlimits(request).map_err(|error| JailStep::Limits.failed(error))?;
    drop_capabilities()?;
    // Changing ids has made the process unreadable to itself; /proc/self must work as elsewhere.
    set_dumpable_behavior(DumpableBehavior::Dumpable)
        .map_err(|error| JailStep::TakeIdentity.failed(error))?;
    if !plan.without.contains(&IsolationLayer::Landlock) {
        landlock::restrict(&plan.landlock).map_err(|error| JailStep::Landlock.failed(error))?;
    }
    if !plan.without.contains(&IsolationLayer::Seccomp) {
        load_seccomp_filter(filter).map_err(|error| JailStep::Seccomp.failed(error))?;
    }
    Ok(())
}

/// Leaves exactly 0 to 3 open, and the init until its namespaces are entered: nothing that zygote
/// or warden holds may come along.
pub(crate) fn install_descriptors(descriptors: ChildDescriptors) -> io::Result<OwnedFd> {
    let stdin = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let ChildDescriptors { init, channel, stdout, stderr } = descriptors;
    // Moved out of the way first: a source may itself be one of the numbers to be filled.
    let mut above = Vec::with_capacity(5);
    for source in [stdin, stdout, stderr, channel, init] {
        above.push(rustix::io::fcntl_dupfd_cloexec(&source, INIT_FD + 1)?);
        std::mem::forget(source);
    }
    for (number, source) in (0..).zip(above) {
        let flags = if number >= CHANNEL_FD { libc::O_CLOEXEC } else { 0 };
        // SAFETY: dup3 over 0 to 4 on purpose: from here on these numbers are the sandbox's, and
        // no owner of an old one is used again in this process.
        if unsafe { libc::dup3(source.into_raw_fd(), number, flags) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    close_above(INIT_FD)?;
    // SAFETY: dup3 has just made it, and its only owner is the one returned here.
    Ok(unsafe { OwnedFd::from_raw_fd(INIT_FD) })
}

fn enter_namespaces(init: OwnedFd) -> io::Result<()> {
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    // SAFETY: takes a descriptor and flags, no memory.
    let result = unsafe { libc::setns(init.as_raw_fd(), namespaces) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes every descriptor above `last`.
pub(crate) fn close_above(last: RawFd) -> io::Result<()> {
    // SAFETY: closes descriptors that no live owner in this process uses afterwards.
    let result = unsafe { libc::syscall(libc::SYS_close_range, last + 1, u32::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn enter_workspace() -> io::Result<()> {
    chdir("/workspace")?;
    umask(Mode::from_raw_mode(0o022));
    // Its own session: no controlling terminal, and none of our processes in its group.
    setsid()?;
    Ok(())
}

/// Lowers the own priority by so much, for good.
fn nice(increment: i32) -> io::Result<()> {
    let lowered = rustix::process::getpriority_process(None)?.saturating_add(increment);
    Ok(rustix::process::setpriority_process(None, lowered)?)
}

fn set_rlimits(request: &SpawnRequest) -> io::Result<()> {
    let limits = [
        (Resource::Nofile, request.open_files),
        (Resource::Nproc, request.processes),
        (Resource::Fsize, request.file_bytes),
        (Resource::As, request.address_bytes),
        (Resource::Stack, STACK_BYTES),
        (Resource::Memlock, LOCKED_BYTES_MAX),
        (Resource::Sigpending, SIGNALS_PENDING_MAX),
        (Resource::Msgqueue, MESSAGE_QUEUE_BYTES_MAX),
        (Resource::Core, CORE_BYTES),
        (Resource::Nice, 0),
        (Resource::Rtprio, 0),
    ];
    for (resource, most) in limits {
        // What the host already holds lower cannot be raised, and need not be.
        let most = Some(getrlimit(resource).maximum.map_or(most, |held| held.min(most)));
        setrlimit(resource, Rlimit { current: most, maximum: most })?;
    }
    Ok(())
}

/// Gives up every capability, and every way to get one back.
pub(crate) fn drop_capabilities() -> Result<(), JailError> {
    let failed = |error: rustix::io::Errno| JailStep::Capabilities.failed(error);
    for number in 0..=HIGHEST_CAPABILITY {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // Past the last one that this kernel knows.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )
    .map_err(failed)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(failed)?;
    set_no_new_privs(true).map_err(|error| JailStep::NoNewPrivileges.failed(error))
}

/// Puts the filter on this process and all it will start, for good.
pub(crate) fn load_seccomp_filter(filter: &BpfProgram) -> io::Result<()> {
    let instructions = filter.instructions();
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: instructions.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    // SAFETY: the program and its instructions outlive the call, and the kernel only reads them.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
