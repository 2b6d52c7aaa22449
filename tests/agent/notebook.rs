//! The notebook of a trace is valid for Jupyter's own package.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const VALIDATE: &str = "import nbformat, sys; \
    book = nbformat.read(sys.argv[1], as_version=nbformat.NO_CONVERT); \
    nbformat.validate(book); \
    print(book.nbformat, book.nbformat_minor, len(book.cells))";

/// Reads it, and says how many cells it has.
pub(crate) fn valid_cells(path: &Path) -> usize {
    let output = Command::new(python()).args(["-W", "error", "-c", VALIDATE]).arg(path).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    let text: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(text[..2], ["4", "5"]);
    text[2].parse().unwrap()
}

/// A Python with the package. It is made once, as the build is.
fn python() -> &'static PathBuf {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("agent-venv");
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/agent");
        let (wanted, has) = (tests.join("requirements.txt"), home.join("requirements.txt"));
        if std::fs::read(&has).is_ok_and(|has| has == std::fs::read(&wanted).unwrap()) {
            return home.join("bin/python");
        }
        let found = engine::discover(&engine::HostSettings::from_env()).found;
        let made = found.iter().any(|found| {
            let mut made = Command::new(&found.executable);
            let made = made.args(["-m", "venv", "--clear"]).arg(&home).output();
            made.is_ok_and(|made| made.status.success())
        });
        assert!(made, "no Python here can make a virtual environment (on Debian: python3-venv)");
        let python = home.join("bin/python");
        let install = Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "-r"])
            .arg(&wanted)
            .output()
            .unwrap();
        assert!(install.status.success(), "the package index is needed: {}", said(&install));
        std::fs::copy(wanted, has).unwrap();
        python
    })
}

fn said(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr];
    texts.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}
