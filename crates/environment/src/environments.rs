//! The directory of environments, which builds each environment once.
//!
//! ```text
//! <data>/environments/default-3f2a…/   the directory that is mounted
//! <data>/environments/default-3f2a….json   its record, written last
//! <data>/environments/default@91bc…    link to it, named by a digest of the request
//! <data>/environments/.default.lock    held by the process that locks, builds or collects
//! <data>/environments/.default.building-<pid>/
//! <data>/tools/uv-<version>/uv
//! <data>/pythons/                      Pythons that the host lacks, from uv
//! <data>/cache/uv/                     wheels, linked into environments, as bytecode is
//! <data>/cache/bytecode/, <data>/cache/fonts/
//! ```
//!
//! The name of a link is a digest of the request, which does not depend on the host. A second
//! request therefore starts no process. The holder of the lock owns every staging directory of that
//! name, so it can remove one that a dead process left.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use sha2::{Digest, Sha256};

use crate::builder::{self, BuildPlan};
use crate::definition::{Definition, Name};
use crate::definition_files::{DefinitionStamp, Definitions, Origin, Recipe};
use crate::discovery::{self, PythonInstallation};
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
use crate::uv::{Uv, UvSource};

/// 48 bits: no host will ever have a million environments.
const DIGEST_HEX: usize = 12;

/// Builds environments below one data directory, and finds those that are built.
#[derive(Debug)]
pub struct Environments {
    data: PathBuf,
    machine: HostSettings,
    definitions: Definitions,
}

/// A request to build an environment under a given name.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    pub draft: UnlockedDefinition,
    /// If absent, the packages are locked now.
    pub lock: Option<String>,
    pub python: Option<PythonChoice>,
}

/// An environment that is built but not yet saved under its name.
#[derive(Debug)]
pub struct PreparedEnvironment {
    pub recipe: Recipe,
    pub built: EnvironmentLease,
}

impl Environments {
    /// Uses `data`, created if necessary, with the host settings of the environment variables.
    pub fn open(data: &Path) -> Result<Self, BuildError> {
        Self::open_on(data, HostSettings::from_env())
    }

    pub fn open_on(data: &Path, machine: HostSettings) -> Result<Self, BuildError> {
        let environments = data.join("environments");
        fs::create_dir_all(&environments).map_err(BuildError::files("creating", &environments))?;
        let data = fs::canonicalize(data).map_err(BuildError::files("finding", data))?;
        let managed_pythons = Some(data.join("pythons"));
        let machine = HostSettings { managed_pythons, ..machine };
        Ok(Self { definitions: Definitions::new(&data), data, machine })
    }

    /// The environment of that name, whether it ships or was added.
    pub fn find(&self, name: &str) -> Result<Recipe, BuildError> {
        self.definitions.find(name)
    }

    /// The names of all environments: first those that ship.
    pub fn names(&self) -> Vec<String> {
        self.definitions.names()
    }

    /// Changes when the definition of that name is replaced.
    pub fn stamp(&self, name: &str) -> Option<DefinitionStamp> {
        self.definitions.stamp(name)
    }

