//! `belljar exec`, as a person or a program at a shell sees it.

use crate::harness::{self, belljar, cgroups_of, descendants_of, exec, soon, stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use types::{Execution, ExecutionStatus};

fn bare(args: &[&str]) -> Output {
    exec(&[&["--env", "bare"], args].concat())
}

fn exit(args: &[&str]) -> Option<i32> {
    bare(args).status.code()
}

#[test]
fn code_is_run_and_its_output_printed() {
    let output = bare(&["import sys\nprint(1 + 1)\nprint('e', file=sys.stderr)"]);
    assert_eq!(stdout(&output), "2\n");
    assert_eq!(stderr(&output), "e\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_last_value_is_printed() {
    assert_eq!(stdout(&bare(&["6 * 7"])), "42\n");
}

#[test]
fn the_default_environment_has_its_packages() {
    let output = exec(&["import numpy; print(numpy.arange(3).sum())"]);
    assert_eq!(stdout(&output), "3\n", "{}", stderr(&output));
}

#[test]
fn the_exit_code_is_the_codes_own() {
    assert_eq!(exit(&["import sys; sys.exit(0)"]), Some(0));
    assert_eq!(exit(&["import sys; sys.exit(3)"]), Some(3));
    assert_eq!(exit(&["import sys; sys.exit('message')"]), Some(1));
    assert_eq!(exit(&["import os; os._exit(7)"]), Some(7));
}

#[test]
fn an_exception_is_1_with_its_traceback_on_stderr() {
    let output = bare(&["1 / 0"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    let said = stderr(&output);
    assert!(said.starts_with("Traceback (most recent call last):\n"), "{said}");
    assert_eq!(said.lines().last(), Some("ZeroDivisionError: division by zero"));
}

#[test]
fn too_much_time_is_124() {
    let busy = "print('a', flush=True)\nwhile True: pass";
    let output = bare(&["--timeout", "0.5", busy]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(124), "a\n"));
    let record = bare(&["--json", "--timeout", "0.5", busy]);
    let record: types::Execution = serde_json::from_str(&stdout(&record)).unwrap();
    // The limit and the half second of an interrupt, of the run itself: starts take as long as the
    // machine is busy.
    assert!(record.usage.wall_ms < 4_000, "{:?}", record.usage);
}

// proves C-137
#[test]
fn too_much_memory_is_137() {
    let code = "x = []\nwhile True: x.append(bytearray(1 << 20))";
    let output = bare(&["--memory", "64", code]);
    assert_eq!(output.status.code(), Some(137));
    let said = stderr(&output);
    assert!(said.contains("exceeded the memory limit of 64 MiB"), "{said}");
    let said = stderr(&bare(&["--memory", "64", "bytearray(1 << 40)"]));
    assert!(
        said.contains("MemoryError\nbelljar: memory.exceeded: exceeded the memory limit of 64"),
        "{said}"
    );
}

#[test]
fn a_segmentation_fault_is_139() {
    assert_eq!(exit(&["import ctypes; ctypes.string_at(0)"]), Some(139));
}

#[test]
fn standard_input_is_code() {
    let mut command = belljar(&["exec", "--env", "bare", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"print('from stdin')").unwrap();
    assert_eq!(stdout(&child.wait_with_output().unwrap()), "from stdin\n");
}

#[test]
fn a_script_has_its_arguments_and_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("tool.py");
    let code = "import sys\nif __name__ == '__main__':\n    \
                print(sys.argv[1:], __file__, sys.argv[0], len(open(__file__).read()) > 0)\n'unseen'";
    std::fs::write(&script, code).unwrap();
    let output = bare(&[script.to_str().unwrap(), "a b", "--flag", "-x", "--", "ü"]);
    let expected = "['a b', '--flag', '-x', '--', 'ü'] /workspace/tool.py tool.py True\n";
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}

#[test]
fn everything_after_a_script_is_for_the_script() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("report.py");
    std::fs::write(&script, "import sys\nprint(sys.argv[1:])").unwrap();
    let script = script.to_str().unwrap();
    for after in [&["--json"][..], &["--out", "x"], &["--", "--json"], &["--help"], &["-"]] {
        let output = bare(&[&[script], after].concat());
        let expected = format!(
            "[{}]\n",
            after.iter().map(|it| format!("'{it}'")).collect::<Vec<_>>().join(", ")
        );
        assert_eq!(stdout(&output), expected, "{}", stderr(&output));
    }
    // The twins: before the script it is an option of Belljar, and code has no arguments.
    let record = stdout(&bare(&["--json", script]));
    assert!(record.starts_with('{') && record.contains("\"entry\":\"script\""), "{record}");
    let code = bare(&["1", "--json"]);
    assert_eq!(code.status.code(), Some(2));
    assert!(stderr(&code).contains("put options before the code"), "{}", stderr(&code));
    assert_eq!(bare(&["--jsn", "1"]).status.code(), Some(2));
}

#[test]
fn a_script_can_be_one_of_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("main.py");
    let helper = directory.path().join("helper.py");
    std::fs::write(&script, "import helper\nprint(helper.VALUE)").unwrap();
    std::fs::write(&helper, "VALUE = 5").unwrap();
    let output = bare(&["--file", helper.to_str().unwrap(), script.to_str().unwrap()]);
    assert_eq!(stdout(&output), "5\n", "{}", stderr(&output));
}

#[test]
fn files_go_in_and_files_come_out() {
    let directory = tempfile::tempdir().unwrap();
    let (input, other) = (directory.path().join("in.csv"), directory.path().join("ü b.bin"));
    std::fs::write(&input, "1,2\n").unwrap();
    std::fs::write(&other, [0, 255]).unwrap();
    let out = directory.path().join("new/out");
    let code = "import os\nprint(sorted(os.listdir()))\nos.makedirs('deep/er')\n\
                open('deep/er/sum.txt', 'w').write(str(sum(map(int, open('in.csv').read().split(',')))))\n\
                open('ü b.bin', 'ab').write(b'\\x01')";
    let (input, other) = (input.to_str().unwrap(), other.to_str().unwrap());
    let output = bare(&["--file", input, "--file", other, "--out", out.to_str().unwrap(), code]);
    assert_eq!(stdout(&output), "['in.csv', 'ü b.bin']\n1\n", "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(out.join("deep/er/sum.txt")).unwrap(), "3");
    assert_eq!(std::fs::read(out.join("ü b.bin")).unwrap(), [0, 255, 1]);
    assert!(!out.join("in.csv").exists(), "it was not changed");
}

#[test]
fn files_are_named_when_they_are_not_kept() {
    let output = bare(&["open('a.txt', 'w').write('xy');"]);
    assert_eq!(stderr(&output), "belljar: file a.txt (2 bytes; save it with --out DIR)\n");
}

#[test]
fn files_come_out_of_code_that_failed() {
    let out = tempfile::tempdir().unwrap();
    let code = "open('partial', 'w').write('x'); 1 / 0";
    assert_eq!(exit(&["--out", out.path().to_str().unwrap(), code]), Some(1));
    assert_eq!(std::fs::read_to_string(out.path().join("partial")).unwrap(), "x");
}

#[test]
fn a_link_in_the_way_is_replaced_and_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (out, victim) = (directory.path().join("out"), directory.path().join("victim"));
    std::fs::create_dir(&out).unwrap();
    std::fs::write(&victim, "untouched").unwrap();
    std::os::unix::fs::symlink(&victim, out.join("f")).unwrap();
    bare(&["--out", out.to_str().unwrap(), "open('f', 'w').write('new')"]);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    assert_eq!(std::fs::read_to_string(out.join("f")).unwrap(), "new");
}

#[test]
fn what_is_not_a_file_is_left_out_and_said() {
    let out = tempfile::tempdir().unwrap();
    let code = "import os\nos.symlink('/etc/passwd', 'link'); os.mkfifo('fifo')";
    let output = bare(&["--out", out.path().to_str().unwrap(), code]);
    let expected = "belljar: skipped fifo: a FIFO\nbelljar: skipped link: a symbolic link\n";
    assert_eq!(stderr(&output), expected);
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
}

#[test]
fn json_is_one_record_and_nothing_else() {
    let code =
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\nopen('f', 'w').write('x')\n[1]";
    let output = bare(&["--json", code]);
    assert_eq!((stderr(&output).as_str(), output.status.code()), ("", Some(0)));
    let said = stdout(&output);
    assert_eq!(said.lines().count(), 1);
    let record: Execution = serde_json::from_str(&said).unwrap();
    assert_eq!((record.status, record.exit_code), (ExecutionStatus::Succeeded, Some(0)));
    let texts: Vec<&str> = record.output.iter().map(|piece| piece.text.as_str()).collect();
    assert_eq!(texts, ["out\n", "err\n"]);
    assert_eq!(record.value, Some(serde_json::json!([1])));
    assert_eq!(record.files_out[0].name, "f");
    assert_eq!(record.code, code);
    assert_eq!((record.environment.as_str(), record.entry.as_str()), ("bare", "cell"));
}

#[test]
fn json_keeps_the_exit_code_and_tells_the_error() {
    let output = bare(&["--json", "import sys; sys.exit(3)"]);
    assert_eq!((stderr(&output).as_str(), output.status.code()), ("", Some(3)));
    let record: Execution = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((record.status, record.exit_code), (ExecutionStatus::Failed, Some(3)));
}

#[test]
fn json_that_cannot_be_printed_is_a_failure_in_one_line() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = belljar(&["exec", "--env", "bare", "--json", "1"]).stdout(full).output().unwrap();
    let expected = "belljar: cannot print the record: No space left on device (os error 28)\n";
    assert_eq!((stderr(&output).as_str(), output.status.code()), (expected, Some(125)));
}

