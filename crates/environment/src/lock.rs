//! The exact packages of an environment.
//!
//! A lock is in requirements format and says nothing but `name==version`, an optional marker, and
//! hashes. It is handed to uv as it is, so this is where it is made sure that it cannot also bring
//! an index, another file, or a package without a hash.

use std::collections::BTreeSet;
use std::fmt;

use sha2::{Digest, Sha256};

/// The checked text of a lock. Empty for an environment without packages.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Lock {
    text: String,
    names: BTreeSet<String>,
    /// Of the text, which is long: it is asked for each time an environment is.
    digest: [u8; 32],
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    #[error(
        "line {line} of the lock is an option; only `name==version` with hashes may stand there"
    )]
    Option { line: usize },
    #[error("line {line} of the lock does not pin one version with `==`")]
    NotPinned { line: usize },
    #[error("`{name}` on line {line} of the lock has no sha256; make it with `--generate-hashes`")]
    NoHash { line: usize, name: String },
    #[error("`{name}` is not in the lock; make the lock again")]
    Missing { name: String },
}

impl Lock {
    pub(crate) fn parse(text: &str) -> Result<Self, LockError> {
        let names = requirements(text)
            .map(|(line, requirement)| pinned_name(line, &requirement))
            .collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), names, digest: Sha256::digest(text).into() })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn digest(&self) -> &[u8] {
        &self.digest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Fails when `name`, in normal form, has no pin.
    pub(crate) fn require(&self, name: &str) -> Result<(), LockError> {
        if self.names.contains(name) {
            return Ok(());
        }
        Err(LockError::Missing { name: name.to_owned() })
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Lock({} packages)", self.names.len())
    }
}

/// The lower-case form with single dashes in which the index compares names.
pub(crate) fn normal_form(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

/// Each requirement with its hashes on one line, and the number of the line where it begins.
fn requirements(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        let (index, first) = lines.find(|(_, line)| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with('#')
        })?;
        let mut requirement = first.trim().to_owned();
        while let Some(head) = requirement.strip_suffix('\\') {
            let next = lines.next().map_or("", |(_, line)| line.trim());
            requirement = format!("{head} {next}");
        }
        Some((index + 1, requirement))
    })
}

fn pinned_name(line: usize, requirement: &str) -> Result<String, LockError> {
    if requirement.starts_with('-') {
        return Err(LockError::Option { line });
    }
    let mut words = requirement.split_whitespace();
    let (name, version) =
        words.next().and_then(|pin| pin.split_once("==")).ok_or(LockError::NotPinned { line })?;
    if !is_package_name(name) || !is_version(version) {
        return Err(LockError::NotPinned { line });
    }
    let options: Vec<&str> = words.filter(|word| word.starts_with("--")).collect();
    if options.is_empty() {
        return Err(LockError::NoHash { line, name: name.to_owned() });
    }
    if options.iter().any(|option| !option.starts_with("--hash=sha256:")) {
        return Err(LockError::Option { line });
    }
    Ok(normal_form(name))
}

pub(crate) fn is_package_name(name: &str) -> bool {
    let ends = |character: Option<char>| character.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(name.chars().next())
        && ends(name.chars().next_back())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_version(version: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_digit())
        && version.chars().all(|c| c.is_ascii_alphanumeric() || ".+!-_".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PINNED: &str = "\
# made by hand
Et_Xmlfile==2.0.0 ; python_version < '3.12' \\
    --hash=sha256:aa \\
    --hash=sha256:bb
numpy==2.4.6 \\
    --hash=sha256:cc
";

    #[test]
    fn a_pinned_lock_is_taken_and_knows_its_packages() {
        let lock = Lock::parse(PINNED).unwrap();
        assert_eq!(lock.require("et-xmlfile"), Ok(()));
        assert_eq!(lock.require("numpy"), Ok(()));
        assert_eq!(lock.require("pandas"), Err(LockError::Missing { name: "pandas".to_owned() }));
    }

    #[test]
    fn an_option_is_refused_wherever_it_stands() {
        let refused = Err(LockError::Option { line: 1 });
        assert_eq!(Lock::parse("--index-url https://example.org/simple"), refused);
        assert_eq!(Lock::parse("-r other.lock"), refused);
        assert_eq!(Lock::parse("a==1 --hash=sha256:aa --config-settings=x"), refused);
    }

    #[test]
    fn what_is_not_one_version_of_one_package_is_refused() {
        for text in ["numpy", "numpy>=2", "numpy==", "./wheel.whl", "a @ https://example.org/a.whl"]
        {
            assert_eq!(Lock::parse(text), Err(LockError::NotPinned { line: 1 }), "{text}");
        }
    }

    #[test]
    fn a_package_without_a_hash_is_refused() {
        let text = format!("{PINNED}pandas==3.0 ; sys_platform == 'linux'\n");
        let refused = LockError::NoHash { line: 7, name: "pandas".to_owned() };
        assert_eq!(Lock::parse(&text), Err(refused));
    }
}
