//! A new key for everything that is sealed.

use super::Service;
use crate::apart::to_the_end;
use crate::caller::Caller;
use crate::refused::Refused;
use serde::Serialize;
use std::sync::Arc;
use store::{AuditLine, StoreError, Tx};
use types::{Code, Fault};
use utoipa::ToSchema;
use vault::{Rotation, RotationError};

/// What came of a rotation.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct Rotated {
    /// How many values are sealed with the new key: all that there are, of all workspaces.
    pub values: u64,
}

impl Service {
    /// Everything is sealed again in one transaction, and nothing is sealed or opened meanwhile. A
    /// server that is killed at any moment of it finds all values readable.
    pub async fn rotate_secrets(self: &Arc<Self>, caller: &Caller) -> Result<Rotated, Refused> {
        self.require_operator(caller)?;
        let entry = caller.did("secrets.rotate", "server", "");
        let service = Arc::clone(self);
        to_the_end(async move {
            let mut vault = service.vault.write().await;
            let in_use = service.store.read(|rows| rows.sealing_keys())?;
            let rotation = vault.begin_rotation(&in_use)?;
            let way = Arc::clone(&rotation);
            let values = service.store.write(move |tx| reseal(tx, &way, &entry)).await?;
            // It holds from now on, though its file may get its name only at the next start.
            vault.finish_rotation(&rotation).map_err(RotationError::File)?;
            Ok(Rotated { values })
        })
        .await
    }
}

fn reseal(tx: &Tx<'_>, rotation: &Rotation, entry: &AuditLine) -> Result<u64, StoreError> {
    let mut values = 0;
    for (workspace, holder) in tx.sealed_holders()? {
        for (label, sealed) in tx.sealed(workspace, holder)? {
            let sealed = rotation
                .reseal(&label, &sealed)
                .map_err(|_| StoreError::Corrupt { what: "secret" })?;
            tx.put_sealed(&label, &sealed)?;
            values += 1;
        }
    }
    tx.audit(entry)?;
    Ok(values)
}

impl From<RotationError> for Refused {
    fn from(error: RotationError) -> Self {
        let fault = Fault::new(Code::StoreUnavailable, error.to_string());
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
