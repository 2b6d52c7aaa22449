//! The files that a run produced with its code and its tools.

use types::{FileKind, OutputFile, SandboxId};

#[derive(Debug, Default)]
pub(crate) struct Artifacts {
    files: Vec<(Option<SandboxId>, OutputFile)>,
}

impl Artifacts {
    /// A data file that changed again in its sandbox replaces its earlier version; equal names in
    /// other sandboxes are other files. Every image is kept.
    pub(crate) fn add(&mut self, new: &[OutputFile], sandbox: Option<SandboxId>) {
        for file in new {
            self.files.retain(|(sandbox_of, known)| {
                let changed = known.kind == FileKind::Data && *sandbox_of == sandbox;
                !(known.name == file.name && (changed || known.sha256 == file.sha256))
            });
            self.files.push((sandbox, file.clone()));
        }
    }

    pub(crate) fn into_files(self) -> Vec<OutputFile> {
        self.files.into_iter().map(|(_, file)| file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn file(name: &str, sha256: &str, kind: FileKind) -> OutputFile {
        let (mime, url) = (String::new(), None);
        OutputFile { name: name.into(), mime, size: 1, sha256: sha256.into(), kind, url }
    }

    fn sandbox(number: u128) -> Option<SandboxId> {
        Some(SandboxId::new(Uuid::from_u128(number)))
    }

    fn listed(artifacts: Artifacts) -> Vec<(String, String)> {
        artifacts.into_files().into_iter().map(|file| (file.name, file.sha256)).collect()
    }

    fn expected(files: &[(&str, &str)]) -> Vec<(String, String)> {
        files.iter().map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned())).collect()
    }

    #[test]
    fn a_data_file_is_listed_once_as_it_is_now_and_every_picture_is() {
        let (mut artifacts, sandbox) = (Artifacts::default(), sandbox(1));
        let (first, second) =
            (file("a.csv", "1", FileKind::Data), file("a.csv", "4", FileKind::Data));
        artifacts.add(&[first, file("plot_0.png", "2", FileKind::Media)], sandbox);
        artifacts.add(&[file("plot_0.png", "3", FileKind::Media), second], sandbox);
        let all = [("plot_0.png", "2"), ("plot_0.png", "3"), ("a.csv", "4")];
        assert_eq!(listed(artifacts), expected(&all));
    }

    #[test]
    fn files_of_one_name_in_several_sandboxes_are_several_files() {
        let mut artifacts = Artifacts::default();
        for (hash, place) in [("0", 1), ("1", 1), ("2", 2), ("3", 3), ("3", 4)] {
            artifacts.add(&[file("a.csv", hash, FileKind::Data)], sandbox(place));
        }
        assert_eq!(listed(artifacts), expected(&[("a.csv", "1"), ("a.csv", "2"), ("a.csv", "3")]));
    }
}
