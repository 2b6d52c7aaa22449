//! The lines of a list of packages, as everybody who reads it sees them.
//!
//! Programs differ in what ends a line: to uv a lone carriage return does, so that what is a comment
//! here could be an option there. A text in which that can happen is refused.

/// All that ends a line for uv or for Python, beside the line feed.
const ENDS: [char; 9] =
    ['\r', '\x0b', '\x0c', '\x1c', '\x1d', '\x1e', '\u{85}', '\u{2028}', '\u{2029}'];

/// The number of a line that does not look the same to everybody.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AmbiguousLine(pub(crate) usize);

/// All lines with their numbers, without comments and the space around them.
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
    let said = line.split(" #").next()?.trim();
    Some(if said.starts_with('#') { "" } else { said })
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
