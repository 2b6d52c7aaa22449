//! Ends sandboxes in the background: kills them, waits for their exit, and removes their cgroups.
//!
//! A sandbox is killed by killing the init of its pid namespace. The Linux kernel releases that init
//! only when the namespace is empty, so the exit of the init proves that no process is left.
//!
//! One thread waits for all inits at once, so that a sandbox that is slow to exit delays only its own
//! response. Another thread removes cgroups, which no response waits for.

use jail::cgroup::Cgroup;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The parts of a killed sandbox that the reaper waits for and releases.
#[derive(Debug)]
pub(crate) struct ExitedSandbox {
    pub(crate) init: OwnedFd,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) slot: Slot,
    /// Notified when no process of the sandbox is left.
    pub(crate) on_exit: Option<oneshot::Sender<()>>,
}

/// The queue of the two reaper threads. Dropping it does not wait: the threads reap what is in the queue
/// and then end.
#[derive(Debug)]
pub(crate) struct Reaper {
    queue: Sender<ExitedSandbox>,
    /// A pipe that is written to when the queue has an entry. It is closed after the queue.
    wake: OwnedFd,
}

/// A cgroup can be removed once the Linux kernel has released its last process, which is a moment after
/// the exit of the process was seen. One that stays longer is left to the launcher, which removes the
/// remaining cgroups at its exit.
const REMOVE_PATIENCE: Duration = Duration::from_secs(10);
const REMOVE_PAUSE: Duration = Duration::from_millis(2);
/// After an error of `poll`, which can only be a lack of memory.
const POLL_PAUSE: Duration = Duration::from_millis(10);

impl Reaper {
    /// Starts the two threads. They hold `shared` until this reaper was dropped and the last sandbox has
    /// exited.
    pub(crate) fn start<T: Send + Sync + 'static>(shared: &Arc<T>) -> io::Result<Self> {
        let (queue, sandboxes) = channel();
        let (ended, to_remove) = channel();
        let (wake_reader, wake) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let held = Arc::clone(shared);
        thread::spawn(move || wait_for_exits(&sandboxes, &wake_reader, &ended));
        thread::spawn(move || {
            remove_cgroups(&to_remove);
            drop(held);
        });
        Ok(Self { queue, wake })
    }

    pub(crate) fn reap(&self, sandbox: ExitedSandbox) {
        // Killed by the caller; only the waiting is left to the thread.
        kill_init(&sandbox.init, sandbox.cgroup.as_ref());
        let _ = self.queue.send(sandbox);
        // A full pipe wakes the thread as well.
        let _ = rustix::io::write(&self.wake, &[0]);
    }
}

/// Kills the init of a sandbox, and so all of its processes.
pub(crate) fn kill_init(init: &OwnedFd, group: Option<&Cgroup>) {
    if let Some(group) = group {
        // Exiting takes CPU time, in proportion to the memory to release, and a small CPU limit would
        // delay it. Code cannot use the lifted limit, because it is killed next.
        group.lift_cpu_limit();
    }
    // An error means that it has exited already.
    let _ = pidfd_send_signal(init, Signal::KILL);
}

/// Waits for the exit of all inits in the queue, and passes on the cgroup and slot of each.
fn wait_for_exits(queue: &Receiver<ExitedSandbox>, wake: &OwnedFd, ended: &Sender<(Cgroup, Slot)>) {
    let (mut exiting, mut open) = (Vec::new(), true);
    while open || !exiting.is_empty() {
        let (is_woken, exited) = poll_inits(&exiting, open.then_some(wake));
        // In reverse, so that `swap_remove` keeps the earlier indices valid.
        for index in exited.into_iter().rev() {
            let ExitedSandbox { cgroup: group, slot, on_exit, .. } = exiting.swap_remove(index);
            if let Some(on_exit) = on_exit {
                let _ = on_exit.send(());
            }
            if let Some(group) = group {
                let _ = ended.send((group, slot));
            }
        }
        if is_woken {
            // Emptied before the queue is read, so that no later entry is missed.
            while matches!(rustix::io::read(wake, &mut [0; 64]), Ok(1..)) {}
            open = drain_queue(queue, &mut exiting);
        }
    }
}

/// Takes all entries of the queue; returns whether more can come.
fn drain_queue(queue: &Receiver<ExitedSandbox>, exiting: &mut Vec<ExitedSandbox>) -> bool {
    loop {
        match queue.try_recv() {
            Ok(sandbox) => exiting.push(sandbox),
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => return false,
        }
    }
}

