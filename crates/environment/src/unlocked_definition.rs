//! The sources that an environment can be made from: a definition in TOML, a `requirements.txt`, or
//! a script with metadata.
//!
//! [`UnlockedDefinition::parse`] validates all of them into one type that keeps the original lines,
//! so that errors about a package name its line. Only packages of an index are accepted: options,
//! other files and addresses are refused.

use crate::definition::{Definition, DefinitionError, Name};
use crate::definition_files::{Origin, Recipe};
use crate::requirement::{PackageName, Requirement, RequirementError};
use crate::requirement_lines::{self, AmbiguousLine};
use crate::script_metadata::{Header, HeaderError};
use crate::version::VersionRange;
use std::fmt;

/// A list of packages takes a few lines, and a lock of a hundred packages 200 KB.
pub const SOURCE_BYTES_MAX: usize = 2 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    Toml,
    Requirements,
    Script,
}

/// A definition whose packages are not locked yet.
#[derive(Debug, Clone)]
pub struct UnlockedDefinition {
    pub(crate) definition: Definition,
    /// The text of the definition to save.
    pub(crate) toml: String,
    /// A requirements file with every hash is its own lock.
    pub(crate) lock: Option<String>,
    original_text: String,
}

/// A line of the original text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    pub number: usize,
    pub text: String,
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("file has {0} bytes; at most {SOURCE_BYTES_MAX} are allowed")]
    TooLong(usize),
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    #[error("the file does not name the environment; pass a name")]
    NoName,
    #[error(
        "name `{0}` is reserved for environments of scripts and of the operator; choose another"
    )]
    Reserved(Name),
    #[error("the definition names `{found}`, and `{requested}` was requested; use one name")]
    NameMismatch { found: Name, requested: Name },
    #[error(
        "{0} is an option, and only packages are allowed; list the packages it would add, or use \
         --wheels DIR for wheels that the index does not have"
    )]
    Option(SourceLine),
    #[error("line {0} contains a character that some programs read as a line break; remove it")]
    AmbiguousLine(usize),
    #[error("line {number}: {source}")]
    Requirement { number: usize, source: RequirementError },
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("the script has no dependencies block; add a block `# /// script` (PEP 723)")]
    NoHeader,
    #[error("requires-python `{0}` excludes all supported versions; allow 3.11 or newer")]
    NoPython(String),
    #[error("the definition cannot be serialized: {0}")]
    Write(#[from] toml::ser::Error),
}

impl UnlockedDefinition {
    /// Only a TOML definition contains a name.
    pub fn parse(kind: SourceKind, text: &str, name: Option<&Name>) -> Result<Self, SourceError> {
        if text.len() > SOURCE_BYTES_MAX {
            return Err(SourceError::TooLong(text.len()));
        }
        let reserved =
            |name: &Name| kind != SourceKind::Script && Origin::of(name) == Origin::Derived;
        if let Some(name) = name.filter(|name| reserved(name)) {
            return Err(SourceError::Reserved(name.clone()));
        }
        let (definition, lock) = match kind {
            SourceKind::Toml => {
                let definition = Definition::parse_unlocked(text)?;
                if reserved(&definition.name) {
                    return Err(SourceError::Reserved(definition.name));
                }
                if let Some(requested) = name.filter(|name| **name != definition.name).cloned() {
                    return Err(SourceError::NameMismatch { found: definition.name, requested });
                }
                let (toml, source) = (text.to_owned(), text.to_owned());
                return Ok(Self { definition, toml, lock: None, original_text: source });
            }
            SourceKind::Requirements => parse_requirements(text, name.ok_or(SourceError::NoName)?)?,
            SourceKind::Script => (parse_script(text, name.ok_or(SourceError::NoName)?)?, None),
        };
        let toml = toml::to_string_pretty(&definition)?;
        Ok(Self { definition, toml, lock, original_text: text.to_owned() })
    }

    /// Everything in an environment, at its exact versions, plus these packages.
    pub fn extend(base: &Recipe, packages: &[Requirement]) -> Result<Self, SourceError> {
        let named = |name: &PackageName| packages.iter().any(|package| package.name == *name);
        let base_packages = base.definition.packages.iter().filter(|package| !named(&package.name));
        let pinned = |package: &Requirement| base.definition.lock.pin_of(package);
        let base_packages =
            base_packages.map(|package| pinned(package).unwrap_or_else(|| package.clone()));
        let definition = Definition {
            name: Name::for_extended(base, packages),
            packages: base_packages.chain(packages.iter().cloned()).collect(),
            lock: Default::default(),
            ..base.definition.clone()
        };
        let toml = toml::to_string_pretty(&definition)?;
        // There is no original text whose lines could be named.
        Ok(Self { definition, original_text: String::new(), toml, lock: None })
    }

