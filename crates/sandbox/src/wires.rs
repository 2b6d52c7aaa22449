//! The wires to warden and zygote: two sockets, and who waits for what from them.

use crate::nursery::{BirthError, Jail};
use crate::undertaker;
use jail::{SpawnReply, SpawnRequest, Step, WallError, WardenReply, WardenRequest, message};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram as StdUnixDatagram;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// How long a process of ours may say nothing before it is taken for hung, in looks at it that are
/// [`LOOK_EVERY`] apart. Looks and not a clock: while the machine sleeps, or this process is held up,
/// the others are not silent. Forks take milliseconds; a zygote that is ended without need costs no
/// more than the start of another.
pub(crate) const ZYGOTE_SILENT_LOOKS: u32 = 5;
/// A warden answers between two system calls. More patience than with the zygote, because all its
/// sandboxes end with it.
pub(crate) const WARDEN_SILENT_LOOKS: u32 = 10;
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

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
    exits: Exits,
    /// How many messages the warden and the zygote have sent: one that says nothing may be hung.
    heard_of_warden: u64,
    heard_of_zygote: u64,
    pub(crate) gone: bool,
}

/// A process that the zygote has forked.
#[derive(Debug)]
pub(crate) struct Spawned {
    /// As the zygote sees it.
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    /// Resolves to its wait status.
    pub(crate) exit: oneshot::Receiver<i32>,
}

pub(crate) type SpawnAnswer = Result<Spawned, WallError>;

/// Matches the exits that the warden reports with the starts that the zygote reports.
///
/// A pid alone names nobody, because it is used again as soon as its process was reaped, and the two
/// sockets have no order between them. But every start and every exit is reported once, each kind in
/// its order: the n-th exit of a pid belongs to its n-th start, whichever of the two is heard first.
#[derive(Debug, Default)]
struct Exits(BTreeMap<i32, Unmatched>);

/// Reports about one pid that lack their counterpart, oldest first.
#[derive(Debug)]
enum Unmatched {
    Started(VecDeque<oneshot::Sender<i32>>),
    Exited(VecDeque<i32>),
}

impl Exits {
    /// Resolves to the wait status of the process that was started now.
    fn started(&mut self, pid: i32) -> oneshot::Receiver<i32> {
        let (sender, exit) = oneshot::channel();
        match self.0.get_mut(&pid) {
            Some(Unmatched::Exited(statuses)) => {
                if let Some(status) = statuses.pop_front() {
                    let _ = sender.send(status);
                }
                self.forget_if_matched(pid);
            }
            Some(Unmatched::Started(waiting)) => waiting.push_back(sender),
            None => drop(self.0.insert(pid, Unmatched::Started(VecDeque::from([sender])))),
        }
        exit
    }

    fn exited(&mut self, pid: i32, status: i32) {
        match self.0.get_mut(&pid) {
            Some(Unmatched::Started(waiting)) => {
                if let Some(sender) = waiting.pop_front() {
                    // The sandbox may have been given up.
                    let _ = sender.send(status);
                }
                self.forget_if_matched(pid);
            }
            Some(Unmatched::Exited(statuses)) => statuses.push_back(status),
            None => drop(self.0.insert(pid, Unmatched::Exited(VecDeque::from([status])))),
        }
    }

