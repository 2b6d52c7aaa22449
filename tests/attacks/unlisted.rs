//! Attacks that the threat model does not list: what an attacker who knows this design would try.

use crate::fixtures::{Process, answer, attempts, engine, said, still_serves, with_prelude};
use crate::harness::{self, wait, wait_blocking};
use engine::{Command, FileCollection};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Stdio;

/// Through libc, as native code would make them: the numbers are those of x86_64.
#[cfg(target_arch = "x86_64")]
#[tokio::test(flavor = "multi_thread")]
async fn native_calls_are_refused_and_their_twins_are_not() {
    let engine = engine();
    attempts(
        &engine,
        &[
            ("syscall(425, 8, ctypes.create_string_buffer(200))", "ENOSYS"), // io_uring_setup
            ("syscall(272, 0x10000000)", "EPERM"), // unshare(CLONE_NEWUSER)
            ("syscall(56, 0x10000000 | 17, 0, 0, 0, 0)", "EPERM"), // clone(CLONE_NEWUSER)
            ("syscall(435, ctypes.create_string_buffer(88), 88)", "ENOSYS"), // clone3
            ("syscall(308, os.open('/proc/self/ns/net', 0), 0)", "EPERM"), // setns
            ("syscall(101, 16, 1, 0, 0)", "EPERM"), // ptrace(ATTACH, 1)
            ("syscall(310, 1, 0, 0, 0, 0, 0)", "EPERM"), // process_vm_readv
            ("syscall(311, 1, 0, 0, 0, 0, 0)", "EPERM"), // process_vm_writev
            ("syscall(438, os.pidfd_open(1), 0, 0)", "EPERM"), // pidfd_getfd
            ("syscall(312, 1, 2, 0, 0, 0)", "EPERM"), // kcmp
            ("syscall(250, 0, -3, 0)", "EPERM"),   // keyctl
            ("syscall(248, b'user', b'x', b'x', 1, -3)", "EPERM"), // add_key
            ("syscall(165, b'none', b'/tmp', b'tmpfs', 0, 0)", "EPERM"), // mount
            ("syscall(166, b'/proc', 2)", "EPERM"), // umount2
            ("syscall(155, b'/', b'/tmp')", "EPERM"), // pivot_root
            ("syscall(428, -100, b'/', 1)", "EPERM"), // open_tree
            ("syscall(430, b'tmpfs', 0)", "EPERM"), // fsopen
            ("syscall(457, 0, 0, 0, 0)", "EPERM"), // statmount
            ("os.chroot('/tmp')", "EPERM"),
            ("syscall(304, -100, ctypes.create_string_buffer(64), 0)", "EPERM"), // open_by_handle_at
            ("syscall(321, 0, 0, 0)", "EPERM"),                                  // bpf
            ("syscall(298, 0, 0, -1, -1, 0)", "EPERM"),                          // perf_event_open
            ("syscall(323, 0)", "EPERM"),                                        // userfaultfd
            ("syscall(317, 1, 0, 0)", "EPERM"),                                  // seccomp
            ("syscall(447, 0)", "ENOSYS"),                                       // memfd_secret
            ("syscall(275, 0, 0, 1, 0, 1, 0)", "ENOSYS"),                        // splice
            ("syscall(68, 1, 0o1600)", "ENOSYS"),                                // msgget
            ("syscall(246, 0, 0, 0, 0)", "EPERM"),                               // kexec_load
            ("syscall(175, 0, 0, b'')", "EPERM"),                                // init_module
            ("syscall(300, 0, 0)", "EPERM"),                                     // fanotify_init
            ("syscall(103, 3, 0, 0)", "EPERM"),                                  // syslog
            ("syscall(135, 0x0040000)", "EPERM"),                                // personality
            ("socket.sethostname('evil')", "EPERM"),
            ("time.clock_settime(time.CLOCK_REALTIME, 0)", "EPERM"),
            ("fcntl.ioctl(0, 0x5412, b'x')", "EPERM"), // TIOCSTI
            ("os.setuid(0)", "EPERM|EINVAL"),
            ("os.setgroups([0])", "EPERM"),
            ("os.nice(-5)", "EPERM|EACCES"),
            ("os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))", "EPERM"),
            ("socket.socket(16, socket.SOCK_RAW, 0)", "EAFNOSUPPORT"), // AF_NETLINK
            ("socket.socket(17, socket.SOCK_RAW, 0)", "EAFNOSUPPORT"), // AF_PACKET
            ("socket.socket(38, socket.SOCK_SEQPACKET, 0)", "EAFNOSUPPORT"), // AF_ALG
            ("socket.socket(40, socket.SOCK_STREAM, 0)", "EAFNOSUPPORT"), // AF_VSOCK
            ("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", "EPERM"),
            ("socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)", "EPROTONOSUPPORT"), // ping
            // The twins.
            ("in_child(lambda: None)", "ok"),
            ("os.pidfd_open(os.getpid())", "ok"),
            ("os.memfd_create('x')", "ok"),
            ("socket.socket(socket.AF_UNIX)", "ok"),
            ("socket.socket(socket.AF_INET)", "ok"),
            ("socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)", "ok"),
            ("os.setuid(os.getuid())", "ok"),
            ("os.nice(1)", "ok"),
            ("os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))", "ok"),
            ("os.mkfifo('/workspace/fifo')", "ok"),
        ],
    )
    .await;
    still_serves(&engine).await;
}

