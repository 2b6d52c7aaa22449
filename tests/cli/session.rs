//! `belljar session` through a pipe: the same lines as at a prompt, without the prompt.

use crate::harness::{belljar, stderr, stdout};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Output, Stdio};

fn start() -> Child {
    belljar(&["session", "--env", "bare"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn type_in(lines: &str) -> Output {
    let mut session = start();
    session.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    session.wait_with_output().unwrap()
}

/// What is printed for these lines, when all goes well.
fn check(lines: &str, printed: &str) {
    let output = type_in(lines);
    assert_eq!(stdout(&output), printed, "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_session_remembers() {
    check("x = 6\nimport math\nx * 7\nmath.floor(2.5)\n", "42\n2\n");
}

#[test]
fn a_block_ends_with_an_empty_line_or_the_end() {
    check("for i in range(2):\n    print(i)\n\nprint('next')\n", "0\n1\nnext\n");
    check("def f():\n    return 3\n\nif True:\n    print(f())", "3\n");
}

#[test]
fn what_is_open_goes_on_in_the_next_line() {
    check("print('''a\n\nb''')\nsum([\n1,\n2])\n", "a\n\nb\n3\n");
}

#[test]
fn an_exception_is_shown_and_does_not_end_it() {
    let output = type_in("1/0\n'still here'\n");
    let shown = stderr(&output);
    assert_eq!(shown.lines().last(), Some("ZeroDivisionError: division by zero"), "{shown}");
    assert_eq!(stdout(&output), "'still here'\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn files_are_listed_with_their_sizes() {
    check(
        "import os; os.mkdir('d')\n_ = open('d/b.txt', 'w').write('12')\n_ = open('a', 'w')\n%files\n",
        "           0  a\n           2  d/b.txt\n",
    );
}

#[test]
fn reset_forgets_variables_and_files() {
    let output = type_in("x = open('a', 'w')\n%reset\n%files\n'x' in globals()\n");
    assert_eq!(stdout(&output), "False\n");
    assert_eq!(stderr(&output), "belljar: restarted with an empty state (generation 2)\n");
}

#[test]
fn a_lost_session_is_said_and_the_next_cell_works() {
    let output = type_in("x = 1\nimport os; os._exit(3)\n'x' in globals()\n");
    assert_eq!(stdout(&output), "False\n");
    assert_eq!(
        stderr(&output),
        "belljar: sandbox.crashed: the interpreter exited with exit code 3\n\
         belljar: use sys.exit instead of os._exit to keep the session\n\
         belljar: warning: the interpreter has exited: variables and files of the session are \
         lost, \
         and its generation is now 2\n"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn exit_leaves_and_an_unknown_command_does_not() {
    let output = type_in("%nonsense\nprint(1)\nexit()\nprint(2)\n");
    assert_eq!(stdout(&output), "1\n");
    assert_eq!(stderr(&output), "belljar: unknown command %nonsense; type %help for the list\n");
    check("print(1)\n%exit\nprint(2)\n", "1\n");
}

#[test]
fn sys_exit_ends_the_cell_and_not_the_session() {
    let output = type_in("x = 1\nimport sys; sys.exit(3)\nx\n");
    assert_eq!(stdout(&output), "1\n");
    assert_eq!(stderr(&output), "belljar: python.SystemExit: the code exited with exit code 3\n");
}

#[test]
fn files_go_in_and_come_out() {
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("in.txt"), "ab").unwrap();
    let mut session = belljar(&["session", "--env", "bare"])
        .current_dir(here.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = "%put in.txt\n\
                 _ = open('out.txt', 'w').write(open('in.txt').read() * 2)\n\
                 %save out.txt\n%save out.txt\n%save nothing.txt\n%save ../x\n";
    session.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = session.wait_with_output().unwrap();
    assert_eq!(std::fs::read_to_string(here.path().join("out.txt")).unwrap(), "abab");
    assert_eq!(
        stderr(&output),
        "belljar: copied in.txt (2 bytes) into the working directory\n\
         belljar: saved out.txt (4 bytes)\n\
         belljar: cannot write out.txt: File exists (os error 17)\n\
         belljar: file.not_found: nothing.txt: file not found\n\
         belljar: file.unsupported: \"../x\" is not a valid file name in a sandbox\n"
    );
}

#[test]
fn an_interrupt_ends_the_cell_and_keeps_the_state() {
    let mut session = start();
    let mut keys = session.stdin.take().unwrap();
    let mut shown = BufReader::new(session.stdout.take().unwrap()).lines();
    keys.write_all(b"x = 41\nimport time\nprint('running'); time.sleep(60)\n").unwrap();
    assert_eq!(shown.next().unwrap().unwrap(), "running");
    let process = rustix::process::Pid::from_child(&session);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    keys.write_all(b"x + 1\n").unwrap();
    assert_eq!(shown.next().unwrap().unwrap(), "42");
    drop(keys);
    let output = session.wait_with_output().unwrap();
    let last = stderr(&output).lines().last().map(str::to_owned);
    assert_eq!(last.as_deref(), Some("KeyboardInterrupt"));
    assert_eq!(output.status.code(), Some(0));
}
