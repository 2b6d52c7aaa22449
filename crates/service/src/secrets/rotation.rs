//! A new key for everything that is sealed.

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

/// What came of a rotation.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct RotationResult {
    /// How many values are sealed with the new key: all that there are, of all workspaces.
    pub values: u64,
}

impl Service {
    /// Everything is sealed again in one transaction, and nothing is sealed or opened meanwhile. A
    /// server that is killed at any moment of it finds all values readable.
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
            let way = Arc::clone(&rotation);
            let values = service.db.write(move |tx| reseal(tx, &way, &entry)).await?;
            // It holds from now on, though its file may get its name only at the next start.
            vault.finish_rotation(&rotation).map_err(RotationError::File)?;
            Ok(RotationResult { values })
        })
        .await
    }
}

fn reseal(tx: &Tx<'_>, rotation: &Rotation, entry: &NewAuditEntry) -> Result<u64, DatabaseError> {
    let mut values = 0;
    for (workspace, holder) in tx.sealed_holders()? {
        for (label, sealed) in tx.sealed_values(workspace, holder)? {
            let sealed = rotation
                .reseal(&label, &sealed)
                .map_err(|_| DatabaseError::Corrupt { what: "secret" })?;
            tx.upsert_sealed_value(&label, &sealed)?;
            values += 1;
        }
    }
    tx.append_audit_entry(entry)?;
    Ok(values)
}

impl From<RotationError> for RequestError {
    fn from(error: RotationError) -> Self {
        let fault = Error::new(ErrorCode::DatabaseUnavailable, error.to_string());
        let fault = match error {
            RotationError::OneKey => fault.hint(
                "put a new key before it in BELLJAR_SECRETS_KEY, with a comma between them, start the \
                 server again, and rotate",
            ),
            RotationError::File(_) => fault.hint("all secrets are readable; look at the key file"),
        };
        fault.into()
    }
}
