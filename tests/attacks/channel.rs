//! T16 to T20: attacks on the control channel by code that has replaced the runner and forges its messages.
//! The tests of the decoder itself are in `crates/sandbox/src/channel.rs`.

use crate::fixtures::{Process, config_with, engine, malicious, said, still_serves, with_prelude};
use crate::harness;
use engine::{Command, Engine, RunnerSource};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use types::{Execution, ExecutionStatus, LimitsRequest, OutputStream};

const MIB: u64 = 1024 * 1024;
/// What the limits promise, and some more for a machine that is busy with other tests.
const LATE_AT_MOST: Duration = Duration::from_millis(1_000 + 500);

/// Python that sends messages on the control channel, and a `done` that reports success.
const SAYS_DONE: &str = r#"
def say(text):
    body = text.encode()
    channel.sendall(len(body).to_bytes(4, "little") + body)
DONE = '{"ev":"done","error":null,"exit_code":null}'
channel.recv(1 << 20)
"#;

fn limited(code: &str, wall_ms: u64) -> Command {
    let limits = LimitsRequest { wall_ms: Some(wall_ms), ..LimitsRequest::default() };
    Command { limits, ..harness::command("bare", code) }
}

/// The execution with this runner, and how long it took.
async fn against(runner: RunnerSource, wall_ms: u64) -> (Execution, Duration) {
    let engine = Engine::start(config_with(runner));
    engine.prepare("bare", |_| {}).await.unwrap();
    let start = Instant::now();
    let finished = harness::run_with(&engine, limited("print('hello')", wall_ms)).await;
    (finished.execution, start.elapsed())
}

