//! The C interface that is loaded into the zygote.
//!
//! The caller is a single-threaded process. It calls, in this order, `belljar_zygote_open` once,
//! `belljar_zygote_ready` once, and then in a loop `belljar_zygote_next` and `belljar_zygote_fork`.
//! The last one returns twice: in the caller, and, with 0, in a new process that is inside a jail
//! with every isolation layer applied. A child to which a layer could not be applied reports that
//! on its channel and exits; it never returns.

use crate::clone::{Forked, clone3};
use crate::isolation::{self, ChildDescriptors};
use crate::message;
use crate::plan::{JailError, JailStep, ProcessPolicy, SandboxPlan, SpawnReply, SpawnRequest};
use crate::seccomp::{BpfProgram, Policy, compile};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Exit code of a child to which an isolation layer could not be applied, as in the warden's
/// reports. The runner's own codes are 70 to 72.
const ISOLATION_FAILED_EXIT: i32 = 73;

const REQUEST_READY: i32 = 0;
const SOCKET_CLOSED: i32 = 1;

struct Zygote {
    socket: OwnedFd,
    plan: SandboxPlan,
    filter: BpfProgram,
    pending: Option<(SpawnRequest, ChildDescriptors)>,
}

thread_local! {
    static ZYGOTE: RefCell<Option<Zygote>> = const { RefCell::new(None) };
}

fn with_zygote(work: impl FnOnce(&mut Zygote) -> io::Result<i32>) -> i32 {
    ZYGOTE.with_borrow_mut(|zygote| {
        let result = zygote.as_mut().ok_or(io::ErrorKind::NotConnected.into()).and_then(work);
        result.unwrap_or_else(|error| negative_errno(&error))
    })
}

fn negative_errno(error: &io::Error) -> i32 {
    -error.raw_os_error().unwrap_or(libc::EIO)
}

/// Takes ownership of the descriptors of the plan and of the request socket.
#[unsafe(no_mangle)]
pub extern "C" fn belljar_zygote_open(plan_fd: i32, socket_fd: i32) -> i32 {
    // SAFETY: the caller gives us these two descriptors, and does not use them again.
    let (plan, socket) = unsafe { (File::from_raw_fd(plan_fd), OwnedFd::from_raw_fd(socket_fd)) };
    let opened = || -> io::Result<Zygote> {
        let plan: SandboxPlan = serde_json::from_reader(plan)?;
        let filter = compile(&seccomp_policy(&plan)).map_err(io::Error::other)?;
        Ok(Zygote { socket, plan, filter, pending: None })
    };
    match opened() {
        Ok(zygote) => {
            ZYGOTE.set(Some(zygote));
            0
        }
        Err(error) => negative_errno(&error),
    }
}

fn seccomp_policy(plan: &SandboxPlan) -> Policy {
    let policy = Policy::sandbox();
    let policy = if plan.memory_counted { policy } else { policy.without_memory_cgroup() };
    match plan.processes {
        ProcessPolicy::Allow => policy,
        ProcessPolicy::Deny => policy.without_processes(),
    }
}

/// Announces that the zygote answers requests from now on.
#[unsafe(no_mangle)]
pub extern "C" fn belljar_zygote_ready() -> i32 {
    with_zygote(|zygote| {
        let itself = pidfd_open(getpid(), PidfdFlags::empty())?;
        message::send(&zygote.socket, &SpawnReply::ZygoteReady, &[itself.as_fd()]).map(|()| 0)
    })
}

/// Waits for the next request. Returns 0 when there is one to fork for, 1 when there will be none.
#[unsafe(no_mangle)]
pub extern "C" fn belljar_zygote_next() -> i32 {
    with_zygote(|zygote| {
        let Some((request, descriptors)) = message::receive(&zygote.socket)? else {
            return Ok(SOCKET_CLOSED);
        };
        let [init, channel, stdout, stderr] = <[OwnedFd; 4]>::try_from(descriptors)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        zygote.pending = Some((request, ChildDescriptors { init, channel, stdout, stderr }));
        Ok(REQUEST_READY)
    })
}

/// Forks for the request that `belljar_zygote_next` has received, and answers it.
#[unsafe(no_mangle)]
pub extern "C" fn belljar_zygote_fork() -> i32 {
    with_zygote(|zygote| {
        let (request, descriptors) =
            zygote.pending.take().ok_or(io::Error::from(io::ErrorKind::InvalidInput))?;
        match fork_into(&descriptors.init) {
            Ok(Forked::Child) => {
                isolate_child(zygote, &request, descriptors);
                Ok(0)
            }
            Ok(Forked::Parent { pid, pidfd }) => {
                let pid = pid.as_raw_nonzero().get();
                message::send(&zygote.socket, &SpawnReply::Started { pid }, &[pidfd.as_fd()])?;
                Ok(pid)
            }
            Err(error) => {
                let errno = error.errno;
                message::send(&zygote.socket, &SpawnReply::Failed(error), &[])?;
                Ok(-errno)
            }
        }
    })
}

/// Forks a child of the zygote's parent, the warden, which reaps it.
fn fork_into(init: &OwnedFd) -> Result<Forked, JailError> {
    // SAFETY: takes a descriptor and a flag. Choosing the pid namespace concerns future children
    // only, and this process makes none but here.
    if unsafe { libc::setns(init.as_raw_fd(), libc::CLONE_NEWPID) } == -1 {
        return Err(JailStep::EnterPidNamespace.failed(io::Error::last_os_error()));
    }
    clone3(libc::CLONE_PARENT, 0).map_err(|error| JailStep::Fork.failed(error))
}

fn isolate_child(zygote: &Zygote, request: &SpawnRequest, descriptors: ChildDescriptors) {
    let Ok(init) = isolation::install_descriptors(descriptors) else {
        // Descriptor 3 may still be the zygote's socket, so the child can report nothing.
        // SAFETY: ends the partly isolated child at once, before it could run anything.
        unsafe { libc::_exit(ISOLATION_FAILED_EXIT) }
    };
    if let Err(error) = isolation::apply(&zygote.plan, &zygote.filter, request, init) {
        let text = serde_json::json!({"ev": "isolation", "isolation": error}).to_string();
        let mut frame = u32::try_from(text.len()).unwrap_or(0).to_le_bytes().to_vec();
        frame.extend(text.into_bytes());
        // SAFETY: descriptors have been arranged, so that 3 is the channel.
        let channel = unsafe { BorrowedFd::borrow_raw(isolation::CHANNEL_FD) };
        let _ = rustix::io::write(channel, &frame);
        // SAFETY: ends the partly isolated child at once, before it could run anything.
        unsafe { libc::_exit(ISOLATION_FAILED_EXIT) }
    }
}
