//! What users of skills that others wrote can rely on.

use crate::{World, repository, texts};
use belljar_skill::{Skill, SkillError, SkillSummary};
use std::os::unix::fs::symlink;

fn entry(name: &str, description: &str) -> SkillSummary {
    SkillSummary { name: name.into(), description: description.into() }
}

// proves K-07
#[test]
fn a_skill_that_breaks_rules_is_used_all_the_same_with_a_warning_for_each() {
    let world = World::skill("folder", "---\nname: Other_Name\ndescription: d\nauthor: me\n---\n");
    let skill = world.open().unwrap();
    assert_eq!(skill.summary, entry("Other_Name", "d"));
    assert_eq!(texts(&skill.warnings), world.problems());
    assert_eq!(skill.warnings.len(), 4);
    let world = World::skill("folder", "---\ndescription: d\nmetadata: [x]\n---\n");
    let skill = world.open().unwrap();
    assert_eq!(skill.summary, entry("folder", "d"), "without a name it has that of its folder");
    assert_eq!(skill.warnings.len(), 2);
    let long = "x".repeat(2000);
    let world = World::skill("folder", &format!("---\nname: folder\ndescription: {long}\n---\n"));
    assert_eq!(world.open().unwrap().summary.description, long);
}

// proves K-07
#[test]
fn without_a_description_or_readable_yaml_there_is_no_skill() {
    let refused = |text: &str| World::skill("folder", text).open().unwrap_err();
    assert!(matches!(refused("---\nname: folder\n---\n"), SkillError::MissingField("description")));
    let empty = refused("---\nname: folder\ndescription:\n---\n");
    assert!(matches!(empty, SkillError::EmptyField("description")));
    let yaml = refused("---\nname: folder\ndescription: when: it rains\n---\n");
    assert!(matches!(yaml, SkillError::Yaml(_)));
    assert!(World::skill("folder", "---\nname: folder\ndescription: d\n---\n").open().is_ok());
}

// proves K-08
#[test]
fn the_entry_the_body_and_the_files_are_read_one_after_the_other() {
    let text = b"---\nname: pdf\ndescription: Reads PDF files.\n---\n\n# How\n\nRead it.\n";
    let world = World::new(
        "pdf",
        &[("SKILL.md", text), ("references/forms.md", b"forms"), ("a.txt", b"a")],
    );
    let skill = world.open().unwrap();
    assert_eq!(skill.summary, entry("pdf", "Reads PDF files."));
    // What is read later is what is there later.
    let changed = "---\nname: pdf\ndescription: d\n---\nBetter.\n";
    std::fs::write(world.path().join("SKILL.md"), changed).unwrap();
    assert_eq!(skill.body().unwrap(), "Better.");
    std::fs::write(world.path().join("references/forms.md"), "more").unwrap();
    assert_eq!(skill.read("references/forms.md").unwrap(), b"more");
    let listing = skill.files().unwrap();
    assert_eq!(
        listing.files.keys().collect::<Vec<_>>(),
        ["SKILL.md", "a.txt", "references/forms.md"]
    );
    assert_eq!(listing.files["references/forms.md"], 4);
    assert!(listing.skipped.is_empty());
    let contents = skill.contents().unwrap();
    assert_eq!(contents.files.keys().collect::<Vec<_>>(), listing.files.keys().collect::<Vec<_>>());
    assert_eq!(contents.files["references/forms.md"], b"more");
}

#[test]
fn the_folder_one_is_in_has_its_own_name() {
    let world = World::skill("pdf", "---\nname: pdf\ndescription: d\n---\n");
    let here = Skill::open(&world.path().join(".")).unwrap();
    assert_eq!(texts(&here.warnings), [""; 0]);
    let linked = world.directory.path().join("linked");
    symlink(world.path(), &linked).unwrap();
    assert_eq!(Skill::open(&linked).unwrap().summary.name, "pdf");
}

#[test]
fn a_skill_that_ships_is_read_as_any_other() {
    let skill = Skill::built_in("dataviz").unwrap();
    assert!(skill.body().unwrap().starts_with("# Dataviz"));
    assert!(skill.read("assets/../SKILL.md").is_err());
    assert!(Skill::open(&repository().join("dataviz")).unwrap().read("assets/chart.html").is_ok());
}
