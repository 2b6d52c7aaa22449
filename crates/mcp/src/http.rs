//! Streamable HTTP transport. The API layer has already checked the host, the origin and the key.

use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use types::{PrincipalId, WorkspaceId};

/// Code of 4 MiB, doubled for JSON escapes.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// An approval may stay open for a day, and so may the call that waits for it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Default limit of legacy-revision sessions per principal.
pub const SESSIONS_PER_PRINCIPAL: usize = 64;
/// Limit of legacy-revision sessions of all principals: each holds a task and two queues.
const SESSIONS_TOTAL_MAX: usize = 4_096;
/// Limit per workspace, so that many principals of one workspace do not use up the sessions of the
/// others.
const OF_WORKSPACE_MAX: usize = SESSIONS_TOTAL_MAX / 4;
/// Time from the start of a session until it must have an owner.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(10);

pub fn streamable_http_service<H: ServerHandler + Clone>(
    server: H,
    sessions: &McpSessions,
) -> StreamableHttpService<H, LocalSessionManager> {
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_max_request_body_bytes(BODY_BYTES_MAX);
    StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&sessions.manager), config)
}

/// Sessions of the legacy revision and their owners. These are protocol sessions, unrelated to
/// Python sessions.
#[derive(Debug)]
pub struct McpSessions {
    manager: Arc<LocalSessionManager>,
    owned: Mutex<HashMap<String, OwnedMcpSession>>,
    /// Sessions without an owner, and when they were first seen.
    orphans: Mutex<HashMap<String, Instant>>,
    limits: SessionLimits,
}

/// Limits of concurrent sessions. A session over the limit evicts an idle one or is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    pub of_principal: usize,
    pub of_workspace: usize,
    pub of_all: usize,
}

impl SessionLimits {
    pub fn new(of_principal: usize) -> Self {
        Self { of_principal, of_workspace: OF_WORKSPACE_MAX, of_all: SESSIONS_TOTAL_MAX }
    }
}

/// The owner of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionOwner {
    pub workspace: WorkspaceId,
    pub principal: PrincipalId,
}

/// All sessions within the limit have calls in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooManyMcpSessions {
    OfPrincipal(usize),
    OfWorkspace(usize),
    OfAll(usize),
}

/// How a request uses its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpSessionUse {
    Call,
    /// Waits for messages of the server.
    Listen,
}

/// A request in flight on a session; released on drop.
#[derive(Debug)]
pub struct McpSessionGuard {
    sessions: Arc<McpSessions>,
    id: String,
    kind: McpSessionUse,
}