#[test]
fn json_for_a_reader_who_went_away_keeps_the_exit_code() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = belljar(&["exec", "--env", "bare", "--json", "import sys; sys.exit(3)"]);
    let output = command.stdout(writer).output().unwrap();
    assert_eq!((stderr(&output).as_str(), output.status.code()), ("", Some(3)));
}

/// A careful administrator's umask must not close what is built to those who have to read it.
#[test]
fn an_environment_built_under_a_strict_umask_works() {
    let data = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "umask 077; exec \"$0\" exec --env bare 'print(1)'"]);
    let output = command.arg(harness::binary()).env("BELLJAR_DATA", data.path()).output().unwrap();
    assert_eq!(stdout(&output), "1\n", "{}", stderr(&output));
}

#[test]
fn output_streams_while_the_code_runs() {
    let code = "import time\nprint('first')\ntime.sleep(60)";
    let mut child = belljar(&["exec", "--env", "bare", code])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "first\n");
    assert!(child.try_wait().unwrap().is_none(), "it was over before its line came");
    child.kill().unwrap();
    child.wait().unwrap();
}

// proves U-087
#[test]
fn output_beyond_the_limit_of_a_record_is_displayed_whole_and_cut_in_the_record() {
    let code = "print('x' * 5_000_000)\nprint('end')";
    let shown = bare(&[code]);
    assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    assert_eq!(shown.stdout.len(), 5_000_005);
    assert!(shown.stdout.ends_with(b"x\nend\n"));
    assert_eq!(stderr(&shown), "", "nothing was dropped");
    let record: Execution = serde_json::from_str(&stdout(&bare(&["--json", code]))).unwrap();
    assert_eq!(record.limits.output_bytes, 1 << 20);
    assert_eq!(record.truncated.output_dropped_bytes, Some(5_000_005 - (1 << 20)));
}

