//! The directory in which environments live, and the promise that each is made once.
//!
//! ```text
//! <data>/environments/default-3f2a…/   what is mounted
//! <data>/environments/default-3f2a….json   its record, written last
//! <data>/environments/default@91bc…    link to it, named by what was asked for
//! <data>/environments/.default.lock    held by the process that builds
//! <data>/environments/.default.building-<pid>/
//! <data>/tools/uv-<version>/uv
//! <data>/cache/uv/
//! ```
//!
//! The name of a link is a digest of the request, which is known without looking at the machine:
//! that is why asking a second time starts no process. Whoever holds the lock owns every directory
//! that is being built under that name, so that one left by a dead process can be removed.

use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::builder::{self, Plan};
use crate::definition::{Definition, Name};
use crate::discovery::{self, Python};
use crate::environment::Environment;
use crate::error::BuildError;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::uv::UvSource;
use crate::view::LAYOUT;

/// 48 bits: there will never be a million environments on one machine.
const DIGEST_HEX: usize = 12;

/// Builds environments below one data directory, and finds those that are built.
#[derive(Debug)]
pub struct Environments {
    data: PathBuf,
    machine: Machine,
}

impl Environments {
    /// Uses `data`, made if need be, on the machine as its environment variables describe it.
    pub fn open(data: &Path) -> Result<Self, BuildError> {
        Self::open_on(data, Machine::from_env())
    }

    pub fn open_on(data: &Path, machine: Machine) -> Result<Self, BuildError> {
        let environments = data.join("environments");
        fs::create_dir_all(&environments).map_err(BuildError::files("making", &environments))?;
        let data = fs::canonicalize(data).map_err(BuildError::files("finding", data))?;
        Ok(Self { data, machine })
    }

