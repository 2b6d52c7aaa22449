//! The programs and places that Belljar uses, one row each.

use super::report::{HostCheck, HostCheckState};
use engine::{
    Config, Environments, HostSettings, PythonChoice, PythonInstallation, SkippedPython, UvSource,
    discover,
};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const INTERPRETER: &str = "the interpreter inside";

pub(super) fn tool_checks(config: &Config) -> Vec<HostCheck> {
    let machine = HostSettings::from_env();
    let discovery = discover(&machine);
    let named = config.python.as_ref().map(named_python);
    let mut rows: Vec<HostCheck> =
        named.into_iter().chain(discovery.found.iter().map(found_python)).collect();
    if rows.is_empty() {
        rows.push(missing_python());
    }
    rows.extend(discovery.skipped.iter().map(skipped_python));
    rows.push(uv(&config.data));
    rows.push(data_directory(&config.data));
    rows.push(bubblewrap(&machine));
    rows
}

/// One that was asked for. Whether it can be used shows when a sandbox is started with it.
fn named_python(choice: &PythonChoice) -> HostCheck {
    HostCheck {
        name: "Python, named".into(),
        state: HostCheckState::Ok,
        found: choice.to_string(),
        gives: INTERPRETER,
        fix: None,
    }
}

fn found_python(python: &PythonInstallation) -> HostCheck {
    HostCheck {
        name: format!("Python {}", python.version),
        state: HostCheckState::Ok,
        found: python.executable.display().to_string(),
        gives: INTERPRETER,
        fix: None,
    }
}

fn missing_python() -> HostCheck {
    HostCheck {
        name: "Python".into(),
        state: HostCheckState::Missing,
        found: "no CPython from 3.11 on".into(),
        gives: INTERPRETER,
        fix: Some("apt install python3\nor, where that is older: uv python install 3.13".into()),
    }
}

fn skipped_python(SkippedPython { path, reason }: &SkippedPython) -> HostCheck {
    HostCheck {
        name: "Python".into(),
        state: HostCheckState::Skipped,
        found: format!("{}: {reason}", path.display()),
        gives: "",
        fix: None,
    }
}

fn uv(data: &Path) -> HostCheck {
    let (state, found) = match Environments::open(data).map(|environments| environments.uv_source())
    {
        Ok(UvSource::OnPath(program) | UvSource::Fetched(program)) => {
            (HostCheckState::Ok, program.display().to_string())
        }
        Ok(UvSource::Index { version }) => {
            (HostCheckState::Optional, format!("{version} is fetched when it is needed"))
        }
        Err(_) => (HostCheckState::Optional, "it would be in the data directory".into()),
    };
    HostCheck { name: "uv".into(), state, found, gives: "installs packages", fix: None }
}

/// Written to, because its mode says too little: it may be on a read-only or full file system.
fn data_directory(data: &Path) -> HostCheck {
    let path = data.join(format!(".doctor-{}", std::process::id()));
    let write = || -> io::Result<()> {
        fs::create_dir_all(data)?;
        File::create_new(&path)?.set_len(1)?;
        fs::remove_file(&path)
    };
    let place = data.display();
    let (state, found, fix) = match write() {
        Ok(()) => (HostCheckState::Ok, place.to_string(), None),
        Err(error) => (
            HostCheckState::Missing,
            format!("{place}: {error}"),
            Some("name a directory that you may write to: --data DIR, or BELLJAR_DATA=DIR".into()),
        ),
    };
    HostCheck { name: "data directory".into(), state, found, gives: "keeps environments", fix }
}

fn bubblewrap(machine: &HostSettings) -> HostCheck {
    let found: Option<PathBuf> =
        machine.search_path.iter().map(|place| place.join("bwrap")).find(|path| path.is_file());
    let (state, found, fix) = match found {
        Some(path) => (HostCheckState::Ok, path.display().to_string(), None),
        None => (
            HostCheckState::Optional,
            "not installed".into(),
            Some("apt install bubblewrap".into()),
        ),
    };
    HostCheck { name: "bubblewrap".into(), state, found, gives: "`belljar bench` compares", fix }
}