// proves P-121
#[test]
fn results_that_a_script_displays_do_not_stand_among_its_output() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("report.py");
    let code = "print('a,b')\ndisplay({'shown': 1})\nprint('1,2')\n3 + 4\n";
    std::fs::write(&script, code).unwrap();
    let ran = bare(&[script.to_str().unwrap()]);
    assert_eq!((ran.status.code(), stdout(&ran).as_str()), (Some(0), "a,b\n1,2\n"));
    assert_eq!(stderr(&ran), "{'shown': 1}\n", "it is displayed all the same");
    let ran = bare(&[code]);
    let mut lines: Vec<String> = stdout(&ran).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["1,2", "7", "a,b", "{'shown': 1}"], "a cell shows them with its output");
}

#[test]
fn a_reader_who_goes_away_does_not_stop_the_code() {
    let out = tempfile::tempdir().unwrap();
    let code = "for n in range(1000): print('x' * 1000)\nopen('done', 'w').write('1');";
    let mut child =
        belljar(&["exec", "--env", "bare", "--out", out.path().to_str().unwrap(), code])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(out.path().join("done").exists());
}

/// A command that is running something which would run for long.
fn running() -> Child {
    let code =
        "import subprocess\nsubprocess.Popen(['sleep', '600'])\nprint('up')\nwhile True: pass";
    let mut child = belljar(&["exec", "--env", "bare", code])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    await_up(&mut child);
    child
}

