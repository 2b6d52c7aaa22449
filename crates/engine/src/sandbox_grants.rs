//! What the code of a sandbox may use besides its working directory.
//!
//! The caller of the engine resolves a [`SandboxGrants`] once, with the rights that hold then, and
//! hands it over. The engine applies it to each sandbox and keeps it for as long as the sandbox or
//! its session lives, so that what is known to be granted is what is applied.

use crate::egress::{EgressHandler, proxy_variables};
use crate::shared_directory::GrantedDirectory;
use crate::volumes::{GrantedVolume, MemoryReservation};
use redact::OutputRedactor;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use types::SecretId;

/// What the code of a sandbox may use. The default is nothing.
#[derive(Clone, Default)]
pub struct SandboxGrants {
    pub volumes: Vec<GrantedVolume>,
    /// Directories of the server that code can read.
    pub directories: Vec<GrantedDirectory>,
    /// Environment variables: values of secrets, and placeholders for values that stay outside.
    pub variables: BTreeMap<String, String>,
    /// The secrets whose values code can read, each with its version.
    pub exposed_secrets: BTreeSet<(SecretId, u64)>,
    /// Removes the values of these secrets from output.
    pub redactor: OutputRedactor,
    /// Serves network access; without it code reaches no host.
    pub egress: Option<Arc<dyn EgressHandler>>,
}

impl SandboxGrants {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { volumes, directories, variables, exposed_secrets, redactor, egress } = self;
        volumes.is_empty()
            && directories.is_empty()
            && variables.is_empty()
            && exposed_secrets.is_empty()
            && redactor.is_empty()
            && egress.is_none()
    }

    /// Environment variables of everything that runs in the sandbox.
    pub(crate) fn environment_variables(&self) -> BTreeMap<String, String> {
        let proxy = self.egress.as_ref().map(|_| proxy_variables()).unwrap_or_default();
        proxy.into_iter().chain(self.variables.clone()).collect()
    }
}

impl fmt::Debug for SandboxGrants {
    /// Shows the names of variables only: their values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxGrants")
            .field("volumes", &self.volumes)
            .field("directories", &self.directories)
            .field("variables", &self.variables.keys())
            .field("exposed_secrets", &self.exposed_secrets)
            .field("egress", &self.egress)
            .finish_non_exhaustive()
    }
}

/// Grants with the memory that they need. Dropping them releases the memory.
#[derive(Debug)]
pub(crate) struct ReservedGrants {
    pub(crate) grants: Arc<SandboxGrants>,
    pub(crate) _memory: MemoryReservation,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Code, Command, EntryPoint, NewSession};

    #[test]
    fn t183_the_values_of_granted_variables_are_in_no_debug_text() {
        let variables = BTreeMap::from([("TOKEN".to_owned(), "sk-live-1".to_owned())]);
        let grants = SandboxGrants { variables, ..SandboxGrants::default() };
        let code = EntryPoint::Cell(Code::new(b"1".to_vec()).unwrap());
        let texts = [
            format!("{grants:?}"),
            format!("{:?}", Command { grants: grants.clone(), ..Command::new("bare", code) }),
            format!("{:?}", NewSession { grants, ..NewSession::new("bare") }),
        ];
        for text in texts {
            assert!(text.contains("TOKEN") && !text.contains("sk-live-1"), "{text}");
        }
    }
}
