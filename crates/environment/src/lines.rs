//! The lines of a list of packages, as everybody who reads it sees them.
//!
//! Programs differ in what ends a line: to uv a lone carriage return does, so that what is a comment
//! here could be an option there. A text in which that can happen is refused.

/// The number of a line that does not look the same to everybody.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unclear(pub(crate) usize);

/// All lines with their numbers, without comments and the space around them.
pub(crate) fn of(text: &str) -> Result<Vec<(usize, &str)>, Unclear> {
    let lines = text.lines().zip(1..);
    lines.map(|(line, number)| Ok((number, said(line).ok_or(Unclear(number))?))).collect()
}

fn said(line: &str) -> Option<&str> {
    if line.contains(is_unclear) {
        return None;
    }
    let said = line.split(" #").next()?.trim();
    Some(if said.starts_with('#') { "" } else { said })
}

/// What ends a line for some, and what nobody sees.
fn is_unclear(c: char) -> bool {
    (c.is_control() && c != '\t') || matches!(c, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go_and_numbers_stay() {
        let text = "# ours\r\n\tsix  # why\r\n\nidna";
        assert_eq!(of(text), Ok(vec![(1, ""), (2, "six"), (3, ""), (4, "idna")]));
    }

    #[test]
    fn a_line_that_others_would_end_elsewhere_is_refused() {
        for end in ['\r', '\x0b', '\x0c', '\x1c', '\u{85}', '\u{2028}', '\u{2029}', '\0'] {
            assert_eq!(of(&format!("six\n# x{end}-r y\n")), Err(Unclear(2)), "{end:?}");
        }
    }
}
