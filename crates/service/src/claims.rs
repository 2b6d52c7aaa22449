//! Requests that may be sent again: what was claimed under which key, and what was answered.

use crate::caller::Caller;
use crate::executions::Record;
use crate::refused::Refused;
use crate::service::Service;
use chrono::Utc;
use std::sync::Arc;
use store::{Claim, Reply, RequestKey, Tx};
use types::{Code, Execution, ExecutionId, Fault};

/// What is known of a key.
#[derive(Debug)]
pub enum Claimed {
    /// Nothing; it is the caller's now.
    New,
    Done(Reply),
    /// It has begun an execution, which may have ended or not.
    Execution(ExecutionId),
}

pub(crate) fn request_key(caller: &Caller, key: &str) -> RequestKey {
    RequestKey { workspace: caller.workspace, principal: caller.id(), key: key.to_owned() }
}

fn conflict(message: &str, hint: &str) -> Refused {
    Fault::new(Code::IdempotencyConflict, message).hint(hint).into()
}

impl Service {
    pub async fn claim(
        &self,
        caller: &Caller,
        key: &str,
        fingerprint: [u8; 32],
    ) -> Result<Claimed, Refused> {
        let (key, now) = (request_key(caller, key), Utc::now());
        let claim = move |tx: &Tx<'_>| tx.claim_request(&key, &fingerprint, now);
        match self.store.write(claim).await? {
            Claim::Claimed => Ok(Claimed::New),
            Claim::Done(reply) => Ok(Claimed::Done(reply)),
            Claim::Pending(Some(id)) => Ok(Claimed::Execution(id)),
            Claim::Pending(None) => {
                Err(conflict("the first request under this key is not answered yet", "wait for it"))
            }
            Claim::Interrupted => Err(conflict(
                "the server stopped during the first request under this key, and whether it was \
                 done is not known",
                "look at what there is, then send it under another key",
            )),
            Claim::Mismatch => {
                Err(conflict("this key stands for another request", "use one key for one request"))
            }
        }
    }

    /// It was refused, and may be tried again.
    pub async fn release(&self, caller: &Caller, key: &str) -> Result<(), Refused> {
        let key = request_key(caller, key);
        Ok(self.store.write(move |tx| tx.release_request(&key)).await?)
    }

    pub async fn remember(&self, caller: &Caller, key: &str, reply: Reply) -> Result<(), Refused> {
        let key = request_key(caller, key);
        Ok(self.store.write(move |tx| tx.complete_request(&key, &reply)).await?)
    }

    /// The record of an execution once it has ended.
    pub async fn settled(&self, caller: &Caller, id: ExecutionId) -> Result<Execution, Refused> {
        self.until_over(id).await;
        self.execution(caller, id).await
    }

    /// The same for a client, which reads output and results as fast as it likes.
    pub async fn settled_record(
        self: &Arc<Self>,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<Record, Refused> {
        self.until_over(id).await;
        self.record(caller, id).await
    }

    async fn until_over(&self, id: ExecutionId) {
        let running = self.running().get(&id).cloned();
        if let Some(running) = running {
            running.live.over().await;
        }
    }
}
