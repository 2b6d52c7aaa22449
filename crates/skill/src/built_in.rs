//! Skills compiled into the binary, so that no other file must be installed.

/// Paths from the root of a skill, and their contents.
pub(crate) type BuiltInFiles = &'static [(&'static str, &'static [u8])];

macro_rules! files {
    ($skill:literal, $($path:literal),*) => {
        &[$(($path, include_bytes!(concat!("../../../skills/", $skill, "/", $path)))),*]
    };
}

pub(crate) const BUILT_IN: [(&str, BuiltInFiles); 2] = [
    ("code-interpreter", files!("code-interpreter", "SKILL.md")),
    (
        "dataviz",
        files!(
            "dataviz",
            "SKILL.md",
            "assets/SHA256SUMS",
            "assets/chart.html",
            "assets/chart.umd.min.js",
            "assets/chart.umd.min.js.LICENSE.md",
            "scripts/chart.py"
        ),
    ),
];
