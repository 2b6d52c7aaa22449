//! Reads and writes ZIP archives of skills.
//!
//! The bytes are untrusted. Everything is read by the central directory; number and size of the
//! entries are checked before anything is inflated, and what is inflated is bounded by what the
//! entry announces. Links, encrypted entries and special files are errors.

use crate::folder::FILES_MAX;
use crate::upload::UPLOAD_BYTES_MAX;
use flate2::Crc;
use flate2::read::DeflateDecoder;
use std::collections::BTreeMap;
use std::io::Read;

const END_SIGNATURE: &[u8] = b"PK\x05\x06";
const ENTRY_SIGNATURE: &[u8] = b"PK\x01\x02";
const FILE_SIGNATURE: &[u8] = b"PK\x03\x04";
const END_BYTES: usize = 22;
const ENTRY_BYTES: usize = 46;
const FILE_BYTES: usize = 30;
/// The comment of an archive has a length of two bytes.
const COMMENT_BYTES_MAX: usize = 0xffff;
/// Directories may have entries of their own.
const ENTRIES_MAX: usize = 2 * FILES_MAX;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
const ENCRYPTED: u16 = 1;
const NAME_IS_UTF8: u16 = 1 << 11;
/// File types in the mode of an entry.
const TYPE_MASK: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
/// Made on Unix, so that the mode of an entry counts.
const MADE_BY: u16 = 3 << 8 | 20;
const VERSION: u16 = 20;
/// 1 January 1980, so that equal files are an equal archive.
const DATE: u16 = 1 << 5 | 1;
/// What the archiver of macOS adds.
const IGNORED: [&str; 2] = ["__MACOSX", ".DS_Store"];

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("not a ZIP archive, or a truncated one")]
    NotZip,
    #[error("archive is damaged: {0}")]
    Damaged(String),
    #[error("archive has {0} or more entries; at most {ENTRIES_MAX} are allowed")]
    TooManyEntries(usize),
    #[error("files in the archive have {0} bytes; at most {UPLOAD_BYTES_MAX} are allowed")]
    TooLarge(u64),
    #[error("archive uses {0}, which is not supported; use a plain ZIP archive")]
    Unsupported(&'static str),
    #[error("{0:?} is a link; a skill has regular files only")]
    Link(String),
    #[error("{0:?} is not a regular file")]
    NotRegular(String),
    #[error("the archive has a file name that is not UTF-8")]
    NameNotUtf8,
}

/// An entry of the central directory.
struct ZipEntry<'a> {
    name: &'a str,
    flags: u16,
    method: u16,
    crc: u32,
    compressed: usize,
    size: u64,
    /// The mode of the file, if the archive has it.
    mode: u32,
    offset: usize,
}

/// Where the central directory is.
struct CentralDirectory<'a> {
    bytes: &'a [u8],
    entries: usize,
    offset: usize,
}

/// The regular files of an archive, in its order.
pub(crate) fn read(archive: &[u8]) -> Result<Vec<(String, Vec<u8>)>, ArchiveError> {
    let directory = CentralDirectory::find(archive)?;
    let entries = directory.entries()?;
    let announced = entries.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.size));
    if announced > UPLOAD_BYTES_MAX {
        return Err(ArchiveError::TooLarge(announced));
    }
    let data = archive.get(..directory.offset).ok_or(ArchiveError::NotZip)?;
    let mut files = Vec::new();
    for entry in &entries {
        if !entry.is_directory()? && !entry.is_ignored() {
            files.push((entry.name.to_owned(), entry.content(data)?));
        }
    }
    Ok(files)
}

impl<'a> CentralDirectory<'a> {
    fn find(archive: &'a [u8]) -> Result<Self, ArchiveError> {
        let last = archive.len().checked_sub(END_BYTES).ok_or(ArchiveError::NotZip)?;
        let first = last.saturating_sub(COMMENT_BYTES_MAX);
        let is_end = |at: &usize| {
            let end = archive.get(*at..).unwrap_or_default();
            let comment = u16_at(end, 20).map(usize::from);
            end.starts_with(END_SIGNATURE) && comment == Some(end.len() - END_BYTES)
        };
        let at = (first..=last).rev().find(is_end).ok_or(ArchiveError::NotZip)?;
        let end = archive.get(at..).unwrap_or_default();
        let number = |offset| u16_at(end, offset).unwrap_or(u16::MAX);
        let place = |offset| u32_at(end, offset).unwrap_or(u32::MAX);
        let entries = usize::from(number(10));
        if entries > ENTRIES_MAX {
            return Err(ArchiveError::TooManyEntries(entries));
        }
        if number(4) != 0 || number(6) != 0 || number(8) != number(10) {
            return Err(ArchiveError::Unsupported("several volumes"));
        }
        let (size, offset) = (place(12) as usize, place(16) as usize);
        let bytes = offset.checked_add(size).filter(|end| *end <= at);
        let bytes = bytes.and_then(|end| archive.get(offset..end));
        let bytes = bytes.ok_or_else(|| damaged("its list of files is not where it says"))?;
        Ok(Self { bytes, entries, offset })
    }

