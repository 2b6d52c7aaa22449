//! Ends sandboxes: the last part of their lives, done off the path of any caller.
//!
//! A sandbox is killed by killing the init of its pid namespace. The kernel lets that init end
//! only when nothing is left in the namespace, so that its end is the proof that all is gone.
//!
//! One thread waits for all inits at once, so that a sandbox that is slow to end holds up no answer
//! but its own. Another one removes cgroups, which answers do not wait for.

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

/// The parts of a sandbox that is being ended.
#[derive(Debug)]
pub(crate) struct ExitedSandbox {
    pub(crate) init: OwnedFd,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) slot: Slot,
    /// Told when no process of the sandbox is left.
    pub(crate) on_exit: Option<oneshot::Sender<()>>,
}

/// When it goes, its threads bury what is left and then end by themselves: it may go on a thread that
/// must not wait.
#[derive(Debug)]
pub(crate) struct Reaper {
    queue: Sender<ExitedSandbox>,
    /// Written to when there is something in the queue; closed after it.
    wake: OwnedFd,
}

/// A cgroup can be removed once its last process has been reaped, which the kernel may still be at
/// for a moment after the process was seen to end. One that stays longer is left to the launcher,
/// which removes all that is left at its end.
const REMOVE_PATIENCE: Duration = Duration::from_secs(10);
const REMOVE_PAUSE: Duration = Duration::from_millis(2);
/// After an error of `poll`, which can only be a lack of memory.
const POLL_PAUSE: Duration = Duration::from_millis(10);

impl Reaper {
    /// `until_last` is what sandboxes need to the end; it goes when no more can come and none is left.
    pub(crate) fn start<T: Send + Sync + 'static>(until_last: &Arc<T>) -> io::Result<Self> {
        let (queue, remains) = channel();
        let (ended, to_remove) = channel();
        let (woken, wake) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let held = Arc::clone(until_last);
        thread::spawn(move || wait_for_exits(&remains, &woken, &ended));
        thread::spawn(move || {
            remove_cgroups(&to_remove);
            drop(held);
        });
        Ok(Self { queue, wake })
    }

    pub(crate) fn reap(&self, remains: ExitedSandbox) {
        // Killed here and now; only the waiting is the thread's.
        kill_init(&remains.init, remains.cgroup.as_ref());
        let _ = self.queue.send(remains);
        // A full pipe wakes it as well.
        let _ = rustix::io::write(&self.wake, &[0]);
    }
}

/// Kills all processes of a sandbox by its init.
pub(crate) fn kill_init(init: &OwnedFd, group: Option<&Cgroup>) {
    if let Some(group) = group {
        // Ending takes CPU time too, as much as there was memory to give back: a small share would
        // make it last. In this order code cannot make use of it.
        group.lift_cpu_limit();
    }
    // An error says that it has ended already.
    let _ = pidfd_send_signal(init, Signal::KILL);
}

/// Waits for all inits that come by the queue, and passes on what is left after each.
fn wait_for_exits(
    queue: &Receiver<ExitedSandbox>,
    woken: &OwnedFd,
    ended: &Sender<(Cgroup, Slot)>,
) {
    let (mut dying, mut open) = (Vec::new(), true);
    while open || !dying.is_empty() {
        let (woke, over) = poll_inits(&dying, open.then_some(woken));
        // From the last one on, so that the numbers of those before stay what they are.
        for index in over.into_iter().rev() {
            let ExitedSandbox { cgroup: group, slot, on_exit: gone, .. } = dying.swap_remove(index);
            if let Some(gone) = gone {
                let _ = gone.send(());
            }
            if let Some(group) = group {
                let _ = ended.send((group, slot));
            }
        }
        if woke {
            // Emptied before the queue is looked at, so that nothing that comes then is missed.
            while matches!(rustix::io::read(woken, &mut [0; 64]), Ok(1..)) {}
            open = drain_queue(queue, &mut dying);
        }
    }
}

/// Takes all that is in the queue; whether more can come.
fn drain_queue(queue: &Receiver<ExitedSandbox>, dying: &mut Vec<ExitedSandbox>) -> bool {
    loop {
        match queue.try_recv() {
            Ok(remains) => dying.push(remains),
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => return false,
        }
    }
}

