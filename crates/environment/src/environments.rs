//! The directory in which environments live, and the promise that each is made once.
//!
//! ```text
//! <data>/environments/default-3f2a…/   what is mounted
//! <data>/environments/default-3f2a….json   its record, written last
//! <data>/environments/default@91bc…    link to it, named by what was asked for
//! <data>/environments/.default.lock    held by the process that locks, builds or collects
//! <data>/environments/.default.building-<pid>/
//! <data>/tools/uv-<version>/uv
//! <data>/cache/uv/                     wheels, linked into environments, as bytecode is
//! <data>/cache/bytecode/, <data>/cache/fonts/
//! ```
//!
//! The name of a link is a digest of the request, which is known without looking at the machine:
//! that is why asking a second time starts no process. Whoever holds the lock owns every directory
//! that is being built under that name, so that one left by a dead process can be removed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use sha2::{Digest, Sha256};

use crate::builder::{self, BuildPlan};
use crate::definition::{Definition, Name};
use crate::definition_files::{DefinitionStamp, Definitions, Origin, Recipe};
use crate::discovery::PythonInstallation;
use crate::environment::{BuiltEnvironment, record_path};
use crate::error::BuildError;
use crate::host_settings::HostSettings;
use crate::lease::EnvironmentLease;
use crate::lock_resolver::LockResolver;
use crate::progress::Progress;
use crate::python_choice::{self, PythonChoice};
use crate::sandbox_paths::LAYOUT;
use crate::session_installer::SessionInstaller;
use crate::subprocess::CancelFlag;
use crate::unlocked_definition::UnlockedDefinition;
use crate::uv::UvSource;

/// 48 bits: there will never be a million environments on one machine.
const DIGEST_HEX: usize = 12;

/// Builds environments below one data directory, and finds those that are built.
#[derive(Debug)]
pub struct Environments {
    data: PathBuf,
    machine: HostSettings,
    definitions: Definitions,
}

/// An environment that somebody wants to have under a name of his own.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    pub draft: UnlockedDefinition,
    /// Made now where there is none.
    pub lock: Option<String>,
    pub python: Option<PythonChoice>,
}

/// What was ordered, built and not yet kept.
#[derive(Debug)]
pub struct PreparedEnvironment {
    pub recipe: Recipe,
    pub built: EnvironmentLease,
}

impl Environments {
    /// Uses `data`, made if need be, on the machine as its environment variables describe it.
    pub fn open(data: &Path) -> Result<Self, BuildError> {
        Self::open_on(data, HostSettings::from_env())
    }

    pub fn open_on(data: &Path, machine: HostSettings) -> Result<Self, BuildError> {
        let environments = data.join("environments");
        fs::create_dir_all(&environments).map_err(BuildError::files("making", &environments))?;
        let data = fs::canonicalize(data).map_err(BuildError::files("finding", data))?;
        Ok(Self { definitions: Definitions::new(&data), data, machine })
    }

    /// The environment of that name, whether it ships or was added.
    pub fn find(&self, name: &str) -> Result<Recipe, BuildError> {
        self.definitions.find(name)
    }

    /// The names of all that can be asked for: first those that ship.
    pub fn names(&self) -> Vec<String> {
        self.definitions.names()
    }

    /// Another one than before means that the definition of that name was replaced.
    pub fn stamp(&self, name: &str) -> Option<DefinitionStamp> {
        self.definitions.stamp(name)
    }

    /// The environment of a definition, built now unless it was before.
    ///
    /// Without a choice, the newest Python that the definition accepts is taken, and stays taken for
    /// as long as it exists.
    pub fn ensure(
        &self,
        definition: &Definition,
        python: Option<&PythonChoice>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EnvironmentLease, BuildError> {
        let link = self.link(definition, python);
        if let Some(environment) = self.find_built(&link) {
            return Ok(environment);
        }
        let started = Instant::now();
        let _hold = self.lock_name(&definition.name, progress)?;
        // Whoever held the lock may have built what is wanted.
        if let Some(environment) = self.find_built(&link) {
            return Ok(environment);
        }
        let python = python_choice::choose_python(
            &self.machine,
            &definition.name,
            definition.accepted_pythons(),
            python,
        )?;
        progress(Progress::FoundPython { python: python.clone() });
        let plan = self.plan(definition, python);
        let directory = self.built_directory(&plan);
        let environment = match EnvironmentLease::acquire(&directory) {
            Some(environment) => environment,
            None => self.build(&plan, &directory, progress)?,
        };
        replace_link(&link, &directory).map_err(BuildError::files("linking", &link))?;
        progress(Progress::Ready { directory, took: started.elapsed() });
        Ok(environment)
    }

    /// The exact packages of a draft, as the text of a lock. Nothing is kept or built.
    pub fn lock_packages(
        &self,
        draft: &UnlockedDefinition,
        python: Option<&PythonChoice>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<String, BuildError> {
        let name = draft.name();
        let _hold = self.lock_name(name, progress)?;
        let python =
            python_choice::choose_python(&self.machine, name, draft.definition.python, python)?;
        let building = self.start_building(name)?;
        self.lock_resolver(draft, &python).resolve_lock(&building.directory, progress)
    }

    /// That a lock which somebody brings is whole, unless it was built before.
    fn verify_lock(
        &self,
        draft: &UnlockedDefinition,
        definition: &Definition,
        python: Option<&PythonChoice>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), BuildError> {
        if self.find_built(&self.link(definition, python)).is_some() {
            return Ok(());
        }
        let name = draft.name();
        let _hold = self.lock_name(name, progress)?;
        let python = python_choice::choose_python(
            &self.machine,
            name,
            definition.accepted_pythons(),
            python,
        )?;
        let building = self.start_building(name)?;
        self.lock_resolver(draft, &python).verify(&definition.lock, &building.directory, progress)
    }

    fn lock_resolver<'a>(
        &'a self,
        draft: &'a UnlockedDefinition,
        python: &'a PythonInstallation,
    ) -> LockResolver<'a> {
        let (tools, cache) = (self.tools(), self.cache());
        LockResolver { draft, python, machine: &self.machine, tools, cache }
    }