/// The same numbers mean other calls behind the 32-bit gate; the filter must know which it is.
#[cfg(target_arch = "x86_64")]
#[tokio::test(flavor = "multi_thread")]
async fn the_gate_of_32_bit_programs_is_shut() {
    let engine = engine();
    let gate = "
import mmap
def run(code):
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
getpid_32 = b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3'      # mov eax, 20; int 0x80
getpid_x32 = b'\\xb8\\x27\\x00\\x00\\x40\\x0f\\x05\\xc3'     # mov eax, 39 | X32; syscall
getpid_64 = b'\\xb8\\x27\\x00\\x00\\x00\\x0f\\x05\\xc3'      # mov eax, 39; syscall
print(run(getpid_32), run(getpid_x32), run(getpid_64))";
    assert_eq!(answer(&engine, gate).await, "-38 -38 2");
}

/// No spelling of a path leads out of the sandbox.
// proves C-129, P-046, U-052
#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_a_path_leads_out() {
    let outside = tempfile::tempdir().unwrap();
    let canary = outside.path().join("canary");
    fs::write(&canary, "a bird of the host").unwrap();
    let canary = canary.display().to_string();
    let engine = engine();
    let spellings = [
        format!("read('{canary}')"),
        format!("read('/proc/self/root{canary}')"),
        format!("read('/proc/self/cwd/../..{canary}')"),
        format!("read('/proc/1/root{canary}')"),
        format!("read('/proc/thread-self/root/../../..{canary}')"),
        format!("read('/../../../..{canary}')"),
        format!("read('/workspace/../..{canary}')"),
        format!("(os.symlink('/../..', '/workspace/up'), read('/workspace/up{canary}'))"),
        format!("(os.symlink('/proc/1/root', '/tmp/init'), read('/tmp/init{canary}'))"),
        format!("(os.chdir('/'), [os.chdir('..') for _ in range(40)], read('.{canary}'))"),
        format!("read(f'/proc/self/fd/{{os.open(\"/\", os.O_PATH)}}{canary}')"),
        format!("os.open('../../../..{canary}', 0, dir_fd=os.open('/workspace', os.O_PATH))"),
        "os.listdir('/proc/self/map_files/../../1/cwd')".to_owned(),
        "read('/etc/shadow')".to_owned(),
        "os.listdir('/root')".to_owned(),
        "os.listdir('/sys')".to_owned(),
    ];
    let table: Vec<(&str, &str)> =
        spellings.iter().map(|one| (one.as_str(), "ENOENT|EACCES")).collect();
    attempts(&engine, &table).await;
    attempts(
        &engine,
        &[("read('/proc/self/root/etc/passwd')", "ok"), ("read('/workspace/../etc/hosts')", "ok")],
    )
    .await;
    let users = "print(*(line.split(':')[0] for line in open('/etc/passwd')))";
    assert_eq!(answer(&engine, users).await, "jar nobody");
}

