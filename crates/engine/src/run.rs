//! The walk. `Engine::run` is the whole of it on one screen: each stage takes what the stage
//! before has produced, so that none can be left out.

use crate::capacity::Slot;
use crate::collect::collect;
use crate::command::{Command, FileIn};
use crate::engine::Engine;
use crate::environments::Ready;
use crate::job::Job;
use crate::outcome;
use crate::record::{Record, tell_loss};
use crate::session::{Inside, Session};
use crate::walls;
use chrono::{DateTime, Utc};
use sandbox::{FileError, Sandbox};
use std::sync::Arc;
use types::{Code, Event, Execution, Fault, Limits, LimitsRequest, SandboxId};
use uuid::Uuid;

/// The record of an execution, with the content of its files if that was asked for.
#[derive(Debug)]
pub struct Finished {
    pub execution: Execution,
    pub files: Vec<(String, Vec<u8>)>,
}

/// A sandbox of one's own for one execution. Dropping it on any path ends the sandbox.
pub(crate) struct Lease {
    pub(crate) ready: Arc<Ready>,
    pub(crate) sandbox: Sandbox,
    pub(crate) sandbox_id: SandboxId,
    pub(crate) generation: u64,
    pub(crate) cell: u64,
    pub(crate) slot: Option<Slot>,
}

impl Engine {
    /// Runs one command from its request to its record.
    pub async fn run(
        &self,
        command: Command,
        sink: &mut (dyn FnMut(&Event) + Send),
    ) -> Result<Finished, Fault> {
        let created = Utc::now();
        match command.session {
            None => {
                let limits = self.admit(&command.limits())?;
                let slot = self.capacity.take()?;
                let mut lease = self.lease(&command.environment, &limits, slot).await?;
                let finished = self.walk(&command, &limits, &mut lease, created, sink).await?.0;
                lease.sandbox.end().await;
                Ok(finished)
            }
            Some(id) => {
                let session = self.session(id)?;
                let limits = self.admit_in(&session, &command.limits())?;
                let mut inside = session.inside.try_lock().map_err(|_| session.busy())?;
                let mut lease = self.resume(&session, &mut inside).await?;
                let running = session.begin(lease.sandbox.stopper());
                let walked = self.walk(&command, &limits, &mut lease, created, sink).await;
                drop(running);
                inside.lent = false;
                let (mut finished, alive) = match walked {
                    Ok(walked) => walked,
                    Err(fault) => {
                        // Nothing was run, and the session is as it was.
                        inside.sandbox = Some(lease.sandbox);
                        return Err(fault);
                    }
                };
                let mut lost = std::mem::take(&mut inside.loss_untold);
                if alive {
                    inside.sandbox = Some(lease.sandbox);
                } else {
                    finished.execution.generation = session.lose_memory();
                    lost = true;
                }
                if lost {
                    tell_loss(&mut finished.execution);
                }
                Ok(finished)
            }
        }
    }

    /// Places files, runs, collects and records, in a sandbox that is ours.
    async fn walk(
        &self,
        command: &Command,
        limits: &Limits,
        lease: &mut Lease,
        created: DateTime<Utc>,
        sink: &mut (dyn FnMut(&Event) + Send),
    ) -> Result<(Finished, bool), Fault> {
        place(&mut lease.sandbox, &command.files)?;
        let job = Job::new(command, lease)?;
        lease.sandbox.allow(limits).map_err(|error| unreachable_sandbox(&error))?;
        let mut record = Record::new(created);
        let ending = lease
            .sandbox
            .run(&job.work(), limits, &mut |event| {
                sink(&event);
                record.hear(event);
            })
            .await;
        let alive = ending.alive;
        let collected = collect(&mut lease.sandbox, command.bring_files).await;
        let environment = lease.ready.environment.name.as_str();
        let outcome = outcome::judge(&ending, limits, environment, &command.entry);
        let warnings = walls::warnings(&self.config.without);
        let execution =
            record.close(command, lease, limits, &ending, outcome, &collected, warnings);
        Ok((Finished { execution, files: collected.contents }, alive))
    }

