//! The exact packages of an environment.
//!
//! A lock is in requirements format and contains only `name==version`, an optional marker, and
//! hashes. The file for uv is generated from the parsed lock, so that a lock can never add an
//! index, another file, or a package without a hash.

use std::collections::BTreeMap;
use std::fmt;

use pep440_rs::Version;
use sha2::{Digest, Sha256};

use crate::environment::PackageVersion;
use crate::requirement::{Marker, PackageName, Requirement};
use crate::requirement_lines::{self, AmbiguousLine};
use crate::unlocked_definition::mentions;
use crate::version::VersionRange;

/// First line of a lock for a single minor version of Python. Other versions may need more or fewer
/// packages.
const MADE_FOR: &str = "# Locked for CPython ";

/// The only option that a package may have. It is required.
const HASH: &str = "--hash=sha256:";

/// The validated text of a lock. Empty for an environment without packages.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Lock {
    text: String,
    /// A lock for several Pythons may have several versions of one package.
    pins: BTreeMap<PackageName, Vec<Pin>>,
    python_range: Option<VersionRange>,
    /// Digest of the text, which is long: every request for an environment needs it.
    digest: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pin {
    line: usize,
    version: Version,
    marker: Option<Marker>,
    /// In hexadecimal digits.
    hashes: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    #[error("line {line} of the lock is an option; only `name==version` with hashes is allowed")]
    Option { line: usize },
    #[error(
        "line {line} of the lock contains a character that some programs read as a line break; \
         remove it"
    )]
    AmbiguousLine { line: usize },
    #[error("line {line} of the lock does not pin one version with `==`")]
    NotPinned { line: usize },
    #[error("line {line} of the lock has an invalid marker")]
    Marker { line: usize },
    #[error(
        "`{name}` on line {line} of the lock has no sha256 hash; create the lock with \
         `--generate-hashes`"
    )]
    NoHash { line: usize, name: String },
    #[error("`{name}` is not in the lock; create the lock again")]
    Missing { name: PackageName },
    #[error("line {line} of the lock has {name}, which no package requires; create the lock again")]
    Unneeded { line: usize, name: PackageName },
    #[error(
        "line {line} of the lock has hashes that do not match the files of {name} {version}; \
         create the lock again"
    )]
    HashMismatch { line: usize, name: PackageName, version: String },
    #[error("packages of the lock conflict ({places}): {detail}; create the lock again")]
    Conflict { places: String, detail: String },
    #[error(
        "line {line} of the lock has {name} {version}, and `{required}` is required; create the lock \
         again"
    )]
    VersionMismatch { line: usize, name: PackageName, version: String, required: String },
    #[error(
        "the lock is for CPython {python_range}, and CPython {required} is required; create the lock \
         again"
    )]
    PythonMismatch { python_range: VersionRange, required: VersionRange },
}

impl Lock {
    pub(crate) fn parse(text: &str) -> Result<Self, LockError> {
        let mut pins = BTreeMap::<_, Vec<Pin>>::new();
        for (line, requirement) in join_lines(text)? {
            let (name, pin) = parse_pin(line, &requirement)?;
            pins.entry(name).or_default().push(pin);
        }
        let digest = Sha256::digest(text).into();
        Ok(Self { text: text.to_owned(), pins, python_range: python_range(text), digest })
    }

    /// The original text, for its authors.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The parsed content only, for uv.
    pub(crate) fn to_requirements(&self) -> String {
        format_pins(self.pins.iter())
    }

