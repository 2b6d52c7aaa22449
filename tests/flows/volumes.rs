//! Volumes: they keep written files, are bounded by their quota, and are visible to their sessions only.

use crate::harness::{self, error_code, run_in, wait};
use engine::{Command, Config, Engine, GrantedVolume, NewSession, SandboxGrants, VolumeBase};
use std::sync::Arc;
use types::{Execution, ExecutionStatus, OutputStream, SandboxId, VolumeAccess};

const MIB: u64 = 1024 * 1024;

struct World {
    engine: Arc<Engine>,
    base: VolumeBase,
    _home: tempfile::TempDir,
}

/// Grants of the volume "one", at `/mnt/notes`.
fn grants(access: VolumeAccess) -> SandboxGrants {
    let volume = GrantedVolume {
        name: "notes".into(),
        directory: "one".into(),
        path: "/mnt/notes".into(),
        access,
        quota_bytes: MIB,
    };
    SandboxGrants { volumes: vec![volume], ..SandboxGrants::default() }
}

impl World {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        // A sandbox has another user, and has to come through.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(home.path(), open).unwrap();
        let base = VolumeBase::open(home.path().join("volumes")).unwrap();
        base.volume("one").create().unwrap();
        let config = Config { volumes: Some(base.clone()), ..harness::config() };
        Self { engine: Engine::start(config), base, _home: home }
    }

    async fn session(&self, access: Option<VolumeAccess>) -> SandboxId {
        let grants = access.map(grants).unwrap_or_default();
        self.engine.open(NewSession { grants, ..NewSession::new("bare") }).await.unwrap().id
    }

    async fn writer(&self) -> SandboxId {
        self.session(Some(VolumeAccess::Write)).await
    }

    async fn run(&self, session: SandboxId, code: &str) -> Execution {
        run_in(&self.engine, session, code).await
    }

    async fn says(&self, session: SandboxId, code: &str) -> String {
        let ran = self.run(session, code).await;
        assert_eq!(ran.status, ExecutionStatus::Succeeded, "{:?}", ran.error);
        harness::printed(&ran, OutputStream::Stdout).trim_end().to_owned()
    }

    fn kept(&self) -> Vec<String> {
        self.base.volume("one").list().unwrap().into_keys().collect()
    }
}

const WRITE: &str = "import os\nos.makedirs('/mnt/notes/deep', exist_ok=True)\n\
                     open('/mnt/notes/deep/a.txt', 'w').write('first')";
const READ: &str = "print(open('/mnt/notes/deep/a.txt').read())";

