//! Pid 1 of a jail. It makes the jail's own mounts and network, hands the jail over, gives up all
//! it could do, and from then on reaps orphans. Its death is the death of everything inside.

use crate::plan::{
    IsolationLayer, JailError, JailRequest, JailStep, PROXY_PORT, SANDBOX_ID, SandboxPlan,
    WardenReply,
};
use crate::seccomp::{Policy, compile};
use crate::{isolation, message, mount, userns};
use rustix::fs::{Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::{DumpableBehavior, PidfdFlags, getpid, pidfd_open, set_dumpable_behavior};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::{fs, io};

/// Beside the working directory, `/tmp` holds what programs put aside: its own bounds keep it
/// from taking the working directory's room.
const SCRATCH_INODES: u64 = 16_384;
/// Connections that may wait until whoever serves the outlet takes them: more than a client with
/// many threads opens at once.
const PROXY_BACKLOG: i32 = 256;
/// Least, initial and largest buffer of a TCP connection, for receiving and for sending: no cgroup of
/// version 1 counts them, so that one socket must not hold much. Loopback, all there is here, is as
/// fast with them.
const TCP_RECEIVE_BYTES: &str = "4096 65536 212992";
const TCP_SEND_BYTES: &str = "4096 16384 212992";
/// What the options of one socket may hold in the kernel; the default of Linux before 6.8, where it
/// could not be set for one namespace.
const SOCKET_OPTIONS_BYTES: &str = "20480";
/// What `/dev/shm` and the home directory lead to.
pub(crate) const SCRATCH_DIRECTORIES: [&str; 2] = ["/tmp/.shm", "/tmp/.home"];

/// Runs as pid 1 of a new jail, and never returns.
pub(crate) fn main(request: &JailRequest, plan: &SandboxPlan, control: OwnedFd, go: OwnedFd) -> ! {
    let mut byte = [0];
    if rustix::io::read(&go, &mut byte) != Ok(1) {
        // The warden could not map our ids, and has said so.
        exit(1);
    }
    drop(go);
    let handed_over = prepare(request, plan).and_then(|jail| {
        drop_privileges()?;
        send_jail_ready(request.jail, &control, &jail)
    });
    if let Err(error) = handed_over {
        let reply = WardenReply::JailFailed { jail: request.jail, error };
        let _ = message::send(&control, &reply, &[]);
        exit(1);
    }
    // Nothing is dropped here: every descriptor is closed, whoever owns it.
    std::mem::forget(control);
    if lock_down(plan).is_err() {
        exit(1);
    }
    sleep_for_ever()
}

struct JailDescriptors {
    init: OwnedFd,
    workspace: OwnedFd,
    proc: OwnedFd,
    proxy_socket: OwnedFd,
    volumes: Vec<OwnedFd>,
}

fn prepare(request: &JailRequest, plan: &SandboxPlan) -> Result<JailDescriptors, JailError> {
    userns::become_user(SANDBOX_ID).map_err(|error| JailStep::TakeIdentity.failed(error))?;
    rustix::system::sethostname(plan.hostname.as_bytes())
        .map_err(|error| JailStep::Hostname.failed(error))?;
    limit_socket_buffers().map_err(|error| JailStep::Sysctl.failed(error))?;
    loopback_up().map_err(|error| JailStep::Loopback.failed(error))?;
    let outlet = listen_for_proxy().map_err(|error| JailStep::Outlet.failed(error))?;
    // Through the warden's /proc, because the jail's own has no /proc/sys.
    fs::write("/proc/sys/user/max_user_namespaces", "0")
        .map_err(|error| JailStep::Sysctl.failed(error))?;
    mount::tmpfs("/workspace", request.disk_bytes, request.disk_inodes, "0755")?;
    mount::tmpfs("/tmp", request.disk_bytes, SCRATCH_INODES, "1777")?;
    for directory in SCRATCH_DIRECTORIES {
        fs::create_dir(directory)
            .map_err(|error| JailStep::MountScratch(directory.into()).failed(error))?;
    }
    let volumes = mount::volumes(&request.volumes)?;
    plan.hidden.iter().try_for_each(|path| mount::hide(path))?;
    mount::proc(Some(c"subset=pid"))?;
    let directory = |path: &str| {
        open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| JailStep::HandOver.failed(error))
    };
    Ok(JailDescriptors {
        init: pidfd_open(getpid(), PidfdFlags::empty())
            .map_err(|error| JailStep::HandOver.failed(error))?,
        workspace: directory("/workspace")?,
        proc: directory("/proc")?,
        proxy_socket: outlet,
        volumes,
    })
}

