//! Environments in the data directory of this machine.

use super::file::{self, Written};
use super::{Build, Lock, Named, Packages, shown};
use crate::cli::setup::{self, Place};
use crate::cli::{Failure, progress, terminal};
use engine::{
    BuildError, Config, Engine, Environments, Machine, Order, Prepared, Recipe, Warmth, catalog,
};
use serde_json::Value;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use types::Environment;

pub(super) fn list(place: &Place, json: bool) -> Result<ExitCode, Failure> {
    let environments = Environments::open(&place.data()?).map_err(failed)?;
    let listed = catalog::list(&environments, place.python());
    let items: Vec<Value> = listed.iter().map(value).collect::<Result<_, _>>()?;
    shown::table(&items, json)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn show(named: &Named, json: bool) -> Result<ExitCode, Failure> {
    let environments = Environments::open(&named.place.data()?).map_err(failed)?;
    let shown = catalog::show(&environments, named.place.python(), &named.name)
        .map_err(|fault| Failure::refused(fault.message))?;
    shown::record(&value(&shown)?, json)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn remove(named: &Named) -> Result<ExitCode, Failure> {
    let environments = Environments::open(&named.place.data()?).map_err(failed)?;
    environments.remove(&named.name).map_err(failed)?;
    said(&format!("the environment {} is removed", named.name));
    Ok(ExitCode::SUCCESS)
}

pub(super) fn lock(args: &Lock) -> Result<ExitCode, Failure> {
    let Written { draft, .. } = file::read_unlocked(&args.file, None)?;
    let environments = open(&args.place, &args.packages)?;
    let lock = environments.lock(&draft, args.place.python(), &mut progress::show());
    let lock = lock.map_err(failed)?;
    let output = args.output.clone().unwrap_or_else(|| file::lock_of(&args.file));
    let written = tempfile_beside(&output, &lock);
    written.map_err(|error| Failure::belljar(format!("{}: {error}", output.display())))?;
    said(&format!("the lock is in {}", output.display()));
    Ok(ExitCode::SUCCESS)
}

/// A lock that is written halfway must not be left in place of a whole one.
fn tempfile_beside(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    let aside = path.with_extension("lock.new");
    fs::write(&aside, text)?;
    fs::rename(aside, path)
}

pub(super) fn build(args: &Build, json: bool) -> Result<ExitCode, Failure> {
    let Written { draft, lock, .. } = file::read(&args.file, args.name.as_deref())?;
    let environments = open(&args.place, &args.packages)?;
    let order = Order { draft, lock, python: args.place.python().cloned() };
    let prepared = environments.prepare(&order, &mut progress::show()).map_err(failed)?;
    let Prepared { recipe, built } = prepared;
    let proven = prove(&args.place, &recipe);
    drop(built);
    if let Err(failure) = proven {
        environments.abandon(&recipe).map_err(failed)?;
        return Err(failure);
    }
    environments.keep(&recipe).map_err(failed)?;
    environments.collect(SystemTime::now()).map_err(failed)?;
    let name = recipe.definition.name.as_str();
    let built = catalog::show(&environments, args.place.python(), name)?;
    if json {
        shown::record(&value(&built)?, true)?;
    } else {
        let version = built.python_version.unwrap_or_default();
        let packages = built.packages.len();
        said(&format!("the environment {name} has Python {version} and {packages} packages"));
    }
    Ok(ExitCode::SUCCESS)
}

/// What is imported in advance is imported once now, within the walls: a server would find out only
/// when it needs the environment.
fn prove(place: &Place, recipe: &Recipe) -> Result<(), Failure> {
    if recipe.definition.preload.is_empty() {
        return Ok(());
    }
    let config = Config { warmth: Warmth::Preloaded, ..place.single()? };
    setup::runtime()?.block_on(async {
        let engine = Engine::start(config);
        let proven = engine.prove(recipe).await;
        engine.shutdown(Duration::ZERO).await;
        Ok(proven?)
    })
}

fn open(place: &Place, packages: &Packages) -> Result<Environments, Failure> {
    if let Some(wheels) = packages.wheels.as_ref().filter(|wheels| !wheels.is_dir()) {
        let message = format!("--wheels {}: there is no such directory", wheels.display());
        return Err(Failure::usage(message));
    }
    let machine = Machine {
        wheels: packages.wheels.clone(),
        offline: packages.offline,
        ..Machine::from_env()
    };
    Environments::open_on(&place.data()?, machine).map_err(failed)
}

fn value(environment: &Environment) -> Result<Value, Failure> {
    serde_json::to_value(environment).map_err(|error| Failure::belljar(error.to_string()))
}

/// What was asked for is wrong, or the machine lacks something.
pub(in crate::cli) fn failed(error: BuildError) -> Failure {
    match error {
        BuildError::Unknown { .. } => Failure::refused(error.to_string()),
        BuildError::Lock { .. } | BuildError::Definition(_) | BuildError::Shipped { .. } => {
            Failure::usage(error.to_string())
        }
        error => Failure::belljar(error.to_string()),
    }
}

fn said(line: &str) {
    eprintln!("belljar: {}", terminal::for_stderr(line));
}
