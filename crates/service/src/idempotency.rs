//! Idempotency keys: which request has used a key, and its response.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::runs::executions::ExecutionRecord;
use crate::service::Service;
use db::{ClaimOutcome, IdempotencyKey, StoredResponse, Tx};
use std::sync::Arc;
use types::{Error, ErrorCode, ExecutionId};

/// The state of an idempotency key.
#[derive(Debug)]
pub enum RequestClaim {
    /// The key is new; the caller now holds it.
    New,
    Completed(StoredResponse),
    /// The request started an execution, which may have ended.
    Execution(ExecutionId),
}

pub(crate) fn idempotency_key(caller: &Caller, key: &str) -> IdempotencyKey {
    IdempotencyKey { workspace: caller.workspace, principal: caller.id(), key: key.to_owned() }
}

fn conflict(message: &str, hint: &str) -> RequestError {
    Error::new(ErrorCode::IdempotencyConflict, message).hint(hint).into()
}

impl Service {
    pub async fn claim_request(
        &self,
        caller: &Caller,
        key: &str,
        fingerprint: [u8; 32],
    ) -> Result<RequestClaim, RequestError> {
        let (key, now) = (idempotency_key(caller, key), self.now());
        let claim = move |tx: &Tx<'_>| tx.claim_request(&key, &fingerprint, now);
        match self.db.write(claim).await? {
            ClaimOutcome::Claimed => Ok(RequestClaim::New),
            ClaimOutcome::Completed(reply) => Ok(RequestClaim::Completed(reply)),
            ClaimOutcome::Pending(Some(id)) => Ok(RequestClaim::Execution(id)),
            ClaimOutcome::Pending(None) => Err(conflict(
                "the first request with this Idempotency-Key is still in progress",
                "wait until it has ended",
            )),
            ClaimOutcome::Interrupted => Err(conflict(
                "the server stopped during the first request with this Idempotency-Key; its \
                 outcome is unknown",
                "check whether it took effect before you retry with another key",
            )),
            ClaimOutcome::Mismatch => Err(conflict(
                "this Idempotency-Key was used for another request",
                "use a new key for each request",
            )),
        }
    }

    /// Releases the key of a request that was refused, so that it may be retried.
    pub async fn release_request(&self, caller: &Caller, key: &str) -> Result<(), RequestError> {
        let key = idempotency_key(caller, key);
        Ok(self.db.write(move |tx| tx.release_request(&key)).await?)
    }

    pub async fn store_response(
        &self,
        caller: &Caller,
        key: &str,
        reply: StoredResponse,
    ) -> Result<(), RequestError> {
        let key = idempotency_key(caller, key);
        Ok(self.db.write(move |tx| tx.complete_request(&key, &reply)).await?)
    }

    /// The record of an execution once it has ended.
    pub async fn wait_for_execution(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<ExecutionRecord, RequestError> {
        self.wait_until_ended(id).await;
        self.execution(caller, id).await
    }

    /// The record of an execution once it has ended, for a client that reads output and results at
    /// its own speed.
    pub async fn wait_for_record(
        self: &Arc<Self>,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<ExecutionRecord, RequestError> {
        self.wait_until_ended(id).await;
        self.execution_record(caller, id).await
    }

    async fn wait_until_ended(&self, id: ExecutionId) {
        let running = self.active_executions().get(&id).cloned();
        if let Some(running) = running {
            running.live.wait_closed().await;
        }
    }
}
