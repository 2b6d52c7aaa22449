//! Sessions: sandboxes that live as long as a conversation, and their records after that.

mod files;
mod grants;

pub use files::{SessionFile, SessionFiles};
pub(crate) use grants::AuthorizedAgent;

use crate::data::inputs::FileInput;
use crate::error::{RequestError, field_error, invalid_field};
use crate::identity::caller::Caller;
use crate::names;
use crate::network;
use crate::origins::{credential_revoked_error, is_revoked};
use crate::page::{Page, page_request};
use crate::serde_helpers::{object, objects};
use crate::service::Service;
use crate::tasks::run_to_completion;
use db::{Reader, SessionFilter, Tx};
use engine::{ExpiryRequest, InputFile, NewSession};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use types::{
    AgentId, Error, ErrorCode, LimitsRequest, Principal, SandboxId, Session, SessionStatus,
    WorkKind, WorkspaceId,
};
use utoipa::ToSchema;
use uuid::Uuid;

#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionRequest {
    /// The agent whose code will run in the session; absent for code of the caller.
    pub agent_id: Option<AgentId>,
    /// Default: that of the agent's specification, or else `cortex` with an agent and `default`
    /// without one, unless the operator has chosen others.
    pub environment: Option<String>,
    /// Names of the integrations that its code may use. An agent has its own in its specification.
    pub integrations: Vec<String>,
    /// The same as the integration `internet`.
    pub allow_network: bool,
    pub name: Option<String>,
    /// Name of the conversation. If you have an open session with this key, it is returned instead
    /// of a new one.
    pub key: Option<String>,
    #[serde(deserialize_with = "object")]
    pub limits: LimitsRequest,
    /// Closed after this time without use; default 1800.
    pub idle_seconds: Option<u64>,
    /// Files for the working directory.
    #[serde(deserialize_with = "objects")]
    pub files: Vec<FileInput>,
}