/// What a file can carry that gives its process more privileges.
#[tokio::test(flavor = "multi_thread")]
async fn files_give_no_rights() {
    let engine = engine();
    let privileges = "
import shutil, subprocess
shutil.copy('/usr/bin/env', '/workspace/env')
os.chmod('/workspace/env', 0o6755)
look = [sys.executable, '-c', 'import os; print(os.getresuid(), os.getresgid())']
print(subprocess.run(['/workspace/env', *look], capture_output=True, text=True).stdout.strip())
status = subprocess.run(['/workspace/env', 'cat', '/proc/self/status'], capture_output=True, text=True).stdout
print(*(line.split()[1] for line in status.splitlines() if line.startswith(('CapEff', 'CapBnd', 'NoNewPrivs', 'Seccomp:'))))
fd = os.memfd_create('program')
with open('/usr/bin/env', 'rb') as source: os.write(fd, source.read())
status = subprocess.run([f'/proc/self/fd/{fd}', 'cat', '/proc/self/status'], pass_fds=[fd], capture_output=True, text=True).stdout
print(*(line.split()[1] for line in status.splitlines() if line.startswith(('CapEff', 'CapBnd', 'NoNewPrivs', 'Seccomp:'))))";
    let nothing = "0000000000000000 0000000000000000 1 2";
    let ids = "(1000, 1000, 1000) (1000, 1000, 1000)";
    assert_eq!(answer(&engine, privileges).await, format!("{ids}\n{nothing}\n{nothing}"));
    attempts(
        &engine,
        &[
            ("create('/workspace/x')", "ok"),
            ("os.setxattr('/workspace/x', 'security.capability', bytes([1, 0, 0, 2]) + b'\\xff' * 16)", "ENOTSUP"),
            ("os.setxattr('/workspace/x', 'trusted.x', b'x')", "ENOTSUP"),
            ("os.chown('/workspace/x', 0, 0)", "EPERM|EINVAL"),
            ("os.mknod('/workspace/d', 0o600 | stat.S_IFCHR, os.makedev(1, 3))", "EPERM"),
            ("os.mknod('/workspace/b', 0o600 | stat.S_IFBLK, os.makedev(254, 0))", "EPERM"),
            ("os.link('/etc/passwd', '/workspace/passwd')", "EXDEV|EPERM"),
            ("os.link('/proc/self/exe', '/workspace/exe')", "EXDEV|EPERM"),
            ("os.link('/workspace/x', '/workspace/y')", "ok"),
            ("os.setxattr('/workspace/x', 'user.x', b'x')", "ENOTSUP"),
        ],
    )
    .await;
}

/// A list of 64 KiB for each file of a directory, which no cgroup is charged for.
#[tokio::test(flavor = "multi_thread")]
async fn t228_no_access_control_list_can_be_set_and_copies_do_without() {
    let engine = engine();
    let attack = "
import shutil, struct, tarfile
entries = [(1, 7, -1)] + [(2, 7, 1000)] * 8180 + [(4, 7, -1), (16, 7, -1), (32, 7, -1)]
wanted = struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *entry) for entry in entries)
os.mkdir('d')
names = ['system.posix_acl_default', 'system.posix_acl_access', 'user.x']
print(*(outcome(lambda: os.setxattr('d', name, wanted)) for name in names))
create('d/file')
shutil.copytree('d', 'copy')
with tarfile.open('d.tar', 'w') as archive: archive.add('d')
with tarfile.open('d.tar') as archive: archive.extractall('out', filter='data')
print(os.listdir('copy'), os.listdir('out/d'), os.listxattr('d'))";
    assert_eq!(answer(&engine, attack).await, "ENOTSUP ENOTSUP ENOTSUP\n['file'] ['file'] []");
}

/// Pid 1 has the same user inside, and fewer privileges than any other process: it can be neither read nor ended.
#[tokio::test(flavor = "multi_thread")]
async fn init_cannot_be_harmed() {
    let engine = engine();
    let attack = "
tried = [outcome(lambda: os.kill(1, number)) for number in (9, 15, 11, 19, 2)]
tried += [outcome(lambda: signal.pidfd_send_signal(os.pidfd_open(1), 9))]
tried += [outcome(lambda: look('/proc/1/' + name)) for name in ('mem', 'maps', 'environ', 'cwd')]
resource.prlimit(1, resource.RLIMIT_CPU, (1, 1)); resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))
children = []
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        signal.pause()
    children.append(pid)