    pub(crate) fn admit(&self, request: &LimitsRequest) -> Result<Limits, Fault> {
        request
            .resolve(&self.config.caps)
            .map_err(|error| Fault::new(Code::ArgsInvalid, error.to_string()))
    }

    /// The limits of an execution in a session: what was fixed when its sandbox was made stays.
    fn admit_in(&self, session: &Session, request: &LimitsRequest) -> Result<Limits, Fault> {
        let asked = self.admit(request)?;
        let fixed = session.limits;
        let changed = request.disk_bytes.is_some_and(|asked| asked != fixed.disk_bytes)
            || request.disk_inodes.is_some_and(|asked| asked != fixed.disk_inodes)
            || request.open_files.is_some_and(|asked| asked != fixed.open_files)
            || request.processes.is_some_and(|asked| asked > fixed.processes);
        if changed {
            let message = "disk_bytes, disk_inodes and open_files of a session are fixed at its \
                           start, and processes cannot grow";
            return Err(Fault::new(Code::ArgsInvalid, message)
                .hint("open another session with the limits that are wanted"));
        }
        let given = |asked: Option<u64>, resolved: u64, of_session: u64| {
            if asked.is_some() { resolved } else { of_session }
        };
        Ok(Limits {
            wall_ms: given(request.wall_ms, asked.wall_ms, fixed.wall_ms),
            cpu_ms: given(request.wall_ms.or(request.cpu_ms), asked.cpu_ms, fixed.cpu_ms),
            cpu_percent: given(request.cpu_percent, asked.cpu_percent, fixed.cpu_percent),
            memory_bytes: given(request.memory_bytes, asked.memory_bytes, fixed.memory_bytes),
            processes: given(request.processes, asked.processes, fixed.processes),
            output_bytes: given(request.output_bytes, asked.output_bytes, fixed.output_bytes),
            result_bytes: given(request.result_bytes, asked.result_bytes, fixed.result_bytes),
            ..fixed
        })
    }

    pub(crate) async fn lease(
        &self,
        environment: &str,
        limits: &Limits,
        slot: Slot,
    ) -> Result<Lease, Fault> {
        let ready = self.shelf.get(&self.config, environment, |_| {}).await?;
        let sandbox =
            ready.pool.lease(limits).await.map_err(|error| outcome::birth_fault(&error))?;
        let sandbox_id = SandboxId::new(Uuid::now_v7());
        Ok(Lease { ready, sandbox, sandbox_id, generation: 1, cell: 1, slot: Some(slot) })
    }

    /// The session's own sandbox, or a new one in the place of one that died.
    pub(crate) async fn resume(
        &self,
        session: &Session,
        inside: &mut Inside,
    ) -> Result<Lease, Fault> {
        let sandbox = match inside.sandbox.take() {
            Some(sandbox) => sandbox,
            None => {
                let born = session.ready.pool.lease(&session.limits).await;
                born.map_err(|error| outcome::birth_fault(&error))?
            }
        };
        if std::mem::replace(&mut inside.lent, true) {
            session.lose_memory();
            inside.loss_untold = true;
        }
        inside.cells += 1;
        Ok(Lease {
            ready: Arc::clone(&session.ready),
            sandbox,
            sandbox_id: session.id,
            generation: session.generation(),
            cell: inside.cells,
            slot: None,
        })
    }
}

pub(crate) fn place(sandbox: &mut Sandbox, files: &[FileIn]) -> Result<(), Fault> {
    for file in files {
        sandbox
            .write_file(&file.name, &mut file.content.as_slice())
            .map_err(|error| file_fault(&error))?;
    }
    Ok(())
}

pub(crate) fn file_fault(error: &FileError) -> Fault {
    let code = match error {
        FileError::NotFound { .. } => Code::FileNotFound,
        FileError::Full { .. } => Code::DiskExceeded,
        FileError::Name(_)
        | FileError::NotRegular { .. }
        | FileError::TooLarge { .. }
        | FileError::Io { .. } => Code::FileUnsupported,
    };
    Fault::new(code, error.to_string())
}

fn unreachable_sandbox(error: &std::io::Error) -> Fault {
    Fault::new(Code::SandboxUnreachable, format!("its limits could not be set: {error}"))
}