#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionChange {
    pub name: Option<String>,
    pub key: Option<String>,
    pub idle_seconds: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SessionQuery {
    pub status: Option<SessionStatus>,
    pub key: Option<String>,
    /// Number of items, 1 to 200; default 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

/// Whether a session was created for this request or already existed.
#[derive(Debug)]
pub enum OpenedSession {
    New(Session),
    Found(Session),
}

impl Service {
    #[boxed::future]
    pub async fn open_session(
        self: &Arc<Self>,
        caller: &Caller,
        mut request: SessionRequest,
    ) -> Result<OpenedSession, RequestError> {
        let agent = self.authorize_session_agent(caller, request.agent_id).await?;
        check_label("/name", request.name.as_deref())?;
        check_label("/key", request.key.as_deref())?;
        if let Some(found) = self.open_session_by_key(caller, request.key.as_deref()).await? {
            if found.agent != request.agent_id {
                return Err(invalid_field("/key", "belongs to a session with another agent"));
            }
            // Its generation shows that it starts with an empty state.
            let lost = found.status == SessionStatus::Lost;
            let id = found.sandbox_id;
            let found = if lost { self.reset_session(caller, id).await? } else { found };
            return Ok(OpenedSession::Found(found));
        }
        let of_agent = agent.as_ref().and_then(|agent| agent.section.environment.clone());
        request.environment = request.environment.or(of_agent);
        self.check_environment(request.environment.as_deref())?;
        let environment = match &agent {
            Some(_) => self.environment_for(WorkKind::CodeExecution, request.environment.take()),
            None => self.environment_or_default(request.environment.take()),
        };
        let caps = self.limit_caps(caller.workspace)?;
        request.limits.resolve(&caps)?;
        request.integrations = resolve_request_integrations(&mut request)?;
        // The list of the files of the session shows their names.
        let (files, _) = self.load_inputs(caller, std::mem::take(&mut request.files)).await?;
        let id = SandboxId::new(Uuid::now_v7());
        let new_session = NewSession {
            id,
            generation: 1,
            started_by: Some(caller.principal.id),
            environment,
            limits: request.limits,
            caps: Some(caps),
            expiry: expiry(request.idle_seconds)?,
            grants: self
                .new_session_grants(
                    caller.workspace,
                    &caller.principal,
                    agent.as_ref(),
                    &request.integrations,
                )
                .await?,
        };
        self.engine.open(new_session).await.map_err(|error| match error.code {
            // The rest of the request has already been checked.
            ErrorCode::ArgsInvalid => field_error("/idle_seconds", error),
            _ => error.into(),
        })?;
        let mut unknown = UnwrittenSession(Some((Arc::clone(self), id)));
        let (key, agent) = (request.key.clone(), request.agent_id);
        match self.write_opened(caller, id, request, files).await {
            Ok(opened) => {
                unknown.0 = None;
                Ok(OpenedSession::New(opened))
            }
            // A concurrent request created it first.
            Err(error) if error.error.code == ErrorCode::NameTaken => {
                let found = self.open_session_by_key(caller, key.as_deref()).await?;
                found.filter(|found| found.agent == agent).map(OpenedSession::Found).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// The live session of the same conversation, if there is one.
    async fn open_session_by_key(
        &self,
        caller: &Caller,
        key: Option<&str>,
    ) -> Result<Option<Session>, RequestError> {
        let Some(key) = key else { return Ok(None) };
        let (workspace, owner) = (caller.workspace, caller.id());
        let found = self.db.read(|rows| rows.session_by_key(workspace, owner, key))?;
        let found = found.map(|session| self.with_live_state(session));
        if let Some(Session { sandbox_id: id, status: SessionStatus::Expired, .. }) = found {
            // Its end is not recorded yet, and its key is free only after that.
            let now = self.now();
            self.db.write(move |tx| tx.expire_session(id, now)).await?;
            return Ok(None);
        }
        Ok(found)
    }

    async fn write_opened(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: SessionRequest,
        files: Vec<InputFile>,
    ) -> Result<Session, RequestError> {
        for file in files {
            self.engine.write_file(id, file.name, file.content.into_reader()).await?;
        }
        let info = self.engine.info(id)?;
        let session = Session {
            sandbox_id: id,
            name: request.name,
            owner: caller.id(),
            agent: request.agent_id,
            environment: info.environment,
            integrations: request.integrations,
            key: request.key,
            status: SessionStatus::Ready,
            generation: info.generation,
            limits: info.limits,
            idle_seconds: info.idle.as_secs(),
            created_at: info.opened_at,
            updated_at: info.opened_at,
            expires_at: info.expires_at,
        };
        let (workspace, entry) = (caller.workspace, caller.audit_entry("session.open", id, ""));
        let (written, requester) = (session.clone(), caller.requester());
        let clock = self.config.clock.clone();
        let insert = move |tx: &Tx<'_>| {
            // A key that is revoked from now on finds the row and ends the session.
            if is_revoked(tx, requester, clock.now())? {
                return Ok(Err(credential_revoked_error()));
            }
            tx.insert_session(workspace, &written, requester.key)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(()))
        };
        self.db.write(insert).await??;
        Ok(session)
    }

    /// The record, updated with the state that the engine has.
    pub(crate) fn with_live_state(&self, session: Session) -> Session {
        match self.engine.info(session.sandbox_id) {
            Ok(info) => Session {
                status: if info.busy { SessionStatus::Busy } else { SessionStatus::Ready },
                generation: info.generation,
                expires_at: info.expires_at,
                ..session
            },
            // It has just ended, and its end is not recorded yet.
            Err(_) if is_live(session.status) => {
                Session { status: SessionStatus::Expired, ..session }
            }
            Err(_) => session,
        }
    }

    /// The session, if the caller may see it.
    pub fn session(&self, caller: &Caller, id: SandboxId) -> Result<Session, RequestError> {
        self.session_of(caller.workspace, &caller.principal, id)
    }

    fn session_of(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        id: SandboxId,
    ) -> Result<Session, RequestError> {
        let found = self.db.read(|rows| rows.session(workspace, id))?;
        match found {
            Some(session) if self.principal_may_see(workspace, principal, session.owner)? => {
                Ok(self.with_live_state(session))
            }
            _ => Err(session_not_found(id)),
        }
    }

    /// The session, if the caller may use it and it is usable.
    pub fn usable_session(&self, caller: &Caller, id: SandboxId) -> Result<Session, RequestError> {
        check_usable(self.session(caller, id)?)
    }

    /// The same for a principal that makes no request now, because its call had to wait for an
    /// approval.
    pub(crate) fn usable_session_of(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        id: SandboxId,
    ) -> Result<Session, RequestError> {
        check_usable(self.session_of(workspace, principal, id)?)
    }

    /// Newest first.
    pub async fn sessions(
        &self,
        caller: &Caller,
        query: SessionQuery,
    ) -> Result<Page<Session>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = SessionFilter {
            owner: self.owner_filter(caller)?,
            status: query.status,
            key: query.key,
        };
        let workspace = caller.workspace;
        let read = move |rows: &Reader<'_>| rows.sessions(workspace, &filter, page);
        let mut listed = Page::from(self.db.read_off_thread(read).await?);
        listed.items =
            listed.items.into_iter().map(|session| self.with_live_state(session)).collect();
        Ok(listed)
    }

    pub async fn change_session(
        &self,
        caller: &Caller,
        id: SandboxId,
        change: SessionChange,
    ) -> Result<Session, RequestError> {
        check_label("/name", change.name.as_deref())?;
        check_label("/key", change.key.as_deref())?;
        self.usable_session(caller, id)?;
        if change.idle_seconds.is_some() {
            let set = self.engine.set_expiry(id, expiry(change.idle_seconds)?);
            set.map_err(|error| field_error("/idle_seconds", error))?;
        }
        let expires_at = self.engine.info(id)?.expires_at;
        let changed = self.update_session(caller, id, "session.change", move |now| Session {
            name: change.name.or(now.name),
            key: change.key.or(now.key),
            idle_seconds: change.idle_seconds.unwrap_or(now.idle_seconds),
            expires_at,
            ..now
        });
        Ok(self.with_live_state(changed.await?))
    }

    /// Changes the session unless it has ended. Other requests may change it at the same time.
    async fn update_session(
        &self,
        caller: &Caller,
        id: SandboxId,
        action: &'static str,
        change: impl FnOnce(Session) -> Session + Send + 'static,
    ) -> Result<Session, RequestError> {
        let (workspace, entry) = (caller.workspace, caller.audit_entry(action, id, ""));
        let clock = self.config.clock.clone();
        let written = move |tx: &Tx<'_>| {
            let Some(current) = tx.session(workspace, id)? else {
                return Ok(Err(session_not_found(id)));
            };
            if is_ended(current.status) {
                return Ok(check_usable(current));
            }
            let changed = Session { updated_at: clock.now(), ..change(current) };
            tx.update_session(workspace, &changed)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(changed))
        };
        self.db.write(written).await?
    }

    /// Closes the session. No process and no file of it is left when this returns.
    pub async fn close_session(
        self: &Arc<Self>,
        caller: &Caller,
        id: SandboxId,
    ) -> Result<(), RequestError> {
        self.session(caller, id)?;
        let entry = caller.audit_entry("session.close", id, "");
        let (service, workspace) = (Arc::clone(self), caller.workspace);
        run_to_completion(async move { service.close_and_record(workspace, id, entry).await }).await
    }

    /// Asks the running execution of the session to end, and returns whether there was one.
    pub fn interrupt_session(&self, caller: &Caller, id: SandboxId) -> Result<bool, RequestError> {
        self.usable_session(caller, id)?;
        Ok(self.engine.interrupt(id)?)
    }

    /// Gives the session a new interpreter and an empty working directory, also after it was lost.
    pub async fn reset_session(
        self: &Arc<Self>,
        caller: &Caller,
        id: SandboxId,
    ) -> Result<Session, RequestError> {
        let session = self.session(caller, id)?;
        let (service, caller) = (Arc::clone(self), caller.clone());
        run_to_completion(async move {
            if session.status == SessionStatus::Lost {
                return service.reopen_lost_session(&caller, session).await;
            }
            let session = check_usable(session)?;
            let grants = service.renew_session_grants(caller.workspace, &session).await?;
            service.engine.reset_with(id, grants).await?;
            service.write_reset(&caller, id).await
        })
        .await
    }

    /// Creates a new interpreter for a session that was lost with the previous server process.
    #[boxed::future]
    async fn reopen_lost_session(
        self: &Arc<Self>,
        caller: &Caller,
        lost: Session,
    ) -> Result<Session, RequestError> {
        let grants = self.renew_session_grants(caller.workspace, &lost).await?;
        let id = lost.sandbox_id;
        let caps = self.limit_caps(caller.workspace)?;
        let reopened = NewSession {
            id,
            generation: lost.generation + 1,
            started_by: Some(caller.principal.id),
            environment: lost.environment,
            // The operator may have lowered the limits meanwhile.
            limits: lost.limits.capped_by(&caps.0).to_request(),
            caps: Some(caps),
            expiry: expiry(Some(lost.idle_seconds))?,
            grants,
        };
        match self.engine.open(reopened).await {
            // A concurrent request recreated it first.
            Err(_) if self.engine.info(id).is_ok() => return self.session(caller, id),
            result => drop(result?),
        }
        let mut unwritten = UnwrittenSession(Some((Arc::clone(self), id)));
        let session = self.write_reset(caller, id).await?;
        unwritten.0 = None;
        Ok(session)
    }

    async fn write_reset(&self, caller: &Caller, id: SandboxId) -> Result<Session, RequestError> {
        let info = self.engine.info(id)?;
        let session = self.update_session(caller, id, "session.reset", move |current| Session {
            status: SessionStatus::Ready,
            generation: info.generation.max(current.generation),
            expires_at: info.expires_at,
            ..current
        });
        Ok(self.with_live_state(session.await?))
    }
}

