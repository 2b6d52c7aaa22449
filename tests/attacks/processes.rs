//! T08 in an environment without processes: the runner gives guidance, the filter enforces it.

use crate::fixtures::{engine, said, still_serves, with_prelude};
use crate::harness;
use engine::Engine;
use std::sync::Arc;

/// Around the guide, by the calls themselves and by the C library.
const AROUND: &str = r#"
import platform, threading
intel = platform.machine() == "x86_64"
CLONE, EXECVE, EXECVEAT = (56, 59, 322) if intel else (220, 221, 281)
CLONE3, FORK, VFORK = 435, 57, 58
CLONE_VM, CLONE_VFORK, CLONE_FILES, CLONE_SIGHAND = 0x100, 0x4000, 0x400, 0x800
AT_FDCWD = -100

words = (ctypes.c_char_p * 3)(b"touch", b"/tmp/ran", None)
nothing = (ctypes.c_char_p * 1)(None)
arguments = ctypes.create_string_buffer(struct.pack("11Q", 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0))

def made(pid):
    """A child that should not be there ends at once; its parent says that it was made."""
    if pid == 0:
        os._exit(0)
    if pid > 0:
        os.waitpid(pid, 0)

def posix_spawn():
    pid = ctypes.c_int()
    error = _libc.posix_spawn(ctypes.byref(pid), b"/usr/bin/touch", None, None, words, nothing)
    if error:
        raise OSError(error, os.strerror(error))
    made(pid.value)

def forked_by_libc():
    pid = _libc.fork()
    if pid == -1:
        raise OSError(ctypes.get_errno(), "fork")
    made(pid)

ways = {
    "fork": lambda: made(syscall(FORK) if intel else syscall(CLONE, signal.SIGCHLD, 0, 0, 0, 0)),
    "clone": lambda: made(syscall(CLONE, signal.SIGCHLD, 0, 0, 0, 0)),
    "clone3": lambda: made(syscall(CLONE3, arguments, 88)),
    "libc fork": forked_by_libc,
    "libc posix_spawn": posix_spawn,
}
# A child of these would share our stack, so they are tried only where they are refused.
sharing = {
    "vfork": lambda: syscall(VFORK) if intel else syscall(CLONE, CLONE_VM | CLONE_VFORK, 0, 0, 0, 0),
    "almost a thread": lambda: syscall(CLONE, CLONE_VM | CLONE_FILES | CLONE_SIGHAND, 0, 0, 0, 0),
    "execve": lambda: syscall(EXECVE, b"/usr/bin/touch", words, nothing),
    "execveat": lambda: syscall(EXECVEAT, AT_FDCWD, b"/usr/bin/touch", words, nothing, 0),
}

def in_thread(action):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(outcome(action)))
    thread.start()
    thread.join()
    return seen[0]
"#;

async fn attack(engine: &Arc<Engine>, environment: &str, code: &str) -> String {
    let command = harness::command(environment, &with_prelude(&format!("{AROUND}\n{code}")));
    said(&harness::run_with(engine, command).await.execution)
}

#[tokio::test(flavor = "multi_thread")]
async fn t08_the_filter_holds_behind_the_guidance_of_the_runner() {
    let engine = engine();
    let code = "
for name, way in (ways | sharing).items(): print(name, outcome(way), in_thread(way))
_libc.system(b'touch /tmp/ran')
print(os.path.exists('/tmp/ran'), len([n for n in os.listdir('/proc') if n.isdigit()]))";
    let seen = attack(&engine, "atlas", code).await;
    let expected = "fork EPERM EPERM\n\
                    clone EPERM EPERM\n\
                    clone3 ENOSYS ENOSYS\n\
                    libc fork EPERM EPERM\n\
                    libc posix_spawn EPERM EPERM\n\
                    vfork EPERM EPERM\n\
                    almost a thread EPERM EPERM\n\
                    execve EPERM EPERM\n\
                    execveat EPERM EPERM\n\
                    False 2";
    assert_eq!(seen, expected);
    still_serves(&engine).await;
}

/// The same attempts where processes are allowed: they are real, and threads are in both.
#[tokio::test(flavor = "multi_thread")]
async fn t08_where_processes_are_allowed_the_same_calls_make_them() {
    let engine = engine();
    let code = "
for name, way in ways.items(): print(name, outcome(way))
print(os.path.exists('/tmp/ran'))";
    let seen = attack(&engine, "bare", code).await;
    let expected = "fork ok\nclone ok\nclone3 ENOSYS\nlibc fork ok\nlibc posix_spawn ok\nTrue";
    assert_eq!(seen, expected);
    for environment in ["atlas", "bare"] {
        let threads = "print([in_thread(lambda: None) for _ in range(20)] == ['ok'] * 20)";
        assert_eq!(attack(&engine, environment, threads).await, "True", "{environment}");
    }
}
