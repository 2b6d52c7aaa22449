//! The wires to warden and zygote: two sockets, and who waits for what from them.

use crate::nursery::{BirthError, Jail};
use crate::undertaker;
use jail::{JailRequest, SpawnReply, SpawnRequest, Step, WallError, WardenReply, message};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram as StdUnixDatagram;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Exits of processes that nobody had asked about yet when the news came.
const EARLY_EXITS_KEPT: usize = 256;

/// The sockets to warden and zygote, and who waits for what from them.
#[derive(Debug)]
pub(crate) struct Wires {
    pub(crate) control: UnixDatagram,
    pub(crate) spawn: UnixDatagram,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) jails_asked: BTreeMap<u64, JailWaiter>,
    pub(crate) stock: Vec<Jail>,
    pub(crate) stock_on_the_way: usize,
    pub(crate) spawns_asked: VecDeque<oneshot::Sender<SpawnAnswer>>,
    exits_asked: BTreeMap<i32, oneshot::Sender<i32>>,
    early_exits: VecDeque<(i32, i32)>,
    pub(crate) gone: bool,
}

pub(crate) type SpawnAnswer = Result<(i32, OwnedFd), WallError>;
#[derive(Debug)]
pub(crate) struct JailParts {
    pub(crate) init: OwnedFd,
    pub(crate) workspace: OwnedFd,
    pub(crate) proc: OwnedFd,
    pub(crate) outlet: TcpListener,
    /// The directories of stores that are held.
    pub(crate) stores: Vec<OwnedFd>,
}

impl JailParts {
    fn of(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut parts = descriptors.into_iter();
        let (init, workspace, proc) = (parts.next()?, parts.next()?, parts.next()?);
        let outlet = TcpListener::from(parts.next()?);
        Some(Self { init, workspace, proc, outlet, stores: parts.collect() })
    }
}

#[derive(Debug)]
pub(crate) struct JailWaiter(pub(crate) oneshot::Sender<Result<Newborn, WallError>>);

/// A jail on its way to whoever asked for it. One that has gone away meanwhile will never take
/// it, and a jail that nobody holds would stay for ever: dropping it ends it.
#[derive(Debug)]
pub(crate) struct Newborn(Option<JailParts>);

impl Newborn {
    pub(crate) fn take(mut self) -> Result<JailParts, BirthError> {
        self.0.take().ok_or(BirthError::Stillborn)
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        if let Some(parts) = &self.0 {
            undertaker::kill(&parts.init, None);
        }
    }
}

impl Wires {
    pub(crate) fn new(control: OwnedFd, spawn: OwnedFd) -> io::Result<Self> {
        let (control, spawn) = (message_socket(control)?, message_socket(spawn)?);
        Ok(Self { control, spawn, state: Mutex::default() })
    }

    /// Through the runtime, so that it knows when there was no room.
    pub(crate) fn send_spawn(
        &self,
        request: &SpawnRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let send = || message::send(&self.spawn, request, descriptors);
        self.spawn.try_io(Interest::WRITABLE, send)
    }

