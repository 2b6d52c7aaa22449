//! The embedded service over HTTP, for the official conformance suite. The suite cannot send a key,
//! so the port is open without authentication. It is a loopback port, and the service contains only
//! test data of the suite.

use crate::cli::embedded_service::{DRAIN_TIME, EmbeddedService};
use crate::cli::engine_args::EngineArgs;
use crate::cli::{CliError, progress, serve};
use api::AllowedHosts;
use mcp::{ConformanceServer, McpOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn run(args: &EngineArgs, address: SocketAddr) -> Result<(), CliError> {
    if !address.ip().is_loopback() {
        let message = format!("{address} can be reached from other machines, and asks for no key");
        return Err(CliError::usage(format!("{message}; name a loopback address, as 127.0.0.1:0")));
    }
    let failed = |error: std::io::Error| CliError::internal(format!("{address}: {error}"));
    let listener = serve::listen(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let models = agent::ModelSettings::default();
    let EmbeddedService { service, agents, caller: asker, .. } =
        &EmbeddedService::start(args, Vec::new(), models).await?;
    // Build first, since the suite measures the time of requests.
    service.prepare_environment(progress::progress_printer()).await?;
    let manners =
        McpOptions { task_after: Duration::from_secs(serve::TASK_SECONDS), base_url: None };
    let fixtures = ConformanceServer::new(Arc::clone(agents), asker.clone(), manners).await;
    let router = api::conformance_router(
        AllowedHosts::new(address, &[]),
        fixtures.map_err(|refused| *refused.error)?,
    );
    // Standard output may be closed, which must not stop the server.
    let _ = writeln!(std::io::stdout(), "http://{address}/mcp");
    api::serve(listener, router, serve::shutdown_signal(), DRAIN_TIME, serve::fd_limit()).await;
    service.stop(DRAIN_TIME).await;
    Ok(())
}
