//! Finds the end of a cell, as Python's own prompt does: a complete line runs at once, and a block
//! ends with an empty line. Python checks the syntax; this module only decides when to run the
//! input.

/// Keywords that start a statement with a block. Even if the block is on the same line, more may
/// follow, such as `else`.
const BLOCK_WORDS: [&str; 8] = ["async", "class", "def", "for", "if", "try", "while", "with"];

/// Whether these lines are complete, or need another one.
pub(super) fn is_complete(lines: &str) -> bool {
    let Some(skeleton) = skeleton(lines) else {
        return false;
    };
    let opens_block = skeleton.lines().any(opens_block);
    let last_line_is_empty = lines.rsplit('\n').next().is_some_and(|line| line.trim().is_empty());
    !opens_block || last_line_is_empty
}

fn opens_block(line: &str) -> bool {
    let line = line.trim();
    let word = line.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    line.ends_with(':') || line.starts_with('@') || BLOCK_WORDS.contains(&word)
}

/// The lines without comments, contents of strings, and line ends inside brackets. `None` if a
/// string, a bracket or a line is still open at the end.
fn skeleton(lines: &str) -> Option<String> {
    let mut skeleton = String::new();
    let mut depth = 0_usize;
    let mut rest = lines;
    while let Some(character) = rest.chars().next() {
        match character {
            '#' => {
                rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
                continue;
            }
            '"' | '\'' => {
                rest = after_string(rest, character)?;
                skeleton.push(character);
                continue;
            }
            '\\' if rest[1..].is_empty() => return None,
            '\\' if rest[1..].starts_with('\n') => {
                // An empty last line ends the cell even after a backslash.
                rest = &rest[2..];
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            // Python reports an unmatched closing bracket.
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '\n' if depth > 0 => {}
            _ => skeleton.push(character),
        }
        rest = &rest[character.len_utf8()..];
    }
    (depth == 0).then_some(skeleton)
}

/// The text after the string that `text` starts with; `None` if the string continues on the next
/// line.
fn after_string(text: &str, quote: char) -> Option<&str> {
    let triple = [quote; 3].iter().collect::<String>();
    let (body, end) = match text.strip_prefix(&triple) {
        Some(body) => (body, triple.as_str()),
        None => (&text[1..], &triple[..1]),
    };
    let mut at = 0;
    while let Some(character) = body[at..].chars().next() {
        if body[at..].starts_with(end) {
            return Some(&body[at + end.len()..]);
        }
        match character {
            '\\' => at += 1 + body[at + 1..].chars().next().map_or(0, char::len_utf8),
            // Python reports an unterminated string.
            '\n' if end.len() == 1 => return Some(&body[at..]),
            _ => at += character.len_utf8(),
        }
    }
    // A short string cannot span lines, unless a backslash continues the line.
    (end.len() == 1 && !body.ends_with('\\')).then_some("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_says_all_is_run_at_once() {
        for line in [
            "1 + 1",
            "x = {'a': [1, 2]}",
            "print(')')",
            "s = '# not a comment'",
            "x  # ends with a colon:",
            "s = \"it's\"",
            "formatted = f'{x[\"a\"]}'",
            "'never closed",
            "too many )",
            "x: int = 1",
            "iffy = 1",
            "s = 'ü\\'☃'",
            "'''one''' + \"\"\"two\"\"\"",
        ] {
            assert!(is_complete(line), "{line:?}");
        }
    }

    #[test]
    fn what_is_open_waits_for_more_even_after_an_empty_line() {
        for lines in [
            "print(",
            "x = [1,\n\n",
            "s = '''text\n\n",
            "s = \"\"\"it's '''\n",
            "x = 1 + \\",
            "x = 'a\\",
            "f(')'",
        ] {
            assert!(!is_complete(lines), "{lines:?}");
        }
    }

    #[test]
    fn a_block_ends_with_an_empty_line() {
        for lines in [
            "if x:",
            "for i in y: print(i)",
            "def f():\n    return 1",
            "class A:\n    x = 1\n    def f(self):\n        pass",
            "@decorator",
            "async def f():",
            "try:\n    pass\nexcept ValueError:",
            "match x:",
            "while True:  # for ever",
            "with (\n    open('a') as a,\n):",
            "x = 1\nif x:\n    y = 2",
        ] {
            assert!(!is_complete(lines), "{lines:?}");
            assert!(is_complete(&format!("{lines}\n")), "{lines:?}");
            assert!(is_complete(&format!("{lines}\n    ")), "{lines:?}");
        }
    }

    #[test]
    fn several_lines_without_a_block_are_complete() {
        assert!(is_complete("x = 1\ny = 2"));
        assert!(is_complete("x = (1,\n2)"));
        assert!(is_complete("x = 1 + \\\n2"));
        assert!(is_complete("s = '''a\nb'''"));
    }
}
