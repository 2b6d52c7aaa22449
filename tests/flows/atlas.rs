//! The environment `atlas` for authors of agent tools: one Python, the client of the platform, no processes, no
//! installing, and errors that say what to do instead.

use crate::harness::{self, error_code, printed, run_with};
use engine::{Command, Engine};
use environment::{Definition, Environments, PythonInstallation};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use types::{Error, Execution, ExecutionStatus, LimitsRequest, OutputStream};

const NO_PROCESSES: &str = "processes are not allowed in environment `atlas`: use Python itself \
     (json, csv, pathlib, threading, ...) instead of a command; a function with its own \
     environment (Call Function) can start programs";
const NO_INSTALLS: &str = "packages cannot be installed in environment `atlas`: use what it has, \
     ask for another environment, or use a function with its own requirements.txt (Call Function)";

fn engine() -> Arc<Engine> {
    Engine::start(harness::config())
}

async fn run_under(engine: &Arc<Engine>, code: &str, limits: LimitsRequest) -> Execution {
    let command = Command { limits, ..harness::command("atlas", code) };
    run_with(engine, command).await.execution
}

async fn run(engine: &Arc<Engine>, code: &str) -> Execution {
    run_under(engine, code, LimitsRequest::default()).await
}

async fn value(engine: &Arc<Engine>, code: &str) -> Value {
    let execution = run(engine, code).await;
    assert_eq!(execution.status, ExecutionStatus::Succeeded, "{code}: {:?}", execution.error);
    execution.value.unwrap_or_default()
}

async fn failure(engine: &Arc<Engine>, code: &str) -> Error {
    let execution = run(engine, code).await;
    assert_eq!(execution.status, ExecutionStatus::Failed, "{code}");
    execution.error.unwrap()
}

async fn refused(engine: &Arc<Engine>, code: &str, expected: &str, message: &str) {
    let error = failure(engine, code).await;
    assert_eq!(error.code.to_string(), expected, "{code}: {}", error.message);
    assert_eq!(error.message, message, "{code}");
    assert!(error.hint.is_some_and(|hint| hint.contains("Call Function")), "{code}");
}

// proves C-123
#[tokio::test(flavor = "multi_thread")]
async fn it_is_python_3_11() {
    assert_eq!(value(&engine(), "import sys; list(sys.version_info[:2])").await, json!([3, 11]));
}

const IMPORT_EVERYTHING: &str = "
import contextlib, importlib, io, json, sys, warnings
warnings.simplefilter('ignore')
missing = []
with contextlib.redirect_stdout(io.StringIO()):  # `this` prints a poem
    for name in sorted(sys.stdlib_module_names - {'antigravity'}):  # which opens a browser
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
print(json.dumps(missing))
";

fn names(text: &str) -> BTreeSet<String> {
    serde_json::from_str(text).unwrap()
}

/// Modules of other systems, and those whose C library this Python was built without.
const ABSENT_ON_LINUX: [&str; 15] = [
    "_dbm",
    "_gdbm",
    "_msi",
    "_overlapped",
    "_scproxy",
    "_tkinter",
    "_winapi",
    "msilib",
    "msvcrt",
    "nt",
    "tkinter",
    "turtle",
    "turtledemo",
    "winreg",
    "winsound",
];

// proves C-124
#[tokio::test(flavor = "multi_thread")]
async fn the_whole_standard_library_can_be_imported() {
    imports_everything("atlas").await;
}

pub(crate) async fn imports_everything(environment: &str) {
    let command = harness::command(environment, IMPORT_EVERYTHING);
    let execution = run_with(&engine(), command).await.execution;
    assert_eq!(execution.status, ExecutionStatus::Succeeded, "{:?}", execution.error);
    let missing = names(&printed(&execution, OutputStream::Stdout));
    let unexplained: Vec<_> =
        missing.iter().filter(|name| !ABSENT_ON_LINUX.contains(&name.as_str())).collect();
    assert!(unexplained.is_empty(), "{unexplained:?}");
    let outside = std::process::Command::new(python(environment).executable)
        .args(["-I", "-c", IMPORT_EVERYTHING])
        .output()
        .unwrap();
    assert_eq!(missing, names(&harness::stdout(&outside)), "isolation removes no further module");
}

/// The one that an environment was built with.
fn python(environment: &str) -> PythonInstallation {
    let definition = Definition::built_in(environment).unwrap();
    let environments = Environments::open(&harness::data()).unwrap();
    environments.ensure(&definition, None, &mut |_| {}).unwrap().python.clone()
}

