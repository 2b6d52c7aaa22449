//! Decides whether packages may be installed into a session, by the policy of its workspace.

use types::PackagePolicy;

/// The list that refuses a package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackagePolicyError {
    #[error("package {0} is denied by the package policy of this workspace")]
    Denied(String),
    #[error("package {0} is not on the allow list of this workspace")]
    NotAllowed(String),
}

/// Checks all packages to install, requested or needed by another; names are normalized.
pub fn check_install<'a>(
    policy: &PackagePolicy,
    packages: impl IntoIterator<Item = &'a str>,
) -> Result<(), PackagePolicyError> {
    for name in packages {
        if policy.deny.contains(name) {
            return Err(PackagePolicyError::Denied(name.to_owned()));
        }
        if policy.allow.as_ref().is_some_and(|allow| !allow.contains(name)) {
            return Err(PackagePolicyError::NotAllowed(name.to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: Option<&[&str]>, deny: &[&str]) -> PackagePolicy {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        PackagePolicy { allow: allow.map(names), deny: names(deny), ..PackagePolicy::default() }
    }

    #[test]
    fn without_lists_everything_may_be_installed() {
        assert_eq!(check_install(&policy(None, &[]), ["six", "idna"]), Ok(()));
    }

    #[test]
    fn an_empty_list_allows_nothing() {
        let expected = PackagePolicyError::NotAllowed("six".into());
        assert_eq!(check_install(&policy(Some(&[]), &[]), ["six"]), Err(expected));
        assert_eq!(check_install(&policy(Some(&[]), &[]), []), Ok(()));
    }

    #[test]
    fn one_package_that_is_denied_refuses_all_even_if_it_is_allowed_too() {
        let both = policy(Some(&["six", "idna"]), &["idna"]);
        assert_eq!(check_install(&both, ["six"]), Ok(()));
        let expected = PackagePolicyError::Denied("idna".into());
        assert_eq!(check_install(&both, ["six", "idna"]), Err(expected));
    }
}
