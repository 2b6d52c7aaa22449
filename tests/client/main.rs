//! The Python client keeps its promises against the real server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../harness/mod.rs"]
mod harness;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn client() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python")
}

/// A Python with what the tests of the client need. It is made once, as the build is.
fn python() -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("client-venv");
    let python = home.join("bin/python");
    let requirements = client().join("tests/requirements.txt");
    let wanted = std::fs::read(&requirements).unwrap();
    let has = home.join("requirements.txt");
    if std::fs::read(&has).is_ok_and(|has| has == wanted) {
        return python;
    }
    let found = engine::discover(&engine::HostSettings::from_env()).found;
    let made = found.iter().find(|found| {
        let made =
            Command::new(&found.executable).args(["-m", "venv", "--clear"]).arg(&home).output();
        made.is_ok_and(|made| made.status.success())
    });
    assert!(
        made.is_some(),
        "no Python here can make a virtual environment (on Debian: apt install python3-venv)"
    );
    let installed = Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "-r"])
        .arg(&requirements)
        .output();
    let installed = installed.unwrap();
    assert!(installed.status.success(), "the package index is needed: {}", text_of(&installed));
    std::fs::copy(requirements, has).unwrap();
    python
}

fn text_of(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// `BELLJAR_REGENERATE=1` writes the synchronous client instead of comparing it.
#[test]
fn the_synchronous_client_is_generated_from_the_asynchronous_one() {
    let pythons = engine::discover(&engine::HostSettings::from_env()).found;
    assert!(!pythons.is_empty(), "there is no CPython to generate with");
    for python in pythons {
        let mut generator = Command::new(&python.executable);
        generator.arg("generate_sync.py").current_dir(client());
        if std::env::var_os("BELLJAR_REGENERATE").is_none() {
            generator.arg("--check");
        }
        let output = generator.output().unwrap();
        let executable = python.executable.display();
        assert!(output.status.success(), "{executable}: {}", text_of(&output));
    }
}

#[test]
fn the_python_client_keeps_its_promises() {
    let built = harness::exec(&["--env", "bare", "pass"]);
    assert!(built.status.success(), "{}", harness::stderr(&built));
    let tested = Command::new(python())
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .current_dir(client())
        .env("BELLJAR_BINARY", harness::binary())
        .env("BELLJAR_TEST_DATA", harness::data())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("BELLJAR_URL")
        .env_remove("BELLJAR_API_KEY")
        .output()
        .unwrap();
    assert!(tested.status.success(), "{}", text_of(&tested));
}
