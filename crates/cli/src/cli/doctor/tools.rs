//! The programs and places that Belljar uses, one row each.

use super::report::{HostCheck, HostCheckState};
use engine::{
    Config, Environments, HostSettings, PythonChoice, PythonInstallation, SkippedPython, UvSource,
    discover,
};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const INTERPRETER: &str = "interpreter of sandboxes";

pub(super) fn tool_checks(config: &Config) -> Vec<HostCheck> {
    let machine = HostSettings::from_env();
    let discovery = discover(&machine);
    let named = config.python.as_ref().map(configured_python);
    let mut rows: Vec<HostCheck> =
        named.into_iter().chain(discovery.found.iter().map(discovered_python)).collect();
    if rows.is_empty() {
        rows.push(missing_python());
    }
    rows.extend(discovery.skipped.iter().map(skipped_python));
    rows.push(uv(&config.data));
    rows.push(data_directory(&config.data));
    rows.push(bubblewrap(&machine));
    rows
}

/// Reports the configured Python. The proofs show whether it works.
fn configured_python(choice: &PythonChoice) -> HostCheck {
    HostCheck {
        name: "Python (--python)".into(),
        state: HostCheckState::Ok,
        evidence: choice.to_string(),
        provides: INTERPRETER,
        fix: None,
    }
}

fn discovered_python(python: &PythonInstallation) -> HostCheck {
    HostCheck {
        name: format!("Python {}", python.version),
        state: HostCheckState::Ok,
        evidence: python.executable.display().to_string(),
        provides: INTERPRETER,
        fix: None,
    }
}

fn missing_python() -> HostCheck {
    HostCheck {
        name: "Python".into(),
        state: HostCheckState::Missing,
        evidence: "no CPython 3.11 or newer".into(),
        provides: INTERPRETER,
        fix: Some(
            "apt install python3\nor, if that is older than 3.11: uv python install 3.13".into(),
        ),
    }
}

fn skipped_python(SkippedPython { path, reason }: &SkippedPython) -> HostCheck {
    HostCheck {
        name: "Python".into(),
        state: HostCheckState::Skipped,
        evidence: format!("{}: {reason}", path.display()),
        provides: "",
        fix: None,
    }
}

fn uv(data: &Path) -> HostCheck {
    let (state, evidence) =
        match Environments::open(data).map(|environments| environments.uv_source()) {
            Ok(UvSource::OnPath(program) | UvSource::Fetched(program)) => {
                (HostCheckState::Ok, program.display().to_string())
            }
            Ok(UvSource::Index { version }) => {
                (HostCheckState::Optional, format!("{version} is downloaded when needed"))
            }
            Err(_) => (HostCheckState::Optional, "the data directory is not usable".into()),
        };
    HostCheck { name: "uv".into(), state, evidence, provides: "installs packages", fix: None }
}

/// Tests the directory by writing to it, because its mode is not enough: it may be on a read-only
/// or full file system.
fn data_directory(data: &Path) -> HostCheck {
    let path = data.join(format!(".doctor-{}", std::process::id()));
    let write = || -> io::Result<()> {
        fs::create_dir_all(data)?;
        File::create_new(&path)?.set_len(1)?;
        fs::remove_file(&path)
    };
    let place = data.display();
    let (state, evidence, fix) = match write() {
        Ok(()) => (HostCheckState::Ok, place.to_string(), None),
        Err(error) => (
            HostCheckState::Missing,
            format!("{place}: {error}"),
            Some("choose a writable directory: --data DIR, or BELLJAR_DATA=DIR".into()),
        ),
    };
    HostCheck {
        name: "data directory".into(),
        state,
        evidence,
        provides: "stores environments",
        fix,
    }
}

fn bubblewrap(machine: &HostSettings) -> HostCheck {
    let program: Option<PathBuf> =
        machine.search_path.iter().map(|place| place.join("bwrap")).find(|path| path.is_file());
    let (state, evidence, fix) = match program {
        Some(path) => (HostCheckState::Ok, path.display().to_string(), None),
        None => (
            HostCheckState::Optional,
            "not installed".into(),
            Some("apt install bubblewrap".into()),
        ),
    };
    HostCheck {
        name: "bubblewrap".into(),
        state,
        evidence,
        provides: "baseline of belljar bench",
        fix,
    }
}
