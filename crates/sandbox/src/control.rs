//! The control sockets of the supervisor to the warden and the zygote, and the callers that wait for
//! their replies.

use crate::reaper;
use crate::zygote_host::{PreparedJail, SpawnError};
use jail::{JailError, JailStep, SpawnReply, SpawnRequest, WardenReply, WardenRequest, message};
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

/// Checks, [`CHECK_INTERVAL`] apart, in which a zygote may send no message before it counts as hung.
/// Checks and not a time: while the machine is suspended, or this process does not run, the zygote is
/// not silent. Forks take milliseconds; a zygote that is ended without need costs no more than the
/// start of another.
pub(crate) const ZYGOTE_SILENT_CHECKS: u32 = 5;
/// The same for the warden, which answers between two system calls. More than for the zygote, because
/// all sandboxes of the warden end with it.
pub(crate) const WARDEN_SILENT_CHECKS: u32 = 10;
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The sockets to the warden and the zygote, and the callers that wait for replies.
#[derive(Debug)]
pub(crate) struct ControlSockets {
    pub(crate) control: UnixDatagram,
    pub(crate) spawn: UnixDatagram,
    state: Mutex<ControlState>,
}

#[derive(Debug, Default)]
pub(crate) struct ControlState {
    pub(crate) pending_jails: BTreeMap<u64, JailWaiter>,
    pub(crate) spare_jails: Vec<PreparedJail>,
    pub(crate) spare_jails_starting: usize,
    pub(crate) pending_spawns: VecDeque<oneshot::Sender<SpawnResult>>,
    exits: ExitMatcher,
    /// Number of messages that the warden and the zygote have sent: one that sends none may hang.
    warden_messages: u64,
    zygote_messages: u64,
    pub(crate) gone: bool,
}

/// A process that the zygote has forked.
#[derive(Debug)]
pub(crate) struct SpawnedProcess {
    /// The pid in the pid namespace of the zygote.
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    /// Resolves to its wait status.
    pub(crate) exit: oneshot::Receiver<i32>,
}

pub(crate) type SpawnResult = Result<SpawnedProcess, JailError>;

/// Matches the exits that the warden reports with the starts that the zygote reports.
///
/// A pid alone identifies no process, because it is used again as soon as its process was reaped, and the two
/// sockets have no order between them. But every start and every exit is reported once, each kind in
/// its order: the n-th exit of a pid belongs to its n-th start, whichever of the two arrives first.
#[derive(Debug, Default)]
struct ExitMatcher(BTreeMap<i32, UnmatchedReports>);

/// Reports about one pid that lack their counterpart, oldest first.
#[derive(Debug)]
enum UnmatchedReports {
    Started(VecDeque<oneshot::Sender<i32>>),
    Exited(VecDeque<i32>),
}

impl ExitMatcher {
    /// Records the start of a process and returns a receiver of its wait status.
    fn record_start(&mut self, pid: i32) -> oneshot::Receiver<i32> {
        let (sender, exit) = oneshot::channel();
        match self.0.get_mut(&pid) {
            Some(UnmatchedReports::Exited(statuses)) => {
                if let Some(status) = statuses.pop_front() {
                    let _ = sender.send(status);
                }
                self.remove_if_matched(pid);
            }
            Some(UnmatchedReports::Started(waiting)) => waiting.push_back(sender),
            None => drop(self.0.insert(pid, UnmatchedReports::Started(VecDeque::from([sender])))),
        }
        exit
    }

    fn record_exit(&mut self, pid: i32, status: i32) {
        match self.0.get_mut(&pid) {
            Some(UnmatchedReports::Started(waiting)) => {
                if let Some(sender) = waiting.pop_front() {
                    // The sandbox may have been given up.
                    let _ = sender.send(status);
                }
                self.remove_if_matched(pid);
            }
            Some(UnmatchedReports::Exited(statuses)) => statuses.push_back(status),
            None => drop(self.0.insert(pid, UnmatchedReports::Exited(VecDeque::from([status])))),
        }
    }

    fn remove_if_matched(&mut self, pid: i32) {
        let matched = self.0.get(&pid).is_some_and(|unmatched| match unmatched {
            UnmatchedReports::Started(waiting) => waiting.is_empty(),
            UnmatchedReports::Exited(statuses) => statuses.is_empty(),
        });
        if matched {
            self.0.remove(&pid);
        }
    }
}

#[derive(Debug)]
pub(crate) struct ReceivedJail {
    pub(crate) init: OwnedFd,
    pub(crate) workspace: OwnedFd,
    pub(crate) proc: OwnedFd,
    pub(crate) proxy_socket: TcpListener,
    /// The directories of volumes that are held.
    pub(crate) volumes: Vec<OwnedFd>,
}

