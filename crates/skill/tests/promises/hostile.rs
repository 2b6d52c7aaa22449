//! Hostile skill directories: nothing outside is read, nothing hangs, nothing panics.

use crate::{World, texts};
use belljar_skill::{FILES_MAX, SKILL_BYTES_MAX, Skill, TOTAL_BYTES_MAX, validate};
use proptest::prelude::*;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

const GOOD: &str = "---\nname: pdf\ndescription: d\n---\nBody.\n";
/// For a file of the full size, unoptimised, on a machine that does other things as well.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Of the threads of tokio, on which this may run.
const STACK_BYTES: usize = 2 * 1024 * 1024;

fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    if let Err(panic) = thread.spawn(work).unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

/// Reads a skill in every way that there is; it must not be valid, and must be quick about it.
fn must_be_refused(text: &[u8]) -> Vec<String> {
    let world = World::new("pdf", &[("SKILL.md", text)]);
    let started = Instant::now();
    let problems = world.problems();
    assert!(!problems.is_empty());
    let _ = world.open().map(|skill| (skill.body(), skill.files()));
    assert!(started.elapsed() < TIME_MAX, "{:?}", started.elapsed());
    problems
}

#[test]
fn yaml_that_is_deep_or_many_or_refers_to_itself_is_refused_quickly() {
    on_a_small_stack(|| {
        let nested = |open: &str, close: &str| {
            let levels = 60_000 / (open.len() + close.len());
            format!("---\nname: {}1{}\n---\n", open.repeat(levels), close.repeat(levels))
        };
        for (open, close) in
            [("[", "]"), ("{a: ", "}"), ("[", ""), ("{", ""), ("- ", ""), ("? ", "")]
        {
            must_be_refused(nested(open, close).as_bytes());
        }
        let indented: String = (0..300).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
        must_be_refused(format!("---\n{indented}---\n").as_bytes());
        let many = "- 1\n".repeat(15_000);
        must_be_refused(format!("---\nname:\n{many}---\n").as_bytes());
        let mut bomb = String::from("a0: &a0 [lol, lol]\n");
        for level in 1..40 {
            let below = level - 1;
            bomb += &format!("a{level}: &a{level} [*a{below}, *a{below}, *a{below}]\n");
        }
        must_be_refused(format!("---\n{bomb}name: pdf\ndescription: d\n---\n").as_bytes());
    });
}

#[test]
fn a_file_that_is_too_long_is_not_read_to_its_end() {
    let megabytes = "x".repeat(1024 * 1024);
    let too_large = [format!("SKILL.md has more than {SKILL_BYTES_MAX} bytes")];
    assert_eq!(must_be_refused(format!("{GOOD}{megabytes}").as_bytes()), too_large);
    let long = "x".repeat(70_000);
    let long = must_be_refused(format!("---\nname: pdf\ndescription: {long}\n---\n").as_bytes());
    assert_eq!(long, ["SKILL.md has 70028 bytes of frontmatter; at most 65536 are allowed"]);
    // A file with a terabyte of holes.
    let world = World::skill("pdf", GOOD);
    File::create(world.path().join("SKILL.md")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(world.problems(), too_large);
}

#[test]
fn other_encodings_are_refused_with_the_place() {
    let problems = must_be_refused(b"---\nname: pdf\ndescription: \xe9\n---\n");
    assert_eq!(problems, ["SKILL.md is not valid UTF-8 (byte 27)"]);
    let wide: Vec<u8> = GOOD.encode_utf16().flat_map(u16::to_le_bytes).collect();
    must_be_refused(&wide);
    must_be_refused(b"---\nname: pdf\ndescription: \"\0\"\n-\0--\n");
}

#[test]
fn a_link_leads_nowhere() {
    let world = World::skill("pdf", GOOD);
    let outside = world.directory.path().join("secret");
    std::fs::write(&outside, GOOD).unwrap();
    symlink(&outside, world.path().join("linked.txt")).unwrap();
    symlink(world.directory.path(), world.path().join("up")).unwrap();
    symlink("SKILL.md", world.path().join("inside.md")).unwrap();
    let skill = world.open().unwrap();
    let listing = skill.files().unwrap();
    assert_eq!(listing.files.keys().collect::<Vec<_>>(), ["SKILL.md"]);
    assert_eq!(listing.skipped.values().collect::<Vec<_>>(), [&"a symbolic link"; 3]);
    for path in ["linked.txt", "up/secret", "inside.md", "../secret", "/etc/passwd", "", "."] {
        assert!(skill.read(path).is_err(), "{path}");
    }
    assert_eq!(skill.read("SKILL.md").unwrap(), GOOD.as_bytes());

    std::fs::remove_file(world.path().join("SKILL.md")).unwrap();
    symlink(&outside, world.path().join("SKILL.md")).unwrap();
    assert_eq!(texts(&validate(&world.path())), ["SKILL.md is not a regular file"]);
    assert!(Skill::open(&world.path()).is_err());
}

#[test]
fn a_pipe_in_place_of_a_file_does_not_block() {
    let world = World::new("pdf", &[]);
    let pipe = |name: &str| {
        assert!(Command::new("mkfifo").arg(world.path().join(name)).status().unwrap().success());
    };
    pipe("SKILL.md");
    assert_eq!(world.problems(), ["SKILL.md is not a regular file"]);
    std::fs::remove_file(world.path().join("SKILL.md")).unwrap();
    std::fs::write(world.path().join("SKILL.md"), GOOD).unwrap();
    pipe("data");
    let listing = world.open().unwrap().files().unwrap();
    assert_eq!(
        listing.skipped.into_iter().collect::<Vec<_>>(),
        [("data".into(), "not a regular file")]
    );
}

#[test]
fn a_folder_without_end_is_refused() {
    let world = World::skill("pdf", GOOD);
    for number in 1..FILES_MAX {
        File::create(world.path().join(number.to_string())).unwrap();
    }
    let skill = world.open().unwrap();
    assert_eq!(skill.files().unwrap().files.len(), FILES_MAX);
    let one_more = File::create(world.path().join("more")).unwrap();
    assert_eq!(
        skill.files().unwrap_err().to_string(),
        "skill has more than 1000 files; remove some"
    );

    let world = World::skill("pdf", GOOD);
    let file = File::create(world.path().join("large")).unwrap();
    file.set_len(TOTAL_BYTES_MAX).unwrap();
    let large = world.open().unwrap().files().unwrap_err().to_string();
    assert_eq!(large, "files of the skill exceed 33554432 bytes in total");
    drop(one_more);

    let world = World::skill("pdf", GOOD);
    std::fs::create_dir_all(world.path().join("d/".repeat(200))).unwrap();
    let listing = world.open().unwrap().files().unwrap();
    assert_eq!(listing.skipped.into_values().collect::<Vec<_>>(), ["nested too deeply"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_text_makes_the_reader_fall(text in r"(?s)(---\n)?([a-z\-:&*!|>{}\[\]?'\x22#%@, \n\t]|.){0,200}(\n---\n)?.{0,20}") {
        let world = World::skill("pdf", &text);
        prop_assert_eq!(world.problems().is_empty(), world.open().is_ok_and(|it| it.warnings.is_empty()));
        let _ = world.open().map(|skill| skill.body());
    }

    #[test]
    fn no_bytes_make_the_reader_fall(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let fenced = [b"---\n", bytes.as_slice(), b"\n---\n"].concat();
        let _ = World::new("pdf", &[("SKILL.md", &fenced)]).problems();
    }
}