    pub fn name(&self) -> &Name {
        &self.definition.name
    }

    /// Adds a lock, which must have every package of the definition.
    pub fn with_lock(&self, lock: &str) -> Result<Definition, DefinitionError> {
        self.definition.clone().with_lock(lock)
    }

    /// The lines of the packages that `text` mentions.
    pub(crate) fn lines_about(&self, text: &str) -> Vec<SourceLine> {
        let about = |it: &&Requirement| mentions(text, it.name.as_str());
        self.definition.packages.iter().filter(about).filter_map(|it| self.line_of(it)).collect()
    }

    fn line_of(&self, requirement: &Requirement) -> Option<SourceLine> {
        let text = requirement.original_text().to_owned();
        let mut lines = self.original_text.lines().zip(1..);
        let contains_text = |line: &str| line.split('#').next().unwrap_or_default().contains(&text);
        let (_, number) = lines.find(|(line, _)| contains_text(line))?;
        Some(SourceLine { number, text })
    }
}

/// The kind of the file `path`, by its extension.
pub fn source_kind(path: &std::path::Path) -> SourceKind {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("toml") => SourceKind::Toml,
        Some("py") => SourceKind::Script,
        _ => SourceKind::Requirements,
    }
}

fn parse_requirements(
    text: &str,
    name: &Name,
) -> Result<(Definition, Option<String>), SourceError> {
    if text.contains("--hash=") {
        let definition =
            empty_definition(name, VersionRange::default(), Vec::new()).with_lock(text)?;
        let names = definition.lock.names().map(|name| name.as_str().parse());
        let packages = names
            .collect::<Result<_, _>>()
            .map_err(|source| SourceError::Requirement { number: 1, source })?;
        return Ok((Definition { packages, ..definition }, Some(text.to_owned())));
    }
    let mut packages = Vec::new();
    let lines = requirement_lines::parse(text)
        .map_err(|AmbiguousLine(line)| SourceError::AmbiguousLine(line))?;
    for (number, written) in lines.into_iter().filter(|(_, written)| !written.is_empty()) {
        if written.starts_with('-') || written.contains(" --") || written.ends_with('\\') {
            return Err(SourceError::Option(SourceLine { number, text: written.to_owned() }));
        }
        let package = written.parse();
        packages.push(package.map_err(|source| SourceError::Requirement { number, source })?);
    }
    Ok((empty_definition(name, VersionRange::default(), packages), None))
}

fn parse_script(text: &str, name: &Name) -> Result<Definition, SourceError> {
    let header = Header::of(text)?;
    if header == Header::default() {
        return Err(SourceError::NoHeader);
    }
    let python = VersionRange::from_specifiers(&header.requires_python)
        .ok_or_else(|| SourceError::NoPython(header.requires_python.to_string()))?;
    Ok(empty_definition(name, python, header.dependencies))
}

fn empty_definition(name: &Name, python: VersionRange, packages: Vec<Requirement>) -> Definition {
    Definition {
        name: name.clone(),
        description: String::new(),
        python,
        packages,
        preload: Vec::new(),
        imports: Default::default(),
        processes: Default::default(),
        index: Default::default(),
        variables: Default::default(),
        lock: Default::default(),
    }
}

/// Whether a text mentions a package, and not another one whose name contains this one.
pub(crate) fn mentions(text: &str, name: &str) -> bool {
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(|c: char| of_name(c) || c == '.')
            && !text[at + name.len()..].starts_with(of_name)
    })
}

