//! The programs and places that Belljar uses, one row each.

use super::report::{Row, State};
use engine::{Config, Environments, Machine, Python, PythonChoice, Skipped, UvSource, discover};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const INTERPRETER: &str = "the interpreter inside";

pub(super) fn look(config: &Config) -> Vec<Row> {
    let machine = Machine::from_env();
    let discovery = discover(&machine);
    let named = config.python.as_ref().map(named_python);
    let mut rows: Vec<Row> = named.into_iter().chain(discovery.found.iter().map(python)).collect();
    if rows.is_empty() {
        rows.push(no_python());
    }
    rows.extend(discovery.skipped.iter().map(skipped));
    rows.push(uv(&config.data));
    rows.push(data_directory(&config.data));
    rows.push(bubblewrap(&machine));
    rows
}

/// One that was asked for. Whether it can be used shows when a sandbox is started with it.
fn named_python(choice: &PythonChoice) -> Row {
    Row {
        name: "Python, named".into(),
        state: State::Ok,
        found: choice.to_string(),
        gives: INTERPRETER,
        fix: None,
    }
}

fn python(python: &Python) -> Row {
    Row {
        name: format!("Python {}", python.version),
        state: State::Ok,
        found: python.executable.display().to_string(),
        gives: INTERPRETER,
        fix: None,
    }
}

fn no_python() -> Row {
    Row {
        name: "Python".into(),
        state: State::Missing,
        found: "no CPython from 3.11 on".into(),
        gives: INTERPRETER,
        fix: Some("apt install python3\nor, where that is older: uv python install 3.13".into()),
    }
}

fn skipped(Skipped { path, reason }: &Skipped) -> Row {
    Row {
        name: "Python".into(),
        state: State::Skipped,
        found: format!("{}: {reason}", path.display()),
        gives: "",
        fix: None,
    }
}

fn uv(data: &Path) -> Row {
    let (state, found) = match Environments::open(data).map(|environments| environments.uv()) {
        Ok(UvSource::OnPath(program) | UvSource::Fetched(program)) => {
            (State::Ok, program.display().to_string())
        }
        Ok(UvSource::Index { version }) => {
            (State::Optional, format!("{version} is fetched when it is needed"))
        }
        Err(_) => (State::Optional, "it would be in the data directory".into()),
    };
    Row { name: "uv".into(), state, found, gives: "installs packages", fix: None }
}

/// Written to, because its mode says too little: it may be on a read-only or full file system.
fn data_directory(data: &Path) -> Row {
    let path = data.join(format!(".doctor-{}", std::process::id()));
    let write = || -> io::Result<()> {
        fs::create_dir_all(data)?;
        File::create_new(&path)?.set_len(1)?;
        fs::remove_file(&path)
    };
    let place = data.display();
    let (state, found, fix) = match write() {
        Ok(()) => (State::Ok, place.to_string(), None),
        Err(error) => (
            State::Missing,
            format!("{place}: {error}"),
            Some("name a directory that you may write to: --data DIR, or BELLJAR_DATA=DIR".into()),
        ),
    };
    Row { name: "data directory".into(), state, found, gives: "keeps environments", fix }
}

fn bubblewrap(machine: &Machine) -> Row {
    let found: Option<PathBuf> =
        machine.search_path.iter().map(|place| place.join("bwrap")).find(|path| path.is_file());
    let (state, found, fix) = match found {
        Some(path) => (State::Ok, path.display().to_string(), None),
        None => (State::Optional, "not installed".into(), Some("apt install bubblewrap".into())),
    };
    Row { name: "bubblewrap".into(), state, found, gives: "`belljar bench` compares", fix }
}
