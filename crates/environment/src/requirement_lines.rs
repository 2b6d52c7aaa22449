//! Splits a list of packages into lines, the same for every reader.
//!
//! Programs disagree about line ends: for uv a lone carriage return is one, so that a comment here
//! could be an option there. A text with such a character is refused.

/// All characters that end a line for uv or for Python, besides the line feed.
const ENDS: [char; 9] =
    ['\r', '\x0b', '\x0c', '\x1c', '\x1d', '\x1e', '\u{85}', '\u{2028}', '\u{2029}'];

/// The number of a line that not every reader sees the same.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AmbiguousLine(pub(crate) usize);

/// All lines with their numbers, without comments and surrounding space.
pub(crate) fn parse(text: &str) -> Result<Vec<(usize, &str)>, AmbiguousLine> {
    let lines = text.lines().zip(1..);
    lines
        .map(|(line, number)| Ok((number, strip_comment(line).ok_or(AmbiguousLine(number))?)))
        .collect()
}

fn strip_comment(line: &str) -> Option<&str> {
    if ENDS.iter().any(|end| line.contains(*end)) {
        return None;
    }
    let text = line.split(" #").next()?.trim();
    Some(if text.starts_with('#') { "" } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go_and_numbers_stay() {
        let text = "# ours\r\n\tsix  # why\r\n\nidna";
        assert_eq!(parse(text), Ok(vec![(1, ""), (2, "six"), (3, ""), (4, "idna")]));
    }

    #[test]
    fn a_line_that_others_would_end_elsewhere_is_refused() {
        for end in ENDS {
            assert_eq!(parse(&format!("six\n# x{end}-r y\n")), Err(AmbiguousLine(2)), "{end:?}");
        }
    }
}
