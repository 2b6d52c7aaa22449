//! Packages that sessions install: who may, which ones, and what is written down about it.
//!
//! Asked anew for each install, so that a right or a key of a specification that was taken away is
//! missed at once. What a workspace says of packages is held against everything that would come
//! along, after versions are chosen and before anything is fetched.

use crate::caller::Caller;
use crate::refused::{Refused, invalid};
use crate::service::Service;
use crate::sessions::Lender;
use chrono::Utc;
use engine::{Added, Installer, Package, PackageName, Requirement, Wanted, without_agent};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{AuditLine, Tx};
use types::{
    AgentId, Code, Fault, Object, PackagePolicy, PrincipalId, Privilege, SandboxId, WorkspaceId,
};

/// Of all three lists together.
const POLICY_NAMES_MAX: usize = 2_000;
const REPOSITORIES: &str = "artifact_repositories in tool_resources.code_execution";
/// As the platform calls them that agents come from.
const REPOSITORY: &str = "SNOWFLAKE.SNOWPARK.PYPI_SHARED_REPOSITORY";
const ROLE: &str = "SNOWFLAKE.PYPI_REPOSITORY_USER";

impl Service {
    pub fn package_policy(&self, caller: &Caller) -> Result<PackagePolicy, Refused> {
        self.require_usage(caller)?;
        Ok(self.store.read(|rows| rows.package_policy(caller.workspace))?)
    }

    /// Holds from the next install on; what is installed stays.
    pub async fn set_package_policy(
        &self,
        caller: &Caller,
        policy: PackagePolicy,
    ) -> Result<PackagePolicy, Refused> {
        self.require_maker(caller)?;
        let policy = checked(policy)?;
        let (workspace, kept) = (caller.workspace, policy.clone());
        let entry = caller.did("package.policy", Object::Workspace(workspace), in_words(&policy));
        let written = move |tx: &Tx<'_>| {
            tx.set_package_policy(workspace, &kept)?;
            tx.audit(&entry).map(drop)
        };
        self.store.write(written).await?;
        Ok(policy)
    }

    /// Answers code that somebody has run in a session.
    pub(crate) fn installer(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        principal: PrincipalId,
        session: Option<SandboxId>,
    ) -> Option<Installer> {
        let session = session?;
        // The engine must not keep alive what it is a part of.
        let service = Arc::downgrade(self);
        Some(Installer::new(move |wanted| {
            let service = service.upgrade();
            async move {
                let service =
                    service.ok_or_else(|| denied("the server stops", "try again later"))?;
                service.install(workspace, principal, session, wanted).await
            }
        }))
    }

    async fn install(
        &self,
        workspace: WorkspaceId,
        principal: PrincipalId,
        session: SandboxId,
        wanted: Wanted,
    ) -> Result<Added, Fault> {
        let agent = self.agent_of(workspace, session).map_err(|refused| *refused.fault)?;
        let agent = agent.ok_or_else(without_agent)?;
        self.require_install(workspace, principal, agent).await?;
        let policy = self.store.read(|rows| rows.package_policy(workspace));
        let policy = policy.map_err(|error| *Refused::from(error).fault)?;
        let pin = |(name, version): (&String, &String)| Package {
            name: name.clone(),
            version: version.clone(),
        };
        let chosen = wanted.choose(policy.pins.iter().map(pin).collect()).await?;
        let names = chosen.packages().iter().map(|package| &*package.name);
        policy::may_install(&policy, names)
            .map_err(|refused| against_policy(refused.to_string()))?;
        let added = chosen.fetch().await?;
        self.write_installed(workspace, principal, session, &added.packages).await?;
        Ok(added)
    }

    fn agent_of(
        &self,
        workspace: WorkspaceId,
        session: SandboxId,
    ) -> Result<Option<AgentId>, Refused> {
        let session = self.store.read(|rows| rows.session(workspace, session))?;
        Ok(session.and_then(|session| session.agent))
    }

    /// Names what is missing: the key in the specification, or the right of whoever its code runs as.
    async fn require_install(
        &self,
        workspace: WorkspaceId,
        principal: PrincipalId,
        agent: AgentId,
    ) -> Result<(), Fault> {
        let lent = async {
            let who = self.store.read(|rows| rows.principal(workspace, principal))?;
            let who = who.ok_or_else(|| denied("whoever ran this code is gone", "ask anew"))?;
            let lender = self.lender(workspace, &who, agent).await?;
            let object = Object::Workspace(workspace);
            let permit = self.permit(workspace, &lender.run_as, Privilege::Install, object)?;
            if lender.agent.author != lender.run_as.id {
                let author = lender.agent.author;
                self.require_author(workspace, author, Privilege::Install, object)?;
            }
            Ok::<_, Refused>((lender, permit))
        };
        let (lender, permit) =
            lent.await.map_err(|refused| Fault { code: Code::PackageDenied, ..*refused.fault })?;
        match permit {
            _ if !lender.section.installs => Err(no_repository(&lender)),
            None => Err(no_right(&lender)),
            Some(_) => Ok(()),
        }
    }

    async fn write_installed(
        &self,
        workspace: WorkspaceId,
        principal: PrincipalId,
        session: SandboxId,
        packages: &[Package],
    ) -> Result<(), Fault> {
        if packages.is_empty() {
            return Ok(());
        }
        let words = packages.iter().map(|it| format!("{} {}", it.name, it.version));
        let entry = AuditLine {
            at: Utc::now(),
            workspace,
            principal: Some(principal),
            key: None,
            action: "package.install".to_owned(),
            object: session.to_string(),
            detail: words.collect::<Vec<_>>().join(", "),
        };
        let written = self.store.write(move |tx| tx.audit(&entry).map(drop)).await;
        written.map_err(|error| *Refused::from(error).fault)
    }
}

