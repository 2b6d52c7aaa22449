//! The setup of a test: a separate data directory, and a host with the given settings.

#![allow(clippy::allow_attributes, reason = "whether it is dead depends on the test binary")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use belljar_environment::{
    BuildError, Definition, EnvironmentLease, Environments, HostSettings, IndexUrl, Progress,
    PythonInstallation, discover,
};
use tempfile::TempDir;

/// One small pure wheel that contains a program.
const SMALL: &str = r#"
    name = "small"
    python = ">=3.11"
    packages = ["tabulate"]
    preload = ["tabulate"]
"#;
const SMALL_LOCK: &str = "tabulate==0.9.0 \
    --hash=sha256:024ca478df22e9340661486f85298cff5f6dcdba14f3813e8830015b9ed1948f";

/// No process listens on the discard port.
pub(crate) const CLOSED_INDEX: &str = "http://127.0.0.1:9/simple";

pub(crate) struct World {
    pub(crate) data: TempDir,
    pub(crate) machine: HostSettings,
}

impl World {
    /// The actual host, but with the uv that Belljar would download.
    pub(crate) fn new() -> Self {
        let mut world = Self::without_uv();
        world.machine.search_path.push(fetched_uv().to_owned());
        world
    }

    pub(crate) fn without_uv() -> Self {
        let mut machine = HostSettings::from_env();
        machine.search_path.retain(|directory| !directory.join("uv").exists());
        Self { data: TempDir::new().unwrap(), machine }
    }

    /// Puts its data into memory, where syncing is fast.
    pub(crate) fn in_memory(self) -> Self {
        Self { data: TempDir::new_in("/dev/shm").unwrap(), ..self }
    }

    /// A host whose uv is this shell script, which may use `$PREFIX`.
    pub(crate) fn with_fake_uv(script: &str) -> Self {
        let mut world = Self::without_uv();
        world.add_fake_uv(script);
        world
    }

    fn add_fake_uv(&mut self, script: &str) {
        let bin = self.data.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let program = bin.join("uv");
        let version = "[ \"$1\" = --version ] && { echo uv 99.0.0; exit; }";
        fs::write(&program, format!("#!/bin/sh\n{version}\n{script}\n")).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        self.machine.search_path.insert(0, bin);
    }

    pub(crate) fn without_network(mut self) -> Self {
        self.machine.index = IndexUrl::new(CLOSED_INDEX);
        self
    }

    pub(crate) fn environments(&self) -> Environments {
        Environments::open_on(self.data.path(), self.machine.clone()).unwrap()
    }

    pub(crate) fn ensure(&self, definition: &Definition) -> Result<EnvironmentLease, BuildError> {
        self.environments().ensure(definition, None, &mut |_| ())
    }

    /// The reported progress, and the result.
    pub(crate) fn watch(
        &self,
        definition: &Definition,
    ) -> (Vec<Progress>, Result<EnvironmentLease, BuildError>) {
        let mut events = Vec::new();
        let ended = self.environments().ensure(definition, None, &mut |event| events.push(event));
        (events, ended)
    }

    /// The visible and hidden names in the directory of environments, without the lock files.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.data.path().join("environments"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.ends_with(".lock"))
            .collect();
        names.sort();
        names
    }
}

pub(crate) fn small() -> Definition {
    Definition::parse(SMALL, SMALL_LOCK).unwrap()
}

pub(crate) fn small_under_another_name() -> Definition {
    Definition::parse(&SMALL.replace("small", "other"), SMALL_LOCK).unwrap()
}

/// A lock with a hash that the index does not have.
pub(crate) fn small_with_a_wrong_hash() -> Definition {
    Definition::parse(SMALL, &SMALL_LOCK.replace("024ca4", "000000")).unwrap()
}

pub(crate) fn bare() -> Definition {
    Definition::built_in("bare").unwrap()
}

pub(crate) fn pythons() -> Vec<PythonInstallation> {
    let found = discover(&HostSettings::from_env()).found;
    assert!(!found.is_empty(), "these tests need a CPython >= 3.11 on the machine");
    found
}

/// The directory of a uv that was downloaded once for all tests of this process.
fn fetched_uv() -> &'static Path {
    static FETCHED: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, directory) = FETCHED.get_or_init(|| {
        let world = World::without_uv();
        world.ensure(&small()).unwrap();
        let tools = world.data.path().join("tools");
        let directory = fs::read_dir(tools).unwrap().next().unwrap().unwrap().path();
        (world.data, directory)
    });
    directory
}

/// All regular files and directories below, without following links.
pub(crate) fn visit_files(directory: &Path, visit: &mut impl FnMut(&Path, fs::Metadata)) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        let is_directory = metadata.is_dir();
        if !metadata.is_symlink() {
            visit(&path, metadata);
        }
        if is_directory {
            visit_files(&path, visit);
        }
    }
}