killer = os.fork()
if killer == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.kill(-1, signal.SIGTERM)
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(sorted(set(tried)), [os.WTERMSIG(os.waitpid(pid, 0)[1]) for pid in children], open('/proc/1/status').readline().split())";
    // Killing all processes kills this interpreter too, unless it ignores the signal in time.
    let attack = attack
        .replace(
            "children = []",
            "signal.signal(signal.SIGTERM, signal.SIG_IGN); children = []; ready = os.pipe()",
        )
        .replace(
            "        signal.pause()",
            "        signal.signal(signal.SIGTERM, signal.SIG_DFL)\n        \
             os.write(ready[1], b'x'); signal.pause()",
        )
        .replace(
            "killer = os.fork()",
            "for _ in children: os.read(ready[0], 1)\nkiller = os.fork()",
        );
    assert_eq!(
        answer(&engine, &attack).await,
        "['EACCES', 'EPERM'] [15, 15, 15, 15, 15] ['Name:', 'exe']".replace("exe", "belljar")
    );
    still_serves(&engine).await;
}

/// Linux gives the holder of a socket a descriptor of the process at its other end.
#[tokio::test(flavor = "multi_thread")]
async fn the_supervisor_is_out_of_reach() {
    let engine = engine();
    let reach = "
SO_PEERPIDFD = 77
channel = socket.socket(fileno=os.dup(3))
def supervisor():
    return struct.unpack('i', channel.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, 4))[0]