fn code(execution: &Execution) -> String {
    execution.error.as_ref().map_or_else(|| "none".into(), |error| error.code.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn t16_status_is_observed_not_told() {
    let works = "
hoard = bytearray(b'x') * (120 << 20)
until = time.process_time() + 0.3
while time.process_time() < until: pass
say(DONE)
channel.recv(1)";
    let (_source, runner) = malicious(&format!("{SAYS_DONE}{works}"));
    let (execution, _) = against(runner, 20_000).await;
    assert_eq!(execution.status, ExecutionStatus::Succeeded);
    assert!(execution.usage.wall_ms >= 300, "{:?}", execution.usage);
    assert!(execution.usage.cpu_ms >= 290, "{:?}", execution.usage);
    assert!(execution.usage.rss_peak_bytes >= 120 * MIB, "{:?}", execution.usage);

    // Figures of its own, an end of its own choosing, and a success after the time was up.
    let says_figures = r#"say(DONE[:-1] + ',"wall_ms":0,"rss_peak_bytes":0}'); channel.recv(1)"#;
    let late = "
import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)
time.sleep(1.2); say(DONE); channel.recv(1)";
    for (does, status, error, exit) in [
        (says_figures, ExecutionStatus::Failed, "sandbox.crashed", 125),
        ("os.kill(os.getpid(), 9)", ExecutionStatus::Failed, "sandbox.crashed", 137),
        ("os._exit(7)", ExecutionStatus::Failed, "sandbox.crashed", 7),
        (late, ExecutionStatus::TimedOut, "time.exceeded", 124),
    ] {
        let (_source, runner) = malicious(&format!("{SAYS_DONE}{does}"));
        let (execution, _) = against(runner, 1_000).await;
        assert_eq!((execution.status, code(&execution)), (status, error.into()), "{does}");
        assert_eq!(execution.exit_code, Some(exit), "{does}");
    }
    still_serves(&engine()).await;
}

/// Code can forge the messages of the runner; it deceives its own session and no other.
#[tokio::test(flavor = "multi_thread")]
async fn t16_forged_frames_reach_no_other_sandbox() {
    let engine = engine();
    let liar = harness::open(&engine, "bare").await;
    let neighbour = harness::open(&engine, "bare").await;
    let in_session = |session, code: &str| Command {
        session: Some(session),
        ..harness::command("bare", &with_prelude(code))
    };
    said(&harness::run_with(&engine, in_session(neighbour, "x = 41")).await.execution);
    let forge = r#"
body = b'{"ev":"done","error":null,"exit_code":null,"value":"forged"}'
os.write(3, len(body).to_bytes(4, "little") + body)
raise RuntimeError("the truth")"#;
    let forged = harness::run_with(&engine, in_session(liar, forge)).await.execution;
    assert_eq!(forged.value, Some("forged".into()));
    assert_eq!(
        said(&harness::run_with(&engine, in_session(neighbour, "print(x + 1)")).await.execution),
        "42"
    );
    engine.close(liar).await.unwrap();
    engine.close(neighbour).await.unwrap();
    still_serves(&engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t16_limits_hold_for_a_replaced_runner() {
    let engine = engine();
    // Everything in the process that could be asked to be fair, replaced.
    let mutiny = "
import belljar_runner.session as s, belljar_runner.signals as g, belljar_runner.channel as c
sys.excepthook = sys.unraisablehook = lambda *args: None
sys.settrace(lambda *args: None); sys.setprofile(lambda *args: None)
g.listen = g.ignore = g.install = lambda *args: None
s.RunnerLoop._answer = s.RunnerLoop._run = lambda *args: b'{}'
signal.signal(signal.SIGINT, signal.SIG_IGN)
for number in range(1, 65):
    outcome(lambda: signal.signal(number, signal.SIG_IGN))
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
while True:
    try:
        while True: pass
    except BaseException: pass";
    let start = Instant::now();
    let execution =
        harness::run_with(&engine, limited(&with_prelude(mutiny), 1_000)).await.execution;
    assert_eq!((execution.status, execution.exit_code), (ExecutionStatus::TimedOut, Some(124)));
    assert!(start.elapsed() < Duration::from_secs(1) + LATE_AT_MOST + Duration::from_secs(1));
    still_serves(&engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t18_frame_deadlines() {
    const WALL: Duration = Duration::from_secs(1);
    let drip = "
frame = (43).to_bytes(4, 'little') + DONE.encode()
for byte in frame:
    channel.send(bytes([byte])); time.sleep(1)";
    let half = "channel.sendall((43).to_bytes(4, 'little') + DONE.encode()[:20]); time.sleep(60)";
    let only_header = "channel.sendall((1 << 20).to_bytes(4, 'little')); time.sleep(60)";
    let closed = "channel.close(); time.sleep(60)";
    let half_closed = "channel.shutdown(socket.SHUT_WR); time.sleep(60)";
    let deaf = "channel.shutdown(socket.SHUT_RD); time.sleep(60)";
    let silent = "time.sleep(60)";
    let huge = "channel.sendall(b'\\xff\\xff\\xff\\xff'); time.sleep(60)";
    let garbage = "channel.sendall(os.urandom(1 << 16)); time.sleep(60)";
    let out_of_order = r#"say('{"ev":"ready","reseeded":["random","tempfile"]}'); time.sleep(60)"#;
    for (does, expected) in [
        (drip, "time.exceeded"),
        (half, "time.exceeded"),
        (only_header, "time.exceeded"),
        (closed, "sandbox.crashed"),
        (half_closed, "sandbox.crashed"),
        (deaf, "time.exceeded"),
        (silent, "time.exceeded"),
        (huge, "sandbox.crashed"),
        (garbage, "sandbox.crashed"),
        (out_of_order, "sandbox.crashed"),
    ] {
        let (_source, runner) = malicious(&format!("{SAYS_DONE}{does}"));
        let (execution, took) = against(runner, 1_000).await;
        assert_eq!(code(&execution), expected, "{does}");
        // After a broken protocol the supervisor may also wait for the wait status.
        assert!(took < WALL + LATE_AT_MOST + Duration::from_secs(1), "{does}: {took:?}");
    }
    still_serves(&engine()).await;
}

/// A request that is never read must not hold up its sender either.
#[tokio::test(flavor = "multi_thread")]
async fn t18_a_runner_that_does_not_read() {
    let (_source, runner) = malicious("time.sleep(60)");
    let engine = Engine::start(config_with(runner));
    engine.prepare("bare", |_| {}).await.unwrap();
    let start = Instant::now();
    let long = format!("#{}", "x".repeat(3 * 1024 * 1024));
    let execution = harness::run_with(&engine, limited(&long, 1_000)).await.execution;
    assert_eq!(code(&execution), "time.exceeded");
    assert!(start.elapsed() < Duration::from_secs(1) + LATE_AT_MOST, "{:?}", start.elapsed());
}

/// Frames that come faster than they can be decoded leave no moment in which nothing is to be
/// read. Time must be up all the same.
#[tokio::test(flavor = "multi_thread")]
async fn t18_a_flood_does_not_stop_the_clock() {
    let frames = r#"
signal.signal(signal.SIGINT, signal.SIG_IGN)
body = b'{"ev":"result","data":{},"main":false}'
flood = (len(body).to_bytes(4, "little") + body) * 2000
while True:
    left = memoryview(flood)
    while left: left = left[os.write(3, left):]"#;
    let output = "
signal.signal(signal.SIGINT, signal.SIG_IGN)
for fd in (1, 2): fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 1 << 20)
for fd in (1, 2) * 12:
    if os.fork() == 0:
        piece = b'x' * 4096
        while True: os.write(fd, piece)
signal.pause()";
    let engine = engine();
    engine.prepare("bare", |_| {}).await.unwrap();
    for flood in [frames, output] {
        let mut command = limited(&with_prelude(flood), 1_000);
        command.limits.cpu_percent = Some(400);
        let execution = harness::run_with(&engine, command).await.execution;
        assert_eq!(code(&execution), "time.exceeded");
        // Output over its own limit of output gains the code no time.
        let ran = Duration::from_millis(execution.usage.wall_ms);
        assert!(ran < Duration::from_secs(1) + LATE_AT_MOST, "{ran:?}");
        assert!(execution.results.len() <= 256);
        assert!(harness::printed(&execution, OutputStream::Stdout).len() as u64 <= MIB);
        still_serves(&engine).await;
    }
}

/// A run may last longer than the supervisor reads what it floods the channel with.
#[tokio::test(flavor = "multi_thread")]
async fn t70_a_sandbox_that_sends_without_end_is_ended_and_one_that_shows_much_is_not() {
    let frames = r#"
signal.signal(signal.SIGINT, signal.SIG_IGN)
body = b'{"ev":"result","data":{},"main":false}'
flood = (len(body).to_bytes(4, "little") + body) * 700
channel = os.dup(3)
for _ in range(4):
    if os.fork() == 0: break
while True: os.write(channel, flood)"#;
    let large = r#"
body = b'{"ev":"result","data":{"text/plain":"' + b'x' * (3_000_000) + b'"},"main":false}'
frame = len(body).to_bytes(4, "little") + body
while True:
    left = memoryview(frame)
    while left: left = left[os.write(3, left):]"#;
    let engine = engine();
    engine.prepare("bare", |_| {}).await.unwrap();
    for flood in [frames, large] {
        let execution =
            harness::run_with(&engine, limited(&with_prelude(flood), 60_000)).await.execution;
        let error = execution.error.unwrap();
        assert_eq!(error.code.to_string(), "sandbox.crashed");
        assert!(
            error.message.contains("more than 96 MiB of messages in one execution"),
            "{error:?}"
        );
        assert!(execution.usage.wall_ms < 30_000, "{:?}", execution.usage);
        still_serves(&engine).await;
    }
    // The twins: much that is shown, large and small, and attempts to reach a host without end.
    let shows = "for n in range(5_000): display(n)\n7";
    let execution = harness::run(&engine, shows).await;
    assert_eq!((execution.status, execution.results.len()), (ExecutionStatus::Succeeded, 256));
    assert_eq!(execution.value, Some(7.into()));
    let warned = execution.warnings.iter().map(|it| it.message.as_str()).collect::<String>();
    assert!(warned.contains("4745 results"), "{warned}");
    let charts = "for n in range(60): display('x' * 1_000_000)\n7";
    let execution = harness::run(&engine, charts).await;
    assert_eq!((execution.status, execution.value), (ExecutionStatus::Succeeded, Some(7.into())));
    assert!(execution.results.len() >= 30, "{}", execution.results.len());
    let tries = "
import socket
for n in range(3_000):
    try: socket.create_connection(('192.0.2.1', 80))
    except OSError: pass
7";
    let execution = harness::run(&engine, tries).await;
    assert_eq!((execution.status, execution.value), (ExecutionStatus::Succeeded, Some(7.into())));
    assert!(execution.network.len() >= 100, "{}", execution.network.len());
}

fn forged(frame: &str) -> String {
    with_prelude(&format!(
        "body = {frame}\nleft = memoryview(len(body).to_bytes(4, 'little') + body)\n\
         while left: left = left[os.write(3, left):]\ntime.sleep(20)"
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn t72_no_text_of_an_error_is_longer_than_its_bound_and_long_honest_ones_keep_both_ends() {
    let engine = engine();
    let frame = r#"b'{"ev":"done","error":{"type":"T%b","message":"M%b","traceback":"B%bE",
        "syntax":false,"denied":"process","hint":"H%b"},"exit_code":null}' % ((b'x' * 700_000,) * 4)"#;
    let execution = harness::run(&engine, &forged(&frame.replace('\n', ""))).await;
    let error = execution.error.unwrap();
    assert!(error.exception.as_ref().unwrap().len() <= 1024);
    assert!(error.message.len() <= 65 * 1024 && error.message.contains("bytes left out"));
    let traceback = error.traceback.unwrap();
    assert!(traceback.len() <= 257 * 1024, "{}", traceback.len());
    assert!(traceback.starts_with("Bx") && traceback.ends_with("xE"));
    assert!(error.hint.unwrap().len() <= 8 * 1024);
    let frame = r#"b'{"ev":"done","error":{"type":"T%b","message":"","traceback":"","syntax":false}}' % (b'x' * 2_000_000)"#;
    let execution = harness::run(&engine, &forged(frame)).await;
    assert!(code(&execution).len() <= 1024 + 16, "{}", code(&execution).len());
    assert!(serde_json::to_vec(&execution).unwrap().len() < 32 * 1024);

    let long = "def deep(n):\n    if n: return deep(n - 1) + 1\n    raise ValueError('first' + 'x' * 100_000 + 'last')\n\
                import sys; sys.setrecursionlimit(5000)\ndeep(900)";
    let execution = harness::run(&engine, long).await;
    let error = execution.error.unwrap();
    assert_eq!(error.code.to_string(), "python.ValueError");
    assert!(error.message.starts_with("firstx") && error.message.ends_with("xlast"));
    let traceback = error.traceback.unwrap();
    assert!(traceback.starts_with("Traceback") && traceback.trim_end().ends_with("xlast"));
    assert!(traceback.len() > 60 * 1024, "{}", traceback.len());
    still_serves(&engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t133_a_message_longer_than_its_run_may_send_is_refused_at_its_length() {
    let engine = engine();
    // Only the length is ever sent: a reader that waited for the rest would wait until the time limit.
    let header = |bytes: usize| {
        with_prelude(&format!("os.write(3, ({bytes}).to_bytes(4, 'little'))\ntime.sleep(20)"))
    };
    let longest = 3 * 1024 * 1024;
    let execution =
        harness::run_with(&engine, limited(&header(longest + 1), 60_000)).await.execution;
    assert_eq!(code(&execution), "sandbox.crashed");
    let message = execution.error.unwrap().message;
    assert!(message.contains("result_bytes"), "{message}");
    assert!(execution.usage.wall_ms < 19_000, "{:?}", execution.usage);
    // The twins: a length that may be, and more where the request asks for more.
    let execution = harness::run_with(&engine, limited(&header(longest), 1_000)).await.execution;
    assert_eq!(code(&execution), "time.exceeded");
    let mut more = limited(&header(longest + 1), 1_000);
    more.limits.result_bytes = Some(4 * MIB);
    let execution = harness::run_with(&engine, more).await.execution;
    assert_eq!(code(&execution), "time.exceeded");
    still_serves(&engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t133_a_forged_number_of_results_does_not_become_an_absurd_one() {
    let engine = engine();
    let script = |count: &str| {
        let frame = format!("b'{{\"ev\":\"unsent\",\"results\":{count}}}'");
        let done = "b'{\"ev\":\"done\",\"error\":null,\"exit_code\":null}'";
        with_prelude(&format!(
            "for body in [{frame}] * 3 + [{done}]: os.write(3, len(body).to_bytes(4, 'little') + body)\n\
             time.sleep(20)"
        ))
    };
    let execution = harness::run(&engine, &script("4294967295")).await;
    let warned = execution.warnings.iter().map(|it| it.message.as_str()).collect::<String>();
    assert!(warned.contains("1000000 results"), "{warned}");
    let execution = harness::run(&engine, &script("18446744073709551615")).await;
    assert_eq!(code(&execution), "sandbox.crashed");
    // The twin: a number that can be.
    let execution = harness::run(&engine, &script("7")).await;
    let warned = execution.warnings.iter().map(|it| it.message.as_str()).collect::<String>();
    assert!(warned.contains("21 results"), "{warned}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t73_an_exit_code_is_one_that_a_process_can_have() {
    let engine = engine();
    for (exit_code, expected) in [
        ("256", "sandbox.crashed"),
        ("-1", "sandbox.crashed"),
        ("2147483647", "sandbox.crashed"),
        ("255", "python.SystemExit"),
    ] {
        let frame = format!(r#"b'{{"ev":"done","error":null,"exit_code":{exit_code}}}'"#);
        let execution = harness::run(&engine, &forged(&frame)).await;
        assert_eq!(code(&execution), expected, "{exit_code}");
        assert!((0..=255).contains(&execution.exit_code.unwrap()), "{exit_code}");
    }
    // The twins: what Python itself makes of them.
    for (asked, exit) in [("300", 44), ("-1", 255), ("3", 3), ("2**40 + 7", 7)] {
        let execution = harness::run(&engine, &format!("import sys; sys.exit({asked})")).await;
        assert_eq!(execution.exit_code, Some(exit), "{asked}");
    }
    still_serves(&engine).await;
}

#[test]
fn t19_ancillary_data_ignored() {
    let code = with_prelude(
        r#"
import threading
channel = socket.socket(fileno=os.dup(3))
body = b'{"ev":"result","data":{},"main":false}'
frame = len(body).to_bytes(4, "little") + body
kinds = [os.open("/workspace", os.O_RDONLY), os.open("/dev/null", os.O_RDWR), os.memfd_create("x"), channel.fileno()]
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("250i", *(kinds * 63)[:250]))]
time.sleep(1)
print("before", flush=True)
time.sleep(1)
passed = 0
while passed < 50_000:
    try:
        channel.sendmsg([frame], rights)
        passed += 250
    except OSError as full:
        assert full.errno == errno.ETOOMANYREFS, full
        time.sleep(0.001)
# The twin, once the last of them were taken from the channel: until then they count as sent by this user.
time.sleep(0.5)
ours, theirs = socket.socketpair()
socket.send_fds(ours, [b"x"], [0])
assert len(socket.recv_fds(theirs, 1, 1)[1]) == 1
print("after", passed, flush=True)
time.sleep(1)
print("end")"#,
    );
    let mut supervisor =
        harness::belljar(&["exec", "--env", "bare", &code]).stdout(Stdio::piped()).spawn().unwrap();
    let process = Process(supervisor.id());
    let mut lines = BufReader::new(supervisor.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "before");
    let before = process.descriptors();
    assert_eq!(next(), "after 50000");
    let after = process.descriptors();
    assert_eq!(next(), "end");
    assert!(supervisor.wait().unwrap().success());
    assert_eq!(after, before);
}

#[test]
fn t20_no_pickle_outside() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let sources = rust_sources(&crates);
    assert!(sources.len() > 30, "{sources:?}");
    let offends = |text: &str| {
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.into_iter().any(|word| ["pickle", "marshal", "eval"].contains(&word))
    };
    // The twins of the lint: it sees what it looks for, and only there.
    assert!(offends("let value = pickle::loads(bytes);") && !offends("evaluate(retrieval)"));
    let found: Vec<String> = sources
        .iter()
        .flat_map(|path| {
            let source = fs::read_to_string(path).unwrap();
            let lines: Vec<String> = host_side(&source).map(str::to_owned).collect();
            lines.into_iter().map(|line| format!("{}: {line}", path.display()))
        })
        .filter(|line| offends(line))
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

/// The lines of a source that are neither comments nor tests.
fn host_side(source: &str) -> impl Iterator<Item = &str> {
    let product = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    product.lines().filter(|line| !line.trim_start().starts_with("//"))
}

fn rust_sources(directory: &Path) -> Vec<PathBuf> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("tests") && !path.ends_with("target") {
            sources.extend(rust_sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
    sources
}

#[test]
fn t20_channel_types_deny_unknown_fields() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sandbox/src/frames.rs");
    let source = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = host_side(&source).collect();
    let read: Vec<usize> = (0..lines.len())
        .filter(|at| lines[*at].starts_with("#[derive(") && lines[*at].contains("Deserialize"))
        .collect();
    assert!(read.len() >= 3, "frames, ends and exceptions are read");
    for at in read {
        assert!(lines[at + 1].contains("deny_unknown_fields"), "{}", lines[at + 2]);
    }
}

/// What the lint says of the text, shown of the program: one field more and it is not a frame.
#[tokio::test(flavor = "multi_thread")]
async fn t20_unknown_fields_end_the_sandbox() {
    let frames = [
        (r#"{"ev":"done","error":null,"exit_code":null}"#, "none"),
        (r#"{"ev":"done","error":null,"exit_code":null,"status":"ok"}"#, "sandbox.crashed"),
        (
            r#"{"ev":"done","error":{"type":"E","message":"","traceback":"","syntax":false,"x":1},"exit_code":1}"#,
            "sandbox.crashed",
        ),
        (r#"{"ev":"result","data":{},"main":true,"path":"/etc/shadow"}"#, "sandbox.crashed"),
        (r#"{"ev":"artifact","name":"x"}"#, "sandbox.crashed"),
    ];
    let engine = engine();
    for (frame, expected) in frames {
        let say = format!(
            "body = {frame:?}.encode()\nos.write(3, len(body).to_bytes(4, 'little') + body)\ntime.sleep(20)"
        );
        let execution = harness::run(&engine, &with_prelude(&say)).await;
        assert_eq!(code(&execution), expected, "{frame}");
    }
    still_serves(&engine).await;
}
