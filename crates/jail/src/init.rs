//! Pid 1 of a jail. It creates the jail's mounts and network, hands the jail over, drops its
//! privileges, and then reaps orphans. When it ends, Linux kills every process inside.

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

/// Bounds of `/tmp`, which holds programs' temporary files. They are separate so that `/tmp` cannot
/// use up the space of the working directory.
const SCRATCH_INODES: u64 = 16_384;
/// Connections that may wait for the egress proxy to accept them: more than a client with many
/// threads opens at once.
const PROXY_BACKLOG: i32 = 256;
/// Minimum, initial and maximum buffer of a TCP connection, for receiving and for sending. Version
/// 1 cgroups do not count them, so one socket must not hold much. The jail has loopback only, which
/// is as fast with these sizes.
const TCP_RECEIVE_BYTES: &str = "4096 65536 212992";
const TCP_SEND_BYTES: &str = "4096 16384 212992";
/// Memory that the options of one socket may use in Linux: the default before Linux 6.8, where it
/// could not be set per namespace.
const SOCKET_OPTIONS_BYTES: &str = "20480";
/// Targets of the symbolic links for `/dev/shm` and the home directory.
pub(crate) const SCRATCH_DIRECTORIES: [&str; 2] = ["/tmp/.shm", "/tmp/.home"];

/// Runs as pid 1 of a new jail, and never returns.
pub(crate) fn main(request: &JailRequest, plan: &SandboxPlan, control: OwnedFd, go: OwnedFd) -> ! {
    let mut byte = [0];
    if rustix::io::read(&go, &mut byte) != Ok(1) {
        // The warden could not map this process's ids, and has reported that.
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
    // Not dropped: `lock_down` closes every descriptor, whichever value owns it.
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
    let proxy_socket = listen_for_proxy().map_err(|error| JailStep::ProxySocket.failed(error))?;
    // Written through the warden's /proc, because the jail's own has no /proc/sys.
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
        proxy_socket,
        volumes,
    })
}

fn send_jail_ready(jail: u64, control: &OwnedFd, parts: &JailDescriptors) -> Result<(), JailError> {
    let JailDescriptors { init, workspace, proc, proxy_socket, volumes } = parts;
    let parts = [init, workspace, proc, proxy_socket].into_iter().chain(volumes);
    let descriptors: Vec<_> = parts.map(AsFd::as_fd).collect();
    message::send(control, &WardenReply::JailReady { jail }, &descriptors)
        .map_err(|error| JailStep::HandOver.failed(error))
}

/// Bounds the memory of each socket in this network namespace. The seccomp filter refuses larger
/// sizes by SO_SNDBUF and SO_RCVBUF.
fn limit_socket_buffers() -> io::Result<()> {
    fs::write("/proc/sys/net/ipv4/tcp_rmem", TCP_RECEIVE_BYTES)?;
    fs::write("/proc/sys/net/ipv4/tcp_wmem", TCP_SEND_BYTES)?;
    match fs::write("/proc/sys/net/core/optmem_max", SOCKET_OPTIONS_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written,
    }
}

/// Brings up loopback: programs expect 127.0.0.1 to work, and this namespace has no other host.
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

/// Creates the jail's only route to the network: a listening socket inside that the egress proxy
/// serves outside. The socket belongs to this namespace wherever its descriptor goes, so its holder
/// knows which sandbox connects.
fn listen_for_proxy() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, PROXY_PORT))?;
    listen(&socket, PROXY_BACKLOG)?;
    Ok(socket)
}

/// Runs before the jail is handed over, so that no code inside ever meets a privileged init.
fn drop_privileges() -> Result<(), JailError> {
    // Changing ids has closed this process's /proc entries; the zygote needs them to enter these
    // namespaces.
    set_dumpable_behavior(DumpableBehavior::Dumpable)
        .map_err(|error| JailStep::TakeIdentity.failed(error))?;
    isolation::drop_capabilities()
}

/// Restricts this process itself, so that code that takes it over gains nothing.
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

/// Waits for ever. Linux reaps the children of a parent that ignores SIGCHLD.
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
