//! Files of a working directory: uploaded, listed, downloaded, deleted, and copied after an execution.

use crate::harness::{self, open, read_file, run_in, run_with, wait};
use engine::{Command, Engine, FileCollection, StagingDirectory};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use types::{ExecutionStatus, SandboxId};

async fn started() -> (Arc<Engine>, SandboxId) {
    let engine = Engine::start(harness::config());
    let session = open(&engine, "bare").await;
    (engine, session)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_in_are_listed_and_come_out() {
    let (engine, session) = started().await;
    let content = &b"a,b\n1,2\n"[..];
    assert_eq!(engine.write_file(session, "data/in.csv".into(), content).await.unwrap(), 8);
    let code = "text = open('data/in.csv').read()\nopen('out.txt', 'w').write(text.upper())";
    let execution = run_in(&engine, session, code).await;
    let made: Vec<_> = execution.files_out.iter().map(|f| (f.name.as_str(), f.size)).collect();
    assert_eq!(made, [("out.txt", 8)]);
    let listed = engine.list_files(session).await.unwrap();
    let names: Vec<_> = listed.files.keys().map(String::as_str).collect();
    assert_eq!(names, ["data/in.csv", "out.txt"]);
    assert_eq!(harness::read_file(&engine, session, "out.txt").await.unwrap(), b"A,B\n1,2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_there_or_leads_out_is_refused() {
    let (engine, session) = started().await;
    run_in(&engine, session, "import os\nos.symlink('/etc/passwd', 'link')").await;
    for (name, code) in [
        ("nothing", "file.not_found"),
        ("../etc/passwd", "file.unsupported"),
        ("/etc/passwd", "file.unsupported"),
        ("link", "file.unsupported"),
    ] {
        let error = harness::read_file(&engine, session, name).await.unwrap_err();
        assert_eq!(error.code.to_string(), code, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_streamed_out_with_its_size() {
    let (engine, session) = started().await;
    run_in(&engine, session, "open('big', 'wb').write(b'x' * (3 << 20))").await;
    let (file, size) = engine.open_file(session, "big".into()).await.unwrap();
    assert_eq!(size, 3 << 20);
    assert!(BufReader::new(file).bytes().all(|byte| byte.unwrap() == b'x'));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_brought_in_is_not_one_that_the_code_made() {
    let (engine, session) = started().await;
    // In the background of the session, while nothing runs.
    let late =
        "import threading\nthreading.Timer(0.3, lambda: open('late', 'w').write('x')).start()";
    run_in(&engine, session, late).await;
    let is_there = async || engine.list_files(session).await.unwrap().files.contains_key("late");
    wait::until("the thread has written", is_there).await;
    engine.write_file(session, "given".into(), std::io::repeat(b'y').take(5)).await.unwrap();
    let next = run_in(&engine, session, "print(open('given').read())").await;
    let made: Vec<_> = next.files_out.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(made, ["late"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_removed_and_a_link_is_not_followed() {
    let (engine, session) = started().await;
    let make = "import os\nos.makedirs('d')\nfor n in ('a', 'd/b'): open(n, 'w').write(n)\n\
                os.symlink('/workspace/a', 'link')\nos.symlink('/workspace/d', 'dir')";
    run_in(&engine, session, make).await;
    for (name, code) in [
        ("nothing", "file.not_found"),
        ("d", "file.unsupported"),
        ("dir/b", "file.unsupported"),
        ("../a", "file.unsupported"),
    ] {
        let error = engine.delete_file(session, name.into()).await.unwrap_err();
        assert_eq!(error.code.to_string(), code, "{name}");
    }
    for name in ["link", "d/b"] {
        engine.delete_file(session, name.into()).await.unwrap();
    }
    assert_eq!(read_file(&engine, session, "a").await.unwrap(), b"a");
    let left = engine.list_files(session).await.unwrap();
    assert_eq!(left.files.keys().collect::<Vec<_>>(), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_refuses_a_file_and_keeps_the_session() {
    let (engine, session) = started().await;
    run_in(&engine, session, "kept = 1").await;
    let endless = std::io::repeat(b'x');
    let error = engine.write_file(session, "endless".into(), endless).await.unwrap_err();
    assert_eq!(error.code.to_string(), "disk.exceeded");
    engine.delete_file(session, "endless".into()).await.unwrap();
    assert_eq!(run_in(&engine, session, "kept").await.value, Some(1.into()));
}

fn staged(directory: &Path, bytes_max: u64, code: &str) -> Command {
    let bring =
        FileCollection::Staged(StagingDirectory { directory: directory.to_owned(), bytes_max });
    Command { collect_files: bring, ..harness::command("bare", code) }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_files_are_what_was_hashed_and_only_their_owner_can_read_them() {
    let engine = Engine::start(harness::config());
    let aside = tempfile::tempdir().unwrap();
    let code = "import os\nos.makedirs('d')\nopen('a', 'w').write('one')\n\
                open('d/../d/b', 'w').write('two')\nos.symlink('/etc/passwd', 'link')";
    let finished = run_with(&engine, staged(aside.path(), 1 << 20, code)).await;
    assert!(finished.contents.is_empty());
    let copies: Vec<(&str, &Path)> =
        finished.copies.iter().map(|(name, path)| (name.as_str(), path.as_path())).collect();
    let expected = [("a", aside.path().join("0")), ("d/b", aside.path().join("1"))];
    assert_eq!(copies, expected.each_ref().map(|(name, path)| (*name, path.as_path())));
    for (file, (_, path)) in finished.execution.files_out.iter().zip(copies) {
        let content = fs::read(path).unwrap();
        let hash: String = Sha256::digest(&content).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!((file.size, &file.sha256), (content.len() as u64, &hash));
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_stop_at_the_bytes_that_the_caller_allows() {
    let engine = Engine::start(harness::config());
    let aside = tempfile::tempdir().unwrap();
    let code = "open('a', 'wb').write(b'x' * 600)\nopen('b', 'wb').truncate(1 << 27)\n\
                open('c', 'wb').write(b'x' * 600)\nopen('d', 'wb').write(b'x' * 400)";
    let finished = run_with(&engine, staged(aside.path(), 1000, code)).await;
    let copied: Vec<_> = finished.copies.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(copied, ["a", "d"]);
    let left: Vec<_> = finished.execution.truncated.files.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(left, ["b", "c"]);
    assert_eq!(fs::read_dir(aside.path()).unwrap().count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_cannot_be_written_is_a_file_left_out_with_its_reason() {
    let engine = Engine::start(harness::config());
    let aside = tempfile::tempdir().unwrap();
    fs::write(aside.path().join("0"), "somebody else's").unwrap();
    let code = "open('a', 'w').write('one')\nopen('b', 'w').write('two')";
    let finished = run_with(&engine, staged(aside.path(), 1 << 20, code)).await;
    assert_eq!(finished.execution.status, ExecutionStatus::Succeeded);
    assert_eq!(finished.copies, [("b".to_owned(), aside.path().join("1"))]);
    let left = &finished.execution.truncated.files[0];
    assert!(left.name == "a" && left.reason.starts_with("it could not be saved"), "{left:?}");
    assert_eq!(fs::read(aside.path().join("0")).unwrap(), b"somebody else's");
}

/// A tmpfs changes no time when a page is written that was touched before through the same mapping.
#[tokio::test(flavor = "multi_thread")]
async fn t90_a_file_that_is_changed_through_a_mapping_is_one_that_was_changed() {
    let (engine, session) = started().await;
    engine.write_file(session, "in.bin".into(), &[b'a'; 8192][..]).await.unwrap();
    engine.write_file(session, "other.bin".into(), &[b'a'; 8192][..]).await.unwrap();
    let changed = async |code: &str| {
        let execution = run_in(&engine, session, code).await;
        assert_eq!(execution.status, ExecutionStatus::Succeeded, "{execution:?}");
        execution.files_out.into_iter().map(|file| file.name).collect::<Vec<_>>()
    };
    let map =
        "import mmap\nfile = open('in.bin', 'r+b')\nview = mmap.mmap(file.fileno(), 0)\nview[0]";
    assert_eq!(changed(map).await, [""; 0]);
    assert_eq!(changed("view[0:1] = b'b'").await, ["in.bin"]);
    assert_eq!(changed("view[0:1] = b'b'").await, [""; 0], "it has the same content");
    assert_eq!(changed("view[1:2] = b'c'").await, ["in.bin"]);
    assert_eq!(changed("print(view[:2])").await, [""; 0]);
    assert_eq!(read_file(&engine, session, "in.bin").await.unwrap()[..3], *b"bca");
}
