//! T29 to T32: file names that callers give, and files of a sandbox that the collector must not follow.

use crate::fixtures::{engine, said, still_serves, with_prelude};
use crate::harness;
use engine::{Command, FileCollection, StagingDirectory};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use types::{Execution, LimitsRequest};

/// File names of callers, and whether each is valid.
fn names() -> Vec<(String, bool)> {
    let refused = [
        "",
        ".",
        "..",
        "/",
        "//",
        "/etc/passwd",
        "/workspace/a",
        "../a",
        "../../etc/passwd",
        "a/../../b",
        "a/..",
        "a/../b",
        "./a",
        "a/./b",
        "a//b",
        "a/",
        "nul\0byte",
        "line\nfeed",
        "carriage\rreturn",
        "escape\u{1b}[31m",
        "delete\u{7f}",
        "next\u{85}line",
        "link/inside",
        "link",
        "up",
        "fifo",
        "directory",
    ];
    let plain = [
        "plain.txt",
        "back\\slash",
        "..\\..\\windows",
        "C:\\autoexec.bat",
        "con",
        "...",
        "..hidden",
        " leading and trailing ",
        "%2e%2e%2fetc",
        "\u{2024}\u{2024}/dots that are none",
        "\u{ff0e}\u{ff0e}\u{ff0f}full width",
        "\u{202e}gpj.exe",
        "e\u{301}",
        "\u{e9}",
        "'; rm -rf \u{2603}; \"",
        "-rf",
        "d1/d2/d3/deep.txt",
    ];
    let refused = refused.map(str::to_owned).into_iter().chain([
        "x".repeat(256),
        "\u{2603}".repeat(86),
        vec!["d"; 17].join("/"),
        format!("{}/x", "y".repeat(300)),
    ]);
    let plain =
        plain.map(str::to_owned).into_iter().chain(["x".repeat(255), vec!["e"; 16].join("/")]);
    refused.map(|name| (name, false)).chain(plain.map(|name| (name, true))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn t29_a_name_stays_beneath_the_directory_or_is_refused() {
    let outside = tempfile::tempdir().unwrap();
    let engine = engine();
    let session = harness::open(&engine, "bare").await;
    let traps = format!(
        "import os\nos.symlink({:?}, 'link')\nos.symlink('..', 'up')\nos.mkfifo('fifo')\n\
         os.mkdir('directory')",
        outside.path().display().to_string()
    );
    said(&harness::run_in(&engine, session, &traps).await);
    let mut kept = Vec::new();
    for (name, usable) in names() {
        let content = name.clone().into_bytes();
        let written = engine.write_file(session, name.clone(), std::io::Cursor::new(content)).await;
        assert_eq!(written.is_ok(), usable, "{name:?}: {written:?}");
        if usable {
            assert_eq!(
                harness::read_file(&engine, session, &name).await.unwrap(),
                name.as_bytes(),
                "{name:?}"
            );
            kept.push(name);
        } else {
            assert_eq!(written.unwrap_err().code.to_string(), "file.unsupported", "{name:?}");
            assert!(engine.open_file(session, name.clone()).await.is_err(), "{name:?}");
            let removable = ["link", "up", "fifo"].contains(&name.as_str());
            assert_eq!(
                engine.delete_file(session, name.clone()).await.is_ok(),
                removable,
                "{name:?}"
            );
        }
    }
    kept.sort();
    let listed = engine.list_files(session).await.unwrap();
    assert_eq!(listed.files.into_keys().collect::<Vec<_>>(), kept);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    still_serves(&engine).await;
}

fn reasons(execution: &Execution) -> BTreeMap<&str, &str> {
    let left_out = execution.truncated.files.iter();
    left_out.map(|file| (file.name.as_str(), file.reason.as_str())).collect()
}

fn copied_to(directory: &std::path::Path, code: &str) -> Command {
    let bring = FileCollection::Staged(StagingDirectory {
        directory: directory.to_owned(),
        bytes_max: 64 * 1024 * 1024,
    });
    Command { collect_files: bring, ..harness::command("bare", &with_prelude(code)) }
}

/// One look at each is enough to leave it alone: not a byte is read of what is no plain file.
#[tokio::test(flavor = "multi_thread")]
async fn t30_what_is_no_plain_file_is_named_and_not_read() {
    let engine = engine();
    let aside = tempfile::tempdir().unwrap();
    let litter = "
def refused(work):
    try: work()
    except OSError as error: return error.errno
open('plain', 'w').write('mine')
os.symlink('/etc/passwd', 'link'); os.symlink('/proc/1/root', 'root'); os.symlink('.', 'here')
os.mkdir('loop'); os.symlink('..', 'loop/up')
os.mkfifo('fifo'); socket.socket(socket.AF_UNIX).bind('socket')
print(refused(lambda: os.link('/etc/passwd', 'hard')), refused(lambda: os.mknod('device', 0o20666)))";
    let finished = harness::run_with(&engine, copied_to(aside.path(), litter)).await;
    assert_eq!(said(&finished.execution), "18 1", "across a mount, and without the right");
    let expected = [
        ("fifo", "a FIFO"),
        ("here", "a symbolic link"),
        ("link", "a symbolic link"),
        ("loop/up", "a symbolic link"),
        ("root", "a symbolic link"),
        ("socket", "a socket"),
    ];
    assert_eq!(reasons(&finished.execution), BTreeMap::from(expected));
    assert_eq!(finished.copies, [("plain".to_owned(), aside.path().join("0"))]);
    assert_eq!(fs::read(aside.path().join("0")).unwrap(), b"mine");
    still_serves(&engine).await;
}

/// Each would keep a collector busy, or its disk full, that has no bound for it.
const PILES: [(&str, &str, &str); 4] = [
    (
        "100,000 files",
        "for n in range(100_000): os.close(os.open(str(n), os.O_CREAT))",
        "more than 2000 entries",
    ),
    (
        "a thousand levels",
        "for _ in range(1000):\n    os.mkdir('d'); os.chdir('d')\n    open('f', 'w').write('x')",
        "nested too deeply",
    ),
    (
        "holes of a terabyte",
        "for n in range(1024): open(f'{n:04}', 'wb').truncate(1 << 30)",
        "it has 1073741824 bytes",
    ),
    (
        "holes that each would fit",
        "for n in range(1024): open(f'{n:04}', 'wb').truncate(48 << 20)",
        "it has 50331648 bytes",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn t31_no_pile_of_files_holds_up_the_reply() {
    let engine = engine();
    for (name, code, reason) in PILES {
        let aside = tempfile::tempdir().unwrap();
        let limits = LimitsRequest {
            disk_inodes: Some(200_000),
            disk_bytes: Some(4 << 30),
            wall_ms: Some(120_000),
            ..LimitsRequest::default()
        };
        let command = Command { limits, ..copied_to(aside.path(), code) };
        let asked = Instant::now();
        let finished = harness::run_with(&engine, command).await;
        let execution = &finished.execution;
        said(execution);
        let after = asked.elapsed() - Duration::from_millis(execution.usage.wall_ms);
        assert!(after < Duration::from_secs(5), "{name}: {after:?}");
        let reasons = reasons(execution);
        assert!(reasons.values().any(|said| said.starts_with(reason)), "{name}: {reasons:?}");
        assert!(execution.truncated.files.len() <= 100, "{name}");
        let kept = fs::read_dir(aside.path()).unwrap().flatten();
        let bytes: u64 = kept.map(|file| file.metadata().unwrap().size()).sum();
        assert!(bytes <= 64 << 20, "{name}: {bytes}");
        assert!(execution.files_out.len() <= 2000, "{name}");
    }
    still_serves(&engine).await;
}

/// Without copies everything is hashed all the same, up to a gigabyte and for three seconds.
#[tokio::test(flavor = "multi_thread")]
async fn t31_hashing_holes_ends_in_time() {
    let engine = engine();
    let code = "for n in range(200): open(f'{n:04}', 'wb').truncate(200 << 20)";
    let asked = Instant::now();
    let execution = harness::run(&engine, code).await;
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    let read: u64 = execution.files_out.iter().map(|file| file.size).sum();
    assert!(read <= 1 << 30, "{read}");
    assert!(!execution.truncated.files.is_empty());
    still_serves(&engine).await;
}

/// A file that is swapped for a link, grows and shrinks while it is collected, two thousand times:
/// what is brought out was written by the code, and is what was hashed.
#[tokio::test(flavor = "multi_thread")]
async fn t32_a_race_with_the_collector_wins_no_foreign_byte() {
    let outside = tempfile::tempdir().unwrap();
    let canary = outside.path().join("canary");
    fs::write(&canary, "a bird of the host").unwrap();
    let engine = engine();
    let session = harness::open(&engine, "bare").await;
    let swap = format!(
        "
os.symlink({canary:?}, 'link'); os.symlink('/etc/passwd', 'other')
if os.fork() == 0:
    while True:
        for name in ('link', 'other'):
            with open('new', 'w') as f: f.write('mine' * 2500)
            os.rename('new', 'f')
            os.truncate('f', 4)
            os.link(name, 'new', follow_symlinks=False)
            os.rename('new', 'f')
print('swapping')",
        canary = canary.display().to_string(),
    );
    let command =
        Command { session: Some(session), ..harness::command("bare", &with_prelude(&swap)) };
    assert_eq!(said(&harness::run_with(&engine, command).await.execution), "swapping");
    let (mut mine, mut left_out) = (0, 0);
    for round in 0..20_000 {
        // On a busy machine the swapper may not have its turn for a while.
        if round >= 2_000 && mine > 10 && left_out > 10 {
            break;
        }
        let command = Command {
            session: Some(session),
            collect_files: FileCollection::Contents,
            ..harness::command("bare", "pass")
        };
        let finished = harness::run_with(&engine, command).await;
        for (name, content) in &finished.contents {
            // A page that is cut off while it is read is zeros from there on.
            let own = content.iter().all(|byte| b"mine\0".contains(byte));
            assert!(own, "{name}: {}", String::from_utf8_lossy(content));
            mine += usize::from(name == "f");
        }
        left_out += usize::from(finished.execution.truncated.files.iter().any(|f| f.name == "f"));
    }
    assert!(mine > 10 && left_out > 10, "{mine} read, {left_out} left out: there was no race");
    engine.close(session).await.unwrap();
    still_serves(&engine).await;
}