    fn entries(&self) -> Result<Vec<ZipEntry<'a>>, ArchiveError> {
        let mut rest = self.bytes;
        let mut entries = Vec::with_capacity(self.entries);
        for _ in 0..self.entries {
            let (entry, after) = ZipEntry::read(rest)?;
            entries.push(entry);
            rest = after;
        }
        Ok(entries)
    }
}

impl<'a> ZipEntry<'a> {
    fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ArchiveError> {
        let cut = || damaged("its list of files is cut off");
        if !bytes.starts_with(ENTRY_SIGNATURE) || bytes.len() < ENTRY_BYTES {
            return Err(cut());
        }
        let short = |at| u16_at(bytes, at).ok_or_else(cut);
        let long = |at| u32_at(bytes, at).ok_or_else(cut);
        let name_end = ENTRY_BYTES + usize::from(short(28)?);
        let end = name_end + usize::from(short(30)?) + usize::from(short(32)?);
        let name = bytes.get(ENTRY_BYTES..name_end).ok_or_else(cut)?;
        let name = std::str::from_utf8(name).map_err(|_| ArchiveError::NameNotUtf8)?;
        let entry = Self {
            name,
            flags: short(8)?,
            method: short(10)?,
            crc: long(16)?,
            compressed: long(20)? as usize,
            size: u64::from(long(24)?),
            mode: long(38)? >> 16,
            offset: long(42)? as usize,
        };
        entry.check()?;
        Ok((entry, bytes.get(end..).ok_or_else(cut)?))
    }

    fn check(&self) -> Result<(), ArchiveError> {
        if self.flags & ENCRYPTED != 0 {
            return Err(ArchiveError::Unsupported("encryption"));
        }
        match self.mode & TYPE_MASK {
            LINK => Err(ArchiveError::Link(self.name.to_owned())),
            0 | REGULAR | DIRECTORY => Ok(()),
            _ => Err(ArchiveError::NotRegular(self.name.to_owned())),
        }
    }

    fn is_directory(&self) -> Result<bool, ArchiveError> {
        let by_name = self.name.ends_with('/');
        match (by_name, self.mode & TYPE_MASK) {
            (true, REGULAR) | (false, DIRECTORY) => {
                Err(damaged(&format!("{:?} is both a file and a directory", self.name)))
            }
            (true, _) if self.size > 0 => {
                Err(damaged(&format!("the directory {:?} has content", self.name)))
            }
            _ => Ok(by_name),
        }
    }

    fn is_ignored(&self) -> bool {
        self.name.split('/').any(|part| IGNORED.contains(&part))
    }

    /// The content, from the part of the archive before its list of files.
    fn content(&self, data: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        let damaged = |reason: &str| damaged(&format!("{:?}: {reason}", self.name));
        let file = data.get(self.offset..).unwrap_or_default();
        let (name, extra) = (u16_at(file, 26), u16_at(file, 28));
        let (Some(name), Some(extra)) = (name.map(usize::from), extra.map(usize::from)) else {
            return Err(damaged("its content is not where the list says"));
        };
        let start = FILE_BYTES + name + extra;
        let own_name = file.get(FILE_BYTES..FILE_BYTES + name);
        // Other programs go by this name, so that both must be one.
        if !file.starts_with(FILE_SIGNATURE) || own_name != Some(self.name.as_bytes()) {
            return Err(damaged("its content is not where the list says"));
        }
        let packed = start.checked_add(self.compressed).and_then(|end| file.get(start..end));
        let packed = packed.ok_or_else(|| damaged("its content is cut off"))?;
        let content = match self.method {
            STORED => packed.to_vec(),
            DEFLATED => inflate(packed, self.size).map_err(|error| damaged(&error.to_string()))?,
            _ => return Err(ArchiveError::Unsupported("a method other than deflate")),
        };
        let mut crc = Crc::new();
        crc.update(&content);
        if content.len() as u64 != self.size || crc.sum() != self.crc {
            return Err(damaged("its content is not what the list says"));
        }
        Ok(content)
    }
}

/// Inflates at most one byte more than announced, which shows that there is more.
fn inflate(packed: &[u8], announced: u64) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    DeflateDecoder::new(packed).take(announced + 1).read_to_end(&mut content)?;
    Ok(content)
}

