//! The process of an MCP server that the operator has configured. It is the leader of a process
//! group, which is killed as a whole when the operation ends, however it ends.

use crate::error::McpClientError;
use rustix::process::{Pid, Signal, kill_process_group};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// The variables that a server gets. The others of this process can be secrets.
const VARIABLES: [&str; 4] = ["HOME", "LANG", "PATH", "TMPDIR"];
/// How long a server may take to end by itself after its input has closed.
const EXIT_TIME_MAX: Duration = Duration::from_millis(500);

/// A command of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCommand {
    /// The name by which specifications refer to it.
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
}

impl ServerProcess {
    pub(crate) fn start(
        command: &ServerCommand,
    ) -> Result<(Self, ChildStdin, ChildStdout), McpClientError> {
        let failed = |source| McpClientError::Start { name: command.name.clone(), source };
        let variables = VARIABLES.into_iter().filter_map(|it| Some((it, std::env::var_os(it)?)));
        let mut child = Command::new(&command.program)
            .args(&command.arguments)
            .env_clear()
            .envs(variables)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let process = Self { child };
        let (stdin, stdout) =
            pipes.ok_or_else(|| failed(std::io::Error::other("it has no pipes")))?;
        Ok((process, stdin, stdout))
    }

    /// Lets the server end, and then kills whatever is left. Its pipes are closed already.
    pub(crate) async fn end(mut self) {
        // While the leader is not reaped, its id names this group and no other.
        if timeout(EXIT_TIME_MAX, self.exited()).await.is_err() {
            self.kill();
        }
        let _ = self.child.wait().await;
    }

    /// Returns when the server has exited, after killing what it has left behind in its group.
    async fn exited(&mut self) {
        let Some(leader) = self.leader() else { return };
        loop {
            use rustix::process::{WaitId, WaitIdOptions, waitid};
            let peek = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            match waitid(WaitId::Pid(leader), peek) {
                Ok(None) => tokio::time::sleep(Duration::from_millis(5)).await,
                Ok(Some(_)) | Err(_) => break,
            }
        }
        self.kill();
    }

    /// The process, until it is reaped.
    fn leader(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.id()?).ok()?)
    }

    fn kill(&self) {
        // A group without processes is what this is for.
        self.leader().into_iter().for_each(|group| {
            let _ = kill_process_group(group, Signal::KILL);
        });
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