    pub(crate) fn digest(&self) -> &[u8] {
        &self.digest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    pub(crate) fn python_range(&self) -> Option<VersionRange> {
        self.python_range
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &PackageName> {
        self.pins.keys()
    }

    /// The package pinned to its version in this lock, if that is the same for every Python.
    pub(crate) fn pin_of(&self, package: &Requirement) -> Option<Requirement> {
        match self.pins.get(&package.name)?.as_slice() {
            [pin] => Some(package.pinned_to(&pin.version)),
            _ => None,
        }
    }

    /// The exact packages; for a lock for several Pythons, those of any of them.
    pub(crate) fn packages(&self) -> Vec<PackageVersion> {
        let package = |(name, pin): (&PackageName, &Pin)| PackageVersion {
            name: name.to_string(),
            version: pin.version.to_string(),
        };
        let pins =
            self.pins.iter().flat_map(|(name, pins)| pins.iter().map(move |pin| (name, pin)));
        pins.map(package).collect()
    }

    /// The lock without some packages.
    pub(crate) fn without(
        &self,
        is_left_out: impl Fn(&PackageName) -> bool,
    ) -> Result<Self, LockError> {
        let left = self.pins.iter().filter(|(name, _)| !is_left_out(name));
        Self::parse(&format_pins(left))
    }

    /// The versions as constraints, without hashes.
    pub(crate) fn to_constraints(&self) -> String {
        let pins = self.pins.iter().flat_map(|(name, pins)| pins.iter().map(move |it| (name, it)));
        let bare = |pin: &Pin| Pin { hashes: Vec::new(), ..pin.clone() };
        pins.map(|(name, pin)| format!("{name}{}\n", bare(pin))).collect()
    }

    /// Fails if it lacks a package of `chosen`, a lock for one Python, or has an extra one.
    pub(crate) fn check_matches(&self, chosen: &Self) -> Result<(), LockError> {
        for (name, pins) in &chosen.pins {
            let own =
                self.pins.get(name).ok_or_else(|| LockError::Missing { name: name.clone() })?;
            let known: Vec<&String> = pins.iter().flat_map(|pin| &pin.hashes).collect();
            let is_known = |pin: &&Pin| pin.hashes.iter().any(|hash| known.contains(&hash));
            if let (None, Some(pin)) = (own.iter().find(is_known), own.first()) {
                return Err(pin.hash_mismatch(name));
            }
        }
        // A marker may restrict it to another Python.
        let unneeded = |(name, pins): (&PackageName, &Vec<Pin>)| {
            let pin = pins.iter().find(|pin| pin.marker.is_none())?;
            let name = name.clone();
            Some(LockError::Unneeded { line: pin.line, name })
        };
        let more = self.pins.iter().filter(|(name, _)| !chosen.pins.contains_key(*name));
        more.into_iter().find_map(unneeded).map_or(Ok(()), Err)
    }

    /// The error for a file whose hash differs from that of the package mentioned in `detail`.
    pub(crate) fn hash_mismatch_error(&self, detail: &str) -> LockError {
        let about =
            |name: &PackageName, pin: &Pin| detail.contains(&format!("{name}=={}", pin.version));
        let pins = self.pins.iter().flat_map(|(name, pins)| pins.iter().map(move |it| (name, it)));
        let found = pins.into_iter().find(|(name, pin)| about(name, pin));
        found.map_or_else(|| self.conflict_error(detail), |(name, pin)| pin.hash_mismatch(name))
    }

    /// Why its versions were rejected, with the lines mentioned in `detail`.
    pub(crate) fn conflict_error(&self, detail: &str) -> LockError {
        let about = self.pins.iter().filter(|(name, _)| mentions(detail, name.as_str()));
        let places = about.flat_map(|(name, pins)| {
            pins.iter().map(move |pin| format!("line {} (`{name}=={}`)", pin.line, pin.version))
        });
        let places = places.collect::<Vec<_>>().join(", ");
        LockError::Conflict { places, detail: detail.to_owned() }
    }

    /// Fails if no pin satisfies the requirement.
    pub(crate) fn require(&self, required: &Requirement) -> Result<(), LockError> {
        let pins = self.pins.get(&required.name).map_or(&[][..], Vec::as_slice);
        match pins {
            [] if required.conditional => Ok(()),
            [] => Err(LockError::Missing { name: required.name.clone() }),
            pins if pins.iter().any(|pin| required.versions.contains(&pin.version)) => Ok(()),
            [pin, ..] => Err(LockError::VersionMismatch {
                line: pin.line,
                name: required.name.clone(),
                version: pin.version.to_string(),
                required: required.to_string(),
            }),
        }
    }
}

fn format_pins<'a>(pins: impl Iterator<Item = (&'a PackageName, &'a Vec<Pin>)>) -> String {
    let pins = pins.flat_map(|(name, pins)| pins.iter().map(move |it| (name, it)));
    pins.map(|(name, pin)| format!("{name}{pin}\n")).collect()
}

/// The line that says which Python a lock was created for.
pub(crate) fn heading(python: VersionRange) -> String {
    format!("{MADE_FOR}{python} by belljar; `belljar env lock` makes it again.\n")
}

fn python_range(text: &str) -> Option<VersionRange> {
    text.strip_prefix(MADE_FOR)?.split_whitespace().next()?.parse().ok()
}

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Lock({} packages)", self.pins.len())
    }
}