#[tokio::test(flavor = "multi_thread")]
async fn what_one_session_writes_to_a_volume_the_next_one_finds() {
    let world = World::start();
    let first = world.writer().await;
    let ran = world.run(first, WRITE).await;
    assert_eq!(ran.status, ExecutionStatus::Succeeded, "{:?}", ran.error);
    assert_eq!(ran.files_out, [], "it is no file of the working directory");
    assert_eq!(world.kept(), ["deep/a.txt"]);
    world.engine.close(first).await.unwrap();

    let reader = world.session(Some(VolumeAccess::Read)).await;
    assert_eq!(world.says(reader, READ).await, "first");
    let second = world.writer().await;
    assert_eq!(world.says(second, READ).await, "first");
    world.run(second, "open('/mnt/notes/deep/a.txt', 'a').write(' and second')").await;
    assert_eq!(world.says(reader, READ).await, "first and second", "it is shown as it is");
    world.run(second, "import shutil; shutil.rmtree('/mnt/notes/deep')").await;
    assert_eq!(world.kept(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sessions_see_what_the_other_has_kept_at_their_next_execution() {
    let world = World::start();
    let (one, other) = (world.writer().await, world.writer().await);
    world.run(one, "open('/mnt/notes/one', 'w').write('1')").await;
    world.run(other, "open('/mnt/notes/other', 'w').write('2')").await;
    let names = "import os; print(sorted(os.listdir('/mnt/notes')))";
    assert_eq!(world.says(one, names).await, "['one', 'other']");
    world.run(other, "import os; os.remove('/mnt/notes/one')").await;
    assert_eq!(world.says(one, names).await, "['other']");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_survives_a_reset_and_a_crash_of_its_session() {
    let world = World::start();
    let session = world.writer().await;
    world.run(session, WRITE).await;
    world.engine.reset(session).await.unwrap();
    assert_eq!(world.says(session, READ).await, "first");
    let died = "open('/mnt/notes/last', 'w').write('x')\nimport os; os.kill(os.getpid(), 9)";
    assert_eq!(world.run(session, died).await.status, ExecutionStatus::Failed);
    assert_eq!(world.kept(), ["deep/a.txt", "last"]);
    assert_eq!(world.says(session, READ).await, "first");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_volume_sees_neither_it_nor_any_other() {
    let world = World::start();
    let writer = world.writer().await;
    world.run(writer, WRITE).await;
    let stranger = world.session(None).await;
    let look = "import os\n\
                print(os.listdir('/mnt'), os.listdir('/run/volumes'))\n\
                for path in ('/run/volumes/one/deep/a.txt', '/mnt/notes/deep/a.txt'):\n\
                \x20   try: open(path); print('open')\n\
                \x20   except OSError as error: print(type(error).__name__)";
    let nothing = "[] []\nFileNotFoundError\nFileNotFoundError";
    assert_eq!(world.says(stranger, look).await, nothing);
    let other = "import os; print(os.listdir('/mnt'), os.listdir('/run/volumes'))";
    assert_eq!(world.says(writer, other).await, "['notes'] []", "nor more than its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_may_be_read_cannot_be_written() {
    let world = World::start();
    world.run(world.writer().await, WRITE).await;
    let reader = world.session(Some(VolumeAccess::Read)).await;
    for change in [
        "open('/mnt/notes/new', 'w')",
        "open('/mnt/notes/deep/a.txt', 'a')",
        "import os; os.remove('/mnt/notes/deep/a.txt')",
        "import os; os.chmod('/mnt/notes/deep/a.txt', 0o777)",
        "import os; os.mkdir('/mnt/other')",
    ] {
        let code = error_code(&world.run(reader, change).await);
        assert!(["python.OSError", "python.PermissionError"].contains(&&*code), "{change}: {code}");
    }
    assert_eq!(world.says(reader, READ).await, "first");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quota_is_met_as_a_full_disk_and_files_with_holes_do_not_get_round_it() {
    let world = World::start();
    let session = world.writer().await;
    let full = "open('/mnt/notes/big', 'wb').write(bytes(2 * 1024 * 1024))";
    let ran = world.run(session, full).await;
    assert_eq!(error_code(&ran), "disk.exceeded");
    assert!(ran.error.unwrap().traceback.unwrap().contains("No space left on device"));
    world.run(session, "import os; os.remove('/mnt/notes/big')").await;
    let holes = "f = open('/mnt/notes/holes', 'wb'); f.truncate(1 << 26); f.close()";
    let ran = world.run(session, holes).await;
    assert_eq!((ran.status, error_code(&ran).as_str()), (ExecutionStatus::Failed, "disk.exceeded"));
    assert_eq!(world.kept(), [""; 0]);
    world.run(session, "import os; os.remove('/mnt/notes/holes')").await;
    world.run(session, "open('/mnt/notes/fits', 'wb').write(bytes(900_000))").await;
    assert_eq!(world.kept(), ["fits"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_plain_file_is_not_kept_and_said() {
    let world = World::start();
    let session = world.writer().await;
    let odd = "import os\n\
               os.symlink('/etc/passwd', '/mnt/notes/link')\n\
               os.mkfifo('/mnt/notes/pipe')\n\
               open('/mnt/notes/plain', 'w').write('x')";
    let ran = world.run(session, odd).await;
    assert_eq!(ran.status, ExecutionStatus::Succeeded, "{:?}", ran.error);
    let warnings: Vec<_> = ran.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert_eq!(
        warnings,
        ["not saved: volume notes: link: a symbolic link", "not saved: volume notes: pipe: a FIFO"]
    );
    assert_eq!(world.kept(), ["plain"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hiding_files_in_a_closed_directory_takes_none_of_them_away() {
    let world = World::start();
    let session = world.writer().await;
    world.run(session, WRITE).await;
    for (path, mode) in [("deep", 0), ("deep", 0o444), ("", 0o111), ("", 0)] {
        world.run(session, &format!("import os; os.chmod('/mnt/notes/{path}', {mode})")).await;
        assert_eq!(world.kept(), ["deep/a.txt"], "{path} {mode:o}");
        world.run(session, &format!("os.chmod('/mnt/notes/{path}', 0o755)")).await;
    }
    assert_eq!(world.says(session, READ).await, "first");
    world.run(session, "import shutil; shutil.rmtree('/mnt/notes/deep')").await;
    assert_eq!(world.kept(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_becomes_a_directory_and_back_is_kept_as_what_it_is() {
    let world = World::start();
    let session = world.writer().await;
    world.run(session, "open('/mnt/notes/a', 'w').write('1')").await;
    let swap = "import os, shutil\nos.remove('/mnt/notes/a'); os.mkdir('/mnt/notes/a')\n\
                open('/mnt/notes/a/b', 'w').write('2'); open('/mnt/notes/z', 'w').write('3')";
    assert_eq!(world.run(session, swap).await.status, ExecutionStatus::Succeeded);
    assert_eq!(world.kept(), ["a/b", "z"]);
    let back = "shutil.rmtree('/mnt/notes/a'); open('/mnt/notes/a', 'w').write('4')";
    assert_eq!(world.run(session, back).await.status, ExecutionStatus::Succeeded);
    assert_eq!(world.kept(), ["a", "z"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_file_that_cannot_be_kept_does_not_keep_the_others_out() {
    let world = World::start();
    let session = world.writer().await;
    let mixed = "f = open('/mnt/notes/holes', 'wb'); f.truncate(1 << 26); f.close()\n\
                 open('/mnt/notes/a', 'w').write('1'); open('/mnt/notes/z', 'w').write('2')";
    let ran = world.run(session, mixed).await;
    assert_eq!(error_code(&ran), "disk.exceeded");
    assert!(ran.error.unwrap().message.contains("holes not saved"));
    assert_eq!(world.kept(), ["a", "z"]);
    // At a full quota, what shrinks makes room for what grows.
    let full = "import os; os.remove('/mnt/notes/holes')\n\
                open('/mnt/notes/z', 'wb').write(bytes(900_000))";
    world.run(session, full).await;
    let turned =
        "open('/mnt/notes/z', 'wb').write(b'1'); open('/mnt/notes/a', 'wb').write(bytes(900_000))";
    assert_eq!(world.run(session, turned).await.status, ExecutionStatus::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_many_small_files_opens_as_long_as_it_could_be_written() {
    let world = World::start();
    let volume = world.base.volume("one");
    let mut written = 0;
    while volume.write(&format!("{written}"), &mut &b"0123456789"[..], MIB).is_ok() {
        written += 1;
    }
    assert_eq!(written, 256, "each takes a page");
    let session = world.writer().await;
    assert_eq!(world.says(session, "import os; print(len(os.listdir('/mnt/notes')))").await, "256");
}

#[tokio::test(flavor = "multi_thread")]
async fn saving_a_large_volume_does_not_delay_another_volume() {
    let world = World::start();
    world.base.volume("two").create().unwrap();
    let session = world.writer().await;
    let many = "for i in range(200): open(f'/mnt/notes/{i}', 'w').write('x')";
    let (engine, other) = (Arc::clone(&world.engine), Arc::clone(&world.engine));
    let keeping = tokio::spawn(async move { run_in(&engine, session, many).await });
    wait::until("it is kept", async || {
        let began = std::time::Instant::now();
        other.with_volume("two".into(), |volume| Ok(volume.list()?)).await.unwrap();
        assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
        keeping.is_finished()
    })
    .await;
    assert_eq!(keeping.await.unwrap().status, ExecutionStatus::Succeeded);
    assert_eq!(world.kept().len(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_of_its_own_uses_the_volume_that_it_is_granted() {
    let world = World::start();
    let run = async |access: VolumeAccess, code: &str| {
        let command = Command { grants: grants(access), ..harness::command("bare", code) };
        let ran = harness::run_with(&world.engine, command).await.execution;
        let printed = harness::printed(&ran, OutputStream::Stdout).trim_end().to_owned();
        (ran.status, printed)
    };
    let write = "open('/mnt/notes/a.txt', 'w').write('kept')";
    assert_eq!(run(VolumeAccess::Write, write).await.0, ExecutionStatus::Succeeded);
    assert_eq!(world.kept(), ["a.txt"]);
    let read = "print(open('/mnt/notes/a.txt').read())";
    assert_eq!(run(VolumeAccess::Read, read).await.1, "kept");
    assert_eq!(run(VolumeAccess::Read, write).await.0, ExecutionStatus::Failed);
    let without = harness::run(&world.engine, read).await;
    assert_eq!(without.status, ExecutionStatus::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_have_a_budget_and_give_it_back() {
    let home = tempfile::tempdir().unwrap();
    let base = VolumeBase::open(home.path().join("volumes")).unwrap();
    base.volume("one").create().unwrap();
    let config =
        Config { volumes: Some(base.clone()), volumes_bytes_max: 2 * MIB, ..harness::config() };
    let world = World { engine: Engine::start(config), base, _home: home };
    let first = world.writer().await;
    world.writer().await;
    let request = || NewSession { grants: grants(VolumeAccess::Write), ..NewSession::new("bare") };
    let error = world.engine.open(request()).await.unwrap_err();
    assert_eq!(error.code.to_string(), "capacity.exhausted");
    world.engine.reset(first).await.unwrap();
    world.engine.close(first).await.unwrap();
    world.engine.open(request()).await.unwrap();
}
