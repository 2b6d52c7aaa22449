//! Lists every text that a user can read, and refuses words that need a second read.
//!
//! The list is `target/tmp/texts.txt`, one line for each string literal that has at least two words: its
//! crate, file and line, whether it is an error, a hint or another text, and the text. Read it as a whole
//! after you have changed texts: an error says what failed, the offending value, and what to do.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Words and phrases that a reader has to read twice. `CONTRIBUTING.md`, "Style", says what to write.
const REFUSED: &[&str] = &[
    "all the same",
    "anew",
    "cannot be as it is",
    "cannot be told",
    "did not work out",
    "go by that name",
    "goes by that name",
    "is gone meanwhile",
    "is not one that",
    "lend",
    "lends",
    "lent",
    "likewise",
    "nobody",
    "of its own accord",
    "of now",
    "somebody",
    "the way out",
    "to come again",
    "what became of",
    "what came of",
    "what is there",
    "what there is",
    "whoever",
    "whomever",
];

/// Words of the old vocabulary that comments must not use either. Texts for users have no use for them, but may
/// quote them from data.
const REFUSED_IN_COMMENTS: &[&str] =
    &["anybody", "births", "buried", "everybody", "newborn", "of ours", "undertaker", "was born"];

/// Identifiers that were figures of speech and have been replaced. None may come back as the name of a variable,
/// a parameter, a field or a function. (Names that a wire format fixes are literals or `serde(rename)`.)
const REFUSED_IDENTIFIERS: &[&str] = &[
    "asked",
    "asker",
    "born",
    "borrower",
    "came",
    "crib",
    "desk",
    "door",
    "doubt",
    "fault",
    "furnish",
    "goes_on",
    "greeted",
    "greeting",
    "ground",
    "hear",
    "heard",
    "hearing",
    "house",
    "judge",
    "judged",
    "lender",
    "lent",
    "manner",
    "manners",
    "matter",
    "newborn",
    "nobody",
    "nursery",
    "outlet",
    "passage",
    "remains",
    "said",
    "scribe",
    "seat",
    "seats",
    "shelf",
    "somebody",
    "speech",
    "spelling",
    "spellings",
    "spoken",
    "stillborn",
    "story",
    "talk",
    "telling",
    "theirs",
    "told",
    "twins",
    "undertaker",
    "walk",
    "way",
    "whoever",
    "whose",
    "wires",
    "wiretap",
    "wish",
    "wishes",
];

/// Names of the runner that were replaced.
const REFUSED_IN_RUNNER: &[&str] = &["apology", "furnish", "outlet", "rehearse", "specialise"];

/// SQL is not read by users.
const SQL_VERBS: &[&str] =
    &["ALTER", "BEGIN", "CREATE", "DELETE", "DROP", "INSERT", "PRAGMA", "SELECT", "UPDATE", "WITH"];

#[derive(Debug, PartialEq, Eq)]
enum TextKind {
    Error,
    Hint,
    Comment,
    Other,
}

/// A string literal or a line of comment, with the line that it begins in.
#[derive(Debug, PartialEq, Eq)]
struct Text {
    line: usize,
    kind: TextKind,
    text: String,
}

/// The comments and string literals of Rust source, without the tests inside of it.
fn texts_of(source: &str) -> Vec<Text> {
    let product = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut texts = Vec::new();
    let mut rest = product;
    while let Some(first) = rest.chars().next() {
        let at = product.len() - rest.len();
        let before = &product[..at];
        let line = || before.matches('\n').count() + 1;
        let taken = if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            texts.push(Text {
                line: line(),
                kind: TextKind::Comment,
                text: rest[..end].to_owned(),
            });
            end
        } else if first == '"' {
            let (text, taken) = string_literal(rest, before);
            texts.push(Text { line: line(), kind: kind_of(before), text });
            taken
        } else if first == '\'' {
            char_literal(rest)
        } else {
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    texts
}

/// The text of the literal that `rest` begins with, and the length of its source.
fn string_literal(rest: &str, before: &str) -> (String, usize) {
    let hashes = before.len() - before.trim_end_matches('#').len();
    if before.trim_end_matches('#').ends_with('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        let length = rest[1..].find(&end).map_or(rest.len() - 1, |found| found);
        return (rest[1..=length].to_owned(), length + 1 + end.len());
    }
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((index, char)) = chars.next() {
        match char {
            '"' => return (text, index + 1),
            '\\' => match chars.next() {
                Some((_, 'n')) => text.push(' '),
                Some((_, '\n')) => {
                    let indent = &rest[index + 2..];
                    let skipped = indent.len() - indent.trim_start().len();
                    for _ in 0..indent[..skipped].chars().count() {
                        chars.next();
                    }
                }
                Some((_, escaped)) => text.push(escaped),
                None => {}
            },
            '\n' => text.push(' '),
            char => text.push(char),
        }
    }
    (text, rest.len())
}

/// The length of a literal such as `'"'`, or 1 for the quote of a lifetime.
fn char_literal(rest: &str) -> usize {
    if rest[1..].starts_with('\\') {
        return rest[3..].find('\'').map_or(1, |end| end + 4);
    }
    let mut chars = rest.char_indices().skip(2);
    match chars.next() {
        Some((index, '\'')) => index + 1,
        _ => 1,
    }
}

/// What a literal is for, by the code in front of it.
fn kind_of(before: &str) -> TextKind {
    let line = before.trim_end().trim_end_matches("format!(").trim_end();
    let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| line.ends_with(suffix));
    if ends(&[".hint(", "hint:", "hint =", "Some("]) && !ends(&["#[error("]) {
        return TextKind::Hint;
    }
    let statement = line.rsplit([';', '{', '}']).next().unwrap_or_default();
    if ends(&["#[error(", "message =", "message:"]) || statement.contains("Error::") {
        return TextKind::Error;
    }
    TextKind::Other
}