impl fmt::Display for SourceLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {} (`{}`)", self.number, self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: SourceKind, text: &str) -> Result<UnlockedDefinition, SourceError> {
        UnlockedDefinition::parse(kind, text, Some(&Name::try_from("mine".to_owned()).unwrap()))
    }

    fn error_message(kind: SourceKind, text: &str) -> String {
        read(kind, text).unwrap_err().to_string()
    }

    fn packages(draft: &UnlockedDefinition) -> Vec<String> {
        draft.definition.packages.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_requirements_file_becomes_a_definition() {
        let text =
            "# ours\n\npolars>=1,<2  # frames\nrequests[socks]\ntomli; python_version<'3.11'\n";
        let draft = read(SourceKind::Requirements, text).unwrap();
        assert_eq!(
            packages(&draft),
            ["polars>=1, <2", "requests[socks]", "tomli ; python_version < '3.11'"]
        );
        let again = UnlockedDefinition::parse(SourceKind::Toml, &draft.toml, None).unwrap();
        assert_eq!(again.definition, draft.definition);
    }

    #[test]
    fn a_script_becomes_a_definition_with_its_python() {
        let text =
            "# /// script\n# requires-python = \"==3.12.*\"\n# dependencies = [\"six\"]\n# ///";
        let draft = read(SourceKind::Script, text).unwrap();
        assert_eq!(packages(&draft), ["six"]);
        assert_eq!(draft.definition.python.to_string(), "3.12");
        assert!(error_message(SourceKind::Script, "print(1)").contains("PEP 723"));
        let old = text.replace("==3.12.*", "<3.9");
        assert!(
            error_message(SourceKind::Script, &old).contains("excludes all supported versions")
        );
    }

    #[test]
    fn a_requirements_file_with_hashes_is_its_own_lock() {
        let text = "six==1.17.0 \\\n    --hash=sha256:aa\n";
        let draft = read(SourceKind::Requirements, text).unwrap();
        assert_eq!(draft.lock.as_deref(), Some(text));
        assert_eq!(packages(&draft), ["six"]);
        let half = format!("{text}idna>=3\n");
        assert!(error_message(SourceKind::Requirements, &half).contains("line 3 of the lock"));
    }

    #[test]
    fn options_files_and_addresses_are_refused_with_their_line() {
        let with = |line: &str| error_message(SourceKind::Requirements, &format!("six\n{line}\n"));
        for option in [
            "-r other.txt",
            "-e .",
            "--index-url https://example.org",
            "--find-links /",
            "idna --global-option=x",
            "idna \\",
        ] {
            let message = with(option);
            assert!(message.starts_with(&format!("line 2 (`{option}`) is an option")), "{message}");
        }
        for address in ["idna @ https://example.org/a.whl", "../idna", "/etc/passwd"] {
            let message = with(address);
            assert!(
                message.starts_with(&format!("line 2: `{address}` is a URL or a path")),
                "{message}"
            );
        }
    }

    #[test]
    fn nothing_is_read_in_lines_that_others_end_elsewhere() {
        let message = error_message(SourceKind::Requirements, "six\n# x\r-r /tmp/private.txt\n");
        assert!(message.starts_with("line 2 contains a character"), "{message}");
        let message =
            error_message(SourceKind::Toml, "name = \"mine\"\npackages = [\"six\\r>=1\"]");
        assert!(message.starts_with("line 2: `six\\r>=1` has characters"), "{message}");
        let script = |it: &str| format!("# /// script\n# dependencies = [{it}]\n# ///\n");
        let message = error_message(SourceKind::Script, &script("\"six\\u2028>=1\""));
        assert!(message.starts_with("line 2: `six\\u{2028}>=1` has characters"), "{message}");
        let message = error_message(SourceKind::Script, &script("\"six\" # x\r\"-r y\""));
        assert!(message.starts_with("line 2: block"), "{message}");
        assert!(read(SourceKind::Requirements, "# ours\r\nsix\r\n").is_ok());
    }

    #[test]
    fn a_definition_under_another_name_is_refused() {
        let message = error_message(SourceKind::Toml, "name = \"other\"");
        assert!(message.starts_with("the definition names `other`, and `mine`"), "{message}");
        let typo = error_message(SourceKind::Toml, "name = \"mine\"\npakages = []\n");
        assert!(typo.contains("line 2") && typo.contains("pakages"), "{typo}");
        let address =
            error_message(SourceKind::Toml, "name = \"mine\"\npackages = [\n\"a\",\n\"../b\"]");
        assert!(address.contains("line 4") && address.contains("`../b`"), "{address}");
    }

    #[test]
    fn a_complaint_is_brought_back_to_the_line_that_it_is_about() {
        let draft = read(SourceKind::Requirements, "# docopt\nidna\n\ndocopt==0.6.2\n").unwrap();
        let lines = draft.lines_about("Because docopt==0.6.2 has no usable wheels");
        assert_eq!(lines, [SourceLine { number: 4, text: "docopt==0.6.2".to_owned() }]);
        assert_eq!(draft.lines_about("docopt-ng and my.idna and idna2"), []);
    }
}
