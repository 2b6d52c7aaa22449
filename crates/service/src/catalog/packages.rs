//! Packages that code installs in sessions: who may install them, which ones, and their audit
//! entries.
//!
//! The rights are checked for each install, so that a revoked grant or a changed specification
//! applies at once. The package policy of the workspace is checked against all packages, including
//! dependencies, after versions are resolved and before anything is downloaded.

use crate::error::{RequestError, invalid_field};
use crate::identity::caller::Caller;
use crate::runs::sessions::AuthorizedAgent;
use crate::service::Service;
use db::{NewAuditEntry, Tx};
use engine::{
    InstallHandler, InstallRequest, InstallResult, PackageName, PackageVersion, Requirement,
    install_denied_error,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{
    AgentId, Error, ErrorCode, ObjectRef, PackagePolicy, PrincipalId, Privilege, SandboxId,
    WorkspaceId,
};

/// Limit for all three lists together.
const POLICY_NAMES_MAX: usize = 2_000;
const REPOSITORIES: &str = "artifact_repositories in tool_resources.code_execution";
/// The names that the platform of the vendor document uses.
const REPOSITORY: &str = "SNOWFLAKE.SNOWPARK.PYPI_SHARED_REPOSITORY";
const ROLE: &str = "SNOWFLAKE.PYPI_REPOSITORY_USER";

impl Service {
    pub fn package_policy(&self, caller: &Caller) -> Result<PackagePolicy, RequestError> {
        self.require_usage(caller)?;
        Ok(self.db.read(|rows| rows.package_policy(caller.workspace))?)
    }

    /// Applies from the next install on; installed packages stay.
    pub async fn set_package_policy(
        &self,
        caller: &Caller,
        policy: PackagePolicy,
    ) -> Result<PackagePolicy, RequestError> {
        self.require_create(caller)?;
        let policy = normalize_policy(policy)?;
        let (workspace, row) = (caller.workspace, policy.clone());
        let entry = caller.audit_entry(
            "package.policy",
            ObjectRef::Workspace(workspace),
            describe_policy(&policy),
        );
        let written = move |tx: &Tx<'_>| {
            tx.set_package_policy(workspace, &row)?;
            tx.append_audit_entry(&entry).map(drop)
        };
        self.db.write(written).await?;
        Ok(policy)
    }

    /// The handler of install requests from code in a session.
    pub(crate) fn installer(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        principal: PrincipalId,
        session: Option<SandboxId>,
    ) -> Option<InstallHandler> {
        let session = session?;
        // Weak, because the service owns the engine.
        let service = Arc::downgrade(self);
        Some(InstallHandler::new(move |request| {
            let service = service.upgrade();
            async move {
                let service = service
                    .ok_or_else(|| denied("the server is shutting down", "try again later"))?;
                service.install_packages(workspace, principal, session, request).await
            }
        }))
    }

    async fn install_packages(
        &self,
        workspace: WorkspaceId,
        principal: PrincipalId,
        session: SandboxId,
        request: InstallRequest,
    ) -> Result<InstallResult, Error> {
        let agent = self.session_agent(workspace, session).map_err(|error| *error.error)?;
        let agent = agent.ok_or_else(install_denied_error)?;
        self.require_install(workspace, principal, agent).await?;
        let policy = self.db.read(|rows| rows.package_policy(workspace));
        let policy = policy.map_err(|error| *RequestError::from(error).error)?;
        let pin = |(name, version): (&String, &String)| PackageVersion {
            name: name.clone(),
            version: version.clone(),
        };
        let resolved = request.resolve(policy.pins.iter().map(pin).collect()).await?;
        let names = resolved.packages().iter().map(|package| &*package.name);
        policy::check_install(&policy, names)
            .map_err(|error| policy_violation(error.to_string()))?;
        let added = resolved.install().await?;
        self.write_installed(workspace, principal, session, &added.packages).await?;
        Ok(added)
    }

    fn session_agent(
        &self,
        workspace: WorkspaceId,
        session: SandboxId,
    ) -> Result<Option<AgentId>, RequestError> {
        let session = self.db.read(|rows| rows.session(workspace, session))?;
        Ok(session.and_then(|session| session.agent))
    }

    /// Checks that the code may install packages. The error names the missing key of the
    /// specification, or the missing right of the principal that the code runs as.
    async fn require_install(
        &self,
        workspace: WorkspaceId,
        principal: PrincipalId,
        agent: AgentId,
    ) -> Result<(), Error> {
        let permission = async {
            let requester = self.db.read(|rows| rows.principal(workspace, principal))?;
            let requester = requester.ok_or_else(|| {
                denied(
                    "the principal who ran this code was deleted, or its key is no longer valid",
                    "send the request again with a valid key",
                )
            })?;
            let authorized = self.authorize_agent(workspace, &requester, agent).await?;
            let object = ObjectRef::Workspace(workspace);
            let permit = self.permit(workspace, &authorized.run_as, Privilege::Install, object)?;
            if authorized.agent.author != authorized.run_as.id {
                let author = authorized.agent.author;
                self.require_author(workspace, author, Privilege::Install, object)?;
            }
            Ok::<_, RequestError>((authorized, permit))
        };
        let (authorized, permit) = permission
            .await
            .map_err(|error| Error { code: ErrorCode::PackageDenied, ..*error.error })?;
        match permit {
            _ if !authorized.section.installs => Err(no_repository_error(&authorized)),
            None => Err(install_not_granted_error(&authorized)),
            Some(_) => Ok(()),
        }
    }

    async fn write_installed(
        &self,
        workspace: WorkspaceId,
        principal: PrincipalId,
        session: SandboxId,
        packages: &[PackageVersion],
    ) -> Result<(), Error> {
        if packages.is_empty() {
            return Ok(());
        }
        let installed = packages.iter().map(|it| format!("{} {}", it.name, it.version));
        let entry = NewAuditEntry {
            at: self.now(),
            workspace,
            principal: Some(principal),
            key: None,
            action: "package.install".to_owned(),
            object: session.to_string(),
            detail: installed.collect::<Vec<_>>().join(", "),
        };
        let written = self.db.write(move |tx| tx.append_audit_entry(&entry).map(drop)).await;
        written.map_err(|error| *RequestError::from(error).error)
    }
}