pid, uid, gid = struct.unpack('3i', channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
print(pid, *sorted({outcome(lambda: signal.pidfd_send_signal(supervisor(), number)) for number in (0, 2, 9)}
      | {outcome(lambda: syscall(438, supervisor(), 0, 0)), outcome(lambda: syscall(308, supervisor(), 0x20000))}))";
    let seen = answer(&engine, reach).await;
    let refusals: BTreeSet<&str> = seen.split(' ').skip(1).collect();
    assert!(seen.starts_with("0 "), "{seen}");
    assert!(refusals.is_subset(&BTreeSet::from(["EINVAL", "EPERM", "ENOPROTOOPT"])), "{seen}");
    still_serves(&engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_service_of_the_host_answers() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let name = format!("belljar-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();
    let (local, any) = (tcp.local_addr().unwrap().port(), everywhere.local_addr().unwrap().port());
    let engine = engine();
    let call = |family: &str, to: &str| format!("_socket.socket(_socket.{family}).connect({to})");
    let table = [
        (call("AF_INET", &format!("('127.0.0.1', {local})")), "ECONNREFUSED"),
        (call("AF_INET", &format!("('0.0.0.0', {any})")), "ECONNREFUSED"),
        (call("AF_INET", &format!("('169.254.169.254', {any})")), "ENETUNREACH"),
        (call("AF_INET", "('1.1.1.1', 53)"), "ENETUNREACH"),
        (call("AF_INET6", "('2606:4700:4700::1111', 53)"), "ENETUNREACH|EADDRNOTAVAIL"),
        (call("AF_UNIX", &format!("'\\0{name}'")), "ECONNREFUSED|EPERM"),
        (
            "_socket.socket(2, _socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))".into(),
            "ENETUNREACH",
        ),
        ("_socket.getaddrinfo('example.com', 80)".into(), "gaierror"),
        // Code that does not evade the guidance gets an explanation.
        ("socket.getaddrinfo('example.com', 80)".into(), "gaierror"),
        ("socket.socket().connect(('1.1.1.1', 53))".into(), "EACCES"),
        // The twin: inside there is a server to connect to.
        (
            "socket.create_connection(socket.create_server(('127.0.0.1', 0)).getsockname())".into(),
            "ok|ECONNREFUSED",
        ),
        ("socket.getaddrinfo('localhost', 80)".into(), "ok"),
    ];
    let table: Vec<(&str, &str)> = table.iter().map(|(one, how)| (one.as_str(), *how)).collect();
    attempts(&engine, &table).await;
    tcp.set_nonblocking(true).unwrap();
    everywhere.set_nonblocking(true).unwrap();
    assert!(tcp.accept().is_err() && everywhere.accept().is_err());
}

/// Daemons of daemons, deaf to every signal, each trying to stay.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_of_a_fork_bomb() {
    let engine = engine();
    let bomb = "
print(os.readlink('/proc/self/ns/pid'), flush=True)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
def daemon(depth):
    try:
        if os.fork() == 0:
            os.setsid()
            for fd in (1, 2): os.close(fd)
            if depth: daemon(depth - 1)
            while True: daemon(0); time.sleep(0.1)
    except OSError: pass
for _ in range(20): daemon(4)
print('planted')";
    let seen = answer(&engine, bomb).await;
    let (home, planted) = seen.split_once('\n').unwrap();
    assert_eq!(planted, "planted");
    // A zombie runs nothing any more, and waits for the warden to look.
    let is_inside = |process: &Process| {
        process.namespace("pid").is_some_and(|pid| pid.to_string_lossy() == home)
    };
    let left: Vec<String> = Process::everyone()
        .into_iter()
        .filter(is_inside)
        .filter_map(|process| process.status().remove("State"))
        .filter(|state| !state.starts_with('Z'))
        .collect();
    assert_eq!(left, Vec::<String>::new());
    still_serves(&engine).await;
}

/// The other half of T30: only plain files of the working directory are brought out.
#[tokio::test(flavor = "multi_thread")]
async fn the_collector_follows_nothing() {
    let engine = engine();
    let litter = "
open('/workspace/plain.txt', 'w').write('mine')
os.symlink('/etc/passwd', '/workspace/link')
os.symlink('/', '/workspace/root')
os.symlink('loop', '/workspace/loop')
os.mkfifo('/workspace/fifo')
s = socket.socket(socket.AF_UNIX); s.bind('/workspace/socket')
os.makedirs('/workspace/closed'); create('/workspace/closed/x'); os.chmod('/workspace/closed', 0)
os.makedirs('/workspace/' + 'd/' * 40)
create(b'/workspace/\\xff'); create('/workspace/new\\nline'); create('/workspace/ok \\u2603')
print('done')";
    let command = Command {
        collect_files: FileCollection::Contents,
        ..harness::command("bare", &with_prelude(litter))
    };
    let finished = harness::run_with(&engine, command).await;
    let mut names: Vec<&str> = finished.contents.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["ok \u{2603}", "plain.txt"]);
    assert!(finished.contents.iter().any(|(_, content)| content == b"mine"));
    let skipped: BTreeSet<&str> =
        finished.execution.truncated.files.iter().map(|file| file.reason.as_str()).collect();
    assert_eq!(
        skipped,
        BTreeSet::from([
            "a FIFO",
            "a socket",
            "a symbolic link",
            "directory cannot be read",
            "its name is not portable",
            "name is not valid UTF-8",
            "nested too deeply",
        ])
    );
    still_serves(&engine).await;
}

/// The other half of T32: a name that is a file and a link by turns, as fast as it can be.
#[tokio::test(flavor = "multi_thread")]
async fn a_swapped_file_is_never_followed() {
    let outside = tempfile::tempdir().unwrap();
    let canary = outside.path().join("canary");
    fs::write(&canary, "a bird of the host").unwrap();
    let engine = engine();
    let session = harness::open(&engine, "bare").await;
    let swap = format!(
        "
os.mkdir('/workspace/d'); open('/workspace/d/f', 'w').write('mine'); os.mkdir('/workspace/e')
os.symlink({canary:?}, '/workspace/e/f'); os.symlink({outside:?}, '/workspace/s')
if os.fork() == 0:
    while True:
        for other in ('e', 's'):
            syscall(316, -100, b'/workspace/d', -100, b'/workspace/' + other.encode(), 2)
            syscall(316, -100, b'/workspace/d', -100, b'/workspace/' + other.encode(), 2)
print('swapping')",
        canary = canary.display().to_string(),
        outside = outside.path().display().to_string()
    );
    let command =
        Command { session: Some(session), ..harness::command("bare", &with_prelude(&swap)) };
    assert_eq!(said(&harness::run_with(&engine, command).await.execution), "swapping");
    let (mut mine, mut refused) = (0, 0);
    // On a busy machine the swapper may not have its turn for a while.
    while mine + refused < 2_000 || (mine.min(refused) <= 10 && mine + refused < 40_000) {
        match harness::read_file(&engine, session, "d/f").await {
            Ok(content) => {
                assert_eq!(content, b"mine");
                mine += 1;
            }
            Err(_) => refused += 1,
        }
        assert!(
            engine.list_files(session).await.unwrap().files.keys().all(|name| name.ends_with("/f"))
        );
    }
    assert!(mine > 10 && refused > 10, "{mine} read, {refused} refused: there was no race");
    engine.close(session).await.unwrap();
}

