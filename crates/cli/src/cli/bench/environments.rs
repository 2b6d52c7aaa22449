//! Measures environments: a session in each built one, a build from cached wheels, and a long list.

use super::measure::percentile;
use super::report::{Figure, FigureTarget, format_ms};
use crate::cli::CliError;
use engine::{
    BuildError, BuildRequest, Code, Command, Engine, EntryPoint, Environments, NewSession,
    PythonChoice, SourceKind, UnlockedDefinition, UvSource, catalog,
};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use types::EnvironmentStatus;

const BUILDS: usize = 3;
const LISTED: usize = 50;
const LISTS: usize = 10;

pub(super) async fn measure(
    engine: Arc<Engine>,
    base: &str,
    data: &Path,
    samples: usize,
    report: &mut (dyn FnMut(&str) + Send),
) -> Result<Vec<Figure>, CliError> {
    report("second_session");
    let session = second_session(&engine, base, samples).await?;
    let (base, data) = (base.to_owned(), data.to_owned());
    report("build_warm and list_50");
    let figures = tokio::task::spawn_blocking(move || {
        Ok::<_, CliError>([build_warm(&data, &base)?, list(&data, &base)?])
    });
    let figures = figures.await.map_err(|error| CliError::internal(error.to_string()))??;
    Ok([session].into_iter().chain(figures).collect())
}

/// Compares the environment with the slowest session to the default one.
async fn second_session(
    engine: &Arc<Engine>,
    base: &str,
    samples: usize,
) -> Result<Figure, CliError> {
    // At least one environment to compare with, on every machine.
    engine.prepare("bare", |_| {}).await?;
    let built = engine.environments()?.into_iter();
    let built = built.filter(|it| it.status == EnvironmentStatus::Ready && it.name != base);
    let mut ratios = Vec::new();
    for environment in built {
        // The first one starts the Python of the environment.
        session(engine, &environment.name).await?;
        let (mut own, mut default) = (Vec::new(), Vec::new());
        for _ in 0..samples {
            default.push(session(engine, base).await?);
            own.push(session(engine, &environment.name).await?);
        }
        let (own, default) = (percentile(&own, 50), percentile(&default, 50));
        ratios.push((own.as_secs_f64() / default.as_secs_f64(), environment.name, own));
    }
    let sessions =
        ratios.iter().map(|(ratio, name, own)| format!("{name} {ratio:.2} ({})", format_ms(*own)));
    Ok(Figure {
        name: "second_session",
        value: ratios.iter().map(|(ratio, ..)| *ratio).fold(0.0, f64::max),
        unit: "x default",
        target: FigureTarget::AtMost(1.2),
        raw: sessions.collect::<Vec<_>>().join(", "),
    })
}

async fn session(engine: &Arc<Engine>, environment: &str) -> Result<Duration, CliError> {
    let code = Code::new("1".into()).map_err(|error| CliError::usage(error.to_string()))?;
    let started = Instant::now();
    let session = engine.open(NewSession::new(environment)).await?.id;
    let command =
        Command { session: Some(session), ..Command::new(environment, EntryPoint::Cell(code)) };
    engine.run(command, &mut |_| {}).await?;
    let elapsed = started.elapsed();
    engine.close(session).await?;
    Ok(elapsed)
}

/// Creates a data directory with the uv and the wheels of the default one.
fn scratch_directory(data: &Path) -> Result<TempDir, CliError> {
    let create = || {
        let directory = TempDir::new_in(data)?;
        for shared in ["tools", "cache"] {
            symlink(data.join(shared), directory.path().join(shared))?;
        }
        Ok(directory)
    };
    create().map_err(|error: std::io::Error| CliError::internal(error.to_string()))
}

