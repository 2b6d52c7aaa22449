//! Errors for authors: the texts of the reference validator, letter by letter.

use crate::{World, repository, texts};
use belljar_skill::{Skill, validate};

/// A skill in a folder called `pdf` with this frontmatter.
fn problems(frontmatter: &str) -> Vec<String> {
    World::skill("pdf", &format!("---\n{frontmatter}\n---\nBody.\n")).problems()
}

/// The problems of a name in a folder of the same name.
fn of_name(name: &str) -> Vec<String> {
    World::skill(name, &format!("---\nname: {name}\ndescription: d\n---\n")).problems()
}

// proves K-01, K-04
#[test]
fn a_skill_with_every_field_is_valid() {
    let full = "name: pdf\ndescription: Reads PDF files.\nlicense: Apache-2.0\n\
                compatibility: Requires Python 3.14+ and uv\n\
                metadata:\n  author: example-org\n  version: 1.0\n\
                allowed-tools: Bash(git:*) Bash(jq:*) Read";
    assert_eq!(problems(full), [""; 0]);
    assert_eq!(problems("name: pdf\ndescription: d"), [""; 0]);
}

// proves K-06
#[test]
fn what_makes_a_file_no_skill_is_said_in_the_words_of_the_reference() {
    assert_eq!(World::new("pdf", &[]).problems(), ["Missing required file: SKILL.md"]);
    let start = ["SKILL.md must start with YAML frontmatter (---)"];
    for text in ["", "# Title\n", "\n---\nname: pdf\n---\n", "\u{feff}---\nname: pdf\n---\n"] {
        assert_eq!(World::skill("pdf", text).problems(), start, "{text:?}");
    }
    let closed = ["SKILL.md frontmatter not properly closed with ---"];
    for text in ["---", "---\n", "---\nname: pdf\ndescription: d\n", "---\nname: pdf\n --- \n"] {
        assert_eq!(World::skill("pdf", text).problems(), closed, "{text:?}");
    }
    let mapping = ["SKILL.md frontmatter must be a YAML mapping"];
    for text in ["---\n---\n", "---\njust a text\n---\n", "---\n- a\n- b\n---\n"] {
        assert_eq!(World::skill("pdf", text).problems(), mapping, "{text:?}");
    }
    let broken = problems("name: pdf\ndescription: [");
    assert!(broken[0].starts_with("Invalid YAML in frontmatter: "), "{broken:?}");
    assert_eq!(broken.len(), 1);
}

// proves K-02, K-03, K-06
#[test]
fn a_missing_field_is_named() {
    let missing = "Missing required field in frontmatter: ";
    assert_eq!(problems("description: d"), [format!("{missing}name")]);
    assert_eq!(problems("name: pdf"), [format!("{missing}description")]);
    assert_eq!(problems("{}"), [format!("{missing}name"), format!("{missing}description")]);
    let empty = |field: &str| format!("Field '{field}' must be a non-empty string");
    assert_eq!(problems("name:\ndescription: ' '"), [empty("name"), empty("description")]);
    assert_eq!(problems("name: [pdf]\ndescription: {}"), [empty("name"), empty("description")]);
}

// proves K-02, K-06
#[test]
fn a_name_that_breaks_a_rule_is_told_which() {
    let wrong: [(&str, &[&str]); 6] = [
        ("PDF", &["Skill name 'PDF' must be lowercase"]),
        ("-pdf", &["Skill name cannot start or end with a hyphen"]),
        ("pdf-", &["Skill name cannot start or end with a hyphen"]),
        ("pdf--tools", &["Skill name cannot contain consecutive hyphens"]),
        (
            "pdf_tools",
            &["Skill name 'pdf_tools' contains invalid characters. Only letters, digits, and \
               hyphens are allowed."],
        ),
        (
            "-Pdf--x.y",
            &[
                "Skill name '-Pdf--x.y' must be lowercase",
                "Skill name cannot start or end with a hyphen",
                "Skill name cannot contain consecutive hyphens",
                "Skill name '-Pdf--x.y' contains invalid characters. Only letters, digits, and \
                 hyphens are allowed.",
            ],
        ),
    ];
    for (name, expected) in wrong {
        assert_eq!(of_name(name), expected);
    }
    let long = "a".repeat(65);
    assert_eq!(
        of_name(&long),
        [format!("Skill name '{long}' exceeds 64 character limit (65 chars)")]
    );
    for name in ["a", "pdf-2", "2024", "übung", &"a".repeat(64)] {
        assert_eq!(of_name(name), [""; 0], "{name}");
    }
    assert_eq!(
        problems("name: other\ndescription: d"),
        ["Directory name 'pdf' must match skill name 'other'"]
    );
}