fn denied(message: impl Into<String>, hint: impl Into<String>) -> Fault {
    Fault::new(Code::PackageDenied, message).hint(hint)
}

/// What the lists of a workspace do not let in, into a session or into a function.
pub(crate) fn against_policy(message: String) -> Fault {
    let hint = "use another package; whoever has MODIFY on the workspace sets the lists (belljar \
                package policy)";
    denied(message, hint)
}

fn no_repository(Lender { agent, .. }: &Lender) -> Fault {
    let message = format!(
        "the agent {:?} may not install packages: its specification has no {REPOSITORIES}",
        agent.name
    );
    denied(message, format!("add {REPOSITORIES}, a list with {REPOSITORY} or pypi in it"))
}

fn no_right(Lender { agent, run_as, .. }: &Lender) -> Fault {
    let (agent, owner) = (&agent.name, &run_as.name);
    let message = format!(
        "the agent {agent:?} may not install packages: {owner:?}, whose rights its code has, does not \
         have INSTALL on the workspace (the role {ROLE})"
    );
    denied(message, format!("grant INSTALL on the workspace to {owner:?}"))
}

/// With every name in the form in which names are compared.
fn checked(policy: PackagePolicy) -> Result<PackagePolicy, Refused> {
    let PackagePolicy { allow, deny, pins } = policy;
    let count = allow.as_ref().map_or(0, BTreeSet::len) + deny.len() + pins.len();
    if count > POLICY_NAMES_MAX {
        return Err(invalid("", format!("has {count} names, and {POLICY_NAMES_MAX} are allowed")));
    }
    let allow = allow.map(|allow| names("/allow", allow)).transpose()?;
    let pins = pins.into_iter().map(|(name, version)| {
        let path = format!("/pins/{name}");
        let exact = format!("{name}=={version}").parse::<Requirement>();
        let is_exact = exact.is_ok() && !version.contains(['*', ',', ';']);
        let name = PackageName::new(&name).filter(|_| is_exact);
        let name = name.ok_or_else(|| invalid(&path, "is one version of one package, as 1.2"))?;
        Ok((name.to_string(), version))
    });
    let pins = pins.collect::<Result<BTreeMap<_, _>, Refused>>()?;
    Ok(PackagePolicy { allow, deny: names("/deny", deny)?, pins })
}

fn names(path: &str, names: BTreeSet<String>) -> Result<BTreeSet<String>, Refused> {
    let name = |(index, name): (usize, String)| {
        let path = format!("{path}/{index}");
        let read = PackageName::new(&name).map(|name| name.to_string());
        read.ok_or_else(|| invalid(&path, format!("{name:?} is not the name of a package")))
    };
    names.into_iter().enumerate().map(name).collect()
}

fn in_words(policy: &PackagePolicy) -> String {
    let allow = policy.allow.as_ref().map_or("any".to_owned(), |allow| allow.len().to_string());
    format!("{allow} allowed, {} denied, {} pinned", policy.deny.len(), policy.pins.len())
}
