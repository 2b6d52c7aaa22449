//! Neutralizes untrusted text: it can neither control a terminal nor change how the text around it
//! reads.

/// Longer texts are shown by their start and their end.
const LINES_MAX: usize = 40;
const CHARS_MAX: usize = 200;

pub(super) fn sanitize(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.replace("\r\n", "\n").chars() {
        match character {
            '\n' | '\t' => plain.push(character),
            _ if character.is_control() || is_bidi_control(character) => {
                plain.extend(character.escape_default());
            }
            _ => plain.push(character),
        }
    }
    plain
}

/// Whether the character changes the direction of the text after it.
fn is_bidi_control(character: char) -> bool {
    matches!(character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Sanitizes a text and joins it to one line.
pub(super) fn sanitize_line(text: &str) -> String {
    truncate_line(&sanitize(&text.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// Shortens a text and indents each line, so that none looks like a line of the format itself.
pub(super) fn indent_block(text: &str, margin: &str) -> String {
    let text = sanitize(text.trim_end());
    let lines: Vec<&str> = text.lines().collect();
    let below = |line: &&str| format!("{margin}{}\n", truncate_line(line));
    if lines.len() <= LINES_MAX {
        return lines.iter().map(below).collect();
    }
    let (head, tail) = (&lines[..LINES_MAX / 2], &lines[lines.len() - LINES_MAX / 2..]);
    let left_out = lines.len() - head.len() - tail.len();
    let gap = format!("{margin}… {left_out} lines are left out here …\n");
    head.iter().map(below).chain([gap]).chain(tail.iter().map(below)).collect()
}

fn truncate_line(line: &str) -> String {
    match line.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

pub(super) fn format_duration(ms: u64) -> String {
    match ms {
        0..=999 => format!("{ms} ms"),
        _ => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_does_nothing_to_a_terminal_or_to_the_text_around_it() {
        assert_eq!(sanitize("\x1b[2J\u{9b}H\x07"), "\\u{1b}[2J\\u{9b}H\\u{7}");
        assert_eq!(sanitize("safe\u{202e}exe.txt\u{2066}"), "safe\\u{202e}exe.txt\\u{2066}");
        assert_eq!(sanitize("50 %\rdone"), "50 %\\rdone");
        assert_eq!(sanitize("a\r\n\tZürich ☃ 👩\u{200d}🚀"), "a\n\tZürich ☃ 👩\u{200d}🚀");
    }

    #[test]
    fn a_line_of_others_cannot_be_taken_for_one_of_ours() {
        assert_eq!(indent_block("ok\nAnswer\n42\n", "  | "), "  | ok\n  | Answer\n  | 42\n");
        assert_eq!(sanitize_line("a\nAnswer\r\n42"), "a Answer 42");
    }

    #[test]
    fn what_is_long_keeps_its_beginning_and_its_end() {
        let text: String = (0..1000).map(|number| format!("{number}\n")).collect();
        let indented = indent_block(&text, "");
        assert!(indented.starts_with("0\n1\n") && indented.ends_with("998\n999\n"), "{indented}");
        assert!(indented.contains("… 960 lines are left out here …"), "{indented}");
        assert_eq!(
            sanitize_line(&"é".repeat(CHARS_MAX + 1)),
            format!("{}…", "é".repeat(CHARS_MAX))
        );
    }
}
