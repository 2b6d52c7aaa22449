//! The tests of the program that counts the proven lines of `spec/conformance.md`.

use std::path::Path;
use std::process::Command;

#[test]
fn the_coverage_program_counts_what_passed_and_nothing_else() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    let output = Command::new("python3")
        .args(["-B", "-m", "unittest", "test_coverage"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
