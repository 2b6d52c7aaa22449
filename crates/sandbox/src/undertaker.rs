//! Ends sandboxes: the last part of their lives, done off the path of any caller.
//!
//! A sandbox is killed by killing the init of its pid namespace. The kernel lets that init end
//! only when nothing is left in the namespace, so that its end is the proof that all is gone.

use jail::cgroup::Group;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use tokio::sync::oneshot;

/// What remains of a sandbox that is being ended.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) init: OwnedFd,
    pub(crate) group: Option<Group>,
    pub(crate) slot: Slot,
    /// Told when no process of the sandbox is left.
    pub(crate) gone: Option<oneshot::Sender<()>>,
}

/// When it goes, its threads bury what is left and then end by themselves: it may go on a thread that
/// must not wait.
#[derive(Debug)]
pub(crate) struct Undertaker {
    queue: mpsc::Sender<Remains>,
}

/// So that one sandbox which is slow to end does not hold up the answers to all others.
const THREADS: usize = 4;

impl Undertaker {
    /// `until_last` is what sandboxes need to the end; it goes when no more can come and none is left.
    pub(crate) fn start<T: Send + Sync + 'static>(until_last: &Arc<T>) -> Self {
        let (queue, remains) = mpsc::channel();
        let remains = Arc::new(Mutex::new(remains));
        for _ in 0..THREADS {
            let (remains, held) = (Arc::clone(&remains), Arc::clone(until_last));
            thread::spawn(move || {
                let next = || remains.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok(remains) = next() {
                    bury(remains);
                }
                drop(held);
            });
        }
        Self { queue }
    }

    pub(crate) fn take(&self, remains: Remains) {
        // Killed here and now; only the waiting is the thread's.
        kill(&remains.init);
        let _ = self.queue.send(remains);
    }
}

pub(crate) fn kill(init: &OwnedFd) {
    // An error says that it has ended already.
    let _ = pidfd_send_signal(init, Signal::KILL);
}

fn bury(remains: Remains) {
    let Remains { init, group, slot, gone } = remains;
    while let Err(rustix::io::Errno::INTR) = poll(&mut [PollFd::new(&init, PollFlags::IN)], None) {}
    if let Some(gone) = gone {
        let _ = gone.send(());
    }
    drop(group);
    drop(slot);
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
    use std::time::{Duration, Instant};

    #[test]
    fn whoever_lets_go_of_it_does_not_wait_and_the_ground_stays_until_the_last_is_gone() {
        // A pipe ends when we say so, which no real init can be asked to.
        let (init, end) = rustix::pipe::pipe().unwrap();
        let ground = Arc::new(());
        let undertaker = Undertaker::start(&ground);
        let slot = Slots::new(1).take().unwrap();
        undertaker.take(Remains { init, group: None, slot, gone: None });
        drop(undertaker);
        assert!(Arc::strong_count(&ground) > 1, "somebody is not gone");
        rustix::io::write(&end, b"x").unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(&ground) > 1 {
            assert!(Instant::now() < until, "the threads do not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