fn build_warm(data: &Path, name: &str) -> Result<Figure, CliError> {
    let known = Environments::open(data).map_err(build_error)?;
    let recipe = known.find(name).map_err(build_error)?;
    let built = known.ensure(&recipe.definition, None, &mut |_| ()).map_err(build_error)?;
    let (UvSource::OnPath(uv) | UvSource::Fetched(uv)) = known.uv_source() else {
        return Err(CliError::internal("uv is required for the comparison; install it"));
    };
    let (mut belljar, mut uv_alone) = (Vec::new(), Vec::new());
    for _ in 0..BUILDS {
        let directory = scratch_directory(data)?;
        let environments = Environments::open(directory.path()).map_err(build_error)?;
        let python = PythonChoice::At(built.python.executable.clone());
        let started = Instant::now();
        environments.ensure(&recipe.definition, Some(&python), &mut |_| ()).map_err(build_error)?;
        belljar.push(started.elapsed());
        uv_alone.push(uv_sync(&uv, &built.python.executable, recipe.lock(), directory.path())?);
    }
    let (belljar, uv_alone) = (percentile(&belljar, 50), percentile(&uv_alone, 50));
    Ok(Figure {
        name: "build_warm",
        value: belljar.as_secs_f64() / uv_alone.as_secs_f64(),
        unit: "x uv sync",
        target: FigureTarget::AtMost(1.5),
        raw: format!("{} against {}", format_ms(belljar), format_ms(uv_alone)),
    })
}

/// Returns the time that uv alone takes for the same packages, in a new virtual environment.
fn uv_sync(uv: &Path, python: &Path, lock: &str, directory: &Path) -> Result<Duration, CliError> {
    let venv = directory.join("venv");
    let file: PathBuf = directory.join("plain.lock");
    fs::write(&file, lock).map_err(|error| CliError::internal(error.to_string()))?;
    run_program(Program::new(uv).args(["--no-config", "venv", "--python"]).arg(python).arg(&venv))?;
    let started = Instant::now();
    run_program(
        Program::new(uv)
            .args(["--no-config", "pip", "sync", "--require-hashes", "--only-binary", ":all:"])
            .arg("--cache-dir")
            .arg(directory.join("cache/uv"))
            .arg("--python")
            .arg(venv.join("bin/python"))
            .arg(&file),
    )?;
    Ok(started.elapsed())
}

fn run_program(program: &mut Program) -> Result<(), CliError> {
    let status = program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(CliError::internal(format!("uv failed ({status})"))),
        Err(error) => Err(CliError::internal(format!("cannot start uv: {error}"))),
    }
}

fn list(data: &Path, name: &str) -> Result<Figure, CliError> {
    let known = Environments::open(data).map_err(build_error)?;
    let recipe = known.find(name).map_err(build_error)?;
    let built = known.ensure(&recipe.definition, None, &mut |_| ()).map_err(build_error)?;
    let directory = scratch_directory(data)?;
    let environments = Environments::open(directory.path()).map_err(build_error)?;
    for number in 0..LISTED {
        let text = format!("name = \"own-{number}\"");
        let draft = UnlockedDefinition::parse(SourceKind::Toml, &text, None)
            .map_err(|error| CliError::internal(error.to_string()))?;
        let python = Some(PythonChoice::At(built.python.executable.clone()));
        let order = BuildRequest { draft, lock: None, python };
        let prepared = environments.prepare(&order, &mut |_| ()).map_err(build_error)?;
        environments.save_definition(&prepared.recipe).map_err(build_error)?;
    }
    let lists = (0..LISTS).map(|_| {
        let started = Instant::now();
        catalog::list(&environments, None);
        started.elapsed()
    });
    let elapsed = percentile(&lists.collect::<Vec<_>>(), 50);
    Ok(Figure {
        name: "list_50",
        value: elapsed.as_secs_f64() * 1000.0,
        unit: "ms",
        target: FigureTarget::AtMost(50.0),
        raw: format!("{LISTED} custom environments, and the built-in ones"),
    })
}

fn build_error(error: BuildError) -> CliError {
    CliError::internal(error.to_string())
}
