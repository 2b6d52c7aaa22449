//! The exact packages of an environment.
//!
//! A lock is in requirements format and says nothing but `name==version`, an optional marker, and
//! hashes. It is handed to uv as it is, so this is where it is made sure that it cannot also bring
//! an index, another file, or a package without a hash.

use std::collections::BTreeMap;
use std::fmt;

use pep440_rs::Version;
use sha2::{Digest, Sha256};

use crate::environment::Package;
use crate::requirement::{PackageName, Requirement};
use crate::version::VersionRange;

/// How a lock begins that was made for one minor version of Python: the packages that others need
/// may be more or fewer.
const MADE_FOR: &str = "# Locked for CPython ";

/// The checked text of a lock. Empty for an environment without packages.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Lock {
    text: String,
    /// A lock for several Pythons may have several versions of one package.
    pins: BTreeMap<PackageName, Vec<Pin>>,
    made_for: Option<VersionRange>,
    /// Of the text, which is long: it is asked for each time an environment is.
    digest: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pin {
    line: usize,
    version: Version,
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
    Missing { name: PackageName },
    #[error(
        "line {line} of the lock has {name} {version}, and `{wanted}` is asked for; make the lock \
         again"
    )]
    Outside { line: usize, name: PackageName, version: String, wanted: String },
    #[error(
        "the lock was made for CPython {made_for}, and CPython {wanted} is asked for; make the lock \
         again"
    )]
    OtherPython { made_for: VersionRange, wanted: VersionRange },
}

impl Lock {
    pub(crate) fn parse(text: &str) -> Result<Self, LockError> {
        let mut pins = BTreeMap::<_, Vec<Pin>>::new();
        for (line, requirement) in requirements(text) {
            let (name, version) = pin(line, &requirement)?;
            pins.entry(name).or_default().push(Pin { line, version });
        }
        let digest = Sha256::digest(text).into();
        Ok(Self { text: text.to_owned(), pins, made_for: made_for(text), digest })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn digest(&self) -> &[u8] {
        &self.digest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    pub(crate) fn made_for(&self) -> Option<VersionRange> {
        self.made_for
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &PackageName> {
        self.pins.keys()
    }

    /// The exact packages; of a lock for several Pythons, those for any of them.
    pub(crate) fn packages(&self) -> Vec<Package> {
        let package = |(name, pin): (&PackageName, &Pin)| Package {
            name: name.to_string(),
            version: pin.version.to_string(),
        };
        let pins =
            self.pins.iter().flat_map(|(name, pins)| pins.iter().map(move |pin| (name, pin)));
        pins.map(package).collect()
    }

    /// What is left of it without some packages.
    pub(crate) fn without(
        &self,
        is_left_out: impl Fn(&PackageName) -> bool,
    ) -> Result<Self, LockError> {
        let mut text = String::new();
        for (line, requirement) in requirements(&self.text) {
            if !is_left_out(&pin(line, &requirement)?.0) {
                text += &requirement;
                text.push('\n');
            }
        }
        Self::parse(&text)
    }

    /// Fails when no pin is what is wanted.
    pub(crate) fn require(&self, wanted: &Requirement) -> Result<(), LockError> {
        let pins = self.pins.get(&wanted.name).map_or(&[][..], Vec::as_slice);
        match pins {
            [] if wanted.conditional => Ok(()),
            [] => Err(LockError::Missing { name: wanted.name.clone() }),
            pins if pins.iter().any(|pin| wanted.versions.contains(&pin.version)) => Ok(()),
            [pin, ..] => Err(LockError::Outside {
                line: pin.line,
                name: wanted.name.clone(),
                version: pin.version.to_string(),
                wanted: wanted.to_string(),
            }),
        }
    }
}

/// The line by which a lock says for which Python it was made.
pub(crate) fn heading(python: VersionRange) -> String {
    format!("{MADE_FOR}{python} by belljar; `belljar env lock` makes it again.\n")
}

fn made_for(text: &str) -> Option<VersionRange> {
    text.strip_prefix(MADE_FOR)?.split_whitespace().next()?.parse().ok()
}

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Lock({} packages)", self.pins.len())
    }
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

fn pin(line: usize, requirement: &str) -> Result<(PackageName, Version), LockError> {
    if requirement.starts_with('-') {
        return Err(LockError::Option { line });
    }
    let mut words = requirement.split_whitespace();
    let pinned = words.next().and_then(|pin| {
        let (name, version) = pin.split_once("==")?;
        Some((PackageName::new(name)?, version.parse().ok()?))
    });
    let pinned = pinned.ok_or(LockError::NotPinned { line })?;
    let options: Vec<&str> = words.filter(|word| word.starts_with("--")).collect();
    if options.is_empty() {
        return Err(LockError::NoHash { line, name: pinned.0.to_string() });
    }
    if options.iter().any(|option| !option.starts_with("--hash=sha256:")) {
        return Err(LockError::Option { line });
    }
    Ok(pinned)
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

    fn wanted(text: &str) -> Requirement {
        text.parse().unwrap()
    }

    #[test]
    fn a_pinned_lock_is_taken_and_knows_its_packages() {
        let lock = Lock::parse(PINNED).unwrap();
        assert_eq!(lock.require(&wanted("et-xmlfile")), Ok(()));
        assert_eq!(lock.require(&wanted("numpy>=2,<3")), Ok(()));
        assert_eq!(lock.require(&wanted("pandas; os_name == 'nt'")), Ok(()));
        let missing = LockError::Missing { name: PackageName::new("pandas").unwrap() };
        assert_eq!(lock.require(&wanted("pandas")), Err(missing));
    }

    #[test]
    fn a_version_that_nobody_asked_for_is_named_with_its_line() {
        let refused = Lock::parse(PINNED).unwrap().require(&wanted("numpy<2")).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "line 5 of the lock has numpy 2.4.6, and `numpy<2` is asked for; make the lock again"
        );
        let both = Lock::parse("a==1 --hash=sha256:aa\na==2 --hash=sha256:bb").unwrap();
        assert_eq!(both.require(&wanted("a>=2")), Ok(()));
    }

    #[test]
    fn a_lock_says_for_which_python_it_was_made() {
        let range: VersionRange = "3.12".parse().unwrap();
        let lock = Lock::parse(&format!("{}{PINNED}", heading(range))).unwrap();
        assert_eq!(lock.made_for(), Some(range));
        assert_eq!(Lock::parse(PINNED).unwrap().made_for(), None);
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
