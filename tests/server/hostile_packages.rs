//! A package index whose authors attack the server: to run their program, fill its disk or read its secrets.
//! The index is a real one on loopback, and real uv uses it.

use crate::harness;
use crate::installs::{
    agent_in, error_of, programs_of, session, session_of, silent_index, world_with,
};
use crate::test_server::World;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const BUILD: &str = r#"
import io, os, sys, tarfile, zipfile
root, trace = sys.argv[1:]

def place(name, file):
    os.makedirs(f"{root}/simple/{name}", exist_ok=True)
    return f"{root}/simple/{name}/{file}"

def wheel(name, files):
    info = f"{name}-1.0.dist-info"
    listed = [*files, *(f"{info}/{it}" for it in ("METADATA", "WHEEL", "RECORD"))]
    with zipfile.ZipFile(place(name, f"{name}-1.0-py3-none-any.whl"), "w", zipfile.ZIP_DEFLATED) as out:
        for path, size in files.items():
            with out.open(path, "w", force_zip64=True) as file:
                for _ in range(0, size, 1 << 20):
                    file.write(bytes(min(size, 1 << 20)))
        out.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        out.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        out.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in listed))

wheel("good", {"good.py": 0})
wheel("bomb", {f"bomb/part{part}": 200 << 20 for part in range(8)})
wheel("many", {f"many/{number}.txt": 0 for number in range(60_000)})
wheel("outside", {"outside.py": 0, "../../../../../../../../tmp/belljar-outside": 3})
setup = f"open({trace!r}, 'w').write('ran')\nfrom setuptools import setup\nsetup(name='dyny', version='1.0')\n".encode()
with tarfile.open(place("dyny", "dyny-1.0.tar.gz"), "w:gz") as out:
    for path, text in (("setup.py", setup), ("PKG-INFO", b"Metadata-Version: 2.1\nName: dyny\nVersion: 1.0\n")):
        entry = tarfile.TarInfo(f"dyny-1.0/{path}")
        entry.size = len(text)
        out.addfile(entry, io.BytesIO(text))
"#;

/// A directory served as an index, and environments with a cache of their own: what is unpacked too
/// large ends the installs of all sessions that share it.
struct Index {
    directory: tempfile::TempDir,
    data: tempfile::TempDir,
    server: Child,
    variable: String,
}

impl Index {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = Command::new("python3")
            .args(["-c", BUILD])
            .arg(directory.path())
            .arg(Self::trace_in(directory.path()))
            .status();
        assert!(made.unwrap().success());
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Command::new("python3")
            .args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string(), "--directory"])
            .arg(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answers = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(harness::soon(Duration::from_secs(10), answers));
        let variable = format!("UV_DEFAULT_INDEX=http://127.0.0.1:{port}/simple");
        Self { directory, data: Self::environments(), server, variable }
    }

    fn environments() -> tempfile::TempDir {
        let data = harness::own_data();
        std::fs::remove_file(data.path().join("cache")).unwrap();
        let definition = data.path().join("plain.toml");
        std::fs::write(&definition, "name = \"plain\"\nindex = \"pypi\"\n").unwrap();
        let built = harness::belljar(&["env", "build"])
            .arg(definition)
            .env("BELLJAR_DATA", data.path())
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", harness::stderr(&built));
        data
    }

    /// What the build script writes, were it run.
    fn trace_in(directory: &Path) -> PathBuf {
        directory.join("the-script-ran")
    }

    fn trace(&self) -> PathBuf {
        Self::trace_in(self.directory.path())
    }

    async fn session(&self) -> (World, String) {
        let data = self.data.path().to_str().unwrap();
        let world = World::under(&["env", &self.variable], &["--data", data]).await;
        let bot = agent_in(&world.owner, "bot", "plain", json!(["pypi"])).await;
        let session = session_of(&world.owner, &bot).await;
        (world, session)
    }

    fn unpacked(&self) -> usize {
        let entries = std::fs::read_dir(self.data.path().join("cache/uv")).unwrap().flatten();
        entries.filter(|it| it.file_name().to_string_lossy().starts_with(".tmp")).count()
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wheel_that_is_a_gigabyte_inside_or_a_crowd_of_files_is_stopped_and_goes() {
    let index = Index::start();
    let (world, session) = index.session().await;
    for name in ["bomb", "many"] {
        let (_, message, _) =
            error_of(&world.owner.run(&session, &format!("%pip install {name}")).await);
        assert!(message.contains("bytes or 50000 files"), "{name}: {message}");
        assert_eq!(index.unpacked(), 0, "{name}");
    }
    let good = world.owner.run(&session, "%pip install good\nimport good\n'here'").await;
    assert_eq!(good["value"], "here", "{good}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_word_of_a_requirement_makes_uv_run_a_program_of_the_author() {
    let index = Index::start();
    let (world, session) = index.session().await;
    let digest = "0".repeat(64);
    for wanted in [
        "dyny".to_owned(),
        format!("good; python_version>'3' --hash=sha256:{digest} --no-binary dyny"),
        "good; python_version>'3'\n--no-binary dyny\ndyny".to_owned(),
        "good --no-binary :all:".to_owned(),
        "-r /etc/passwd".to_owned(),
        format!("dyny @ file://{}/simple/dyny/dyny-1.0.tar.gz", index.directory.path().display()),
    ] {
        let code = format!("import belljar\nbelljar.install({wanted:?})\n'went through'");
        let execution = world.owner.run(&session, &code).await;
        assert_ne!(execution["value"], "went through", "{wanted}: {execution}");
        let both = format!("import belljar\nbelljar.install({wanted:?}, 'dyny')");
        error_of(&world.owner.run(&session, &both).await);
    }
    assert!(!index.trace().exists());
    let good =
        json!("import belljar\nbelljar.install(\"good; python_version>'3'\")\nimport good\n1");
    assert_eq!(world.owner.run(&session, good.as_str().unwrap()).await["value"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wheel_with_a_path_that_leads_outside_writes_nothing_there() {
    let index = Index::start();
    let (world, session) = index.session().await;
    let execution: Value = world.owner.run(&session, "%pip install outside").await;
    assert!(!Path::new("/tmp/belljar-outside").exists(), "{execution}");
}

#[tokio::test(flavor = "multi_thread")]
async fn uv_is_told_nothing_of_the_server_and_dies_with_it() {
    let (_listener, index) = silent_index();
    let mut world = world_with(&["env", &index, "BELLJAR_SPY=do-not-tell"]).await;
    let session = session(&world).await;
    let api = world.owner.clone();
    let hangs = tokio::spawn(async move { api.run(&session, "%pip install six").await });
    assert!(harness::soon(Duration::from_secs(20), || !programs_of(&world).is_empty()));
    let uv = programs_of(&world)[0];
    let environment = std::fs::read(format!("/proc/{uv}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(
        environment.contains("UV_DEFAULT_INDEX=") && !environment.contains("do-not-tell"),
        "{environment}"
    );
    world.kill();
    let ended = || harness::has_ended(uv);
    assert!(harness::soon(Duration::from_secs(5), ended), "uv outlives the server");
    assert!(hangs.await.is_err(), "nobody answers any more");
}