    /// Locks and builds what was ordered. Its name stands for what it stood for before, until what is
    /// given here is kept.
    pub fn prepare(
        &self,
        order: &BuildRequest,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PreparedEnvironment, BuildError> {
        let (draft, python) = (&order.draft, &order.python);
        let name = draft.name();
        if self.definitions.is_built_in(name) {
            return Err(BuildError::Shipped { name: name.clone() });
        }
        let definition = match order.lock.as_ref().or(draft.lock.as_ref()) {
            Some(lock) => {
                let definition = draft.with_lock(lock)?;
                self.verify_lock(draft, &definition, python.as_ref(), progress)?;
                definition
            }
            None => draft.with_lock(&self.lock_packages(draft, python.as_ref(), progress)?)?,
        };
        let built = self.ensure(&definition, python.as_ref(), progress)?;
        let (python, toml) = (python.clone(), draft.toml.clone());
        let origin = Origin::of(&definition.name);
        let recipe = Recipe { definition, python, origin, toml };
        Ok(PreparedEnvironment { recipe, built })
    }

    /// From here on the name stands for this one, until the definition has another stamp.
    pub fn save_definition(&self, recipe: &Recipe) -> Result<DefinitionStamp, BuildError> {
        self.definitions.save(recipe)
    }

    /// Removes what was prepared and will not be kept, unless its name stands for it already.
    pub fn discard_build(&self, recipe: &Recipe) -> Result<(), BuildError> {
        let name = &recipe.definition.name;
        let _hold = self.lock_name(name, &mut |_| ())?;
        let link = self.link(&recipe.definition, recipe.python.as_ref());
        let removed = fs::read_link(&link)
            .and_then(|built| self.remove_build_unless_needed(name, &self.directory().join(built)));
        removed.map_err(BuildError::files("removing environments from", self.directory()))
    }

    /// Forgets the definition of that name, unless it ships, and removes what was built of it, unless
    /// it is in use: that goes later, with [`Environments::collect`].
    pub fn remove(&self, name: &str) -> Result<(), BuildError> {
        // Whatever its definition says: one that cannot be read any more has to go as well.
        let name = self.definitions.known_name(name)?;
        let _hold = self.lock_name(&name, &mut |_| ())?;
        if !self.definitions.is_built_in(&name) {
            self.definitions.remove(&name)?;
        }
        self.remove_builds(&name)
            .map_err(BuildError::files("removing environments from", self.directory()))
    }

    /// Forgets a definition of which nothing is built any more.
    pub(crate) fn remove_definition(&self, name: &Name) -> io::Result<()> {
        self.definitions.delete_file(name)
    }

    /// What a recipe was built to, if it was, and when that was last used.
    pub fn built(
        &self,
        recipe: &Recipe,
        usual_python: Option<&PythonChoice>,
    ) -> Option<(BuiltEnvironment, SystemTime)> {
        let link = self.link(&recipe.definition, recipe.python.as_ref().or(usual_python));
        let directory = self.directory().join(fs::read_link(link).ok()?);
        let last_used = fs::metadata(record_path(&directory)).ok()?.modified().ok()?;
        Some((BuiltEnvironment::load(&directory)?, last_used))
    }

    /// For sessions of an environment that is built. What is under way ends when it is given up.
    pub fn session_installer<'a>(
        &self,
        environment: &'a BuiltEnvironment,
        give_up: CancelFlag,
    ) -> SessionInstaller<'a> {
        let (tools, cache) = (self.tools(), self.cache());
        SessionInstaller {
            environment,
            machine: self.machine.clone(),
            tools,
            cache,
            cancel: give_up,
        }
    }

    /// Whether somebody is making the environment of that name now. Others may look at the same time.
    pub fn is_building(&self, name: &Name) -> bool {
        let held = File::open(self.lock_path(name)).map(|file| file.try_lock_shared());
        matches!(held, Ok(Err(TryLockError::WouldBlock)))
    }

    /// Where uv would come from, should something have to be installed.
    pub fn uv_source(&self) -> UvSource {
        UvSource::find(&self.machine, &self.tools())
    }

    /// What an earlier request with the same link was given, if it is still good.
    fn find_built(&self, link: &Path) -> Option<EnvironmentLease> {
        let directory = self.directory().join(fs::read_link(link).ok()?);
        EnvironmentLease::acquire(&directory)
            .filter(|environment| environment.python.executable.exists())
    }

    fn plan<'a>(&'a self, definition: &'a Definition, python: PythonInstallation) -> BuildPlan<'a> {
        let mut hasher = hasher(definition);
        hasher.update(format!("{} {}", python.version, python.executable.display()));
        BuildPlan {
            definition,
            python,
            digest: short_hex(hasher),
            machine: &self.machine,
            tools: self.tools(),
            cache: self.cache(),
            bytecode: self.caches().join("bytecode"),
            fonts: self.caches().join("fonts"),
        }
    }

    /// Makes the environment aside and moves it to its place when it is whole.
    fn build(
        &self,
        plan: &BuildPlan<'_>,
        directory: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EnvironmentLease, BuildError> {
        let building = self.start_building(&plan.definition.name)?;
        let environment = builder::build(plan, &building.directory, progress)?;
        sync(&building.directory).map_err(BuildError::files("saving", &building.directory))?;
        building.finish(directory)?;
        let recorded = BuildError::files("recording", directory);
        let environment = BuiltEnvironment { directory: directory.to_owned(), ..environment };
        environment.write_record().map_err(recorded)?;
        // The name is held, so nobody can have removed it since.
        let vanished = || io::Error::from(io::ErrorKind::NotFound);
        EnvironmentLease::acquire(directory)
            .ok_or_else(vanished)
            .map_err(BuildError::files("using", directory))
    }

    fn start_building(&self, name: &Name) -> Result<BuildDirectory, BuildError> {
        self.remove_leftovers(name)
            .map_err(BuildError::files("removing old builds from", self.directory()))?;
        let own = format!("{}{}", building_prefix(name), std::process::id());
        BuildDirectory::start(self.directory().join(own))
    }

    /// Held until it is dropped; the system drops it for a process that dies.
    fn lock_name(
        &self,
        name: &Name,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<File, BuildError> {
        let mut hold = || {
            if let Some(held) = self.try_lock_name(name)? {
                return Ok(held);
            }
            progress(Progress::Waiting);
            let file = self.lock_file(name)?;
            file.lock()?;
            Ok(file)
        };
        hold().map_err(BuildError::files("locking an environment in", self.directory()))
    }

    /// `None` if somebody else holds it.
    pub(crate) fn try_lock_name(&self, name: &Name) -> io::Result<Option<File>> {
        let file = self.lock_file(name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn lock_file(&self, name: &Name) -> io::Result<File> {
        File::options().create(true).append(true).open(self.lock_path(name))
    }

    fn lock_path(&self, name: &Name) -> PathBuf {
        self.directory().join(format!(".{name}.lock"))
    }

    fn link(&self, definition: &Definition, python: Option<&PythonChoice>) -> PathBuf {
        let mut name = link_prefix(definition);
        if let Some(python) = python {
            let mut hasher = Sha256::new();
            hasher.update(python.to_string());
            name = format!("{name}-{}", short_hex(hasher));
        }
        self.directory().join(name)
    }

    fn built_directory(&self, plan: &BuildPlan<'_>) -> PathBuf {
        self.directory().join(format!("{}-{}", plan.definition.name, plan.digest))
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.data.join("environments")
    }

    fn tools(&self) -> PathBuf {
        self.data.join("tools")
    }

    pub(crate) fn caches(&self) -> PathBuf {
        self.data.join("cache")
    }

    fn cache(&self) -> PathBuf {
        self.caches().join("uv")
    }
}

/// A directory that is gone when it goes out of scope, unless it was finished.
struct BuildDirectory {
    directory: PathBuf,
}

impl BuildDirectory {
    fn start(directory: PathBuf) -> Result<Self, BuildError> {
        fs::create_dir(&directory).map_err(BuildError::files("making", &directory))?;
        Ok(Self { directory })
    }

    fn finish(self, place: &Path) -> Result<(), BuildError> {
        // One without a record is not an environment: its builder died between two steps.
        if place.exists() {
            fs::remove_dir_all(place).map_err(BuildError::files("removing", place))?;
        }
        fs::rename(&self.directory, place).map_err(BuildError::files("moving into place", place))
    }
}

impl Drop for BuildDirectory {
    fn drop(&mut self) {
        // After `finish` there is nothing to remove; after a failure the next build tries again.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The links to what a definition was built to begin so, whichever Python was asked for.
pub(crate) fn link_prefix(definition: &Definition) -> String {
    format!("{}@{}", definition.name, short_hex(hasher(definition)))
}

/// Names have no dot, so that no name is the beginning of another here.
pub(crate) fn building_prefix(name: &Name) -> String {
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