fn await_up(child: &mut Child) {
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
}

#[test]
fn a_command_killed_with_9_leaves_no_process_and_no_cgroup() {
    let mut child = running();
    let pid = child.id();
    let below = descendants_of(pid);
    assert!(below.len() >= 5, "launcher, warden, zygote, init, Python and sleep: {below:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    let ended = || below.iter().all(|pid| harness::has_ended(*pid));
    assert!(soon(Duration::from_secs(2), ended), "{below:?}");
    assert!(soon(Duration::from_secs(2), || cgroups_of(pid).is_empty()), "{:?}", cgroups_of(pid));
}

/// A group below which a command is started, as a service or a login has one, and none of the tests.
struct OtherGroup(PathBuf);

impl OtherGroup {
    fn new() -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let of = |kind: &str, option: &str| {
            let mount = mounts.lines().find(|line| {
                let (_, after) = line.split_once(" - ").unwrap();
                let options = after.rsplit(' ').next().unwrap();
                after.starts_with(kind) && options.split(',').any(|given| option == given)
            });
            mount.and_then(|line| line.split(' ').nth(4)).map(PathBuf::from)
        };
        let top = of("cgroup ", "memory").or_else(|| of("cgroup2 ", "rw"));
        let group = top.unwrap().join(format!("belljar.test-{}", std::process::id()));
        std::fs::create_dir(&group).expect("root makes groups: run the tests as root");
        Self(group)
    }

    /// The same command, started there.
    fn start(&self, command: &Command) -> Child {
        let mut there = Command::new("sh");
        there.args(["-c", "echo $$ > \"$0\"/cgroup.procs && exec \"$@\""]).arg(&self.0);
        there.arg(command.get_program()).args(command.get_args());
        there.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        there.stdout(Stdio::piped()).spawn().unwrap()
    }
}

impl Drop for OtherGroup {
    fn drop(&mut self) {
        let gone = || std::fs::remove_dir(&self.0).is_ok();
        soon(Duration::from_secs(2), gone);
    }
}

fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn t142_groups_of_a_killed_server_are_removed_by_the_next_one_wherever_it_is_started() {
    let other = OtherGroup::new();
    let up = "print('up', flush=True)\nimport time; time.sleep(600)";
    let mut first = other.start(&belljar(&["exec", "--env", "bare", up]));
    await_up(&mut first);
    let (pid, below) = (first.id(), descendants_of(first.id()));
    let launcher = *below.iter().find(|below| harness::parent_of(**below) == Some(pid)).unwrap();
    // Neither of the two who would remove them can.
    kill(pid, Signal::STOP);
    kill(launcher, Signal::KILL);
    kill(pid, Signal::KILL);
    first.wait().unwrap();
    assert!(soon(Duration::from_secs(5), || below.iter().all(|pid| harness::has_ended(*pid))));
    // The twin, whose server lives.
    let mut living = other.start(&belljar(&["exec", "--env", "bare", up]));
    await_up(&mut living);
    let of_living = cgroups_of(living.id());
    let next = exec(&["--env", "bare", "1"]);
    assert_eq!(stdout(&next), "1\n", "{}", stderr(&next));
    assert_eq!(cgroups_of(pid), [""; 0].map(PathBuf::from));
    assert_eq!(cgroups_of(living.id()), of_living);
    let below = descendants_of(living.id());
    living.kill().unwrap();
    living.wait().unwrap();
    assert!(soon(Duration::from_secs(5), || below.iter().all(|pid| harness::has_ended(*pid))));
}

#[test]
fn a_command_that_ends_leaves_no_process_and_no_cgroup() {
    let child = belljar(&["exec", "--env", "bare", "1"]).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(soon(Duration::from_secs(2), || cgroups_of(pid).is_empty()), "{:?}", cgroups_of(pid));
}

#[test]
fn twenty_commands_at_once_all_answer() {
    let children: Vec<_> = (0..20)
        .map(|n| {
            let code = format!("print({n})");
            let mut command = belljar(&["exec", "--env", "bare", &code]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for (n, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        assert_eq!(stdout(&output), format!("{n}\n"), "{}", stderr(&output));
    }
}

#[test]
fn a_second_start_builds_nothing() {
    assert_eq!(stderr(&bare(&["1"])), "");
    assert_eq!(stderr(&harness::exec(&["1"])), "");
}
