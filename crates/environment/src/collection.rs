//! Removing what nobody needs any more: environments that were replaced, that were not used for long,
//! what builders left that were killed, and what the caches have kept for too long.
//!
//! Nothing is removed that somebody uses, or that is just being built. What is removed stops being an
//! environment before the first of its files goes.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::definition::Name;
use crate::environment::{Environment, record_of};
use crate::environments::{Environments, building_prefix, link_prefix};
use crate::error::BuildError;
use crate::in_use::Alone;
use crate::library::Origin;
use crate::pruning::prune;

/// One that was replaced: another release of Belljar in the same place may still build on it.
const REPLACED_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// One that ships, or that was made for a need, and that can be made again at any time.
const MADE_AGAIN_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How long a process may still write for a builder that was killed, and how often that is looked at.
const LAST_WRITES: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(50);

/// What the present definition of a name still needs.
struct Needed {
    directories: BTreeSet<PathBuf>,
    origin: Option<Origin>,
}

impl Needed {
    /// How long a directory may stay without being used; `None` is for ever.
    fn kept(&self, directory: &Path) -> Option<Duration> {
        match (self.directories.contains(directory), self.origin) {
            (false, _) => Some(REPLACED_KEPT),
            (true, Some(Origin::Shipped | Origin::Needed)) => Some(MADE_AGAIN_KEPT),
            (true, _) => None,
        }
    }
}

impl Environments {
    /// Removes what nobody needs, and gives the names of the directories that are gone.
    pub fn collect(&self, now: SystemTime) -> Result<Vec<String>, BuildError> {
        let collected = || {
            let mut gone = Vec::new();
            for name in self.names_on_disk()? {
                // Whoever builds it will leave it as it should be.
                if let Some(_hold) = self.try_hold(&name)? {
                    self.collect_named(&name, now, &mut gone)?;
                }
            }
            prune(&self.caches(), now)?;
            Ok(gone)
        };
        collected().map_err(BuildError::files("collecting environments in", self.directory()))
    }

    /// Removes whatever was built under a name, but for what is in use.
    pub(crate) fn discard(&self, name: &Name) -> io::Result<()> {
        for directory in self.builds(name)? {
            if let Some(_alone) = Alone::with(&directory)? {
                remove(&directory)?;
            }
        }
        self.remove_dangling(name)
    }

    /// Removes one build of a name, unless that stands for it or somebody uses it.
    pub(crate) fn remove_unneeded(&self, name: &Name, directory: &Path) -> io::Result<()> {
        if self.needed(name)?.directories.contains(directory) {
            return Ok(());
        }
        if let Some(_alone) = Alone::with(directory)? {
            remove(directory)?;
        }
        self.remove_dangling(name)
    }

    fn collect_named(
        &self,
        name: &Name,
        now: SystemTime,
        gone: &mut Vec<String>,
    ) -> io::Result<()> {
        self.remove_leftovers(name)?;
        let needed = self.needed(name)?;
        for directory in self.builds(name)? {
            let Some(alone) = Alone::with(&directory)? else { continue };
            let idle = alone.idle(now)?;
            let whole = Environment::load(&directory).is_some();
            if !whole || needed.kept(&directory).is_some_and(|kept| idle > kept) {
                remove(&directory)?;
                gone.extend(directory.file_name().map(|it| it.to_string_lossy().into_owned()));
            }
        }
        if needed.origin == Some(Origin::Needed) && self.builds(name)?.is_empty() {
            self.forget(name)?;
        }
        self.remove_dangling(name)
    }

    fn needed(&self, name: &Name) -> io::Result<Needed> {
        let recipe = match self.find(name.as_str()) {
            Ok(recipe) => Some(recipe),
            Err(BuildError::Unknown { .. }) => None,
            // Nobody knows what it says, so all of it may be needed.
            Err(_) => {
                let directories = self.builds(name)?.into_iter().collect();
                return Ok(Needed { directories, origin: Some(Origin::Own) });
            }
        };
        let Some(recipe) = recipe else {
            return Ok(Needed { directories: BTreeSet::new(), origin: None });
        };
        let prefix = link_prefix(&recipe.definition);
        let links = self.entries(&prefix)?.into_iter();
        let directories =
            links.filter_map(|link| Some(self.directory().join(fs::read_link(link).ok()?)));
        Ok(Needed { directories: directories.collect(), origin: Some(recipe.origin) })
    }

    /// The directories of a name, whole or not.
    fn builds(&self, name: &Name) -> io::Result<Vec<PathBuf>> {
        let mut builds = self.entries(&format!("{name}-"))?;
        builds.retain(|path| path.is_dir() && built_name(path).as_ref() == Some(name));
        Ok(builds)
    }

    fn names_on_disk(&self) -> io::Result<BTreeSet<Name>> {
        let entries = self.entries("")?;
        Ok(entries.iter().filter_map(|path| built_name(path).or_else(|| left_name(path))).collect())
    }

    fn remove_dangling(&self, name: &Name) -> io::Result<()> {
        let links = self.entries(&format!("{name}@"))?;
        links.iter().filter(|link| !link.exists()).try_for_each(fs::remove_file)
    }

    /// Removes what processes that were killed left behind. The name is held, so nobody is
    /// building there.
    pub(crate) fn remove_leftovers(&self, name: &Name) -> io::Result<()> {
        self.entries(&building_prefix(name))?.iter().try_for_each(|left| remove_whole(left))
    }

    /// All that begins so.
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

/// The compiler of a builder that was killed notices it after the file that it has in hand.
fn remove_whole(directory: &Path) -> io::Result<()> {
    let deadline = Instant::now() + LAST_WRITES;
    loop {
        match fs::remove_dir_all(directory) {
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty
                    && Instant::now() < deadline =>
            {
                thread::sleep(AGAIN);
            }
            removed => return removed,
        }
    }
}

/// The record goes first: without it, what is left is nothing that could be used.
fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_file(record_of(directory)) {
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
fn left_name(path: &Path) -> Option<Name> {
    let (name, _) = path.file_name()?.to_str()?.strip_prefix('.')?.split_once(".building-")?;
    Name::try_from(name.to_owned()).ok()
}