impl Drop for McpSessionGuard {
    fn drop(&mut self) {
        if let Some(owned) = self.sessions.owned().get_mut(&self.id) {
            let count = owned.use_count(self.kind);
            *count = count.saturating_sub(1);
            owned.last_used = Instant::now();
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct OwnedMcpSession {
    owner: SessionOwner,
    last_used: Instant,
    calls: usize,
    listeners: usize,
}

impl OwnedMcpSession {
    fn use_count(&mut self, kind: McpSessionUse) -> &mut usize {
        match kind {
            McpSessionUse::Call => &mut self.calls,
            McpSessionUse::Listen => &mut self.listeners,
        }
    }
}

impl McpSessions {
    pub fn new(limits: SessionLimits) -> Self {
        let mut manager = LocalSessionManager::default();
        manager.session_config.keep_alive = Some(IDLE_TIMEOUT);
        let (owned, orphans) = (Mutex::default(), Mutex::default());
        Self { manager: Arc::new(manager), owned, orphans, limits }
    }

    fn owned(&self) -> MutexGuard<'_, HashMap<String, OwnedMcpSession>> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses a session, if it belongs to this principal. A session with a call in flight is not
    /// evicted.
    pub fn begin_use(
        self: &Arc<Self>,
        id: &str,
        by: SessionOwner,
        kind: McpSessionUse,
    ) -> Option<McpSessionGuard> {
        let mut all = self.owned();
        let owned = all.get_mut(id).filter(|owned| owned.owner == by)?;
        owned.last_used = Instant::now();
        *owned.use_count(kind) += 1;
        Some(McpSessionGuard { sessions: Arc::clone(self), id: id.to_owned(), kind })
    }

    pub fn register(&self, id: &str, by: SessionOwner) {
        let owned =
            OwnedMcpSession { owner: by, last_used: Instant::now(), calls: 0, listeners: 0 };
        self.owned().insert(id.to_owned(), owned);
    }

    pub fn unregister(&self, id: &str) {
        self.owned().remove(id);
    }

    /// Called before a new session: at a limit, evicts a session without a call in flight.
    pub async fn evict_if_full(&self, by: SessionOwner) -> Result<(), TooManyMcpSessions> {
        for orphaned in self.orphaned_sessions().await {
            self.close(orphaned).await;
        }
        if let Some(idle) = self.session_to_evict(by)? {
            self.close(idle).await;
        }
        Ok(())
    }

    pub async fn close(&self, id: String) {
        self.unregister(&id);
        // It may have ended on its own.
        let _ = self.manager.close_session(&id.into()).await;
    }

    /// Sessions whose client disconnected before they got an owner.
    async fn orphaned_sessions(&self) -> Vec<String> {
        let all: Vec<String> =
            self.manager.sessions.read().await.keys().map(|id| id.to_string()).collect();
        let owned = self.owned();
        let mut orphans = self.orphans.lock().unwrap_or_else(PoisonError::into_inner);
        orphans.retain(|id, _| all.contains(id) && !owned.contains_key(id));
        for id in all.into_iter().filter(|id| !owned.contains_key(id)) {
            orphans.entry(id).or_insert_with(Instant::now);
        }
        let long = orphans.iter().filter(|(_, since)| since.elapsed() > ORPHAN_TIMEOUT);
        long.map(|(id, _)| id.clone()).collect()
    }

    /// Selects the session to evict. Among sessions without a call in flight, those without a
    /// listener come first, then the least recently used. It belongs to the party at its limit: the
    /// principal, the workspace or, at the total limit, the workspace with the most sessions.
    fn session_to_evict(&self, by: SessionOwner) -> Result<Option<String>, TooManyMcpSessions> {
        let owned = self.owned();
        let mut of_workspaces: HashMap<WorkspaceId, usize> = HashMap::new();
        for one in owned.values() {
            *of_workspaces.entry(one.owner.workspace).or_default() += 1;
        }
        let count = owned.values().filter(|one| one.owner == by).count();
        let of_workspace = of_workspaces.get(&by.workspace).copied().unwrap_or_default();
        let SessionLimits { of_principal, of_workspace: of_workspace_max, of_all } = self.limits;
        let full = if count >= of_principal {
            TooManyMcpSessions::OfPrincipal(of_principal)
        } else if of_workspace >= of_workspace_max {
            TooManyMcpSessions::OfWorkspace(of_workspace_max)
        } else if owned.len() >= of_all {
            TooManyMcpSessions::OfAll(of_all)
        } else {
            return Ok(None);
        };
        let most = of_workspaces.values().max();
        let is_candidate = |one: &OwnedMcpSession| match full {
            TooManyMcpSessions::OfPrincipal(_) => one.owner == by,
            TooManyMcpSessions::OfWorkspace(_) => one.owner.workspace == by.workspace,
            TooManyMcpSessions::OfAll(_) => of_workspaces.get(&one.owner.workspace) == most,
        };
        let idle = owned.iter().filter(|(_, one)| one.calls == 0 && is_candidate(one));
        let oldest = idle.min_by_key(|(_, one)| (one.listeners > 0, one.last_used));
        oldest.map(|(id, _)| Some(id.clone())).ok_or(full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn owner(workspace: u128, principal: u128) -> SessionOwner {
        SessionOwner {
            workspace: WorkspaceId::new(Uuid::from_u128(workspace)),
            principal: PrincipalId::new(Uuid::from_u128(principal)),
        }
    }

    /// All sessions have a call in flight, so none can be evicted.
    async fn busy(
        sessions: &Arc<McpSessions>,
        by: SessionOwner,
        count: usize,
    ) -> Vec<McpSessionGuard> {
        let mut calls = Vec::new();
        for number in 0..count {
            if sessions.evict_if_full(by).await.is_err() {
                break;
            }
            let id = format!("{by:?} {number}");
            sessions.register(&id, by);
            calls.extend(sessions.begin_use(&id, by, McpSessionUse::Call));
        }
        calls
    }

    #[tokio::test]
    async fn t157_many_principals_of_one_workspace_leave_room_for_those_of_another() {
        let limits = SessionLimits { of_principal: 3, of_workspace: 4, of_all: 8 };
        let sessions = Arc::new(McpSessions::new(limits));
        let mut calls = Vec::new();
        for principal in 1..=5 {
            calls.extend(busy(&sessions, owner(1, principal), 3).await);
        }
        assert_eq!(calls.len(), 4, "a workspace has its share");
        assert_eq!(
            sessions.evict_if_full(owner(1, 9)).await,
            Err(TooManyMcpSessions::OfWorkspace(4)),
            "and is told so"
        );
        let others = busy(&sessions, owner(2, 20), 3).await;
        assert_eq!(others.len(), 3, "the harmless twin: another workspace");
        // A session without a call is evicted for the same workspace, not for another one.
        calls.pop();
        assert!(sessions.session_to_evict(owner(1, 9)).unwrap().is_some());
        assert_eq!(sessions.session_to_evict(owner(3, 30)), Ok(None));
    }

    #[tokio::test]
    async fn t157_where_there_is_no_room_at_all_the_workspace_with_the_most_gives_way() {
        let limits = SessionLimits { of_principal: 4, of_workspace: 4, of_all: 6 };
        let sessions = Arc::new(McpSessions::new(limits));
        for (workspace, count) in [(2, 2), (1, 4)] {
            drop(busy(&sessions, owner(workspace, workspace), count).await);
        }
        let idle = sessions.session_to_evict(owner(3, 3)).unwrap().unwrap();
        assert!(sessions.begin_use(&idle, owner(1, 1), McpSessionUse::Call).is_some(), "{idle}");
    }

    #[tokio::test]
    async fn t112_a_session_with_a_call_stays_and_an_idle_one_gives_way() {
        let sessions = Arc::new(McpSessions::new(SessionLimits::new(3)));
        let [one, other] = [1, 2].map(|it| owner(1, it));
        for (id, by) in [("a", one), ("b", one), ("c", one), ("x", other)] {
            sessions.evict_if_full(by).await.unwrap();
            sessions.register(id, by);
        }
        let call = |id: &str| sessions.begin_use(id, one, McpSessionUse::Call);
        assert!(call("x").is_none(), "it is not theirs");
        let in_a = call("a").unwrap();
        let _listening = sessions.begin_use("b", one, McpSessionUse::Listen).unwrap();
        assert_eq!(sessions.session_to_evict(one), Ok(Some("c".to_owned())), "it has no listener");
        let in_c = call("c").unwrap();
        assert_eq!(sessions.session_to_evict(one), Ok(Some("b".to_owned())), "it has no call");
        let in_b = call("b").unwrap();
        assert_eq!(sessions.evict_if_full(one).await, Err(TooManyMcpSessions::OfPrincipal(3)));
        assert_eq!(sessions.session_to_evict(other), Ok(None));
        drop((in_b, in_c));
        assert_eq!(sessions.session_to_evict(one), Ok(Some("c".to_owned())));
        drop(in_a);
        sessions.evict_if_full(one).await.unwrap();
        assert!(call("c").is_none() && call("a").is_some());
    }
}
