//! The files of an uploaded skill: checked as a whole before anything of them is stored.
//!
//! A name is a relative path of portable characters, no file is also a directory, and there is
//! exactly one `SKILL.md`, at the root. The rules of the format are errors here, because an author
//! reads the answer.

use crate::archive::{self, ArchiveError};
use crate::error::SkillError;
use crate::folder::{DEPTH_MAX, FILES_MAX};
use crate::rules;
use crate::skill::{Skill, SkillSource};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limit of an uploaded skill: texts, scripts, fonts and images. It is a row of the database.
pub const UPLOAD_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// The limit of a path on Linux is higher, but no author writes such names.
const PATH_BYTES_MAX: usize = 255;
const INSTRUCTIONS: &str = "SKILL.md";

#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("{0}")]
    Archive(#[from] ArchiveError),
    #[error("skill has {0} files; at most {FILES_MAX} are allowed")]
    TooManyFiles(usize),
    #[error("files of the skill exceed {UPLOAD_BYTES_MAX} bytes in total")]
    TooLarge,
    #[error("file name {name} is not allowed: {reason}")]
    Name { name: String, reason: &'static str },
    #[error("file {0} is there twice")]
    Duplicate(String),
    #[error("{0} is both a file and a directory")]
    Conflict(String),
    #[error("more than one SKILL.md: {}; upload one skill at a time", .0.join(", "))]
    SeveralSkills(Vec<String>),
    /// All violations of the format.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<SkillError>),
}

/// The checked files of a skill, by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillFiles(Arc<BTreeMap<String, Vec<u8>>>);

impl SkillFiles {
    /// Reads a ZIP archive of the files, or of one directory with them.
    pub fn from_archive(bytes: &[u8]) -> Result<Self, UploadError> {
        Self::from_files(archive::read(bytes)?)
    }

    pub fn from_files(files: Vec<(String, Vec<u8>)>) -> Result<Self, UploadError> {
        if files.len() > FILES_MAX {
            return Err(UploadError::TooManyFiles(files.len()));
        }
        let mut checked = BTreeMap::new();
        let mut left = UPLOAD_BYTES_MAX;
        for (path, content) in files {
            check_path(&path)?;
            left = left.checked_sub(content.len() as u64).ok_or(UploadError::TooLarge)?;
            if checked.insert(path.clone(), content).is_some() {
                return Err(UploadError::Duplicate(path));
            }
        }
        check_conflicts(&checked)?;
        check_instructions(&checked)?;
        let (directory, files) = without_directory(checked);
        let files = Self(Arc::new(files));
        files.check_format(directory)?;
        Ok(files)
    }

    fn check_format(&self, directory: Option<String>) -> Result<(), UploadError> {
        let invalid = |error| UploadError::Invalid(vec![error]);
        let source = SkillSource::Uploaded { files: self.clone() };
        let fields = source.fields().map_err(invalid)?;
        let name = rules::required_text(&fields, "name").unwrap_or_default().trim().to_owned();
        match rules::check(&fields, &directory.unwrap_or(name)) {
            problems if problems.is_empty() => Ok(()),
            problems => Err(UploadError::Invalid(problems)),
        }
    }

    /// The skill with these files.
    pub fn into_skill(self) -> Result<Skill, SkillError> {
        Skill::load(SkillSource::Uploaded { files: self })
    }

    /// The files in an archive that [`SkillFiles::from_archive`] reads.
    pub fn to_archive(&self) -> Vec<u8> {
        archive::write(&self.0)
    }

    pub fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.0
    }

    pub fn bytes(&self) -> u64 {
        self.0.values().map(|content| content.len() as u64).sum()
    }
}

/// Checks that a path stays in the skill, means the same on every system, and reads as it is
/// written.
fn check_path(path: &str) -> Result<(), UploadError> {
    let reason = if path.is_empty() || path.len() > PATH_BYTES_MAX {
        "use 1 to 255 bytes"
    } else if path.chars().any(is_invisible) {
        "it has control characters or characters that change the direction of text"
    } else if path.contains('\\') {
        "use / between directories"
    } else if path.starts_with('/') {
        "it must be relative to the skill"
    } else if path.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        "it must not contain empty parts, . or .."
    } else if path.split('/').count() > DEPTH_MAX {
        "it is nested too deeply"
    } else {
        return Ok(());
    };
    Err(UploadError::Name { name: format!("{path:?}"), reason })
}

/// Characters with which a name looks like another one.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

fn check_conflicts(files: &BTreeMap<String, Vec<u8>>) -> Result<(), UploadError> {
    let is_directory = |path: &&String| {
        let below = format!("{path}/");
        files.range(below.clone()..).next().is_some_and(|(next, _)| next.starts_with(&below))
    };
    match files.keys().find(is_directory) {
        Some(path) => Err(UploadError::Conflict(path.clone())),
        None => Ok(()),
    }
}

fn check_instructions(files: &BTreeMap<String, Vec<u8>>) -> Result<(), UploadError> {
    let is_instructions = |path: &&String| {
        path.rsplit('/').next().is_some_and(|name| name.eq_ignore_ascii_case(INSTRUCTIONS))
    };
    let found: Vec<String> = files.keys().filter(is_instructions).cloned().collect();
    match found.len() {
        0 => Err(UploadError::Invalid(vec![SkillError::NoSkillFile])),
        1 => Ok(()),
        _ => Err(UploadError::SeveralSkills(found)),
    }
}