fn damaged(reason: &str) -> ArchiveError {
    ArchiveError::Damaged(reason.to_owned())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

/// An archive of these files, uncompressed. Equal files are equal bytes.
pub(crate) fn write(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let offset = length(archive.len());
        let header = file_header(name, content);
        archive.extend_from_slice(FILE_SIGNATURE);
        archive.extend_from_slice(&header);
        archive.extend_from_slice(name.as_bytes());
        archive.extend_from_slice(content);
        directory.extend_from_slice(ENTRY_SIGNATURE);
        directory.extend_from_slice(&MADE_BY.to_le_bytes());
        directory.extend_from_slice(&header);
        // No comment, first volume, no internal attributes.
        directory.extend_from_slice(&[0; 6]);
        directory.extend_from_slice(&((REGULAR | 0o644) << 16).to_le_bytes());
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(name.as_bytes());
    }
    let (size, offset) = (length(directory.len()), length(archive.len()));
    let entries = u16::try_from(files.len()).unwrap_or(u16::MAX);
    archive.extend_from_slice(&directory);
    archive.extend_from_slice(END_SIGNATURE);
    archive.extend_from_slice(&[0; 4]);
    archive.extend_from_slice(&entries.to_le_bytes());
    archive.extend_from_slice(&entries.to_le_bytes());
    archive.extend_from_slice(&size.to_le_bytes());
    archive.extend_from_slice(&offset.to_le_bytes());
    archive.extend_from_slice(&[0; 2]);
    archive
}

/// The fields that the header of a file and its entry in the list share.
fn file_header(name: &str, content: &[u8]) -> Vec<u8> {
    let mut crc = Crc::new();
    crc.update(content);
    let size = length(content.len());
    let mut header = Vec::with_capacity(FILE_BYTES);
    for short in [VERSION, NAME_IS_UTF8, STORED, 0, DATE] {
        header.extend_from_slice(&short.to_le_bytes());
    }
    for long in [crc.sum(), size, size] {
        header.extend_from_slice(&long.to_le_bytes());
    }
    for short in [u16::try_from(name.len()).unwrap_or(u16::MAX), 0] {
        header.extend_from_slice(&short.to_le_bytes());
    }
    header
}

/// A skill is far smaller than the limit of the format.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn files(files: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    fn two() -> BTreeMap<String, Vec<u8>> {
        files(&[("SKILL.md", "text"), ("scripts/a.py", "print(1)")])
    }

    /// The archive with one byte string replaced, in all places.
    fn with(archive: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
        let mut bytes = archive.to_vec();
        for at in 0..=bytes.len() - old.len() {
            if bytes[at..].starts_with(old) {
                bytes[at..at + old.len()].copy_from_slice(new);
            }
        }
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let read: BTreeMap<_, _> = read(&write(&two())).unwrap().into_iter().collect();
        assert_eq!(read, two());
        assert!(super::read(&write(&BTreeMap::new())).unwrap().is_empty());
    }

    #[test]
    fn t245_a_link_in_an_archive_is_an_error() {
        let archive = write(&two());
        let mode = ((REGULAR | 0o644) << 16).to_le_bytes();
        let link = with(&archive, &mode, &((LINK | 0o777) << 16).to_le_bytes());
        assert!(matches!(read(&link), Err(ArchiveError::Link(_))));
        let device = with(&archive, &mode, &((0o020_000u32 | 0o644) << 16).to_le_bytes());
        assert!(matches!(read(&device), Err(ArchiveError::NotRegular(_))));
        let of_windows = with(&archive, &mode, &0u32.to_le_bytes());
        assert_eq!(read(&of_windows).unwrap().len(), 2);
    }

    #[test]
    fn t245_a_list_and_a_content_that_differ_are_an_error() {
        let archive = write(&two());
        let mut renamed = archive.clone();
        let first = archive.windows(8).position(|bytes| bytes == b"SKILL.md").unwrap();
        renamed[first] = b'X';
        assert!(matches!(read(&renamed), Err(ArchiveError::Damaged(_))));
        let content = with(&archive, b"print(1)", b"print(2)");
        assert!(matches!(read(&content), Err(ArchiveError::Damaged(_))));
        for bytes in [
            &b""[..],
            b"PK",
            &archive[..archive.len() - 1],
            b"no archive, but long enough to be one",
        ] {
            assert!(matches!(read(bytes), Err(ArchiveError::NotZip)));
        }
    }

    proptest! {
        #[test]
        fn t245_no_bytes_are_too_odd_to_be_answered(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut archive = write(&two());
            for (at, byte) in &changes {
                let at = at.index(archive.len());
                archive[at] = *byte;
            }
            archive.truncate(archive.len() - cut.index(8));
            if let Ok(files) = read(&archive) {
                let bytes: u64 = files.iter().map(|(_, content)| content.len() as u64).sum();
                prop_assert!(bytes <= UPLOAD_BYTES_MAX);
            }
        }
    }
}