/// Limits can be lowered and never raised, on oneself and on others.
#[tokio::test(flavor = "multi_thread")]
async fn limits_only_go_down() {
    let engine = engine();
    let limits = [
        "NOFILE",
        "NPROC",
        "FSIZE",
        "AS",
        "MEMLOCK",
        "SIGPENDING",
        "MSGQUEUE",
        "NICE",
        "RTPRIO",
        "STACK",
    ];
    let mut table = Vec::new();
    for name in limits {
        let hard = format!("resource.getrlimit(resource.RLIMIT_{name})[1]");
        table.push((
            format!("resource.setrlimit(resource.RLIMIT_{name}, ({hard}, {hard} + 1))"),
            "ValueError",
        ));
        table.push((format!("resource.setrlimit(resource.RLIMIT_{name}, ({hard}, {hard}))"), "ok"));
    }
    table.push(("write('/proc/self/oom_score_adj', b'-1000')".into(), "EACCES"));
    table.push(("os.setpriority(os.PRIO_PROCESS, 0, -1)".into(), "EACCES|EPERM"));
    table.push(("os.setpriority(os.PRIO_PROCESS, 0, 5)".into(), "ok"));
    let table: Vec<(&str, &str)> = table.iter().map(|(one, how)| (one.as_str(), *how)).collect();
    attempts(&engine, &table).await;
}

/// A filter that looks at half of a pointer takes this one for none.
#[cfg(target_arch = "x86_64")]
#[tokio::test(flavor = "multi_thread")]
async fn a_round_address_is_not_null() {
    let engine = engine();
    let lower = "
ROUND, RLIMIT_CORE, FIXED = 1 << 32, 4, 0x10 | 0x20 | 0x02
assert syscall(9, ROUND, 4096, 3, FIXED, -1, 0) == ROUND
before = resource.getrlimit(resource.RLIMIT_CORE)
ctypes.memmove(ROUND, struct.pack('QQ', 0, 0), 16)
outcome(lambda: syscall(302, 0, RLIMIT_CORE, ROUND, 0))
print(resource.getrlimit(resource.RLIMIT_CORE) == before)
ctypes.memmove(ROUND, struct.pack('QQ', 64, 64), 16)
print(outcome(lambda: syscall(302, 0, resource.RLIMIT_NOFILE, ROUND, 0)))";
    assert_eq!(answer(&engine, lower).await, "True\nok");
}

/// Names that the host gives itself, where code might read them.
#[tokio::test(flavor = "multi_thread")]
async fn little_is_visible_of_the_host() {
    let engine = engine();
    let seen = answer(
        &engine,
        "print(os.uname().nodename, os.getlogin() if False else os.environ['USER'], os.getuid(), os.getgroups(),
      open('/proc/self/uid_map').read().split()[0], open('/proc/1/environ').read() if False else '',
      sorted(name for name in os.environ if 'BELLJAR' in name or 'CARGO' in name))",
    )
    .await;
    assert_eq!(seen, "jar jar 1000 [] 1000  []");
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_ne!(hostname.trim(), "jar");
}

