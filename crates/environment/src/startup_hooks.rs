//! Removes startup hooks from packages.
//!
//! A sandbox is forked from a started Python before its last isolation layers are applied, so no
//! code of a package may run at the start unless the definition preloads it. Packages have three
//! kinds of startup hooks: `.pth` files with a line that begins with `import`, `.start` files, and
//! a module `sitecustomize`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

/// Keeps `.pth` files that only name directories.
pub(crate) fn remove_startup_hooks(site_packages: &Path) -> io::Result<()> {
    for entry in fs::read_dir(site_packages)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let runs = match path.extension().and_then(OsStr::to_str) {
            Some("start") => true,
            Some("pth") => has_import_line(&fs::read(&path)?),
            _ => name.split('.').next() == Some("sitecustomize"),
        };
        if runs && path.is_dir() {
            fs::remove_dir_all(&path)?;
        } else if runs {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Python runs a line that begins with `import` and a blank. Line ends depend on the encoding, so
/// these words are refused anywhere.
fn has_import_line(text: &[u8]) -> bool {
    text.windows(7).any(|window| window == b"import " || window == b"import\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_only_names_directories_stays() {
        for text in ["lib\nimport os; os.abort()\n", "x\u{2028}import\tos", "\u{feff}import os"] {
            assert!(has_import_line(text.as_bytes()), "{text}");
        }
        assert!(!has_import_line(b"lib\nimportlib_things\n/opt/belljar/site\n"));
    }
}