/// Removes the one directory that all files are in, and returns its name.
fn without_directory(
    files: BTreeMap<String, Vec<u8>>,
) -> (Option<String>, BTreeMap<String, Vec<u8>>) {
    let first = files.keys().next().and_then(|path| path.split_once('/'));
    let Some(directory) = first.map(|(directory, _)| directory.to_owned()) else {
        return (None, files);
    };
    let prefix = format!("{directory}/");
    if !files.keys().all(|path| path.starts_with(&prefix)) {
        return (None, files);
    }
    let shorter = |(path, content): (String, Vec<u8>)| {
        (path.strip_prefix(&prefix).unwrap_or(&path).to_owned(), content)
    };
    (Some(directory), files.into_iter().map(shorter).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEA: &str = "---\nname: tea\ndescription: How tea is made here.\n---\n\nWarm the pot.\n";

    fn uploaded(files: &[(&str, &str)]) -> Result<SkillFiles, UploadError> {
        let file = |(path, text): &(&str, &str)| ((*path).to_owned(), text.as_bytes().to_vec());
        SkillFiles::from_files(files.iter().map(file).collect())
    }

    fn refusal(files: &[(&str, &str)]) -> String {
        uploaded(files).unwrap_err().to_string()
    }

    #[test]
    fn a_skill_is_the_same_with_and_without_its_directory() {
        let flat = uploaded(&[("SKILL.md", TEA), ("scripts/brew.py", "1")]).unwrap();
        let nested = uploaded(&[("tea/SKILL.md", TEA), ("tea/scripts/brew.py", "1")]).unwrap();
        assert_eq!(flat, nested);
        let skill = flat.clone().into_skill().unwrap();
        assert_eq!((skill.summary.name.as_str(), skill.warnings.len()), ("tea", 0));
        assert_eq!(skill.read("scripts/brew.py").unwrap(), b"1");
        assert_eq!(SkillFiles::from_archive(&flat.to_archive()).unwrap(), flat);
        let other = refusal(&[("coffee/SKILL.md", TEA)]);
        assert_eq!(other, "Directory name 'coffee' must match skill name 'tea'");
    }

    // A name that leaves the skill, or that reads otherwise than it is written, is refused; its harmless
    // twin is stored.
    #[test]
    fn t246_a_name_stays_in_the_skill_and_reads_as_it_is_written() {
        for name in [
            "/etc/passwd",
            "../a",
            "a/../../b",
            "a//b",
            "./a",
            "a\\b",
            "a\nb",
            "a\0b",
            "",
            "invoice\u{202e}fdp.py",
            "a\u{200b}b",
            "a\u{2066}b",
            "\u{feff}a",
            "a/b/c/d/e/f/g/h/i",
        ] {
            let error = uploaded(&[("SKILL.md", TEA), (name, "")]).unwrap_err();
            assert!(matches!(error, UploadError::Name { .. }), "{name:?}: {error}");
            assert!(!error.to_string().contains(['\n', '\0', '\u{202e}', '\u{200b}']), "{error}");
        }
        for name in ["etc/passwd", "..a", "a..b", "Zürich ☃.csv", "a/b/c/d/e/f/g/h", ".hidden"] {
            assert!(uploaded(&[("SKILL.md", TEA), (name, "")]).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn t246_there_is_one_skill_md_and_no_name_twice() {
        assert_eq!(refusal(&[("a.py", "")]), "Missing required file: SKILL.md");
        for other in ["skill.md", "Skill.MD", "more/SKILL.md"] {
            assert!(refusal(&[("SKILL.md", TEA), (other, TEA)]).contains("more than one SKILL.md"));
        }
        assert!(refusal(&[("SKILL.md", TEA), ("a", ""), ("a", "")]).contains("twice"));
        assert!(refusal(&[("SKILL.md", TEA), ("a", ""), ("a/b", "")]).contains("both"));
        assert!(uploaded(&[("SKILL.md", TEA), ("a", ""), ("a-b", ""), ("b/a", "")]).is_ok());
    }

    #[test]
    fn t246_a_skill_has_a_size_and_a_number_of_files_that_can_be_kept() {
        let size = usize::try_from(UPLOAD_BYTES_MAX).unwrap();
        let with = |bytes: usize| {
            SkillFiles::from_files(vec![
                ("SKILL.md".into(), TEA.into()),
                ("data".into(), vec![b'x'; bytes]),
            ])
        };
        assert!(matches!(with(size), Err(UploadError::TooLarge)));
        assert!(with(size - TEA.len()).is_ok());
        let many = |count: usize| {
            let files = (0..count).map(|number| (format!("f{number}"), Vec::new()));
            SkillFiles::from_files(files.chain([("SKILL.md".to_owned(), TEA.into())]).collect())
        };
        assert!(matches!(many(FILES_MAX), Err(UploadError::TooManyFiles(_))));
        assert!(many(FILES_MAX - 1).is_ok());
    }

    #[test]
    fn all_violations_of_the_format_are_named_at_once() {
        let text = "---\nname: Te--a\ndescription: d\nprice: 3\n---\nb";
        let error = refusal(&[("SKILL.md", text)]);
        for part in ["Unexpected fields", "must be lowercase", "consecutive hyphens"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
