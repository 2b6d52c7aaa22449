//! The binary `belljar`: the command line and the servers.

mod cli;
mod client;
#[cfg(test)]
#[path = "../../../tests/harness/reference.rs"]
mod reference;

fn main() -> std::process::ExitCode {
    // Must come first: the warden must be single-threaded, and use as little memory as possible.
    if let Some(code) = engine::become_warden_if_asked() {
        std::process::exit(code);
    }
    cli::main()
}