impl ReceivedJail {
    fn from_descriptors(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut parts = descriptors.into_iter();
        let (init, workspace, proc) = (parts.next()?, parts.next()?, parts.next()?);
        let proxy_socket = TcpListener::from(parts.next()?);
        Some(Self { init, workspace, proc, proxy_socket, volumes: parts.collect() })
    }
}

#[derive(Debug)]
pub(crate) struct JailWaiter(pub(crate) oneshot::Sender<Result<UnclaimedJail, JailError>>);

/// A jail that the caller who requested it has not taken yet. Dropping it ends the jail, because a
/// caller that no longer waits never takes it.
#[derive(Debug)]
pub(crate) struct UnclaimedJail(Option<ReceivedJail>);

impl UnclaimedJail {
    pub(crate) fn take(mut self) -> Result<ReceivedJail, SpawnError> {
        self.0.take().ok_or(SpawnError::EndedBeforeReady)
    }
}

impl Drop for UnclaimedJail {
    fn drop(&mut self) {
        if let Some(parts) = &self.0 {
            reaper::kill_init(&parts.init, None);
        }
    }
}

impl ControlSockets {
    pub(crate) fn new(control: OwnedFd, spawn: OwnedFd) -> io::Result<Self> {
        let (control, spawn) = (message_socket(control)?, message_socket(spawn)?);
        Ok(Self { control, spawn, state: Mutex::default() })
    }

    /// Sends through the runtime, so that the runtime knows when the socket was full.
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

    pub(crate) fn state(&self) -> MutexGuard<'_, ControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the zygote can fork, and returns its pidfd.
    pub(crate) async fn wait_until_ready(&self) -> Result<OwnedFd, SpawnError> {
        let mut zygote_open = true;
        loop {
            tokio::select! {
                reply = receive_message::<SpawnReply>(&self.spawn), if zygote_open => match reply? {
                    Some((SpawnReply::ZygoteReady, descriptors)) => {
                        let pidfd = descriptors.into_iter().next();
                        return pidfd.ok_or_else(|| io::Error::from(Errno::MFILE).into());
                    }
                    Some((SpawnReply::Failed(error), _)) => return Err(error.into()),
                    Some((SpawnReply::Started { .. }, _)) => {}
                    // The warden knows why.
                    None => zygote_open = false,
                },
                reply = receive_message::<WardenReply>(&self.control) => match reply? {
                    Some((WardenReply::WardenFailed { error }, _)) => return Err(error.into()),
                    Some((WardenReply::ZygoteExited { .. }, _)) | None => {
                        return Err(SpawnError::ZygoteGone);
                    }
                    Some(_) => {}
                },
            }
        }
    }

    /// Delivers the messages of warden and zygote to the callers that wait for them.
    pub(crate) fn spawn_readers(control: &Arc<Self>) -> [AbortHandle; 2] {
        let (warden, zygote) = (Arc::clone(control), Arc::clone(control));
        let warden = tokio::spawn(async move {
            while let Ok(Some((reply, descriptors))) = receive_message(&warden.control).await {
                warden.handle_warden_reply(reply, descriptors);
            }
            warden.mark_warden_gone();
        });
        let zygote = tokio::spawn(async move {
            while let Ok(Some((reply, descriptors))) = receive_message(&zygote.spawn).await {
                zygote.handle_zygote_reply(reply, descriptors);
            }
            zygote.mark_zygote_gone();
        });
        [warden.abort_handle(), zygote.abort_handle()]
    }

    /// Stops spawning. Spawned sandboxes continue, and the warden reports their exits.
    pub(crate) fn mark_zygote_gone(&self) {
        let mut state = self.state();
        state.gone = true;
        state.pending_spawns.clear();
    }

    pub(crate) fn mark_warden_gone(&self) {
        let mut state = self.state();
        state.gone = true;
        // Dropping the senders wakes all callers that wait.
        state.pending_jails.clear();
        state.pending_spawns.clear();
        state.exits = ExitMatcher::default();
    }

    fn handle_warden_reply(&self, reply: WardenReply, descriptors: Vec<OwnedFd>) {
        match reply {
            WardenReply::JailReady { jail } => {
                let unclaimed = UnclaimedJail(ReceivedJail::from_descriptors(descriptors));
                if let Some(JailWaiter(waiter)) = self.state().pending_jails.remove(&jail) {
                    let _ = waiter.send(Ok(unclaimed));
                }
            }
            WardenReply::JailFailed { jail, error } => {
                if let Some(JailWaiter(waiter)) = self.state().pending_jails.remove(&jail) {
                    let _ = waiter.send(Err(error));
                }
            }
            WardenReply::Exited { pid, status } => {
                let mut state = self.state();
                state.warden_messages += 1;
                state.exits.record_exit(pid, status);
            }
            WardenReply::Pong => self.state().warden_messages += 1,
            WardenReply::ZygoteExited { .. } | WardenReply::WardenFailed { .. } => {
                self.state().gone = true;
            }
        }
    }

