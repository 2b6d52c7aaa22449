//! The embedded service over HTTP, for the official conformance suite. It cannot send a key, so
//! whoever reaches the port is let in: nobody beyond this machine may, and there is nothing behind
//! it but what was made for the suite.

use crate::cli::own::{DRAIN, Own};
use crate::cli::setup::EngineArgs;
use crate::cli::{Failure, progress, serve};
use crate::http::{self, Names};
use mcp::{Fixtures, Manners};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn run(args: &EngineArgs, address: SocketAddr) -> Result<(), Failure> {
    if !address.ip().is_loopback() {
        let message = format!("{address} can be reached from other machines, and asks for no key");
        return Err(Failure::usage(format!("{message}; name a loopback address, as 127.0.0.1:0")));
    }
    let failed = |error: std::io::Error| Failure::belljar(format!("{address}: {error}"));
    let listener = serve::listen(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let models = agent::ModelSettings::default();
    let Own { service, agents, asker, .. } = &Own::start(args, Vec::new(), models).await?;
    // The suite would count the time for it.
    service.prepare(progress::show()).await?;
    let manners = Manners { task_after: Duration::from_secs(serve::TASK_SECONDS), address: None };
    let fixtures = Fixtures::new(Arc::clone(agents), asker.clone(), manners).await;
    let router =
        http::conformance(Names::new(address, &[]), fixtures.map_err(|refused| *refused.fault)?);
    // Nobody may be reading, which is no reason not to serve.
    let _ = writeln!(std::io::stdout(), "http://{address}/mcp");
    http::serve(listener, router, serve::told_to_stop(), DRAIN, serve::descriptors()).await;
    service.stop(DRAIN).await;
    Ok(())
}
