//! Rotates the key of all encrypted values.

use super::Service;
use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::tasks::run_to_completion;
use db::{DatabaseError, NewAuditEntry, Tx};
use serde::Serialize;
use std::sync::Arc;
use types::{Error, ErrorCode};
use utoipa::ToSchema;
use vault::{Rotation, RotationError};

/// The result of a rotation.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct RotationResult {
    /// The number of values that are encrypted with the new key, in all workspaces.
    pub values: u64,
}

impl Service {
    /// Encrypts everything again in one transaction; meanwhile nothing else is encrypted or
    /// decrypted. If the server is killed at any moment, all values stay readable.
    pub async fn rotate_secrets(
        self: &Arc<Self>,
        caller: &Caller,
    ) -> Result<RotationResult, RequestError> {
        self.require_operator(caller)?;
        let entry = caller.audit_entry("secrets.rotate", "server", "");
        let service = Arc::clone(self);
        run_to_completion(async move {
            let mut vault = service.vault.write().await;
            let in_use = service.db.read(|rows| rows.sealing_keys())?;
            let rotation = vault.begin_rotation(&in_use)?;
            let in_transaction = Arc::clone(&rotation);
            let values = service.db.write(move |tx| reseal(tx, &in_transaction, &entry)).await?;
            // The new key is in use from now on, even if its file is renamed only at the next
            // start.
            vault.finish_rotation(&rotation).map_err(RotationError::File)?;
            Ok(RotationResult { values })
        })
        .await
    }
}

fn reseal(tx: &Tx<'_>, rotation: &Rotation, entry: &NewAuditEntry) -> Result<u64, DatabaseError> {
    let mut values = 0;
    for (workspace, holder) in tx.sealed_holders()? {
        for (context, sealed) in tx.sealed_values(workspace, holder)? {
            let sealed = rotation
                .reseal(&context, &sealed)
                .map_err(|_| DatabaseError::Corrupt { what: "secret" })?;
            tx.upsert_sealed_value(&context, &sealed)?;
            values += 1;
        }
    }
    tx.append_audit_entry(entry)?;
    Ok(values)
}

impl From<RotationError> for RequestError {
    fn from(cause: RotationError) -> Self {
        let error = Error::new(ErrorCode::DatabaseUnavailable, cause.to_string());
        let error = match cause {
            RotationError::OneKey => error.hint(
                "put a new key and a comma before it in BELLJAR_SECRETS_KEY, restart the server, \
                 and rotate again",
            ),
            RotationError::File(_) => {
                error.hint("all secrets are still readable; check the key file")
            }
        };
        error.into()
    }
}
