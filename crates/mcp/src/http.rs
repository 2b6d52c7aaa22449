//! Streamable HTTP, behind a door that has already looked at the host, the origin and the key.

use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use types::PrincipalId;

/// Code of 4 MiB, twice over for how JSON writes it.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A question to a person may stay open for a day, and what asks it with it.
const IDLE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Clients of the older era that one principal may have at once; one more ends the one that was
/// silent for longest.
const OF_ONE_MAX: usize = 64;
const OF_ALL_MAX: usize = 4_096;
/// From the beginning of a session to the moment at which it is somebody's.
const ORPHAN_MAX: Duration = Duration::from_secs(10);

pub fn http<H: ServerHandler + Clone>(
    door: H,
    sessions: &Sessions,
) -> StreamableHttpService<H, LocalSessionManager> {
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_max_request_body_bytes(BODY_BYTES_MAX);
    StreamableHttpService::new(move || Ok(door.clone()), Arc::clone(&sessions.manager), config)
}

/// The sessions of the older era, and whose they are. They are of the protocol, and have nothing to
/// do with those of Python.
#[derive(Debug)]
pub struct Sessions {
    manager: Arc<LocalSessionManager>,
    owned: Mutex<HashMap<String, Owned>>,
    /// Those that are nobody's yet, and since when that is known.
    orphans: Mutex<HashMap<String, Instant>>,
}

#[derive(Debug, Clone, Copy)]
struct Owned {
    by: PrincipalId,
    used: Instant,
}

impl Default for Sessions {
    fn default() -> Self {
        let mut manager = LocalSessionManager::default();
        manager.session_config.keep_alive = Some(IDLE_MAX);
        Self { manager: Arc::new(manager), owned: Mutex::default(), orphans: Mutex::default() }
    }
}

impl Sessions {
    fn owned(&self) -> MutexGuard<'_, HashMap<String, Owned>> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is this principal's; it is used then.
    pub fn used(&self, id: &str, by: PrincipalId) -> bool {
        match self.owned().get_mut(id).filter(|owned| owned.by == by) {
            Some(owned) => {
                owned.used = Instant::now();
                true
            }
            None => false,
        }
    }

    pub fn begun(&self, id: &str, by: PrincipalId) {
        self.owned().insert(id.to_owned(), Owned { by, used: Instant::now() });
    }

    pub fn ended(&self, id: &str) {
        self.owned().remove(id);
    }

    /// Before one more is begun.
    pub async fn make_room(&self, by: PrincipalId) {
        for nobodys in self.nobodys().await {
            self.close(nobodys).await;
        }
        if let Some(oldest) = self.in_the_way(by) {
            self.close(oldest).await;
        }
    }

    pub async fn close(&self, id: String) {
        self.ended(&id);
        // It may have ended by itself.
        let _ = self.manager.close_session(&id.into()).await;
    }

    /// Those whose client went away before they were its own.
    async fn nobodys(&self) -> Vec<String> {
        let all: Vec<String> =
            self.manager.sessions.read().await.keys().map(|id| id.to_string()).collect();
        let owned = self.owned();
        let mut orphans = self.orphans.lock().unwrap_or_else(PoisonError::into_inner);
        orphans.retain(|id, _| all.contains(id) && !owned.contains_key(id));
        for id in all.into_iter().filter(|id| !owned.contains_key(id)) {
            orphans.entry(id).or_insert_with(Instant::now);
        }
        let long = orphans.iter().filter(|(_, since)| since.elapsed() > ORPHAN_MAX);
        long.map(|(id, _)| id.clone()).collect()
    }

    fn in_the_way(&self, by: PrincipalId) -> Option<String> {
        let owned = self.owned();
        let theirs = owned.values().filter(|one| one.by == by).count();
        let all = owned.len() >= OF_ALL_MAX;
        let candidates = owned.iter().filter(|(_, one)| all || one.by == by);
        let oldest = candidates.min_by_key(|(_, one)| one.used).map(|(id, _)| id.clone());
        oldest.filter(|_| all || theirs >= OF_ONE_MAX)
    }
}