    /// Returns the environment of a definition, and builds it if necessary.
    ///
    /// Without a choice it takes the newest Python that the definition accepts, and keeps it for as
    /// long as that Python exists.
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
        // The previous holder of the lock may have built it.
        if let Some(environment) = self.find_built(&link) {
            return Ok(environment);
        }
        let python = self.python_for(definition, python, progress)?;
        progress(Progress::FoundPython { python: python.clone() });
        let plan = self.plan(definition, python);
        let directory = self.built_directory(&plan);
        let environment = match EnvironmentLease::acquire(&directory) {
            Some(environment) => environment,
            None => self.build(&plan, &directory, progress)?,
        };
        replace_link(&link, &directory).map_err(BuildError::files("linking", &link))?;
        progress(Progress::Ready { directory, elapsed: started.elapsed() });
        Ok(environment)
    }

    /// The Python for a definition. If the host has none that it accepts, and the request names none,
    /// uv provides one.
    fn python_for(
        &self,
        definition: &Definition,
        choice: Option<&PythonChoice>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PythonInstallation, BuildError> {
        let (name, required) = (&definition.name, definition.accepted_pythons());
        let choose = || python_choice::choose_python(&self.machine, name, required, choice);
        let missing = match choose() {
            Err(missing @ BuildError::NoPython { .. }) => missing,
            chosen => return chosen,
        };
        // uv needs a Python to be downloaded with.
        let any = discovery::discover(&self.machine).found.into_iter().next();
        let (Some(directory), Some(any)) = (&self.machine.managed_pythons, any) else {
            return Err(missing);
        };
        if choice.is_some() || self.machine.offline {
            return Err(missing);
        }
        progress(Progress::FetchingPython { required });
        let fetched = Uv::obtain(&self.machine, &self.tools(), &any.executable, progress)
            .map_err(|error| error.to_string())
            .and_then(|uv| uv.install_python(required, directory, &self.cache(), &self.machine));
        fetched.map_err(|cause| BuildError::PythonNotFetched {
            name: name.clone(),
            required,
            cause,
        })?;
        choose()
    }

    /// Resolves the exact packages of a definition to the text of a lock. Saves and builds nothing.
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

    /// Verifies that a lock from a user is complete, unless it was built before.
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

    /// Locks and builds the requested environment. Its name keeps referring to the previous one
    /// until the result is saved.
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

    /// Points the name to this environment, until the definition is replaced again.
    pub fn save_definition(&self, recipe: &Recipe) -> Result<DefinitionStamp, BuildError> {
        self.definitions.save(recipe)
    }

    /// Removes a prepared build that will not be saved, unless its name refers to it already.
    pub fn discard_build(&self, recipe: &Recipe) -> Result<(), BuildError> {
        let name = &recipe.definition.name;
        let _hold = self.lock_name(name, &mut |_| ())?;
        let link = self.link(&recipe.definition, recipe.python.as_ref());
        let removed = fs::read_link(&link)
            .and_then(|built| self.remove_build_unless_needed(name, &self.directory().join(built)));
        removed.map_err(BuildError::files("removing environments from", self.directory()))
    }

    /// Removes the definition of that name, unless it ships, and its builds, unless they are in
    /// use: [`Environments::remove_unused`] removes those later.
    pub fn remove(&self, name: &str) -> Result<(), BuildError> {
        // Does not parse the definition: an unreadable one must be removable as well.
        let name = self.definitions.known_name(name)?;
        let _hold = self.lock_name(&name, &mut |_| ())?;
        if !self.definitions.is_built_in(&name) {
            self.definitions.remove(&name)?;
        }
        self.remove_builds(&name)
            .map_err(BuildError::files("removing environments from", self.directory()))
    }

    /// Removes a definition without builds.
    pub(crate) fn remove_definition(&self, name: &Name) -> io::Result<()> {
        self.definitions.delete_file(name)
    }

    /// The build of a recipe, if there is one, and when it was last used.
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

    /// An installer for sessions of a built environment. Setting the cancel flag ends its work.
    pub fn session_installer<'a>(
        &self,
        environment: &'a BuiltEnvironment,
        cancel: CancelFlag,
    ) -> SessionInstaller<'a> {
        let (tools, cache) = (self.tools(), self.cache());
        SessionInstaller { environment, machine: self.machine.clone(), tools, cache, cancel }
    }

    /// Whether a process is building the environment of that name. Several callers may ask at once.
    pub fn is_building(&self, name: &Name) -> bool {
        let held = File::open(self.lock_path(name)).map(|file| file.try_lock_shared());
        matches!(held, Ok(Err(TryLockError::WouldBlock)))
    }

    /// The uv that an installation would use.
    pub fn uv_source(&self) -> UvSource {
        UvSource::find(&self.machine, &self.tools())
    }

    /// The result of an earlier request with the same link, if it is still valid.
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

    /// Builds the environment in a staging directory and moves it into place when it is complete.
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
        // The name is locked, so no other process can have removed it.
        let vanished = || io::Error::from(io::ErrorKind::NotFound);
        EnvironmentLease::acquire(directory)
            .ok_or_else(vanished)
            .map_err(BuildError::files("recording the use of", directory))
    }

    fn start_building(&self, name: &Name) -> Result<BuildDirectory, BuildError> {
        self.remove_leftovers(name)
            .map_err(BuildError::files("removing old builds from", self.directory()))?;
        let own = format!("{}{}", building_prefix(name), std::process::id());
        BuildDirectory::start(self.directory().join(own))
    }

    /// Locks a name until the result is dropped; Linux releases it for a process that dies.
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

    /// `None` if another process holds the lock.
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

/// A staging directory. Dropping it removes it, unless it was finished.
struct BuildDirectory {
    directory: PathBuf,
}

impl BuildDirectory {
    fn start(directory: PathBuf) -> Result<Self, BuildError> {
        fs::create_dir(&directory).map_err(BuildError::files("creating", &directory))?;
        Ok(Self { directory })
    }

    fn finish(self, place: &Path) -> Result<(), BuildError> {
        // Without a record it is no environment: its builder died between two steps.
        if place.exists() {
            fs::remove_dir_all(place).map_err(BuildError::files("removing", place))?;
        }
        fs::rename(&self.directory, place).map_err(BuildError::files("renaming", place))
    }
}

impl Drop for BuildDirectory {
    fn drop(&mut self) {
        // After `finish` there is nothing to remove; after a failure the next build tries again.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Common prefix of the links to all builds of a definition, for any Python.
pub(crate) fn link_prefix(definition: &Definition) -> String {
    format!("{}@{}", definition.name, short_hex(hasher(definition)))
}

/// Names contain no dot, so no name is a prefix of another here.
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

/// Points `link` at its sibling `directory`, atomically for readers.
fn replace_link(link: &Path, directory: &Path) -> io::Result<()> {
    let temporary = link.with_extension("new");
    if temporary.is_symlink() {
        fs::remove_file(&temporary)?;
    }
    symlink(directory.file_name().unwrap_or_default(), &temporary)?;
    fs::rename(&temporary, link)
}

/// Syncs the files to the disk: a record that survives a power failure must not refer to files that
/// did not.
fn sync(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(directory)?)?)
}