    /// The environment of a definition, built now unless it was before.
    ///
    /// Without a named `python`, the newest that the definition accepts is taken, and stays taken
    /// for as long as it exists.
    pub fn ensure(
        &self,
        definition: &Definition,
        python: Option<&Path>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Environment, BuildError> {
        let link = self.link(definition, python);
        if let Some(environment) = self.recall(&link) {
            return Ok(environment);
        }
        let started = Instant::now();
        let _lock = self.lock(&definition.name, progress)?;
        // Whoever held the lock may have built what is wanted.
        if let Some(environment) = self.recall(&link) {
            return Ok(environment);
        }
        let python = self.choose_python(definition, python)?;
        progress(Progress::FoundPython { python: python.clone() });
        let plan = self.plan(definition, python);
        let directory = self.built_directory(&plan);
        let environment = match Environment::load(&directory) {
            Some(environment) => environment,
            None => self.build(&plan, directory, progress)?,
        };
        replace_link(&link, &environment.directory).map_err(BuildError::files("linking", &link))?;
        progress(Progress::Ready {
            directory: environment.directory.clone(),
            took: started.elapsed(),
        });
        Ok(environment)
    }

    /// Where uv would come from, should something have to be installed.
    pub fn uv(&self) -> UvSource {
        UvSource::find(&self.machine, &self.tools())
    }

    /// What an earlier request with the same link was given, if it is still good.
    fn recall(&self, link: &Path) -> Option<Environment> {
        let directory = self.environments().join(fs::read_link(link).ok()?);
        Environment::load(&directory).filter(|environment| environment.python.executable.exists())
    }

    fn choose_python(
        &self,
        definition: &Definition,
        named: Option<&Path>,
    ) -> Result<Python, BuildError> {
        let wanted = definition.python;
        let Some(path) = named else {
            let discovery = discovery::discover(&self.machine);
            return discovery.newest(&wanted).cloned().ok_or_else(|| BuildError::NoPython {
                name: definition.name.clone(),
                wanted,
                passed_over: discovery.skipped.len() + discovery.found.len(),
            });
        };
        let path = path.to_owned();
        let python = discovery::examine(&path, &self.machine)
            .map_err(|reason| BuildError::UnusablePython { path: path.clone(), reason })?;
        if wanted.contains(python.version) {
            return Ok(python);
        }
        let (name, version) = (definition.name.clone(), python.version);
        Err(BuildError::OtherPython { name, path, version, wanted })
    }

    fn plan<'a>(&'a self, definition: &'a Definition, python: Python) -> Plan<'a> {
        let mut hasher = hasher(definition);
        hasher.update(format!("{} {}", python.version, python.executable.display()));
        Plan {
            definition,
            python,
            digest: short_hex(hasher),
            machine: &self.machine,
            tools: self.tools(),
            cache: self.data.join("cache/uv"),
        }
    }

    /// Makes the environment aside and moves it to its place when it is whole.
    fn build(
        &self,
        plan: &Plan<'_>,
        directory: PathBuf,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Environment, BuildError> {
        let name = &plan.definition.name;
        self.remove_leftovers(name)
            .map_err(BuildError::files("removing old builds from", self.environments()))?;
        let building = Building::start(self.environments().join(format!(
            "{}{}",
            building_prefix(name),
            std::process::id()
        )))?;
        let environment = builder::build(plan, &building.directory, progress)?;
        sync(&building.directory).map_err(BuildError::files("saving", &building.directory))?;
        building.finish(&directory)?;
        let environment = Environment { directory, ..environment };
        environment
            .write_record()
            .map_err(BuildError::files("recording", &environment.directory))?;
        Ok(environment)
    }

    /// Removes what processes that were killed left behind. The lock is held, so nobody is
    /// building there.
    fn remove_leftovers(&self, name: &Name) -> io::Result<()> {
        let prefix = building_prefix(name);
        for entry in fs::read_dir(self.environments())? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// Held until it is dropped; the system drops it for a process that dies.
    fn lock(&self, name: &Name, progress: &mut dyn FnMut(Progress)) -> Result<File, BuildError> {
        let path = self.environments().join(format!(".{name}.lock"));
        let mut lock = || {
            let file = File::options().create(true).append(true).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    progress(Progress::Waiting);
                    file.lock()?;
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
            Ok(file)
        };
        lock().map_err(BuildError::files("locking", &path))
    }

    fn link(&self, definition: &Definition, python: Option<&Path>) -> PathBuf {
        let mut hasher = hasher(definition);
        hasher.update(format!("{python:?}"));
        self.environments().join(format!("{}@{}", definition.name, short_hex(hasher)))
    }

    fn built_directory(&self, plan: &Plan<'_>) -> PathBuf {
        self.environments().join(format!("{}-{}", plan.definition.name, plan.digest))
    }

    fn environments(&self) -> PathBuf {
        self.data.join("environments")
    }

    fn tools(&self) -> PathBuf {
        self.data.join("tools")
    }
}

/// A directory that is gone when it goes out of scope, unless it was finished.
struct Building {
    directory: PathBuf,
}

impl Building {
    fn start(directory: PathBuf) -> Result<Self, BuildError> {
        fs::create_dir(&directory).map_err(BuildError::files("making", &directory))?;
        Ok(Self { directory })
    }

    fn finish(self, place: &Path) -> Result<(), BuildError> {
        // One without a record is not an environment: its builder died between two steps.
        if place.exists() {
            fs::remove_dir_all(place).map_err(BuildError::files("removing", place))?;
        }
        open_to_all(&self.directory).map_err(BuildError::files("opening", &self.directory))?;
        fs::rename(&self.directory, place).map_err(BuildError::files("moving into place", place))
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        // After `finish` there is nothing to remove; after a failure the next build tries again.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Sandboxes run under other users than the one who built this, whatever his umask was.
fn open_to_all(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() {
        return Ok(());
    }
    let mode = found.permissions().mode();
    let wanted = mode | if mode & 0o100 == 0 { 0o444 } else { 0o555 };
    if wanted != mode {
        fs::set_permissions(path, Permissions::from_mode(wanted))?;
    }
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            open_to_all(&entry?.path())?;
        }
    }
    Ok(())
}

/// Names have no dot, so that no name is the beginning of another here.
fn building_prefix(name: &Name) -> String {
    format!(".{name}.building-")
}

fn hasher(definition: &Definition) -> Sha256 {
    let mut hasher = Sha256::new();
    hasher.update(LAYOUT.to_le_bytes());
    definition.hash_into(&mut hasher);
    hasher
}

fn short_hex(hasher: Sha256) -> String {
    let hex = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    hex[..DIGEST_HEX].to_owned()
}

/// Points `link` at its sibling `directory`, in one step for whoever reads it.
fn replace_link(link: &Path, directory: &Path) -> io::Result<()> {
    let aside = link.with_extension("new");
    if aside.is_symlink() {
        fs::remove_file(&aside)?;
    }
    symlink(directory.file_name().unwrap_or_default(), &aside)?;
    fs::rename(&aside, link)
}

/// A record that survives a power failure must not speak of files that did not.
fn sync(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(directory)?)?)
}
