//! Removes what is no longer needed: environments that were replaced or not used for long, remains
//! of killed builders, and old cache entries.
//!
//! It removes nothing that is in use or being built. A removed directory stops being an environment
//! before the first of its files is deleted.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::cache_pruning::prune;
use crate::definition::Name;
use crate::definition_files::Origin;
use crate::environment::{BuiltEnvironment, record_path};
use crate::environments::{Environments, building_prefix, link_prefix};
use crate::error::BuildError;
use crate::lease::ExclusiveLock;

/// For a replaced environment: another release of Belljar with the same data may still use it.
const REPLACED_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// For a shipped or derived environment, which can be rebuilt at any time.
const REBUILDABLE_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Maximum time that a child process of a killed builder may still write, and how often to check.
const LAST_WRITES_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// The builds that the current definition of a name still needs.
struct NeededBuilds {
    directories: BTreeSet<PathBuf>,
    origin: Option<Origin>,
}

impl NeededBuilds {
    /// Maximum time that a directory may stay unused; `None` is for ever.
    fn retention(&self, directory: &Path) -> Option<Duration> {
        match (self.directories.contains(directory), self.origin) {
            (false, _) => Some(REPLACED_RETENTION),
            (true, Some(Origin::Shipped | Origin::Derived)) => Some(REBUILDABLE_RETENTION),
            (true, _) => None,
        }
    }
}

impl Environments {
    /// Removes unneeded builds, and returns the names of the removed directories.
    pub fn remove_unused(&self, now: SystemTime) -> Result<Vec<String>, BuildError> {
        let collected = || {
            let mut removed = Vec::new();
            for name in self.names_on_disk()? {
                // If the name is locked, its builder cleans up by itself.
                if let Some(_hold) = self.try_lock_name(&name)? {
                    self.remove_unused_builds(&name, now, &mut removed)?;
                }
            }
            prune(&self.caches(), now)?;
            Ok(removed)
        };
        collected().map_err(BuildError::files("collecting environments in", self.directory()))
    }

    /// Removes all builds of a name, except those in use.
    pub(crate) fn remove_builds(&self, name: &Name) -> io::Result<()> {
        for directory in self.builds(name)? {
            if let Some(_alone) = ExclusiveLock::try_acquire(&directory)? {
                remove_build(&directory)?;
            }
        }
        self.remove_dangling_links(name)
    }

    /// Removes one build of a name, unless the name refers to it or it is in use.
    pub(crate) fn remove_build_unless_needed(
        &self,
        name: &Name,
        directory: &Path,
    ) -> io::Result<()> {
        if self.needed_builds(name)?.directories.contains(directory) {
            return Ok(());
        }
        if let Some(_alone) = ExclusiveLock::try_acquire(directory)? {
            remove_build(directory)?;
        }
        self.remove_dangling_links(name)
    }

    fn remove_unused_builds(
        &self,
        name: &Name,
        now: SystemTime,
        removed: &mut Vec<String>,
    ) -> io::Result<()> {
        self.remove_leftovers(name)?;
        let needed = self.needed_builds(name)?;
        for directory in self.builds(name)? {
            let Some(alone) = ExclusiveLock::try_acquire(&directory)? else { continue };
            let idle = alone.idle_time(now)?;
            let whole = BuiltEnvironment::load(&directory).is_some();
            if !whole || needed.retention(&directory).is_some_and(|retention| idle > retention) {
                remove_build(&directory)?;
                removed.extend(directory.file_name().map(|it| it.to_string_lossy().into_owned()));
            }
        }
        if needed.origin == Some(Origin::Derived) && self.builds(name)?.is_empty() {
            self.remove_definition(name)?;
        }
        self.remove_dangling_links(name)
    }

    fn needed_builds(&self, name: &Name) -> io::Result<NeededBuilds> {
        let recipe = match self.find(name.as_str()) {
            Ok(recipe) => Some(recipe),
            Err(BuildError::Unknown { .. }) => None,
            // The definition is unreadable, so every build may be needed.
            Err(_) => {
                let directories = self.builds(name)?.into_iter().collect();
                return Ok(NeededBuilds { directories, origin: Some(Origin::Custom) });
            }
        };
        let Some(recipe) = recipe else {
            return Ok(NeededBuilds { directories: BTreeSet::new(), origin: None });
        };
        let prefix = link_prefix(&recipe.definition);
        let links = self.entries(&prefix)?.into_iter();
        let directories =
            links.filter_map(|link| Some(self.directory().join(fs::read_link(link).ok()?)));
        Ok(NeededBuilds { directories: directories.collect(), origin: Some(recipe.origin) })
    }

    /// The directories of a name, complete or not.
    fn builds(&self, name: &Name) -> io::Result<Vec<PathBuf>> {
        let mut builds = self.entries(&format!("{name}-"))?;
        builds.retain(|path| path.is_dir() && built_name(path).as_ref() == Some(name));
        Ok(builds)
    }

    fn names_on_disk(&self) -> io::Result<BTreeSet<Name>> {
        let entries = self.entries("")?;
        Ok(entries
            .iter()
            .filter_map(|path| built_name(path).or_else(|| leftover_name(path)))
            .collect())
    }

    fn remove_dangling_links(&self, name: &Name) -> io::Result<()> {
        let links = self.entries(&format!("{name}@"))?;
        links.iter().filter(|link| !link.exists()).try_for_each(fs::remove_file)
    }

    /// Removes the remains of killed processes. The caller holds the lock of the name, so no build
    /// runs.
    pub(crate) fn remove_leftovers(&self, name: &Name) -> io::Result<()> {
        self.entries(&building_prefix(name))?.iter().try_for_each(|left| remove_directory(left))
    }

    /// All entries with this prefix.
    fn entries(&self, prefix: &str) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.directory())? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }
}

/// The compiler of a killed builder notices that only after its current file.
fn remove_directory(directory: &Path) -> io::Result<()> {
    let deadline = Instant::now() + LAST_WRITES_TIMEOUT;
    loop {
        match fs::remove_dir_all(directory) {
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty
                    && Instant::now() < deadline =>
            {
                thread::sleep(RETRY_DELAY);
            }
            removed => return removed,
        }
    }
}

/// Deletes the record first: without it, the rest is no usable environment.
fn remove_build(directory: &Path) -> io::Result<()> {
    match fs::remove_file(record_path(directory)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::remove_dir_all(directory)
}

/// `a-b` of `a-b-0123456789ab`.
fn built_name(path: &Path) -> Option<Name> {
    let (name, digest) = path.file_name()?.to_str()?.rsplit_once('-')?;
    let is_digest = digest.chars().all(|c| c.is_ascii_hexdigit());
    is_digest.then(|| Name::try_from(name.to_owned()).ok())?
}

/// `a-b` of `.a-b.building-123`.
fn leftover_name(path: &Path) -> Option<Name> {
    let (name, _) = path.file_name()?.to_str()?.strip_prefix('.')?.split_once(".building-")?;
    Name::try_from(name.to_owned()).ok()
}
