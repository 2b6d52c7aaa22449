//! The isolation layers that a process applies to itself, in the required order: first the steps
//! that need a capability, then dropping the capabilities, and the seccomp filter last.

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

/// The descriptor over which a sandbox's runner talks to its supervisor.
pub(crate) const CHANNEL_FD: RawFd = 3;
const INIT_FD: RawFd = 4;
/// Kept small: no other limit accounts for queued signals and message-queue bytes.
const SIGNALS_PENDING_MAX: u64 = 1024;
const MESSAGE_QUEUE_BYTES_MAX: u64 = 1024 * 1024;
const LOCKED_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Too small for a core file, and the one value at which Linux does not pipe a core dump to a
/// handler.
const CORE_BYTES: u64 = 1;
/// The stack of a login shell: deep recursion then ends as it does in plain Python.
const STACK_BYTES: u64 = 8 * 1024 * 1024;
/// A third of the CPU weight of an ordinary process: the supervisor comes first, and a sandbox
/// still makes progress beside other work. On an idle core it has no effect.
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

/// Applies every isolation layer to the calling process, inside the namespaces of the given jail's
/// init.
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
        // Where no cgroup gives each sandbox its CPU share, many busy processes would starve
        // supervisor, warden and init, and so keep them from killing those processes.
        nice(SANDBOX_NICE).map_err(|error| JailStep::Limits.failed(error))?;
    }
    set_rlimits(request).map_err(|error| JailStep::Limits.failed(error))?;
    drop_capabilities()?;
    // Changing ids has made the process non-dumpable; /proc/self must work as usual.
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

/// Leaves only descriptors 0 to 3 open, and the init's until its namespaces are entered. The
/// sandbox must inherit no other descriptor of zygote or warden.
pub(crate) fn install_descriptors(descriptors: ChildDescriptors) -> io::Result<OwnedFd> {
    let stdin = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let ChildDescriptors { init, channel, stdout, stderr } = descriptors;
    // Duplicated to high numbers first: a source may itself be one of the target numbers.
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
    // A new session: no controlling terminal, and no process of Belljar in its group.
    setsid()?;
    Ok(())
}

/// Lowers the priority of the calling process permanently.
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
        // A lower hard limit of the host cannot be raised, and need not be.
        let most = Some(getrlimit(resource).maximum.map_or(most, |held| held.min(most)));
        setrlimit(resource, Rlimit { current: most, maximum: most })?;
    }
    Ok(())
}

/// Drops every capability, and every way to regain one.
pub(crate) fn drop_capabilities() -> Result<(), JailError> {
    let failed = |error: rustix::io::Errno| JailStep::Capabilities.failed(error);
    for number in 0..=HIGHEST_CAPABILITY {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The number is past the last capability of this Linux kernel.
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

/// Loads the filter into this process permanently. All its future children inherit it.
pub(crate) fn load_seccomp_filter(filter: &BpfProgram) -> io::Result<()> {
    let instructions = filter.instructions();
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: instructions.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    // SAFETY: the program and its instructions outlive the call, and the Linux kernel only reads them.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