/// A session without a row yet. If the requester disconnects before the row is written, no client
/// would ever close the session; so it is closed when this is dropped.
struct UnwrittenSession(Option<(Arc<Service>, SandboxId)>);

impl Drop for UnwrittenSession {
    fn drop(&mut self) {
        let Some((service, id)) = self.0.take() else { return };
        tokio::spawn(async move {
            let _ = service.engine.close(id).await;
            // Its row may have been written meanwhile.
            let now = service.now();
            let ended = service.db.write(move |tx| tx.expire_session(id, now)).await;
            if let Err(error) = ended {
                tracing::error!(session = %id, %error, "cannot record the end of a session");
            }
        });
    }
}

/// The network access of an agent's code comes from its specification.
fn resolve_request_integrations(request: &mut SessionRequest) -> Result<Vec<String>, RequestError> {
    let integrations = network::requested_integrations(
        std::mem::take(&mut request.integrations),
        request.allow_network,
    );
    if request.agent_id.is_some() && !integrations.is_empty() {
        let message = "not allowed with an agent: its specification lists its integrations";
        return Err(invalid_field("/integrations", message));
    }
    Ok(integrations)
}

fn expiry(idle_seconds: Option<u64>) -> Result<ExpiryRequest, RequestError> {
    if idle_seconds == Some(0) {
        return Err(invalid_field("/idle_seconds", "must be at least 1"));
    }
    Ok(ExpiryRequest { idle: idle_seconds.map(Duration::from_secs), absolute: None })
}