/// The text after the name.
impl fmt::Display for Pin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "=={}", self.version)?;
        if let Some(marker) = &self.marker {
            write!(formatter, " ; {marker}")?;
        }
        self.hashes.iter().try_for_each(|hash| write!(formatter, " {HASH}{hash}"))
    }
}

impl Pin {
    fn hash_mismatch(&self, name: &PackageName) -> LockError {
        let (name, version) = (name.clone(), self.version.to_string());
        LockError::HashMismatch { line: self.line, name, version }
    }
}

/// Joins each requirement with its hashes into one line, with the number of its first line.
fn join_lines(text: &str) -> Result<Vec<(usize, String)>, LockError> {
    let lines = requirement_lines::parse(text)
        .map_err(|AmbiguousLine(line)| LockError::AmbiguousLine { line })?;
    let mut lines = lines.into_iter();
    let mut found = Vec::new();
    while let Some((line, first)) = lines.find(|(_, line)| !line.is_empty()) {
        let mut requirement = first.to_owned();
        while requirement.ends_with('\\') {
            requirement.pop();
            requirement.push(' ');
            requirement.push_str(lines.next().map_or("", |(_, line)| line));
        }
        found.push((line, requirement));
    }
    Ok(found)
}

fn parse_pin(line: usize, requirement: &str) -> Result<(PackageName, Pin), LockError> {
    let parts: Vec<&str> = requirement.split_ascii_whitespace().collect();
    let first_option = parts.iter().position(|part| part.starts_with('-'));
    let (required, options) = parts.split_at(first_option.unwrap_or(parts.len()));
    if required.is_empty() {
        return Err(LockError::Option { line });
    }
    let required = required.join(" ");
    let (pinned, marker) = match required.split_once(';') {
        Some((pinned, marker)) => (pinned, Some(marker)),
        None => (required.as_str(), None),
    };
    let (name, version) = parse_exact(pinned.trim()).ok_or(LockError::NotPinned { line })?;
    let marker = marker.map(|it| Marker::new(it).ok_or(LockError::Marker { line })).transpose()?;
    if options.is_empty() {
        return Err(LockError::NoHash { line, name: name.to_string() });
    }
    let hashes = options.iter().map(|option| parse_hash(option).ok_or(LockError::Option { line }));
    Ok((name, Pin { line, version, marker, hashes: hashes.collect::<Result<_, _>>()? }))
}

fn parse_exact(pinned: &str) -> Option<(PackageName, Version)> {
    let (name, version) = pinned.split_once("==")?;
    Some((PackageName::new(name)?, version.parse().ok()?))
}

