//! The secrets that code is given, by the rights that hold now.

use super::inject::{self, Target};
use super::{Service, label};
use crate::refused::Refused;
use store::ObjectFilter;
use types::{
    Code, Fault, Inject, Object, Principal, PrincipalId, Privilege, Secret, SecretId, SecretScope,
    WorkspaceId,
};
use vault::{Plain, Vault};

/// A secret that code is given, with its value.
#[derive(Debug, Clone)]
pub struct Usable {
    pub id: SecretId,
    pub name: String,
    pub inject: Inject,
    pub scope: SecretScope,
    pub value: Plain,
}

impl Usable {
    /// Where its value is sent; absent if it is given to code as a variable.
    pub fn target(&self) -> Option<Target> {
        inject::target(&self.inject)
    }
}

impl Service {
    /// What code may use that runs as `run_as` for `caller`: secrets of the workspace on which the
    /// former has USAGE, and the latter's own. Of two for the same use the later one is given, and
    /// one's own before that of the workspace.
    pub async fn usable_secrets(
        &self,
        workspace: WorkspaceId,
        run_as: &Principal,
        caller: PrincipalId,
    ) -> Result<Vec<Usable>, Refused> {
        // First the vault: no new key comes in between.
        let vault = self.vault.read().await;
        let secrets = self.usable(workspace, run_as, caller)?;
        secrets.into_iter().map(|secret| self.opened(&vault, workspace, secret)).collect()
    }

    /// The same without their values.
    pub(crate) fn usable(
        &self,
        workspace: WorkspaceId,
        run_as: &Principal,
        caller: PrincipalId,
    ) -> Result<Vec<Secret>, Refused> {
        let (granted, own) = self.store.read(|rows| {
            let mut subjects = rows.role_ids(workspace, &run_as.roles)?;
            subjects.push(run_as.id);
            let on_all = rows.held(workspace, &subjects, &[Object::Workspace(workspace)])?;
            let all = on_all.iter().any(|grant| grant.privilege == Privilege::Ownership);
            let filter = ObjectFilter { search: None, seen_by: (!all).then_some(subjects) };
            let granted = rows.secrets_of_all(workspace, &filter)?;
            Ok((granted, rows.secrets_of_one(workspace, caller)?))
        })?;
        let mut usable: Vec<Secret> = Vec::new();
        for secret in granted {
            let object = Object::Secret(secret.id);
            if self.permit(workspace, run_as, Privilege::Usage, object)?.is_some() {
                put(&mut usable, secret);
            }
        }
        own.into_iter().for_each(|secret| put(&mut usable, secret));
        Ok(usable)
    }

    fn opened(
        &self,
        vault: &Vault,
        workspace: WorkspaceId,
        secret: Secret,
    ) -> Result<Usable, Refused> {
        let label = label(workspace, &secret);
        let kept = self.store.read(|rows| rows.sealed(workspace, secret.id.uuid()))?;
        let value = kept.iter().find_map(|(_, sealed)| vault.open(&label, sealed).ok());
        let value = value.ok_or_else(|| {
            let message = format!("the secret {:?} cannot be read", secret.name);
            Fault::new(Code::SecretMissing, message)
                .hint("its record was changed by something else than Belljar; set it again")
        })?;
        let Secret { id, name, inject, scope, .. } = secret;
        Ok(Usable { id, name, inject, scope, value })
    }
}

/// In the place of one for the same use.
fn put(usable: &mut Vec<Secret>, secret: Secret) {
    usable.retain(|other| purpose(&other.inject) != purpose(&secret.inject));
    usable.push(secret);
}

fn purpose(inject: &Inject) -> (&'static str, &str, &str) {
    match inject {
        Inject::Env { env } => ("env", env, ""),
        Inject::Client(client) => ("client", client.client.name(), ""),
        Inject::Header { header } => ("header", &header.host, &header.name),
    }
}
