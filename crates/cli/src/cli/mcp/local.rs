//! Runs the MCP server on an embedded engine.

use super::{DRAIN_TIMEOUT, EmbeddedArgs, stdout_reader};
use crate::cli::embedded_service::{DRAIN_TIME, EmbeddedService};
use crate::cli::engine_args::EngineArgs;
use crate::cli::{CliError, progress, serve};
use mcp::{McpOptions, McpServer};
use service::PermissionChange;
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn run(args: &EngineArgs, own: EmbeddedArgs) -> Result<(), CliError> {
    let embedded = EmbeddedService::start(args, own.fetch_from, own.models.settings()?).await?;
    let service = &embedded.service;
    let change = PermissionChange { permission: own.permission.unwrap_or_default() };
    let set = service.set_code_permission(&embedded.caller.caller, change).await;
    set.map_err(|refused| *refused.error)?;
    // Build in the background: clients give up on a server that does not respond at once.
    let preparing = tokio::spawn({
        let service = Arc::clone(service);
        async move { service.prepare_environment(progress::progress_printer()).await }
    });
    let manners = McpOptions { task_after: Duration::from_secs(own.task_seconds), base_url: None };
    let door = McpServer::new(Arc::clone(&embedded.agents), Some(embedded.caller.clone()), manners);
    let served = tokio::select! {
        served = mcp::serve_stdio(door, DRAIN_TIMEOUT) => served,
        () = stdout_reader::stdout_closed() => Ok(()),
        () = serve::shutdown_signal() => Ok(()),
    };
    preparing.abort();
    service.stop(DRAIN_TIME).await;
    served.map_err(CliError::internal)
}