// proves C-125
#[tokio::test(flavor = "multi_thread")]
async fn the_usual_packages_are_there_and_charts_are_drawn_by_agg() {
    let code = "
import datetime, json, uuid
import numpy, pandas
import matplotlib
import matplotlib.pyplot as plt
plt.plot(numpy.arange(3)); plt.show()
[int(pandas.Series([1, 2]).sum()), matplotlib.get_backend().lower(), plt.get_fignums()]";
    for config in [harness::config(), harness::warm_config()] {
        let execution = run(&Engine::start(config), code).await;
        assert_eq!(execution.value, Some(json!([3, "agg", []])), "{:?}", execution.error);
        let charts = execution.results.iter().filter(|rich| rich.data.contains_key("image/png"));
        assert_eq!(charts.count(), 1);
        assert_eq!(printed(&execution, OutputStream::Stderr), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_environment_draws_with_agg_and_in_subprocesses_too() {
    let code = "
import matplotlib, subprocess, sys
program = 'import matplotlib.pyplot as plt; plt.plot([1]); plt.show(); print(plt.get_backend())'
child = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
[matplotlib.get_backend().lower(), child.stdout.lower(), child.stderr]";
    let execution = run_with(&engine(), harness::command("default", code)).await.execution;
    assert_eq!(execution.value, Some(json!(["agg", "agg\n", ""])), "{:?}", execution.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_the_platform_is_the_real_one() {
    let code = "
import cognite.client
from cognite.client import CogniteClient
from cognite.client.data_classes.data_modeling import NodeId
node = NodeId('a space', 'an asset')
[node.space, node.external_id, NodeId.load(node.dump()) == node, callable(CogniteClient)]";
    for config in [harness::config(), harness::warm_config()] {
        let seen = value(&Engine::start(config), code).await;
        assert_eq!(seen, json!(["a space", "an asset", true, true]));
    }
}

// proves C-126
#[tokio::test(flavor = "multi_thread")]
async fn pip_is_refused_by_a_sentence() {
    let engine = engine();
    for code in [
        "import subprocess; subprocess.run(['pip', 'install', 'x'])",
        "import subprocess; subprocess.run('pip install x', shell=True)",
        "import subprocess, sys; subprocess.run([sys.executable, '-m', 'pip', 'install', 'x'])",
        "import os; os.system('pip install x')",
        "import pip; pip.main(['install', 'x'])",
        "import runpy; runpy.run_module('pip', run_name='__main__')",
        "!pip install x",
        "import os\n%pip install x",
        "pip install x",
        "import belljar; belljar.install('x')",
    ] {
        refused(&engine, code, "package.denied", NO_INSTALLS).await;
    }
    let ordinary = failure(&engine, "x = (1,\ny = 2").await;
    assert!(!ordinary.hint.unwrap().contains("packages"), "an ordinary mistake is told as one");
    // The client of the platform reads requirements with it.
    let code = "from pip._internal.req.constructors import install_req_from_line as line\nline('numpy>=2').name";
    assert_eq!(value(&engine, code).await, json!("numpy"));
}

// proves C-127
#[tokio::test(flavor = "multi_thread")]
async fn installing_while_it_runs_is_refused_in_every_environment() {
    let engine = engine();
    for code in
        ["import micropip\nawait micropip.install('x')", "import ensurepip; ensurepip.bootstrap()"]
    {
        for environment in ["atlas", "bare", "default"] {
            let command = harness::command(environment, code);
            let execution = run_with(&engine, command).await.execution;
            assert_eq!(error_code(&execution), "package.denied", "{environment}: {code}");
            let hint = execution.error.unwrap().hint.unwrap();
            let sentence = match environment {
                "default" => {
                    "code in a sandbox installs nothing by itself: write %pip install".into()
                }
                none => format!("packages cannot be installed in environment `{none}`"),
            };
            assert!(hint.starts_with(&sentence), "{hint}");
        }
    }
    let harmless = "import ensurepip, venv, zipapp\nensurepip.version() > ''";
    assert_eq!(value(&engine, harmless).await, json!(true));
}

// proves C-128
#[tokio::test(flavor = "multi_thread")]
async fn a_package_outside_the_set_is_an_import_error_that_points_on() {
    let engine = engine();
    let error = failure(&engine, "import sklearn").await;
    assert_eq!(error.code.to_string(), "python.ModuleNotFoundError");
    assert_eq!(error.message, "No module named 'sklearn'");
    let hint = error.hint.unwrap();
    for pointer in ["environment `atlas`", "custom environment", "Call Function"] {
        assert!(hint.contains(pointer), "{hint}");
    }
    let caught = "try: import sklearn\nexcept ImportError: there = False\nthere";
    assert_eq!(value(&engine, caught).await, json!(false));
}

// proves C-129
#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_host_can_be_read() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "a secret of the host").unwrap();
    let project = env!("CARGO_MANIFEST_DIR");
    let home = std::env::home_dir().unwrap();
    let places = [secret.path().to_str().unwrap(), project, home.to_str().unwrap(), "/etc/shadow"];
    let code = format!(
        "import os\nseen = [os.path.exists(place) for place in {places:?}]\n\
         users = [line.split(':')[0] for line in open('/etc/passwd')]\n[seen, users]"
    );
    let expected = json!([[false, false, false, false], ["jar", "nobody"]]);
    assert_eq!(value(&engine(), &code).await, expected);
}

// proves C-130
#[tokio::test(flavor = "multi_thread")]
async fn files_can_be_written_and_read_back_in_memory() {
    let code = "
import os
paths = ['/tmp/a', 'b', os.path.expanduser('~/c')]
for path in paths:
    with open(path, 'w') as file: file.write('kept')
texts = [open(path).read() for path in paths]
mounts = [line.split() for line in open('/proc/self/mountinfo')]
kinds = {words[words.index('-') + 1] for words in mounts if words[4] in ('/tmp', '/workspace')}
[texts, sorted(kinds)]";
    let engine = engine();
    assert_eq!(value(&engine, code).await, json!([["kept", "kept", "kept"], ["tmpfs"]]));
    assert_eq!(value(&engine, "import os; os.path.exists('/tmp/a')").await, json!(false));
}

// proves C-134
#[tokio::test(flavor = "multi_thread")]
async fn no_process_can_be_started() {
    let engine = engine();
    for code in [
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import os; os.fork()",
        "import os; os.forkpty()",
        "import os; os.execv('/bin/true', ['true'])",
        "import os; os.execlp('true', 'true')",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import multiprocessing; multiprocessing.get_context('fork').Process(target=print).start()",
        "import multiprocessing; multiprocessing.get_context('spawn').Process(target=print).start()",
        "from concurrent.futures import ProcessPoolExecutor as P\nwith P() as p: p.submit(abs, 1).result()",
    ] {
        refused(&engine, code, "process.denied", NO_PROCESSES).await;
    }
    let elsewhere =
        harness::command("bare", "import subprocess; subprocess.run(['true']).returncode");
    assert_eq!(run_with(&engine, elsewhere).await.execution.value, Some(json!(0)));
}

// proves C-135
#[tokio::test(flavor = "multi_thread")]
async fn threads_start_or_fail_with_an_error() {
    let engine = engine();
    let few = "
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool: squares = list(pool.map(lambda n: n * n, range(4)))
squares";
    assert_eq!(value(&engine, few).await, json!([0, 1, 4, 9]));
    let many = "
import threading
hold = threading.Event()
started = 0
try:
    for _ in range(10_000):
        threading.Thread(target=hold.wait, daemon=True).start()
        started += 1
finally:
    hold.set()";
    let error = failure(&engine, many).await;
    assert_eq!(error.code.to_string(), "processes.exceeded");
    assert_eq!(error.message, "can't start new thread");
    assert!(error.hint.unwrap().contains("fewer processes or threads"));
}

// proves C-136
#[tokio::test(flavor = "multi_thread")]
async fn too_much_time_is_a_failure_that_names_the_limit() {
    let engine = engine();
    let limits = LimitsRequest { wall_ms: Some(700), ..LimitsRequest::default() };
    let execution = run_under(&engine, "while True: pass", limits).await;
    assert_eq!(
        (execution.status, error_code(&execution)),
        (ExecutionStatus::TimedOut, "time.exceeded".into())
    );
    assert_eq!(execution.error.unwrap().message, "exceeded the wall-clock time limit of 700 ms");
    assert_eq!(value(&engine, "6 * 7").await, json!(42));
}

// proves C-137
#[tokio::test(flavor = "multi_thread")]
async fn too_much_memory_is_a_failure_that_names_the_limit() {
    let engine = engine();
    let limits = LimitsRequest { memory_bytes: Some(128 << 20), ..LimitsRequest::default() };
    let greedy = "x = []\nwhile True: x.append(bytearray(b'x') * (1 << 20))";
    let execution = run_under(&engine, greedy, limits).await;
    assert_eq!(
        (execution.status, error_code(&execution)),
        (ExecutionStatus::Failed, "memory.exceeded".into())
    );
    assert_eq!(execution.error.unwrap().message, "exceeded the memory limit of 128 MiB");
    let modest = run_under(&engine, "len(bytearray(b'x') * (8 << 20))", limits).await;
    assert_eq!(modest.value, Some(json!(8 << 20)));
}

/// On a machine with no Python at all, since any other version would not do either.
#[test]
fn a_machine_without_its_python_is_told_how_to_get_one() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = harness::belljar(&["exec", "--env", "atlas", "1"]);
    for variable in ["PATH", "HOME", "PYENV_ROOT", "UV_PYTHON_INSTALL_DIR", "BELLJAR_DATA"] {
        command.env(variable, empty.path());
    }
    let output = command.output().unwrap();
    let said = harness::stderr(&output);
    for part in ["environment `atlas` requires CPython 3.11", "uv python install", "--python PATH"]
    {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(output.status.code(), Some(125));
}