    fn handle_zygote_reply(&self, reply: SpawnReply, descriptors: Vec<OwnedFd>) {
        let mut state = self.state();
        state.zygote_messages += 1;
        let result = match reply {
            SpawnReply::ZygoteReady => return,
            SpawnReply::Failed(error) => Err(error),
            SpawnReply::Started { pid } => {
                // Recorded whether or not a caller still waits for it: its exit will be reported.
                let exit = state.exits.record_start(pid);
                match descriptors.into_iter().next() {
                    Some(pidfd) => Ok(SpawnedProcess { pid, pidfd, exit }),
                    // This process has no descriptor left for it.
                    None => {
                        Err(JailError { step: JailStep::Fork, errno: Errno::MFILE.raw_os_error() })
                    }
                }
            }
        };
        if let Some(waiter) = state.pending_spawns.pop_front() {
            let _ = waiter.send(result);
        }
    }

    /// Waits for an action of the zygote; `None` if the zygote is silent instead.
    pub(crate) async fn with_zygote_watchdog<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        with_watchdog(work, ZYGOTE_SILENT_CHECKS, || self.state().zygote_messages).await
    }

    /// Waits for an action of the warden, or for room in its socket; `None` if the warden is silent
    /// instead.
    pub(crate) async fn with_warden_watchdog<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let count_messages = || {
            // A full socket has enough requests to answer.
            let _ = self.send_control(&WardenRequest::Ping);
            self.state().warden_messages
        };
        with_watchdog(work, WARDEN_SILENT_CHECKS, count_messages).await
    }
}

/// Waits for `work`, and gives up after so many checks in a row without a new message.
async fn with_watchdog<T>(
    work: impl Future<Output = T>,
    silent_checks_max: u32,
    mut count_messages: impl FnMut() -> u64,
) -> Option<T> {
    let mut work = pin!(work);
    let (mut last, mut silent) = (None, 0);
    while silent < silent_checks_max {
        if let Ok(done) = timeout(CHECK_INTERVAL, &mut work).await {
            return Some(done);
        }
        let now = count_messages();
        silent = if last == Some(now) { silent + 1 } else { 0 };
        last = Some(now);
    }
    None
}

/// The next message on a non-blocking socket; `None` at its end.
async fn receive_message<T: DeserializeOwned>(
    socket: &UnixDatagram,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
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

pub(crate) fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (own_end, peer) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&own_end, true)?;
    Ok((own_end, peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(mut exit: oneshot::Receiver<i32>) -> Option<i32> {
        exit.try_recv().ok()
    }

    #[test]
    fn an_exit_goes_to_its_process_whichever_is_reported_first() {
        let mut exits = ExitMatcher::default();
        let known = exits.record_start(5);
        exits.record_exit(5, 1);
        exits.record_exit(6, 2);
        assert_eq!((status(known), status(exits.record_start(6))), (Some(1), Some(2)));
        assert!(exits.0.is_empty(), "nothing is kept of what was matched");
    }

    #[test]
    fn t82_a_reused_pid_has_no_exit_of_a_former_process() {
        let mut exits = ExitMatcher::default();
        // No caller waits for the exit of the first one, which is reported late.
        drop(exits.record_start(5));
        let second = exits.record_start(5);
        exits.record_exit(5, 1);
        exits.record_exit(5, 2);
        assert_eq!(status(second), Some(2));
        drop(exits.record_start(5));
        exits.record_exit(5, 3);
        let last = exits.record_start(5);
        assert_eq!(status(last), None, "it has not ended");
    }

    #[test]
    fn t82_exits_that_are_reported_before_their_starts_keep_their_order() {
        let mut exits = ExitMatcher::default();
        (1..=3).for_each(|status| exits.record_exit(5, status));
        let all = [(); 3].map(|()| status(exits.record_start(5)));
        assert_eq!(all, [Some(1), Some(2), Some(3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_the_last_message() {
        let never = || std::future::pending::<()>();
        let began = tokio::time::Instant::now();
        assert_eq!(with_watchdog(never(), 5, || 0).await, None);
        assert_eq!(began.elapsed(), 6 * CHECK_INTERVAL);
        // As long as it sends messages, it is not killed.
        let mut messages = 0;
        let talking = with_watchdog(never(), 5, || {
            messages += 1;
            messages
        });
        assert!(timeout(1_000 * CHECK_INTERVAL, talking).await.is_err());
        let late = timeout(3 * CHECK_INTERVAL, never());
        assert!(with_watchdog(late, 5, || 0).await.is_some());
    }
}
