//! Counts the executions in progress, from admission to the end, so that a shutdown can wait for
//! them and stop them. A caller cancels an execution with the stop handle of its command; the
//! engine has no list of executions.

use sandbox::StopHandle;
use std::sync::Arc;
use tokio::sync::watch;

#[derive(Debug, Clone, Default)]
pub(crate) struct RunningExecutions {
    count: Arc<watch::Sender<usize>>,
    stop_all: StopHandle,
}

/// Counts one execution until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningExecution(RunningExecutions);

impl Drop for RunningExecution {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count -= 1);
    }
}

impl RunningExecution {
    /// Runs to the end, and asks `stop` to stop when the engine stops all executions.
    pub(crate) async fn stoppable<T>(&self, stop: &StopHandle, run: impl Future<Output = T>) -> T {
        let stopped = async {
            self.0.stop_all.requested().await;
            stop.stop();
            std::future::pending().await
        };
        tokio::select! {
            biased;
            ended = run => ended,
            never = stopped => never,
        }
    }
}

impl RunningExecutions {
    pub(crate) fn start(&self) -> RunningExecution {
        self.count.send_modify(|count| *count += 1);
        RunningExecution(self.clone())
    }

    pub(crate) fn stop_all(&self) {
        self.stop_all.stop();
    }

    /// Waits until no execution is in progress.
    pub(crate) async fn wait_until_idle(&self) {
        // The sender lives as long as this does.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}
