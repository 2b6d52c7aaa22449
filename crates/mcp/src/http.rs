//! Streamable HTTP, behind a door that has already looked at the host, the origin and the key.

use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::sync::Arc;
use std::time::Duration;

/// Code of 4 MiB, twice over for how JSON writes it.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub fn http<H: ServerHandler + Clone>(door: H) -> StreamableHttpService<H, LocalSessionManager> {
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_max_request_body_bytes(BODY_BYTES_MAX);
    StreamableHttpService::new(move || Ok(door.clone()), Arc::default(), config)
}
