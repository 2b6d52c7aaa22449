//! Packages that sessions install: who may, which ones, and what is written down about it.
//!
//! Checked for each install, so that a revoked right or a removed key of a specification is
//! missed at once. What a workspace says of packages is held against everything that would come
//! along, after versions are chosen and before anything is fetched.

use crate::error::{RequestError, invalid_field};
use crate::identity::caller::Caller;
use crate::runs::sessions::AuthorizedAgent;
use crate::service::Service;
use chrono::Utc;
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

/// Of all three lists together.
const POLICY_NAMES_MAX: usize = 2_000;
const REPOSITORIES: &str = "artifact_repositories in tool_resources.code_execution";
/// The names on the platform of the vendor document.
const REPOSITORY: &str = "SNOWFLAKE.SNOWPARK.PYPI_SHARED_REPOSITORY";
const ROLE: &str = "SNOWFLAKE.PYPI_REPOSITORY_USER";

impl Service {
    pub fn package_policy(&self, caller: &Caller) -> Result<PackagePolicy, RequestError> {
        self.require_usage(caller)?;
        Ok(self.db.read(|rows| rows.package_policy(caller.workspace))?)
    }

    /// Holds from the next install on; what is installed stays.
    pub async fn set_package_policy(
        &self,
        caller: &Caller,
        policy: PackagePolicy,
    ) -> Result<PackagePolicy, RequestError> {
        self.require_create(caller)?;
        let policy = normalize_policy(policy)?;
        let (workspace, kept) = (caller.workspace, policy.clone());
        let entry = caller.audit_entry(
            "package.policy",
            ObjectRef::Workspace(workspace),
            describe_policy(&policy),
        );
        let written = move |tx: &Tx<'_>| {
            tx.set_package_policy(workspace, &kept)?;
            tx.append_audit_entry(&entry).map(drop)
        };
        self.db.write(written).await?;
        Ok(policy)
    }

    /// Answers requests of code in a session.
    pub(crate) fn installer(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        principal: PrincipalId,
        session: Option<SandboxId>,
    ) -> Option<InstallHandler> {
        let session = session?;
        // The engine must not keep alive what it is a part of.
        let service = Arc::downgrade(self);
        Some(InstallHandler::new(move |wanted| {
            let service = service.upgrade();
            async move {
                let service = service
                    .ok_or_else(|| denied("the server is shutting down", "try again later"))?;
                service.install_packages(workspace, principal, session, wanted).await
            }
        }))
    }

    async fn install_packages(
        &self,
        workspace: WorkspaceId,
        principal: PrincipalId,
        session: SandboxId,
        wanted: InstallRequest,
    ) -> Result<InstallResult, Error> {
        let agent = self.session_agent(workspace, session).map_err(|refused| *refused.error)?;
        let agent = agent.ok_or_else(install_denied_error)?;
        self.require_install(workspace, principal, agent).await?;
        let policy = self.db.read(|rows| rows.package_policy(workspace));
        let policy = policy.map_err(|error| *RequestError::from(error).error)?;
        let pin = |(name, version): (&String, &String)| PackageVersion {
            name: name.clone(),
            version: version.clone(),
        };
        let chosen = wanted.resolve(policy.pins.iter().map(pin).collect()).await?;
        let names = chosen.packages().iter().map(|package| &*package.name);
        policy::check_install(&policy, names)
            .map_err(|refused| policy_violation(refused.to_string()))?;
        let added = chosen.install().await?;
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

    /// Names what is missing: the key in the specification, or the right of the principal that its code runs as.
    async fn require_install(
        &self,
        workspace: WorkspaceId,
        principal: PrincipalId,
        agent: AgentId,
    ) -> Result<(), Error> {
        let permission = async {
            let who = self.db.read(|rows| rows.principal(workspace, principal))?;
            let who = who.ok_or_else(|| {
                denied(
                    "the principal who ran this code was deleted, or its key is no longer valid",
                    "send the request again with a valid key",
                )
            })?;
            let lender = self.authorize_agent(workspace, &who, agent).await?;
            let object = ObjectRef::Workspace(workspace);
            let permit = self.permit(workspace, &lender.run_as, Privilege::Install, object)?;
            if lender.agent.author != lender.run_as.id {
                let author = lender.agent.author;
                self.require_author(workspace, author, Privilege::Install, object)?;
            }
            Ok::<_, RequestError>((lender, permit))
        };
        let (lender, permit) = permission
            .await
            .map_err(|refused| Error { code: ErrorCode::PackageDenied, ..*refused.error })?;
        match permit {
            _ if !lender.section.installs => Err(no_repository_error(&lender)),
            None => Err(install_not_granted_error(&lender)),
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
        let words = packages.iter().map(|it| format!("{} {}", it.name, it.version));
        let entry = NewAuditEntry {
            at: Utc::now(),
            workspace,
            principal: Some(principal),
            key: None,
            action: "package.install".to_owned(),
            object: session.to_string(),
            detail: words.collect::<Vec<_>>().join(", "),
        };
        let written = self.db.write(move |tx| tx.append_audit_entry(&entry).map(drop)).await;
        written.map_err(|error| *RequestError::from(error).error)
    }
}

fn denied(message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(ErrorCode::PackageDenied, message).hint(hint)
}

/// The refusal of a package by the policy of a workspace, for a session or a function.
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
        let read = PackageName::new(&name).map(|name| name.to_string());
        read.ok_or_else(|| invalid_field(&path, format!("{name:?} is not a valid package name")))
    };
    names.into_iter().enumerate().map(name).collect()
}

fn describe_policy(policy: &PackagePolicy) -> String {
    let allow = policy.allow.as_ref().map_or("any".to_owned(), |allow| allow.len().to_string());
    format!("{allow} allowed, {} denied, {} pinned", policy.deny.len(), policy.pins.len())
}
