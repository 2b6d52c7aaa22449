//! Every CPython from 3.11 on works: these tests use all that this machine has.

use crate::harness;
use crate::python::{As, corpus, in_the_jar, on_the_host, stem};
use engine::{Config, DiscoveredPythons, Engine, HostSettings, PythonChoice, discover};

/// Scripts that touch what differs most between versions and builds: extension modules, zones,
/// certificates, children, and the machinery of `__main__`.
const SHORT: [&str; 14] = [
    "arithmetic",
    "asyncio_run",
    "ctypes_callback",
    "exit_status",
    "hashes",
    "import_own_module",
    "many_threads",
    "multiprocessing_fork",
    "multiprocessing_spawn",
    "pickle_main_classes",
    "recursion",
    "sqlite",
    "subprocesses",
    "tls",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_python_of_this_machine_runs_in_the_jar() {
    let DiscoveredPythons { found, .. } = discover(&HostSettings::from_env());
    assert!(!found.is_empty());
    let data = tempfile::tempdir().unwrap();
    let mut differences = Vec::new();
    for python in &found {
        let executable = python.executable.clone();
        let config = Config {
            python: Some(PythonChoice::At(executable)),
            data: data.path().into(),
            ..harness::config()
        };
        let engine = Engine::start(config);
        for script in corpus("standard").iter().filter(|script| SHORT.contains(&stem(script))) {
            let host = on_the_host(&python.executable, script);
            let jar = in_the_jar(&engine, "bare", script, As::Script).await;
            if host != jar {
                let which = format!("{} {}", python.version, python.executable.display());
                differences.push(format!("{which} {}\n {host:?}\n {jar:?}", stem(script)));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
