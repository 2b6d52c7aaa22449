//! Runs the MCP server on an embedded engine.

use super::{DRAIN_TIMEOUT, EmbeddedArgs, stdout_reader};
use crate::cli::embedded_service::{DRAIN_TIME, EmbeddedService};
use crate::cli::engine_args::EngineArgs;
use crate::cli::{CliError, progress, serve};
use mcp::{McpOptions, McpServer};
use service::PermissionChange;
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn run(args: &EngineArgs, options: EmbeddedArgs) -> Result<(), CliError> {
    let embedded =
        EmbeddedService::start(args, options.fetch_from, options.models.settings()?).await?;
    let service = &embedded.service;
    let change = PermissionChange { permission: options.permission.unwrap_or_default() };
    let set = service.set_code_permission(&embedded.caller, change).await;
    set.map_err(|rejected| *rejected.error)?;
    // Build in the background: clients give up on a server that does not respond at once.
    let preparing = tokio::spawn({
        let service = Arc::clone(service);
        async move { service.prepare_environment(progress::progress_printer()).await }
    });
    let mcp_options =
        McpOptions { task_after: Duration::from_secs(options.task_seconds), base_url: None };
    let server =
        McpServer::new(Arc::clone(&embedded.agents), Some(embedded.caller.clone()), mcp_options);
    let served = tokio::select! {
        served = mcp::serve_stdio(server, DRAIN_TIMEOUT) => served,
        () = stdout_reader::stdout_closed() => Ok(()),
        () = serve::shutdown_signal() => Ok(()),
    };
    preparing.abort();
    service.stop(DRAIN_TIME).await;
    served.map_err(CliError::internal)
}