/// The most memory that the supervisor has ever had while it runs this code, in MiB.
fn supervisor_peak(code: &str) -> u64 {
    let code = with_prelude(&format!("print('up', flush=True)\n{code}\nprint('end', flush=True)"));
    let mut supervisor =
        harness::belljar(&["exec", "--env", "bare", "--timeout", "60", "--json", &code])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    let process = Process(supervisor.id());
    let mut output = BufReader::new(supervisor.stdout.take().unwrap());
    let reader = std::thread::spawn(move || output.read_until(b'\n', &mut Vec::new()));
    let mut peak = 0;
    wait_blocking::until("it has ended", || {
        let status = process.status();
        let now = status.get("VmHWM").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        peak = peak.max(now.unwrap_or(0));
        supervisor.try_wait().unwrap().is_some()
    });
    reader.join().unwrap().unwrap();
    peak / 1024
}

#[test]
fn a_hole_in_a_file_costs_the_supervisor_nothing() {
    let plain = supervisor_peak("open('/workspace/x', 'w').write('x')");
    let sparse = supervisor_peak("f = open('/workspace/x', 'w'); f.truncate(500 << 20)");
    assert!(sparse <= plain + 32, "{sparse} MiB, and {plain} MiB without");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_holes_are_not_read_for_ever() {
    let engine = engine();
    let code = "
for n in range(50):
    with open(f'/workspace/{n}', 'w') as f: f.truncate(500 << 20)
for n in range(3000): os.mkdir(f'/workspace/d{n}')";
    let execution = harness::run(&engine, &with_prelude(code)).await;
    let read: u64 = execution.files_out.iter().map(|file| file.size).sum();
    assert!(read <= 1 << 30, "{read} bytes were read");
    assert!(execution.truncated.files.iter().any(|file| file.reason.contains("entries")));
    still_serves(&engine).await;
}

/// A few bytes of JSON can be many of memory, and a bound on results must not look at one part of
/// them only.
#[test]
fn results_cost_the_supervisor_little() {
    let flood = |count: usize, data: &str| {
        supervisor_peak(&format!(
            "body = b'{{\"ev\":\"result\",\"main\":false,\"data\":{{' + {data} + b'}}}}'
frame = len(body).to_bytes(4, 'little') + body
for _ in range({count}):
    left = memoryview(frame)
    while left: left = left[os.write(3, left):]"
        ))
    };
    let plain = flood(1, "b''");
    let nested = flood(6, "b'\"x\":[' + b'[],' * 2_700_000 + b'[]]'");
    let names = flood(20, "b'\"' + b'x' * (8_000_000) + b'\":null'");
    // One frame that is being read, with what it becomes, and what is kept of all of them.
    let most = plain + 256;
    assert!(nested <= most && names <= most, "{nested} and {names} MiB, and {plain} MiB without");
}

/// Everything below `/usr` is one set of inodes for the host and all sandboxes.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_other_sandboxes_open_cannot_be_seen() {
    let engine = engine();
    let watch = "
fd = _libc.inotify_init1(os.O_NONBLOCK)
watched = fd >= 0 and _libc.inotify_add_watch(fd, b'/usr/bin', 0x21)
print('watching', flush=True)
time.sleep(1)
try: seen = b'whoami' in os.read(fd, 65536)
except OSError: seen = False
F_NOTIFY = 1026
print(seen, outcome(lambda: fcntl.fcntl(os.open('/usr/bin', os.O_RDONLY), F_NOTIFY, 1)))";
    let spied = tokio::spawn({
        let engine = std::sync::Arc::clone(&engine);
        async move { answer(&engine, watch).await }
    });
    wait::until("it has looked", async || {
        std::process::Command::new("/usr/bin/whoami").stdout(Stdio::null()).status().unwrap();
        spied.is_finished()
    })
    .await;
    let seen = spied.await.unwrap();
    assert!(seen == "watching\nFalse EINVAL" || seen == "watching\nFalse EPERM", "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_of_the_host_are_not_touched() {
    let engine = engine();
    attempts(&engine, &[("os.utime('/dev/null')", "EROFS"), ("write('/dev/null')", "ok")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_standard_streams_can_be_opened_by_name() {
    let engine = engine();
    attempts(&engine, &[("write('/dev/stderr')", "ok"), ("write('/dev/stdout', b'')", "ok")]).await;
}