    fn forget_if_matched(&mut self, pid: i32) {
        let matched = self.0.get(&pid).is_some_and(|unmatched| match unmatched {
            Unmatched::Started(waiting) => waiting.is_empty(),
            Unmatched::Exited(statuses) => statuses.is_empty(),
        });
        if matched {
            self.0.remove(&pid);
        }
    }
}

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

    pub(crate) fn send_control(&self, request: &WardenRequest) -> io::Result<()> {
        self.control.try_io(Interest::WRITABLE, || message::send(&self.control, request, &[]))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the zygote can fork, and gives a pidfd of it.
    pub(crate) async fn await_ready(&self) -> Result<OwnedFd, BirthError> {
        let mut zygote_open = true;
        loop {
            tokio::select! {
                reply = next::<SpawnReply>(&self.spawn), if zygote_open => match reply? {
                    Some((SpawnReply::ZygoteReady, descriptors)) => {
                        let pidfd = descriptors.into_iter().next();
                        return pidfd.ok_or_else(|| io::Error::from(Errno::MFILE).into());
                    }
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
    pub(crate) fn lose_zygote(&self) {
        let mut state = self.state();
        state.gone = true;
        state.spawns_asked.clear();
    }

    pub(crate) fn lose(&self) {
        let mut state = self.state();
        state.gone = true;
        // Dropping the senders tells all who wait.
        state.jails_asked.clear();
        state.spawns_asked.clear();
        state.exits = Exits::default();
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
                state.heard_of_warden += 1;
                state.exits.exited(pid, status);
            }
            WardenReply::Pong => self.state().heard_of_warden += 1,
            WardenReply::ZygoteExited { .. } | WardenReply::WardenFailed { .. } => {
                self.state().gone = true;
            }
        }
    }

    fn hear_zygote(&self, reply: SpawnReply, descriptors: Vec<OwnedFd>) {
        let mut state = self.state();
        state.heard_of_zygote += 1;
        let answer = match reply {
            SpawnReply::ZygoteReady => return,
            SpawnReply::Failed(error) => Err(error),
            SpawnReply::Started { pid } => {
                // Noted whether or not somebody still waits for it: its exit will be reported.
                let exit = state.exits.started(pid);
                match descriptors.into_iter().next() {
                    Some(pidfd) => Ok(Spawned { pid, pidfd, exit }),
                    // This process has no descriptor left for it.
                    None => Err(WallError { step: Step::Fork, errno: Errno::MFILE.raw_os_error() }),
                }
            }
        };
        if let Some(waiter) = state.spawns_asked.pop_front() {
            let _ = waiter.send(answer);
        }
    }

    /// Waits for something that the zygote does; `None` if it is silent instead.
    pub(crate) async fn unless_zygote_hangs<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        unless_silent(work, ZYGOTE_SILENT_LOOKS, || self.state().heard_of_zygote).await
    }

    /// Waits for something that the warden does or has to take note of; `None` if it is silent instead.
    pub(crate) async fn unless_warden_hangs<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let look = || {
            // Where there is no room it has enough to answer.
            let _ = self.send_control(&WardenRequest::Ping);
            self.state().heard_of_warden
        };
        unless_silent(work, WARDEN_SILENT_LOOKS, look).await
    }
}

/// Waits for `work`, and gives up when as many looks in a row have found that nothing was heard.
async fn unless_silent<T>(
    work: impl Future<Output = T>,
    looks: u32,
    mut heard: impl FnMut() -> u64,
) -> Option<T> {
    let mut work = pin!(work);
    let (mut last, mut silent) = (None, 0);
    while silent < looks {
        if let Ok(done) = timeout(LOOK_EVERY, &mut work).await {
            return Some(done);
        }
        let now = heard();
        silent = if last == Some(now) { silent + 1 } else { 0 };
        last = Some(now);
    }
    None
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

#[cfg(test)]
mod tests {
    use super::*;

    fn status(mut exit: oneshot::Receiver<i32>) -> Option<i32> {
        exit.try_recv().ok()
    }

    #[test]
    fn an_exit_goes_to_its_process_whichever_is_heard_of_first() {
        let mut exits = Exits::default();
        let known = exits.started(5);
        exits.exited(5, 1);
        exits.exited(6, 2);
        assert_eq!((status(known), status(exits.started(6))), (Some(1), Some(2)));
        assert!(exits.0.is_empty(), "nothing is kept of what was matched");
    }

    #[test]
    fn t82_a_pid_that_comes_round_has_no_exit_of_a_former_process() {
        let mut exits = Exits::default();
        // Nobody wants to know how the first one ends, and its end is reported late.
        drop(exits.started(5));
        let second = exits.started(5);
        exits.exited(5, 1);
        exits.exited(5, 2);
        assert_eq!(status(second), Some(2));
        drop(exits.started(5));
        exits.exited(5, 3);
        let last = exits.started(5);
        assert_eq!(status(last), None, "it has not ended");
    }

    #[test]
    fn t82_exits_that_are_heard_of_before_their_starts_keep_their_order() {
        let mut exits = Exits::default();
        (1..=3).for_each(|status| exits.exited(5, status));
        let all = [(); 3].map(|()| status(exits.started(5)));
        assert_eq!(all, [Some(1), Some(2), Some(3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_the_last_word() {
        let never = || std::future::pending::<()>();
        let began = tokio::time::Instant::now();
        assert_eq!(unless_silent(never(), 5, || 0).await, None);
        assert_eq!(began.elapsed(), 6 * LOOK_EVERY);
        // As long as it says something, nobody loses patience with it.
        let mut words = 0;
        let talking = unless_silent(never(), 5, || {
            words += 1;
            words
        });
        assert!(timeout(1_000 * LOOK_EVERY, talking).await.is_err());
        let late = tokio::time::sleep(3 * LOOK_EVERY);
        assert_eq!(unless_silent(late, 5, || 0).await, Some(()));
    }
}