/// The session, if its status allows using it.
fn check_usable(session: Session) -> Result<Session, RequestError> {
    let (code, state, hint) = match session.status {
        SessionStatus::Ready | SessionStatus::Busy => return Ok(session),
        SessionStatus::Closed => (ErrorCode::SessionNotFound, "was closed", "open a new one"),
        SessionStatus::Expired => (ErrorCode::SessionExpired, "has expired", "open a new one"),
        SessionStatus::Lost => (
            ErrorCode::SessionLost,
            "was lost when the server stopped, with its variables and files",
            "reset it to continue with a new interpreter, or open another session",
        ),
    };
    let message = format!("session {} {state}", session.sandbox_id);
    Err(Error::new(code, message).hint(hint).into())
}

fn session_not_found(id: SandboxId) -> RequestError {
    let message = format!("session {id} does not exist or is closed");
    Error::new(ErrorCode::SessionNotFound, message).hint("open a new one").into()
}

/// Whether the status is final.
fn is_ended(status: SessionStatus) -> bool {
    matches!(status, SessionStatus::Closed | SessionStatus::Expired)
}

fn is_live(status: SessionStatus) -> bool {
    matches!(status, SessionStatus::Ready | SessionStatus::Busy)
}

fn check_label(path: &str, label: Option<&str>) -> Result<(), RequestError> {
    label.map_or(Ok(()), |label| names::check_name(path, label))
}