/// Whether the queue has an entry, and which inits have exited, in order.
fn poll_inits(exiting: &[ExitedSandbox], wake: Option<&OwnedFd>) -> (bool, Vec<usize>) {
    let inits = exiting.iter().map(|sandbox| PollFd::new(&sandbox.init, PollFlags::IN));
    let mut all: Vec<PollFd<'_>> = inits.collect();
    all.extend(wake.map(|wake| PollFd::new(wake, PollFlags::IN)));
    match poll(&mut all, None) {
        Ok(_) => {}
        Err(Errno::INTR) => return (false, Vec::new()),
        Err(_) => {
            thread::sleep(POLL_PAUSE);
            return (false, Vec::new());
        }
    }
    let (inits, wake) = all.split_at(exiting.len());
    let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
    let exited =
        inits.iter().enumerate().filter(|(_, init)| is_ready(init)).map(|(index, _)| index);
    (wake.iter().any(is_ready), exited.collect())
}

/// Removes the cgroups of exited sandboxes, each as soon as possible, and releases their slots.
fn remove_cgroups(ended: &Receiver<(Cgroup, Slot)>) {
    let mut pending: Vec<(Cgroup, Slot, Instant)> = Vec::new();
    loop {
        let next = if pending.is_empty() {
            ended.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            ended.recv_timeout(REMOVE_PAUSE)
        };
        match next {
            Ok((group, slot)) => pending.push((group, slot, Instant::now() + REMOVE_PATIENCE)),
            Err(RecvTimeoutError::Disconnected) if pending.is_empty() => return,
            // `recv_timeout` returns at once when the queue is closed, so the pause is made here.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(REMOVE_PAUSE),
            Err(RecvTimeoutError::Timeout) => {}
        }
        pending.retain_mut(|(group, _, deadline)| !group.remove() && Instant::now() < *deadline);
    }
}

/// The numbers of live sandboxes on the host, which cgroup names and user ids are made of.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    state: Arc<Mutex<SlotState>>,
    count: u32,
}

#[derive(Debug)]
struct SlotState {
    used: BTreeSet<u32>,
    last: u32,
}

impl Slots {
    /// Numbers from 1 to `count`.
    pub(crate) fn new(count: u32) -> Self {
        Self { state: Arc::new(Mutex::new(SlotState { used: BTreeSet::new(), last: 0 })), count }
    }

    /// Returns a number that no live sandbox has. Released numbers are reused as late as possible.
    pub(crate) fn take(&self) -> Option<Slot> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..self.count {
            state.last = state.last % self.count + 1;
            let number = state.last;
            if state.used.insert(number) {
                return Some(Slot { number, slots: self.clone() });
            }
        }
        None
    }
}

/// The number of one sandbox, released when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    slots: Slots,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.used.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stand-in for an init, whose exit the test decides.
    fn init() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe().unwrap()
    }

    /// Waits until the exit of an init is reported.
    fn wait_for_exit(exited: oneshot::Receiver<()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let result = runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(60), exited)
                .await
                .expect("the exit is not reported")
        });
        result.unwrap();
    }

    fn exited_sandbox(init: OwnedFd, exited: Option<oneshot::Sender<()>>) -> ExitedSandbox {
        ExitedSandbox { init, cgroup: None, slot: Slots::new(1).take().unwrap(), on_exit: exited }
    }

    #[test]
    fn t80_no_exit_waits_for_the_exit_of_another_sandbox() {
        let reaper = Reaper::start(&Arc::new(())).unwrap();
        let mut slow = Vec::new();
        for _ in 0..64 {
            let (init, end) = init();
            let (sender, exited) = oneshot::channel();
            reaper.reap(exited_sandbox(init, Some(sender)));
            slow.push((end, exited));
        }
        let (quick, end) = init();
        let (sender, exited) = oneshot::channel();
        reaper.reap(exited_sandbox(quick, Some(sender)));
        rustix::io::write(&end, b"x").unwrap();
        wait_for_exit(exited);
        for (end, mut exited) in slow {
            assert_eq!(exited.try_recv(), Err(oneshot::error::TryRecvError::Empty));
            rustix::io::write(&end, b"x").unwrap();
            wait_for_exit(exited);
        }
    }

    #[test]
    fn dropping_a_reaper_does_not_wait_and_shared_state_stays_until_the_last_exit() {
        let (init, end) = init();
        let shared = Arc::new(());
        let reaper = Reaper::start(&shared).unwrap();
        reaper.reap(exited_sandbox(init, None));
        drop(reaper);
        assert!(Arc::strong_count(&shared) > 1, "a thread still holds the shared state");
        rustix::io::write(&end, b"x").unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(&shared) > 1 {
            assert!(Instant::now() < deadline, "the threads do not end");
            thread::yield_now();
        }
    }
}
