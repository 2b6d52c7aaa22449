//! An engine of the client's own behind the door.

use super::{OwnArgs, PATIENCE, reader};
use crate::cli::own::{DRAIN, Own};
use crate::cli::setup::EngineArgs;
use crate::cli::{Failure, progress, serve};
use mcp::{Door, Manners};
use service::PermissionChange;
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn run(args: &EngineArgs, own: OwnArgs) -> Result<(), Failure> {
    let embedded = Own::start(args, own.fetch_from, own.models.settings()?).await?;
    let service = &embedded.service;
    let change = PermissionChange { permission: own.permission.unwrap_or_default() };
    let set = service.set_code_permission(&embedded.asker.caller, change).await;
    set.map_err(|refused| *refused.fault)?;
    // The client is answered meanwhile: it would give up on a server that builds first.
    let preparing = tokio::spawn({
        let service = Arc::clone(service);
        async move { service.prepare(progress::show()).await }
    });
    let manners = Manners { task_after: Duration::from_secs(own.task_seconds), address: None };
    let door = Door::new(Arc::clone(&embedded.agents), Some(embedded.asker.clone()), manners);
    let served = tokio::select! {
        served = mcp::stdio(door, PATIENCE) => served,
        () = reader::gone() => Ok(()),
        () = serve::told_to_stop() => Ok(()),
    };
    preparing.abort();
    service.stop(DRAIN).await;
    served.map_err(Failure::belljar)
}
