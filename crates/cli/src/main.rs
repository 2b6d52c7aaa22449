//! The binary `belljar`: the command line and the servers.

mod cli;
mod client;
#[cfg(test)]
#[path = "../../../tests/harness/reference.rs"]
mod reference;

fn main() -> std::process::ExitCode {
    // Before anything else: the warden must have one thread, and the least possible inside it.
    if let Some(code) = engine::become_warden_if_asked() {
        std::process::exit(code);
    }
    cli::main()
}
