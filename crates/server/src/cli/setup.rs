//! What every verb that runs code needs: where data is kept, which walls may be missing, an
//! engine, and a runtime for it.

use super::Failure;
use engine::preflight::{self, Contents};
use engine::{Config, Environments, PythonChoice, Wall};
use std::env;
use std::path::PathBuf;
use tokio::runtime::Runtime;
use types::Fault;

/// Of code that asks for no other.
pub(super) const USUAL_ENVIRONMENT: &str = "default";

#[derive(Debug, Clone, clap::Args)]
pub(super) struct EngineArgs {
    /// The environment, one that ships or your own (`belljar env ls`) [default: default, or the server's usual one]
    #[arg(long = "env", value_name = "NAME")]
    pub(super) named: Option<String>,

    #[command(flatten)]
    place: Place,

    /// What code may import besides the standard library, as `numpy,pandas` [default: everything there is]
    #[arg(
        long,
        value_name = "NAMES",
        env = "PYTHON_PACKAGES_WHITELIST_IMPORT",
        value_delimiter = ',',
        hide_env_values = true
    )]
    imports: Option<Vec<String>>,

    /// Run although this wall is missing; every result will say so
    #[arg(long, value_name = "NAME", value_parser = parse_wall)]
    allow_missing_wall: Vec<Wall>,
}

/// Where things are on this machine.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Place {
    /// Where environments are kept [default: the XDG data directory]
    #[arg(long, value_name = "DIR", env = "BELLJAR_DATA", hide_env_values = true)]
    data: Option<PathBuf>,

    /// The Python to use instead of the newest one found: a version such as 3.12, or a path
    #[arg(long, value_name = "VERSION | PATH", env = "BELLJAR_PYTHON", hide_env_values = true)]
    python: Option<PythonChoice>,
}

fn parse_wall(name: &str) -> Result<Wall, String> {
    let known = Wall::ALL.into_iter().find(|wall| wall.name() == name);
    known.ok_or_else(|| {
        let names = Wall::ALL.map(Wall::name).join(", ");
        format!("only these can be done without: {names}")
    })
}

impl EngineArgs {
    /// Where code runs that runs here.
    pub(super) fn environment(&self) -> &str {
        self.named.as_deref().unwrap_or(USUAL_ENVIRONMENT)
    }

    /// The configuration for one caller at a command line.
    pub(super) fn single(&self) -> Result<Config, Failure> {
        Ok(self.apply(self.place.single()?))
    }

    /// The configuration for many sandboxes.
    pub(super) fn service(&self) -> Result<Config, Failure> {
        Ok(self.apply(self.place.service()?))
    }

    /// Why a tool that starts these programs cannot be called, if it cannot.
    pub(super) fn missing_programs(&self, programs: &[String]) -> Result<Option<Fault>, Failure> {
        if programs.is_empty() {
            return Ok(None);
        }
        let contents = self.place.contents(self.environment(), self.imports.as_deref())?;
        let missing = contents.missing_programs(programs);
        Ok((!missing.is_empty()).then(|| preflight::no_programs(self.environment(), &missing)))
    }

    fn apply(&self, config: Config) -> Config {
        let (without, imports) = (self.allow_missing_wall.clone(), self.imports.clone());
        Config { without, imports, ..config }
    }
}

impl Place {
    pub(super) fn new(data: Option<PathBuf>, python: Option<PythonChoice>) -> Self {
        Self { data, python }
    }

    /// The configuration of a server.
    pub(super) fn service(&self) -> Result<Config, Failure> {
        let python = self.python.clone();
        Ok(Config { python, ..Config::service(self.data()?, helper()) })
    }

    /// The configuration for one caller, with no wall missing.
    pub(super) fn single(&self) -> Result<Config, Failure> {
        Ok(Config { python: self.python.clone(), ..Config::single(self.data()?, helper()) })
    }

    pub(super) fn python(&self) -> Option<&PythonChoice> {
        self.python.as_ref()
    }

    /// What an environment has, as far as that is known without starting it.
    pub(super) fn contents(
        &self,
        environment: &str,
        imports: Option<&[String]>,
    ) -> Result<Contents, Failure> {
        let environments = Environments::open(&self.data()?)
            .map_err(|error| Failure::belljar(error.to_string()))?;
        Contents::of(&environments, self.python(), imports, environment)
            .map_err(|fault| Failure::usage(fault.message))
    }

    pub(super) fn data(&self) -> Result<PathBuf, Failure> {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let home = || variable("HOME").map(|home| PathBuf::from(home).join(".local/share"));
        self.data
            .clone()
            .or_else(|| {
                let shared = variable("XDG_DATA_HOME").map(PathBuf::from).or_else(home)?;
                Some(shared.join("belljar"))
            })
            .ok_or_else(|| {
                Failure::usage("there is no HOME to keep data in; name a directory with --data")
            })
    }
}

/// This program, by a name that stays right when the file is replaced while it runs.
fn helper() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

pub(super) fn runtime() -> Result<Runtime, Failure> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|error| Failure::belljar(format!("no threads could be started: {error}")))
}