fn parse_hash(option: &str) -> Option<String> {
    let digits = option.strip_prefix(HASH)?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| digits.to_owned())
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

    fn required(text: &str) -> Requirement {
        text.parse().unwrap()
    }

    #[test]
    fn a_pinned_lock_is_accepted_with_its_packages() {
        let lock = Lock::parse(PINNED).unwrap();
        assert_eq!(lock.require(&required("et-xmlfile")), Ok(()));
        assert_eq!(lock.require(&required("numpy>=2,<3")), Ok(()));
        assert_eq!(lock.require(&required("pandas; os_name == 'nt'")), Ok(()));
        let missing = LockError::Missing { name: PackageName::new("pandas").unwrap() };
        assert_eq!(lock.require(&required("pandas")), Err(missing));
    }

    #[test]
    fn a_version_that_was_not_required_is_named_with_its_line() {
        let error = Lock::parse(PINNED).unwrap().require(&required("numpy<2")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 5 of the lock has numpy 2.4.6, and `numpy<2` is required; create the lock again"
        );
        let both = Lock::parse("a==1 --hash=sha256:aa\na==2 --hash=sha256:bb").unwrap();
        assert_eq!(both.require(&required("a>=2")), Ok(()));
    }

    #[test]
    fn a_lock_says_for_which_python_it_was_made() {
        let range: VersionRange = "3.12".parse().unwrap();
        let lock = Lock::parse(&format!("{}{PINNED}", heading(range))).unwrap();
        assert_eq!(lock.python_range(), Some(range));
        assert_eq!(Lock::parse(PINNED).unwrap().python_range(), None);
    }

    #[test]
    fn an_option_is_refused_wherever_it_stands() {
        let error = Err(LockError::Option { line: 1 });
        assert_eq!(Lock::parse("--index-url https://example.org/simple"), error);
        assert_eq!(Lock::parse("-r other.lock"), error);
        assert_eq!(Lock::parse("a==1 --hash=sha256:aa --config-settings=x"), error);
    }

    #[test]
    fn what_is_not_one_version_of_one_package_is_refused() {
        for text in ["numpy", "numpy>=2", "numpy==", "./wheel.whl", "a @ https://example.org/a.whl"]
        {
            assert_eq!(Lock::parse(text), Err(LockError::NotPinned { line: 1 }), "{text}");
        }
    }

    #[test]
    fn uv_is_given_what_was_understood_and_nothing_else() {
        let lock = Lock::parse(&format!("{PINNED}\nA==1.0 --hash=sha256:dd  # why\n")).unwrap();
        assert_eq!(
            lock.to_requirements(),
            "a==1.0 --hash=sha256:dd\n\
             et-xmlfile==2.0.0 ; python_version < '3.12' --hash=sha256:aa --hash=sha256:bb\n\
             numpy==2.4.6 --hash=sha256:cc\n"
        );
    }

    // A comment to one reader is an option to another that ends lines elsewhere.
    #[test]
    fn a_line_that_other_parsers_end_elsewhere_is_refused() {
        let hidden =
            ["# x\r-r /tmp/private.txt", "# \rsix @ http://127.0.0.1:9/six.whl", "#\x0b-r a"];
        for line in hidden {
            let text = format!("{PINNED}{line}\n");
            assert_eq!(Lock::parse(&text), Err(LockError::AmbiguousLine { line: 7 }), "{line:?}");
        }
        assert!(Lock::parse(&PINNED.replace('\n', "\r\n")).is_ok());
    }

    #[test]
    fn words_that_are_neither_a_marker_nor_a_hash_are_refused() {
        let parse = |text: &str| Lock::parse(text).unwrap_err();
        assert_eq!(parse("a==1 b --hash=sha256:aa"), LockError::NotPinned { line: 1 });
        assert_eq!(parse("a==1 --hash=sha256:aa b"), LockError::Option { line: 1 });
        assert_eq!(parse("a==1 --hash=sha256:a/b"), LockError::Option { line: 1 });
        assert_eq!(parse("a==1 ; os_name \\ --hash=sha256:aa"), LockError::Marker { line: 1 });
        assert_eq!(parse("a==1 ; --hash=sha256:aa"), LockError::Marker { line: 1 });
    }

    #[test]
    fn a_package_without_a_hash_is_refused() {
        let text = format!("{PINNED}pandas==3.0 ; sys_platform == 'linux'\n");
        let error = LockError::NoHash { line: 7, name: "pandas".to_owned() };
        assert_eq!(Lock::parse(&text), Err(error));
    }
}
