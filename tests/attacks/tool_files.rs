//! Files of a tool that another author has written.

use crate::harness::{belljar, stderr, stdout};
use std::fs;
use std::path::Path;
use std::process::Output;

const SECRET: &str = "def run(input):\n    return {'secret': 'hunter2'}\n";

fn check(tool: &Path) -> Output {
    belljar(&["tool", "check", "--json"]).arg(tool).output().unwrap()
}

fn write_tool(path: &Path, code: &str) {
    let configuration = serde_json::json!({"type": "CodeRunner", "code": code});
    let tool = serde_json::json!({
        "name": "t", "tool_type": "code_runner", "configuration": configuration,
    });
    fs::write(path, tool.to_string()).unwrap();
}

#[test]
fn the_json_of_a_tool_does_not_reach_for_python_elsewhere() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("downloaded");
    fs::create_dir_all(folder.join("inner")).unwrap();
    for place in ["secret.py", "downloaded/beside.py", "downloaded/inner/beside.py"] {
        fs::write(home.path().join(place), SECRET).unwrap();
    }
    let tool = folder.join("tool.json");
    let absolute = format!("@{}", home.path().join("secret.py").display());
    for elsewhere in ["@../secret.py", "@inner/../../secret.py", &absolute] {
        write_tool(&tool, elsewhere);
        let refused = check(&tool);
        assert_eq!(refused.status.code(), Some(2), "{elsewhere}: {}", stdout(&refused));
        assert!(
            stderr(&refused).contains("must be a file in the same directory"),
            "{}",
            stderr(&refused)
        );
    }
    for beside in ["@beside.py", "@inner/beside.py"] {
        write_tool(&tool, beside);
        assert!(check(&tool).status.success(), "{beside}");
    }
}

#[test]
fn files_without_an_end_are_not_read_to_it() {
    let home = tempfile::tempdir().unwrap();
    for name in ["endless.json", "endless.py"] {
        let endless = home.path().join(name);
        std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
        let refused = check(&endless);
        assert_eq!(refused.status.code(), Some(2));
        assert!(
            stderr(&refused).contains("endless")
                && stderr(&refused).contains("larger than the maximum of 8388608 bytes"),
            "{}",
            stderr(&refused)
        );
    }
    let tool = home.path().join("tool.py");
    fs::write(&tool, "def handle(): pass\n").unwrap();
    let call = ["tool", "call", "--env", "bare", "--args", "@/dev/zero"];
    let refused = belljar(&call).arg(&tool).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--args @/dev/zero: larger than"), "{}", stderr(&refused));
}
