//! Standard input and output, for one client. Nothing else may write there.

use crate::door::Door;
use rmcp::ServiceExt;
use rmcp::transport::stdio_pipes;

/// Returns when the client has gone.
pub async fn stdio(door: Door) -> Result<(), String> {
    let running = door.serve(stdio_pipes()).await.map_err(|error| error.to_string())?;
    running.waiting().await.map(drop).map_err(|error| error.to_string())
}
