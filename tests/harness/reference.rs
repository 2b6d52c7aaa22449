//! Pages of `docs/reference` that are generated from the program, and must not differ from it.

use std::fs;
use std::path::Path;

/// Compares, or writes it again if `BELLJAR_REGENERATE` is set.
pub(crate) fn assert_current(name: &str, content: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("BELLJAR_REGENERATE").is_some() {
        fs::write(&path, content).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == content,
        "docs/reference/{name} is not what the program says; make it anew: \
         BELLJAR_REGENERATE=1 cargo test -p belljar-api -p belljar-cli reference"
    );
}
