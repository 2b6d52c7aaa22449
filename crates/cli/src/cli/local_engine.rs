//! The engine of commands that run code on this machine, without a server.

use super::progress;
use engine::{Config, Engine, InstalledVersions};
use std::sync::Arc;
use types::Error;

/// Starts an engine, and builds the environment if necessary.
pub(super) async fn start(
    config: Config,
    environment: &str,
) -> Result<(Arc<Engine>, InstalledVersions), Error> {
    let engine = Engine::start(config);
    let installed = engine.prepare(environment, progress::progress_printer()).await?;
    Ok((engine, installed))
}