// proves K-03
#[test]
fn a_description_has_at_most_1024_characters() {
    let of_length = |length: usize| format!("name: pdf\ndescription: {}", "é".repeat(length));
    assert_eq!(problems(&of_length(1024)), [""; 0]);
    let long = problems(&of_length(1025));
    assert_eq!(long, ["Description exceeds 1024 character limit (1025 chars)"]);
}

// proves K-04
#[test]
fn optional_fields_have_their_form() {
    let with = |more: &str| problems(&format!("name: pdf\ndescription: d\n{more}"));
    assert_eq!(with(&format!("compatibility: {}", "x".repeat(500))), [""; 0]);
    assert_eq!(
        with(&format!("compatibility: {}", "x".repeat(501))),
        ["Compatibility exceeds 500 character limit (501 chars)"]
    );
    assert_eq!(with("compatibility: [x]"), ["Field 'compatibility' must be a string"]);
    assert_eq!(with("license: {a: b}"), ["Field 'license' must be a string"]);
    assert_eq!(with("allowed-tools: [Read]"), ["Field 'allowed-tools' must be a string"]);
    let strings = ["Field 'metadata' must be a mapping of strings to strings"];
    assert_eq!(with("metadata: text"), strings);
    assert_eq!(with("metadata: {a: [b]}"), strings);
}

// proves K-05
#[test]
fn unknown_fields_are_listed_in_order() {
    assert_eq!(
        problems("version: 1\nname: pdf\nauthor: me\ndescription: d"),
        ["Unexpected fields in frontmatter: author, version. Only ['allowed-tools', \
          'compatibility', 'description', 'license', 'metadata', 'name'] are allowed."]
    );
}

#[test]
fn a_path_that_is_no_folder_is_said_to_be_none() {
    let world = World::skill("pdf", "x");
    let absent = world.path().join("absent");
    let expected = [format!("Path does not exist: {}", absent.display())];
    assert_eq!(texts(&validate(&absent)), expected);
    let file = world.path().join("SKILL.md");
    assert_eq!(texts(&validate(&file)), [format!("Not a directory: {}", file.display())]);
}

#[test]
fn the_lower_case_name_of_the_file_is_taken_too() {
    let text = b"---\nname: pdf\ndescription: d\n---\n";
    assert_eq!(World::new("pdf", &[("skill.md", text)]).problems(), [""; 0]);
}

#[test]
fn the_skills_that_ship_are_valid_and_in_the_program_as_they_are_here() {
    let on_disk = |name: &str| Skill::open(&repository().join(name)).unwrap();
    let mut folders: Vec<String> = std::fs::read_dir(repository())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    folders.sort();
    assert_eq!(Skill::built_in_names().collect::<Vec<_>>(), folders);
    for name in &folders {
        assert_eq!(texts(&validate(&repository().join(name))), [""; 0]);
        let (shipped, here) = (Skill::built_in(name).unwrap(), on_disk(name));
        assert_eq!(shipped.summary, here.summary);
        assert_eq!(shipped.files().unwrap(), here.files().unwrap());
        for path in shipped.files().unwrap().files.keys() {
            assert_eq!(shipped.read(path).unwrap(), here.read(path).unwrap(), "{name}/{path}");
        }
    }
    assert!(Skill::built_in("absent").is_none());
}

/// Without line breaks, so that a rule is found wherever it is broken.
fn prose(name: &str) -> String {
    let body = Skill::built_in(name).unwrap().body().unwrap();
    body.split_whitespace().collect::<Vec<_>>().join(" ").replace("**", "")
}

// proves P-056, P-057, P-058
#[test]
fn the_code_interpreter_is_told_what_to_do_when_code_fails() {
    let text = prose("code-interpreter");
    for rule in [
        "Read the traceback, fix the code, and run it again.",
        "There are at most two retries, so at most three executions for one task.",
        "On an `ImportError` that names `PYTHON_PACKAGES_WHITELIST_IMPORT`",
        "Do the same with the standard library. If that cannot be done, tell the user that the \
         library is unavailable.",
        "On `CodeSandboxUnreachable`",
        "Do not retry. Tell the user that running code is temporarily unavailable.",
        "Never invent a result when the code failed.",
    ] {
        assert!(text.contains(rule), "{rule}");
    }
}

#[test]
fn files_go_by_url_and_charts_by_the_other_skill() {
    let text = prose("code-interpreter");
    assert!(text.contains("Pass the URL of a file in `files`"), "{text}");
    assert!(
        text.contains("Never paste the content of a file into the code or into the conversation")
    );
    assert!(text.contains("for a chart, hand the numbers to the skill `dataviz`"));
    assert!(prose("dataviz").contains("compute the numbers with `execute_python`"));
}