fn send_jail_ready(jail: u64, control: &OwnedFd, parts: &JailDescriptors) -> Result<(), JailError> {
    let JailDescriptors { init, workspace, proc, proxy_socket: outlet, volumes } = parts;
    let parts = [init, workspace, proc, outlet].into_iter().chain(volumes);
    let descriptors: Vec<_> = parts.map(AsFd::as_fd).collect();
    message::send(control, &WardenReply::JailReady { jail }, &descriptors)
        .map_err(|error| JailStep::HandOver.failed(error))
}

/// Bounds what each socket of this network namespace can hold. The filter keeps code from asking for
/// more by SO_SNDBUF and SO_RCVBUF.
fn limit_socket_buffers() -> io::Result<()> {
    fs::write("/proc/sys/net/ipv4/tcp_rmem", TCP_RECEIVE_BYTES)?;
    fs::write("/proc/sys/net/ipv4/tcp_wmem", TCP_SEND_BYTES)?;
    match fs::write("/proc/sys/net/core/optmem_max", SOCKET_OPTIONS_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written,
    }
}

/// Programs expect 127.0.0.1 to answer, and in this namespace nobody else can be there.
fn loopback_up() -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all-zero is a valid ifreq: an empty name and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (target, source) in request.ifr_name.iter_mut().zip(b"lo") {
        *target = *source as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    use std::os::fd::AsRawFd;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The only way out there can be: a socket that listens inside and is served outside. It belongs to
/// this namespace wherever its descriptor goes, so that whoever holds it knows who is calling.
fn listen_for_proxy() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, PROXY_PORT))?;
    listen(&socket, PROXY_BACKLOG)?;
    Ok(socket)
}

/// Done before the jail is handed over, so that nothing inside ever meets an init with rights.
fn drop_privileges() -> Result<(), JailError> {
    // It took its id by a change, which has closed its /proc entries; the zygote needs to see
    // them to enter these namespaces.
    set_dumpable_behavior(DumpableBehavior::Dumpable)
        .map_err(|error| JailStep::TakeIdentity.failed(error))?;
    isolation::drop_capabilities()
}

/// Whoever took this process over from now on would be able to do less than before.
fn lock_down(plan: &SandboxPlan) -> Result<(), JailError> {
    isolation::close_above(-1).map_err(|error| JailStep::Descriptors.failed(error))?;
    // SAFETY: installs no handler, and so touches no memory.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    if plan.without.contains(&IsolationLayer::Seccomp) {
        return Ok(());
    }
    let filter = compile(&Policy::init())
        .map_err(|_| JailStep::Seccomp.failed(io::Error::from(io::ErrorKind::InvalidInput)))?;
    isolation::load_seccomp_filter(&filter).map_err(|error| JailStep::Seccomp.failed(error))
}

/// A parent that ignores SIGCHLD has its children reaped by the system itself.
fn sleep_for_ever() -> ! {
    loop {
        // SAFETY: `pause` takes nothing and touches no memory.
        unsafe { libc::pause() };
    }
}

fn exit(code: i32) -> ! {
    // SAFETY: ends this process without running handlers that belong to the warden it was
    // copied from.
    unsafe { libc::_exit(code) }
}