fn is_read_by_users(text: &Text) -> bool {
    let words = text.text.split(' ').filter(|word| word.chars().any(char::is_alphabetic));
    let first = text.text.split_whitespace().next().unwrap_or_default();
    text.kind != TextKind::Comment && words.count() > 1 && !SQL_VERBS.contains(&first)
}

/// Whether a text has this phrase as whole words. The user `nobody` is named in backticks, and in a line of
/// `/etc/passwd` with a colon.
fn has_phrase(text: &str, phrase: &str) -> bool {
    let text = text.to_lowercase();
    text.match_indices(phrase).any(|(index, _)| {
        let is_word = |char: char| char.is_alphanumeric() || "_`:".contains(char);
        let before = text[..index].chars().next_back().is_some_and(is_word);
        let after = text[index + phrase.len()..].chars().next().is_some_and(is_word);
        !before && !after
    })
}

#[test]
fn texts_are_listed_and_have_no_words_that_need_a_second_read() {
    let mut list = String::new();
    let mut refused = Vec::new();
    let mut sources = crate::sources();
    sources.sort();
    for (path, source) in sources {
        let name = path.to_string_lossy().into_owned();
        let name = name.rsplit("crates/").next().unwrap_or_default().to_owned();
        if name.ends_with("/tests.rs") {
            continue;
        }
        for text in texts_of(&source) {
            let Text { line, kind, text: words } = &text;
            let of_comments = if *kind == TextKind::Comment { REFUSED_IN_COMMENTS } else { &[] };
            if REFUSED.iter().chain(of_comments).any(|phrase| has_phrase(words, phrase)) {
                refused.push(format!("crates/{name}:{line}: {words}"));
            }
            if is_read_by_users(&text) {
                let words = words.replace('\n', " ");
                writeln!(list, "{name}:{line}\t{kind:?}\t{words}").unwrap();
            }
        }
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("texts.txt");
    fs::write(&target, &list).unwrap();
    println!("{list}");
    assert!(list.contains("\tError\t") && list.contains("\tHint\t"), "errors are not found");
    assert!(refused.is_empty(), "see CONTRIBUTING.md, \"Style\": {refused:#?}");
}

#[test]
fn identifiers_are_no_figures_of_speech() {
    let mut refused = Vec::new();
    let mut sources = crate::sources();
    sources.sort();
    for (path, source) in sources {
        let name = path.to_string_lossy().into_owned();
        let name = name.rsplit("crates/").next().unwrap_or_default();
        for (index, line) in crate::without_literals(&source).lines().enumerate() {
            for word in crate::words(line).filter(|word| REFUSED_IDENTIFIERS.contains(word)) {
                refused.push(format!("crates/{name}:{}: {word}", index + 1));
            }
        }
    }
    assert!(refused.is_empty(), "name them after what they are: {refused:#?}");
}

/// The runner is Python: its names, comments and texts are searched together.
#[test]
fn the_runner_has_no_words_that_need_a_second_read() {
    let directories =
        ["belljar_runner", "site"].map(|name| crate::root().join("runner").join(name));
    let mut files = crate::files_below(directories, "py");
    let zygote = crate::root().join("runner/zygote.py");
    files.push((zygote.clone(), fs::read_to_string(zygote).unwrap()));
    assert!(files.len() > 20, "the runner is not found: {}", files.len());
    let mut refused = Vec::new();
    for (path, source) in files {
        for (index, line) in source.lines().enumerate() {
            let words = line.replace('_', " ");
            if REFUSED.iter().chain(REFUSED_IN_RUNNER).any(|phrase| has_phrase(&words, phrase)) {
                refused.push(format!("{}:{}: {}", path.display(), index + 1, line.trim()));
            }
        }
    }
    assert!(refused.is_empty(), "see CONTRIBUTING.md, \"Style\": {refused:#?}");
}

#[test]
fn literals_and_comments_are_read_as_rust_defines_them() {
    let source = "// whoever\nlet a = Error::new(code, \"a \\\"b\\\" \\\n      c\").hint(\"try d\");\n\
                  let e: &'static str = r#\"f \"g\" h\"#; let i = '\"'; let j = '\\''; let k = \"l m\";\n\
                  #[cfg(test)]\nmod tests { \"not read\" }";
    let found: Vec<(usize, TextKind, String)> =
        texts_of(source).into_iter().map(|text| (text.line, text.kind, text.text)).collect();
    let expected = [
        (1, TextKind::Comment, "// whoever"),
        (2, TextKind::Error, "a \"b\" c"),
        (3, TextKind::Hint, "try d"),
        (4, TextKind::Other, "f \"g\" h"),
        (4, TextKind::Other, "l m"),
    ];
    let expected = expected.map(|(line, kind, text)| (line, kind, text.to_owned()));
    assert_eq!(found, expected);
    assert!(has_phrase("Whoever asked", "whoever") && has_phrase("as nobody, then", "nobody"));
    assert!(!has_phrase("talent", "lent") && !has_phrase("the user `nobody`", "nobody"));
}
