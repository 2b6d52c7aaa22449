//! The effect of the feature `raw_value` of serde_json on one name: the text behind it is parsed as JSON of
//! its own.

#![allow(unreachable_pub, reason = "a test binary has no outside")]

/// The name by which serde_json hands raw JSON on, where `raw_value` is switched on.
pub const NAME: &str = "$serde_json::private::RawValue";

/// JSON of so many layers, each of which is text behind [`NAME`] inside the one around it, 120 lists deep.
/// A reader that parses such text as JSON overflows its stack.
pub fn layers(count: usize) -> String {
    let escaped = |text: &str| text.replace('\\', "\\u005c").replace('"', "\\u0022");
    (0..count).fold("[1]".to_owned(), |inner, _| {
        let (begin, end) = ("[".repeat(120), "]".repeat(120));
        format!(r#"{begin}{{"{NAME}":"{}"}}{end}"#, escaped(&inner))
    })
}