fn denied(message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(ErrorCode::PackageDenied, message).hint(hint)
}

/// The error for a package that the policy of the workspace does not allow, in a session or a
/// function.
pub(crate) fn policy_violation(message: String) -> Error {
    let hint = "use another package, or ask a principal with MODIFY on the workspace to change the \
                policy (`belljar package policy`)";
    denied(message, hint)
}

fn no_repository_error(AuthorizedAgent { agent, .. }: &AuthorizedAgent) -> Error {
    let message = format!(
        "agent {:?} may not install packages: its specification has no {REPOSITORIES}",
        agent.name
    );
    denied(message, format!("add {REPOSITORIES}, a list that contains {REPOSITORY} or pypi"))
}

fn install_not_granted_error(AuthorizedAgent { agent, run_as, .. }: &AuthorizedAgent) -> Error {
    let (agent, owner) = (&agent.name, &run_as.name);
    let message = format!(
        "agent {agent:?} may not install packages: its code runs as {owner:?}, who does not have \
         INSTALL on the workspace (role {ROLE})"
    );
    denied(message, format!("grant INSTALL on the workspace to {owner:?}"))
}

/// The policy with normalized names.
fn normalize_policy(policy: PackagePolicy) -> Result<PackagePolicy, RequestError> {
    let PackagePolicy { allow, deny, pins } = policy;
    let count = allow.as_ref().map_or(0, BTreeSet::len) + deny.len() + pins.len();
    if count > POLICY_NAMES_MAX {
        return Err(invalid_field(
            "",
            format!("has {count} names; at most {POLICY_NAMES_MAX} are allowed"),
        ));
    }
    let allow = allow.map(|allow| normalize_names("/allow", allow)).transpose()?;
    let pins = pins.into_iter().map(|(name, version)| {
        let path = format!("/pins/{name}");
        let exact = format!("{name}=={version}").parse::<Requirement>();
        let is_exact = exact.is_ok() && !version.contains(['*', ',', ';']);
        let name = PackageName::new(&name).filter(|_| is_exact);
        let name = name.ok_or_else(|| invalid_field(&path, "must be one version, such as 1.2"))?;
        Ok((name.to_string(), version))
    });
    let pins = pins.collect::<Result<BTreeMap<_, _>, RequestError>>()?;
    Ok(PackagePolicy { allow, deny: normalize_names("/deny", deny)?, pins })
}

fn normalize_names(path: &str, names: BTreeSet<String>) -> Result<BTreeSet<String>, RequestError> {
    let name = |(index, name): (usize, String)| {
        let path = format!("{path}/{index}");
        let package = PackageName::new(&name).map(|name| name.to_string());
        package.ok_or_else(|| invalid_field(&path, format!("{name:?} is not a valid package name")))
    };
    names.into_iter().enumerate().map(name).collect()
}

fn describe_policy(policy: &PackagePolicy) -> String {
    let allow = policy.allow.as_ref().map_or("any".to_owned(), |allow| allow.len().to_string());
    format!("{allow} allowed, {} denied, {} pinned", policy.deny.len(), policy.pins.len())
}
