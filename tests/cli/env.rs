//! `belljar env`: custom environments, locally and on a server.

use crate::harness::{self, own_data, stderr, stdout};
use crate::test_server::World;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A data directory, and a working directory with the files of the user.
struct OwnData {
    data: TempDir,
    files: TempDir,
}

impl OwnData {
    fn new() -> Self {
        Self { data: own_data(), files: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.files.path().join(name), text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = harness::belljar(args);
        command.env("BELLJAR_DATA", self.data.path()).env_remove("BELLJAR_WHEELS");
        command.current_dir(self.files.path());
        command
    }

    fn belljar(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn good(&self, args: &[&str]) -> String {
        let output = self.belljar(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        stdout(&output)
    }

    fn refused(&self, exit: i32, args: &[&str]) -> String {
        let output = self.belljar(args);
        assert_eq!(output.status.code(), Some(exit), "{args:?}: {}", stderr(&output));
        stderr(&output)
    }
}

#[test]
fn a_requirements_file_becomes_an_environment_to_run_code_in() {
    let here = OwnData::new();
    here.write("My_Tools.txt", "six==1.16.0  # as before\n");
    here.good(&["env", "build", "My_Tools.txt"]);
    let version = here.good(&["exec", "--env", "my-tools", "import six; six.__version__"]);
    assert_eq!(version, "'1.16.0'\n");

    let shown: Value =
        serde_json::from_str(&here.good(&["env", "show", "my-tools", "--json"])).unwrap();
    assert_eq!(shown["packages"][0]["version"], "1.16.0");
    assert!(here.good(&["env", "show", "my-tools"]).contains("six: 1.16.0"));
    let listed = here.good(&["env", "ls"]);
    let line = listed.lines().find(|line| line.starts_with("my-tools")).unwrap();
    assert!(line.contains("ready") && line.contains("custom"), "{line}");

    here.good(&["env", "rm", "my-tools"]);
    assert!(!here.good(&["env", "ls"]).contains("my-tools"));
    let gone = here.refused(2, &["exec", "--env", "my-tools", "1"]);
    assert!(gone.contains("environment `my-tools` not found"), "{gone}");
}

#[test]
fn a_script_says_itself_what_it_needs() {
    let here = OwnData::new();
    here.write(
        "report.py",
        "# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\"six==1.16.0\"]\n# ///\n\
         import six\nprint(six.__version__)\n",
    );
    here.good(&["env", "build", "report.py"]);
    assert_eq!(here.good(&["exec", "--env", "report", "report.py"]), "1.16.0\n");
}

#[test]
fn a_lock_is_written_beside_its_definition_and_used_from_then_on() {
    let here = OwnData::new();
    here.write("mine.toml", "name = \"mine\"\npackages = [\"six<1.17\"]\n");
    here.good(&["env", "lock", "mine.toml"]);
    let lock = fs::read_to_string(here.files.path().join("mine.lock")).unwrap();
    assert!(lock.contains("six==1.16.0") && lock.contains("--hash=sha256:"), "{lock}");

    here.write("mine.lock", &lock.replace("1.16.0", "1.17.0"));
    let edited = here.refused(2, &["env", "build", "mine.toml"]);
    assert!(edited.contains("mine.lock") && edited.contains("line 2 of the lock"), "{edited}");
    here.write("mine.lock", &lock.replace("sha256:", "sha256:00"));
    let forged = here.refused(2, &["env", "build", "mine.toml"]);
    assert!(forged.contains("line 2 of the lock has hashes that do not match"), "{forged}");
    assert!(!here.good(&["env", "ls"]).contains("mine"));
    here.write("mine.lock", &lock);
    here.good(&["env", "build", "mine.toml"]);
}

#[test]
fn a_directory_of_wheels_that_is_not_there_is_said_before_anything_is_asked() {
    let here = OwnData::new();
    here.write("a.txt", "six\n");
    let said = here.refused(2, &["env", "build", "--wheels", "nowhere", "a.txt"]);
    assert!(said.contains("--wheels nowhere: no such directory"), "{said}");
}

#[test]
fn what_is_wrong_is_told_by_file_and_line() {
    let here = OwnData::new();
    here.write("a.txt", "six\n\n-r b.txt\n");
    here.write("b.toml", "name = \"b\"\nprelaod = []\n");
    here.write("c.txt", "no-such-package-of-belljar\n");
    here.write("d.py", "print(1)\n");
    for (file, expected) in [
        ("a.txt", "a.txt: line 3 (`-r b.txt`) is an option"),
        ("b.toml", "line 2, column 1"),
        ("c.txt", "line 1 (`no-such-package-of-belljar`): package not found"),
        ("d.py", "PEP 723"),
        ("e.txt", "no such file"),
    ] {
        let said = here.refused(2, &["env", "build", file]);
        assert!(said.contains(expected), "{said}");
    }
    let python = here.refused(125, &["env", "build", "c.txt", "--python", "3.99"]);
    assert!(
        python.contains("requires CPython 3.99") && python.contains("uv python install"),
        "{python}"
    );
    assert_eq!(
        fs::read_dir(here.data.path().join("environments"))
            .unwrap()
            .filter(|entry| {
                !entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".lock")
            })
            .count(),
        0,
        "nothing is left"
    );
}

#[test]
fn a_list_of_imports_holds_and_says_so() {
    let here = OwnData::new();
    let text =
        "name = \"mine\"\npackages = [\"six==1.16.0\", \"idna==3.4\"]\nimports = [\"six\"]\n";
    here.write("mine.toml", text);
    here.good(&["env", "build", "mine.toml"]);
    here.good(&["exec", "--env", "mine", "import six, json"]);
    let denied = here.refused(1, &["exec", "--env", "mine", "import idna"]);
    let message = "ImportError: idna not allowed by PYTHON_PACKAGES_WHITELIST_IMPORT";
    assert!(denied.contains(message), "{denied}");
    let both = here.refused(1, &["exec", "--env", "mine", "--imports", "idna", "import six"]);
    assert!(both.contains("six not allowed by"), "a module must be on both lists: {both}");
}

#[test]
fn a_module_that_cannot_be_imported_in_advance_is_found_out_at_once() {
    let here = OwnData::new();
    here.write("mine.toml", "name = \"mine\"\npreload = [\"not_there\"]\n");
    let said = here.refused(125, &["env", "build", "mine.toml"]);
    assert!(said.contains("not_there"), "{said}");
    assert!(!here.good(&["env", "ls"]).contains("mine"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environments_of_a_server_are_looked_after_from_afar() {
    let world = World::with_own_environments().await;
    let here = OwnData::new();
    here.write("mine.txt", "six==1.16.0\n");
    here.write("bad.txt", "six==99\n");
    let belljar = |args: &[&str]| {
        let mut command = here.command(args);
        command.env("BELLJAR_URL", &world.owner.address).env("BELLJAR_API_KEY", &world.owner.key);
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let built = belljar(&["env", "build", "mine.txt"]).await.unwrap();
    assert!(built.status.success(), "{}", stderr(&built));
    assert!(stdout(&built).contains("six: 1.16.0"), "{}", stdout(&built));
    let listed = belljar(&["env", "ls"]).await.unwrap();
    assert!(stdout(&listed).contains("mine"), "{}", stdout(&listed));
    assert!(!here.good(&["env", "ls"]).contains("mine"), "it is there and not here");
    let code = "import six; print(six.__version__)";
    let ran = belljar(&["exec", "--env", "mine", code]).await.unwrap();
    assert_eq!(stdout(&ran), "1.16.0\n", "{}", stderr(&ran));
    let bad = belljar(&["env", "build", "bad.txt"]).await.unwrap();
    assert_eq!(bad.status.code(), Some(1));
    assert!(stderr(&bad).contains("line 1 (`six==99`)"), "{}", stderr(&bad));
    let removed = belljar(&["env", "rm", "mine"]).await.unwrap();
    assert!(removed.status.success(), "{}", stderr(&removed));
    assert_eq!(world.owner.call("GET", "/v1/environments/mine", None).await.0, 404);
}
