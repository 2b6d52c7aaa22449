//! Truncates texts of a sandbox to the sizes that a record can have. The runner truncates them too; code
//! that writes to the channel itself does not.

/// Maximum size of the type of an exception; the runner truncates names at 200 characters.
pub(crate) const TYPE_BYTES_MAX: usize = 1024;
/// Maximum size of a message; the runner truncates at 16 Ki characters of up to four bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 65 * 1024;
/// Maximum size of a traceback; the runner truncates at 64 Ki characters of up to four bytes.
pub(crate) const TRACEBACK_BYTES_MAX: usize = 257 * 1024;
/// Maximum size of one part of an explanation: a hint, a path in a value, an operand of an `assert`; the
/// runner truncates these at 1,000 characters.
pub(crate) const PART_BYTES_MAX: usize = 8 * 1024;
/// Maximum operands of an explained `assert`; the runner reports 20.
pub(crate) const ASSERT_VALUES_MAX: usize = 32;

/// A text of at most so many bytes: its beginning and its end, and between them how much is missing.
pub(crate) fn truncate_middle(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    // The words between have less than a hundred bytes.
    let half = bytes_max.saturating_sub(100) / 2;
    let (head, tail) = (text.floor_char_boundary(half), text.ceil_char_boundary(text.len() - half));
    format!("{}\n... {} bytes left out ...\n{}", &text[..head], tail - head, &text[tail..])
}

/// A text of at most so many bytes: its beginning.
pub(crate) fn truncate_end(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(3)));
        text.push_str("...");
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_keeps_its_ends_and_whole_characters() {
        for letter in ["x", "é", "日", "😀"] {
            let text = format!("first{}last", letter.repeat(2_000));
            for most in [1_000, 1_001, 1_002, 1_003] {
                let cut = truncate_middle(text.clone(), most);
                assert!(cut.len() <= most, "{} of {most}", cut.len());
                assert!(cut.starts_with("first") && cut.ends_with("last"), "{cut}");
                assert!(cut.contains("bytes left out"), "{cut}");
                let cut = truncate_end(text.clone(), most);
                assert!(cut.len() <= most && cut.starts_with("first") && cut.ends_with("..."));
            }
            assert_eq!(truncate_middle(text.clone(), text.len()), text);
            assert_eq!(truncate_end(text.clone(), text.len()), text);
        }
    }
}