/// Whether the queue has an entry, and which inits have exited, in order.
fn poll_inits(dying: &[ExitedSandbox], woken: Option<&OwnedFd>) -> (bool, Vec<usize>) {
    let inits = dying.iter().map(|remains| PollFd::new(&remains.init, PollFlags::IN));
    let mut all: Vec<PollFd<'_>> = inits.collect();
    all.extend(woken.map(|woken| PollFd::new(woken, PollFlags::IN)));
    match poll(&mut all, None) {
        Ok(_) => {}
        Err(Errno::INTR) => return (false, Vec::new()),
        Err(_) => {
            thread::sleep(POLL_PAUSE);
            return (false, Vec::new());
        }
    }
    let (inits, woken) = all.split_at(dying.len());
    let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
    let over = inits.iter().enumerate().filter(|(_, init)| is_ready(init)).map(|(index, _)| index);
    (woken.iter().any(is_ready), over.collect())
}

/// Removes the groups of ended sandboxes, each as soon as it can be, and gives their numbers back.
fn remove_cgroups(ended: &Receiver<(Cgroup, Slot)>) {
    let mut left: Vec<(Cgroup, Slot, Instant)> = Vec::new();
    loop {
        let next = if left.is_empty() {
            ended.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            ended.recv_timeout(REMOVE_PAUSE)
        };
        match next {
            Ok((group, slot)) => left.push((group, slot, Instant::now() + REMOVE_PATIENCE)),
            Err(RecvTimeoutError::Disconnected) if left.is_empty() => return,
            // Nothing waits for cgroups that are still busy, and `recv_timeout` no longer does.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(REMOVE_PAUSE),
            Err(RecvTimeoutError::Timeout) => {}
        }
        left.retain_mut(|(group, _, until)| !group.remove() && Instant::now() < *until);
    }
}

/// The numbers that tell live sandboxes apart on the host: cgroup names and user ids.
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

    /// A number that no live sandbox has, and that was not given away a moment ago.
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

/// A number that is given back when the sandbox is gone.
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

    /// An init of which we say when it ends, which no real one can be asked to.
    fn init() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe().unwrap()
    }

    /// Waits until the end of an init is told, and fails where that never is.
    fn wait_told(gone: oneshot::Receiver<()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let told = runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(60), gone).await.expect("it is not told")
        });
        told.unwrap();
    }

    fn remains(init: OwnedFd, gone: Option<oneshot::Sender<()>>) -> ExitedSandbox {
        ExitedSandbox { init, cgroup: None, slot: Slots::new(1).take().unwrap(), on_exit: gone }
    }

    #[test]
    fn t80_nobody_waits_for_the_end_of_somebody_else() {
        let reaper = Reaper::start(&Arc::new(())).unwrap();
        let mut slow = Vec::new();
        for _ in 0..64 {
            let (init, end) = init();
            let (sender, gone) = oneshot::channel();
            reaper.reap(remains(init, Some(sender)));
            slow.push((end, gone));
        }
        let (quick, end) = init();
        let (sender, gone) = oneshot::channel();
        reaper.reap(remains(quick, Some(sender)));
        rustix::io::write(&end, b"x").unwrap();
        wait_told(gone);
        for (end, mut gone) in slow {
            assert_eq!(gone.try_recv(), Err(oneshot::error::TryRecvError::Empty));
            rustix::io::write(&end, b"x").unwrap();
            wait_told(gone);
        }
    }

    #[test]
    fn whoever_lets_go_of_it_does_not_wait_and_the_ground_stays_until_the_last_is_gone() {
        let (init, end) = init();
        let shared = Arc::new(());
        let reaper = Reaper::start(&shared).unwrap();
        reaper.reap(remains(init, None));
        drop(reaper);
        assert!(Arc::strong_count(&shared) > 1, "a thread still holds the shared state");
        rustix::io::write(&end, b"x").unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(&shared) > 1 {
            assert!(Instant::now() < until, "the threads do not end");
            thread::yield_now();
        }
    }
}
