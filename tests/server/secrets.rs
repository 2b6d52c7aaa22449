//! Keys are neither in the processes that fork sandboxes nor in the records.

use crate::harness;
use crate::overload::zygotes;
use crate::test_server::World;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// Every page of a process that can be read; only root and the same user can.
fn memory(pid: u32) -> Vec<u8> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|number| u64::from_str_radix(number, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        if memory.read_exact_at(&mut bytes, from).is_ok() {
            all.append(&mut bytes);
        }
    }
    all
}

fn files_below(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn t14_no_key_is_in_a_zygote_or_in_the_records() {
    let world = World::start().await;
    world.owner.execute("1").await;
    let seal = fs::read(world.data.path().join("db/approval.key")).unwrap();
    // `bj_`, the id, and the secret part, which may have the same sign in it.
    let secret = world.owner.key.splitn(3, '_').nth(2).unwrap().as_bytes();
    let secrets = [seal.as_slice(), secret];

    let below = harness::descendants_of(world.pid());
    assert!(!below.is_empty());
    for pid in below {
        for file in ["environ", "cmdline"] {
            let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            assert!(secrets.iter().all(|secret| !contains(&text, secret)), "{file} of {pid}");
            assert!(!contains(&text, b"BELLJAR_"), "{file} of {pid}");
        }
    }
    let [zygote] = zygotes(world.pid())[..] else { panic!("there is no zygote") };
    let pages = memory(zygote);
    assert!(contains(&pages, b"zygote"), "its memory can be read");
    assert!(secrets.iter().all(|secret| !contains(&pages, secret)));

    let kept = files_below(&world.data.path().join("db"));
    assert!(kept.len() > 1);
    for (name, content) in kept {
        assert!(!contains(&content, secret), "{name} has the owner's key");
        assert_eq!(contains(&content, &seal), name.ends_with("approval.key"), "{name}");
    }
}
