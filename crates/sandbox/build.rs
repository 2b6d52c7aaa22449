//! Builds the part of `jail` that is loaded into the zygote, so that it can be carried inside
//! the binary. Cargo cannot embed one crate's shared library in another on its own; a second
//! cargo, with a target directory of its own, can be asked for exactly that.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let manifest = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    let workspace = manifest.join("../..");
    for watched in ["crates/jail/src", "crates/jail/Cargo.toml", "Cargo.lock", "runner"] {
        println!("cargo::rerun-if-changed={}", workspace.join(watched).display());
    }
    let out = PathBuf::from(var("OUT_DIR"));
    let listing = list_runner(&workspace.join("runner"));
    std::fs::write(out.join("runner.rs"), listing)
        .unwrap_or_else(|error| fail(&format!("runner.rs could not be written: {error}")));
    let library = build_library(&workspace, &out.join("native"));
    println!("cargo::rustc-env=BELLJAR_JAIL_LIBRARY={}", library.display());
}

/// A Rust expression that includes every source of the runner, tests left out.
fn list_runner(runner: &Path) -> String {
    let mut files = Vec::new();
    for directory in ["", "belljar_runner", "site"] {
        let entries = std::fs::read_dir(runner.join(directory))
            .unwrap_or_else(|error| fail(&format!("runner/{directory}: {error}")));
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "py"));
    files.sort();
    let mut listing = String::from("&[");
    for path in files {
        let name = path.strip_prefix(runner).unwrap_or(&path);
        let full = path.canonicalize().unwrap_or_else(|_| path.clone());
        listing += &format!(
            "({:?}, include_str!({:?})),",
            name.display().to_string(),
            full.display().to_string()
        );
    }
    listing + "]"
}

fn build_library(workspace: &Path, target_dir: &Path) -> PathBuf {
    let output = Command::new(var("CARGO"))
        .args(["rustc", "--locked", "--lib", "--crate-type", "cdylib", "--profile", "native"])
        .args(["--package", "belljar-jail", "--message-format", "json-render-diagnostics"])
        .args(["--target", &var("TARGET")])
        .arg("--target-dir")
        .arg(target_dir)
        .current_dir(workspace)
        // Clippy wraps the compiler of the outer build; this inner one must really compile.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CLIPPY_ARGS")
        .output()
        .unwrap_or_else(|error| fail(&format!("cargo could not be started: {error}")));
    if !output.status.success() {
        fail(&String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(library_in)
        .next()
        .unwrap_or_else(|| fail("cargo named no shared library for belljar-jail"))
}

fn library_in(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let files = message.get("filenames")?.as_array()?;
    let is_ours = message.get("target")?.get("name")?.as_str()? == "belljar_jail";
    let library = files.iter().filter_map(|file| file.as_str()).find(|file| file.ends_with(".so"));
    library.filter(|_| is_ours).map(PathBuf::from)
}

fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| fail(&format!("cargo has not set {name}")))
}

fn fail(reason: &str) -> ! {
    println!(
        "cargo::error=building the native part of the zygote: {}",
        reason.replace('\n', " | ")
    );
    std::process::exit(1)
}