    pub(crate) fn send_control(&self, request: &JailRequest) -> io::Result<()> {
        self.control.try_io(Interest::WRITABLE, || message::send(&self.control, request, &[]))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn await_ready(&self) -> Result<(), BirthError> {
        let mut zygote_open = true;
        loop {
            tokio::select! {
                reply = next::<SpawnReply>(&self.spawn), if zygote_open => match reply? {
                    Some((SpawnReply::ZygoteReady, _)) => return Ok(()),
                    Some((SpawnReply::Failed(error), _)) => return Err(error.into()),
                    Some((SpawnReply::Started { .. }, _)) => {}
                    // The warden knows why.
                    None => zygote_open = false,
                },
                reply = next::<WardenReply>(&self.control) => match reply? {
                    Some((WardenReply::WardenFailed { error }, _)) => return Err(error.into()),
                    Some((WardenReply::ZygoteExited { .. }, _)) | None => {
                        return Err(BirthError::ZygoteGone);
                    }
                    Some(_) => {}
                },
            }
        }
    }

    /// Takes what warden and zygote say to whoever waits for it.
    pub(crate) fn listen(wires: &Arc<Self>) -> [AbortHandle; 2] {
        let (warden, zygote) = (Arc::clone(wires), Arc::clone(wires));
        let warden = tokio::spawn(async move {
            while let Ok(Some((reply, descriptors))) = next(&warden.control).await {
                warden.hear_warden(reply, descriptors);
            }
            warden.lose();
        });
        let zygote = tokio::spawn(async move {
            while let Ok(Some((reply, descriptors))) = next(&zygote.spawn).await {
                zygote.hear_zygote(reply, descriptors);
            }
            zygote.lose_zygote();
        });
        [warden.abort_handle(), zygote.abort_handle()]
    }

    /// No births any more; what was born lives on, and the warden will tell of its end.
    fn lose_zygote(&self) {
        let mut state = self.state();
        state.gone = true;
        state.spawns_asked.clear();
    }

    fn lose(&self) {
        let mut state = self.state();
        state.gone = true;
        // Dropping the senders tells all who wait.
        state.jails_asked.clear();
        state.spawns_asked.clear();
        state.exits_asked.clear();
    }

    fn hear_warden(&self, reply: WardenReply, descriptors: Vec<OwnedFd>) {
        match reply {
            WardenReply::JailReady { jail } => {
                let newborn = Newborn(JailParts::of(descriptors));
                if let Some(JailWaiter(waiter)) = self.state().jails_asked.remove(&jail) {
                    let _ = waiter.send(Ok(newborn));
                }
            }
            WardenReply::JailFailed { jail, error } => {
                if let Some(JailWaiter(waiter)) = self.state().jails_asked.remove(&jail) {
                    let _ = waiter.send(Err(error));
                }
            }
            WardenReply::Exited { pid, status } => {
                let mut state = self.state();
                if let Some(waiter) = state.exits_asked.remove(&pid) {
                    let _ = waiter.send(status);
                } else {
                    state.early_exits.push_back((pid, status));
                    if state.early_exits.len() > EARLY_EXITS_KEPT {
                        state.early_exits.pop_front();
                    }
                }
            }
            WardenReply::ZygoteExited { .. } | WardenReply::WardenFailed { .. } => {
                self.state().gone = true;
            }
        }
    }

    fn hear_zygote(&self, reply: SpawnReply, descriptors: Vec<OwnedFd>) {
        let answer = match reply {
            SpawnReply::ZygoteReady => return,
            SpawnReply::Failed(error) => Err(error),
            SpawnReply::Started { pid } => match descriptors.into_iter().next() {
                Some(pidfd) => Ok((pid, pidfd)),
                // This process has no descriptor left for it.
                None => Err(WallError { step: Step::Fork, errno: Errno::MFILE.raw_os_error() }),
            },
        };
        if let Some(waiter) = self.state().spawns_asked.pop_front() {
            let _ = waiter.send(answer);
        }
    }

    /// Resolves to the wait status of a process that the zygote forked.
    pub(crate) fn exit_of(&self, pid: i32) -> oneshot::Receiver<i32> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        if let Some(index) = state.early_exits.iter().position(|(early, _)| *early == pid) {
            if let Some((_, status)) = state.early_exits.remove(index) {
                let _ = sender.send(status);
            }
        } else {
            state.exits_asked.insert(pid, sender);
        }
        receiver
    }

    pub(crate) fn forget_exit_of(&self, pid: i32) {
        self.state().exits_asked.remove(&pid);
    }
}

/// The next message on a non-blocking socket; `None` at its end.
async fn next<T: DeserializeOwned>(socket: &UnixDatagram) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    loop {
        socket.readable().await?;
        match socket.try_io(Interest::READABLE, || message::receive(socket)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return received,
        }
    }
}

/// A `SOCK_SEQPACKET` socket for the runtime, which has no type for these but cares only whether
/// it can be read.
fn message_socket(socket: OwnedFd) -> io::Result<UnixDatagram> {
    UnixDatagram::from_std(StdUnixDatagram::from(socket))
}

pub(crate) fn seqpacket() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}
