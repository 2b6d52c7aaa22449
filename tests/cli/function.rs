//! `belljar tool deploy` and `belljar function`: from a folder to a function of a server.

use crate::harness::{self, stderr, stdout};
use crate::test_server::{Api, World};
use std::fs;
use std::path::Path;
use std::process::Output;

const HANDLER: &str = "import sys, helper\n\
    def handle(data):\n    print('working', file=sys.stderr)\n    return helper.double(data['n'])\n";

fn belljar(api: &Api, folder: &Path, args: &[&str]) -> Output {
    let mut command = harness::belljar(args);
    command.env("BELLJAR_URL", &api.address).env("BELLJAR_API_KEY", &api.key);
    command.current_dir(folder).output().unwrap()
}

fn good(api: &Api, folder: &Path, args: &[&str]) -> Output {
    let output = belljar(api, folder, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    output
}

fn refused(api: &Api, folder: &Path, args: &[&str]) -> String {
    let output = belljar(api, folder, args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stdout(&output));
    stderr(&output)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_becomes_a_function_that_is_called_by_its_name() {
    let world = World::with_own_environments().await;
    let directory = tempfile::tempdir().unwrap();
    let (api, here) = (&world.owner, directory.path());
    let folder = here.join("doubler");
    fs::create_dir_all(folder.join("__pycache__")).unwrap();
    fs::write(folder.join("__pycache__/junk.pyc"), [0xff]).unwrap();
    fs::write(folder.join("handler.py"), HANDLER).unwrap();
    fs::write(folder.join("helper.py"), "import six\ndef double(n): return n * 2\n").unwrap();
    fs::write(folder.join("raw.bin"), [0, 255, 128]).unwrap();
    fs::write(folder.join("requirements.txt"), "six==1.16.0\n").unwrap();

    let deployed = good(api, here, &["tool", "deploy", "doubler"]);
    assert!(stderr(&deployed).contains("belljar: "), "what is being done is shown");
    let shown = stdout(&deployed);
    assert!(shown.contains("status: ready") && shown.contains("name: doubler"), "{shown}");
    assert!(shown.contains("raw.bin") && !shown.contains("junk"), "{shown}");
    assert!(stdout(&good(api, here, &["function", "ls"])).contains("doubler"));

    let called = good(api, here, &["function", "call", "doubler", "-a", r#"{"n": 21}"#]);
    assert_eq!((stdout(&called).as_str(), stderr(&called).as_str()), ("42\n", "working\n"));
    assert!(stdout(&good(api, here, &["function", "logs", "doubler"])).contains("working"));
    let left = good(api, here, &["function", "call", "doubler", "--no-wait", "-a", r#"{"n": 1}"#]);
    assert!(stdout(&left).contains("status: Running"));
    let failed = refused(api, here, &["function", "call", "doubler"]);
    assert!(failed.contains("python.KeyError"), "{failed}");

    fs::write(folder.join("requirements.txt"), "no-such-package-of-belljar\n").unwrap();
    assert!(refused(api, here, &["tool", "deploy", "doubler"]).contains("line 1"));
    let still = good(api, here, &["function", "call", "doubler", "-a", r#"{"n": 4}"#]);
    assert_eq!(stdout(&still), "8\n", "what was deployed before serves");

    fs::write(folder.join("handler.py"), "def handle(other): ...").unwrap();
    let wrong = refused(api, here, &["tool", "deploy", "doubler", "--name", "other"]);
    assert!(wrong.contains("1:12") && wrong.contains("other"), "{wrong}");
    good(api, here, &["function", "rm", "doubler"]);
    let gone = refused(api, here, &["function", "show", "doubler"]);
    assert!(gone.contains("no function with the name"), "{gone}");
    let empty = belljar(api, here, &["tool", "deploy", "."]);
    assert_eq!(empty.status.code(), Some(2));
    assert!(stderr(&empty).contains("no handler.py"));
}
