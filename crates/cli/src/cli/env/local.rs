//! Environments in the data directory of this machine.

use super::file::{self, EnvironmentFile};
use super::{
    BuildEnvironmentArgs, EnvironmentNameArgs, LockEnvironmentArgs, PackageSourceArgs, display,
};
use crate::cli::engine_args::{self, LocalDataArgs};
use crate::cli::{CliError, progress, terminal};
use engine::{
    BuildError, BuildRequest, Config, Engine, Environments, HostSettings, Preload,
    PreparedEnvironment, Recipe, catalog,
};
use serde_json::Value;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use types::Environment;

pub(super) fn list(paths: &LocalDataArgs, json: bool) -> Result<ExitCode, CliError> {
    let environments = Environments::open(&paths.data()?).map_err(build_error)?;
    let listed = catalog::list(&environments, paths.python());
    let items: Vec<Value> = listed.iter().map(environment_json).collect::<Result<_, _>>()?;
    display::print_environments(&items, json)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn show(named: &EnvironmentNameArgs, json: bool) -> Result<ExitCode, CliError> {
    let environments = Environments::open(&named.paths.data()?).map_err(build_error)?;
    let environment = catalog::describe(&environments, named.paths.python(), &named.name)
        .map_err(|error| CliError::rejected(error.message))?;
    display::print_environment(&environment_json(&environment)?, json)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn remove(named: &EnvironmentNameArgs) -> Result<ExitCode, CliError> {
    let environments = Environments::open(&named.paths.data()?).map_err(build_error)?;
    environments.remove(&named.name).map_err(build_error)?;
    print_progress(&format!("environment {} removed", named.name));
    Ok(ExitCode::SUCCESS)
}

pub(super) fn lock(args: &LockEnvironmentArgs) -> Result<ExitCode, CliError> {
    let EnvironmentFile { draft, .. } = file::read_unlocked(&args.file, None)?;
    let environments = open_environments(&args.paths, &args.packages)?;
    let lock =
        environments.lock_packages(&draft, args.paths.python(), &mut progress::progress_printer());
    let lock = lock.map_err(build_error)?;
    let output = args.out.clone().unwrap_or_else(|| file::lock_path(&args.file));
    let result = write_atomically(&output, &lock);
    result.map_err(|error| CliError::internal(format!("{}: {error}", output.display())))?;
    print_progress(&format!("wrote the lock to {}", output.display()));
    Ok(ExitCode::SUCCESS)
}

/// Writes the lock atomically, so that a failed write does not leave a partial one.
fn write_atomically(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    let temporary = path.with_extension("lock.new");
    fs::write(&temporary, text)?;
    fs::rename(temporary, path)
}

pub(super) fn build(args: &BuildEnvironmentArgs, json: bool) -> Result<ExitCode, CliError> {
    let EnvironmentFile { draft, lock, .. } =
        file::read_with_lock(&args.file, args.name.as_deref())?;
    let environments = open_environments(&args.paths, &args.packages)?;
    let order = BuildRequest { draft, lock, python: args.paths.python().cloned() };
    let prepared =
        environments.prepare(&order, &mut progress::progress_printer()).map_err(build_error)?;
    let PreparedEnvironment { recipe, built } = prepared;
    let proven = check_preload(&args.paths, &recipe);
    drop(built);
    if let Err(failure) = proven {
        environments.discard_build(&recipe).map_err(build_error)?;
        return Err(failure);
    }
    environments.save_definition(&recipe).map_err(build_error)?;
    environments.remove_unused(SystemTime::now()).map_err(build_error)?;
    let name = recipe.definition.name.as_str();
    let built = catalog::describe(&environments, args.paths.python(), name)?;
    if json {
        display::print_environment(&environment_json(&built)?, true)?;
    } else {
        let version = built.python_version.unwrap_or_default();
        let packages = built.packages.len();
        print_progress(&format!("environment {name}: Python {version}, {packages} packages"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Imports the preloaded modules once in a sandbox. Otherwise a server would detect an error only
/// when it needs the environment.
fn check_preload(paths: &LocalDataArgs, recipe: &Recipe) -> Result<(), CliError> {
    if recipe.definition.preload.is_empty() {
        return Ok(());
    }
    let config = Config { preload: Preload::Modules, ..paths.single_config()? };
    engine_args::build_runtime()?.block_on(async {
        let engine = Engine::start(config);
        let proven = engine.check_starts(recipe).await;
        engine.shutdown(Duration::ZERO).await;
        Ok(proven?)
    })
}

fn open_environments(
    paths: &LocalDataArgs,
    packages: &PackageSourceArgs,
) -> Result<Environments, CliError> {
    if let Some(wheels) = packages.wheels.as_ref().filter(|wheels| !wheels.is_dir()) {
        let message = format!("--wheels {}: no such directory", wheels.display());
        return Err(CliError::usage(message));
    }
    let machine = HostSettings {
        wheels: packages.wheels.clone(),
        offline: packages.offline,
        ..HostSettings::from_env()
    };
    Environments::open_on(&paths.data()?, machine).map_err(build_error)
}

fn environment_json(environment: &Environment) -> Result<Value, CliError> {
    serde_json::to_value(environment).map_err(|error| CliError::internal(error.to_string()))
}

/// Converts a build error: an invalid definition, or something that the machine lacks.
pub(in crate::cli) fn build_error(error: BuildError) -> CliError {
    match error {
        BuildError::Unknown { .. } => CliError::rejected(error.to_string()),
        BuildError::Lock { .. } | BuildError::Definition(_) | BuildError::Shipped { .. } => {
            CliError::usage(error.to_string())
        }
        error => CliError::internal(error.to_string()),
    }
}

fn print_progress(line: &str) {
    eprintln!("belljar: {}", terminal::for_stderr(line));
}
