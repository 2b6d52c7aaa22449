//! T01 to T06, T09 and T10: files, processes and rights. T07 and T08, the filter on system calls,
//! are proved call by call in a simulator: `crates/jail/src/seccomp/tests/threats.rs`.

use crate::fixtures::{
    Process, answer, attempts, built, engine, is_root, modified_runner, printed_in, runtime, spawn,
    spawn_for_one_execution, still_serves, zygote_host_config,
};
use crate::harness::{self, wait};
use engine::RunnerSource;
use environment::PythonInstallation;
use sandbox::ZygoteHost;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use types::OutputStream;

// proves C-129, C-130, U-052
#[tokio::test(flavor = "multi_thread")]
async fn t01_fs_view_is_exactly_the_manifest() {
    let engine = engine();
    let seen = answer(&engine, include_str!("inside/view.py")).await;
    let mut seen: Vec<&str> = seen.lines().collect();
    let mut missing = Vec::new();
    for line in include_str!("manifest.txt").lines().filter(|line| !line.starts_with('#')) {
        let (mark, line) = line.split_at(2);
        match seen.iter().position(|found| *found == line) {
            Some(index) => drop(seen.remove(index)),
            None if mark == "? " => {}
            None => missing.push(line),
        }
    }
    assert!(seen.is_empty() && missing.is_empty(), "new: {seen:#?}\nmissing: {missing:#?}");
    still_serves(&engine).await;
}

/// The mount is there in both sandboxes. Only in one does a rule of Landlock name it, and only
/// there can it be read.
#[tokio::test(flavor = "multi_thread")]
async fn t02_landlock_denies_outside_even_if_mounted() {
    let canary = tempfile::tempdir().unwrap();
    fs::set_permissions(canary.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(canary.path().join("canary"), "a bird of the host").unwrap();
    // The zygote is told the rules, and here it leaves out the canary's before it obeys them.
    let forgetful = "import json
    plan = json.loads(os.pread(options.plan, 1 << 20, 0))
    rules = [rule for rule in plan['landlock'] if rule[0] != '/canary']
    assert len(rules) == len(plan['landlock']) - 1
    plan['landlock'] = rules
    os.ftruncate(options.plan, 0)
    os.pwrite(options.plan, json.dumps(plan).encode(), 0)
    library = _open(options)";
    let (_source, forgetful) =
        modified_runner(&[("zygote.py", "library = _open(options)", forgetful)]);
    let attempt = "print(outcome(lambda: os.stat('/canary/canary')), \
                   outcome(lambda: read('/canary/canary')), \
                   outcome(lambda: read('/etc/passwd')))";
    for (runner, expected) in [(RunnerSource::Embedded, "ok ok ok"), (forgetful, "ok EACCES ok")] {
        let mut config = zygote_host_config(&runner);
        config.spec.binds.push((canary.path().into(), "/canary".into()));
        let zygote_host = ZygoteHost::start(config).await.unwrap();
        assert_eq!(printed_in(&mut spawn(&zygote_host).await, attempt).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t03_proc_masks_table() {
    const ABSENT: &str = "ENOENT";
    let engine = engine();
    let host_wide = [
        "buddyinfo",
        "bus",
        "cgroups",
        "cmdline",
        "config.gz",
        "consoles",
        "cpuinfo",
        "crypto",
        "devices",
        "diskstats",
        "dma",
        "driver",
        "execdomains",
        "fb",
        "filesystems",
        "fs",
        "interrupts",
        "iomem",
        "ioports",
        "irq",
        "kallsyms",
        "kcore",
        "key-users",
        "keys",
        "kmsg",
        "kpagecount",
        "loadavg",
        "locks",
        "meminfo",
        "misc",
        "modules",
        "mounts",
        "net",
        "pagetypeinfo",
        "partitions",
        "pressure/cpu",
        "sched_debug",
        "schedstat",
        "scsi",
        "slabinfo",
        "softirqs",
        "stat",
        "swaps",
        "sys/kernel/core_pattern",
        "sys/kernel/random/boot_id",
        "sys/fs/file-nr",
        "sys/user/max_user_namespaces",
        "sysrq-trigger",
        "timer_list",
        "tty",
        "uptime",
        "version",
        "vmallocinfo",
        "vmstat",
        "zoneinfo",
    ];
    let mut table: Vec<(String, &str)> =
        host_wide.iter().map(|name| (format!("os.stat('/proc/{name}')"), ABSENT)).collect();
    for name in ["/sys", "/sys/kernel", "/sys/fs/cgroup", "/sys/firmware", "/dev/kmsg", "/dev/mem"]
    {
        table.push((format!("os.stat('{name}')"), ABSENT));
    }
    for name in [
        "auxv",
        "clear_refs",
        "cwd",
        "environ",
        "exe",
        "fdinfo/0",
        "io",
        "map_files",
        "maps",
        "mem",
        "pagemap",
        "personality",
        "root",
        "root/etc/passwd",
        "smaps",
        "stack",
        "syscall",
        "timers",
    ] {
        table.push((format!("look('/proc/1/{name}')"), "EACCES|EPERM"));
    }
    for name in [
        "attr/current",
        "autogroup",
        "clear_refs",
        "comm",
        "coredump_filter",
        "gid_map",
        "loginuid",
        "mem",
        "oom_adj",
        "oom_score_adj",
        "projid_map",
        "sched",
        "setgroups",
        "timerslack_ns",
        "uid_map",
    ] {
        table.push((format!("write('/proc/self/{name}')"), "EACCES"));
    }
    // The twins: what programs ask of their own entry.
    for name in [
        "auxv",
        "cmdline",
        "comm",
        "environ",
        "exe",
        "limits",
        "maps",
        "mountinfo",
        "oom_score",
        "root/etc/passwd",
        "smaps_rollup",
        "stat",
        "statm",
        "status",
    ] {
        table.push((format!("read('/proc/self/{name}')"), "ok"));
    }
    let table: Vec<(&str, &str)> = table.iter().map(|(path, how)| (path.as_str(), *how)).collect();
    attempts(&engine, &table).await;
    let listing = "print(*sorted(os.listdir('/proc')))";
    assert_eq!(answer(&engine, listing).await, "1 2 self thread-self");
    still_serves(&engine).await;
}

/// What the init of a sandbox shows of itself to the code beside it; one more is one too many.
#[tokio::test(flavor = "multi_thread")]
async fn t03_init_shows_nothing_new() {
    const SHOWN: [&str; 33] = [
        "arch_status",
        "attr",
        "autogroup",
        "cgroup",
        "cmdline",
        "comm",
        "coredump_filter",
        "cpu_resctrl_groups",
        "cpuset",
        "fd",
        "gid_map",
        "ksm_merging_pages",
        "ksm_stat",
        "latency",
        "limits",
        "loginuid",
        "mountinfo",
        "mounts",
        "mountstats",
        "net",
        "ns",
        "oom_adj",
        "oom_score",
        "oom_score_adj",
        "projid_map",
        "sched",
        "schedstat",
        "sessionid",
        "setgroups",
        "stat",
        "statm",
        "status",
        "task",
    ];
    const HARMLESS: [&str; 3] = ["timens_offsets", "uid_map", "wchan"];
    let engine = engine();
    let look = "
print(*sorted(name for name in os.listdir('/proc/1') if outcome(lambda: look('/proc/1/' + name)) == 'ok'))
print(os.listdir('/proc/1/fd'), outcome(lambda: os.readlink('/proc/1/ns/net')))";
    let seen = answer(&engine, look).await;
    let (names, rest) = seen.split_once('\n').unwrap();
    let new: Vec<&str> = names
        .split_whitespace()
        .filter(|name| !SHOWN.contains(name) && !HARMLESS.contains(name))
        .collect();
    assert_eq!((new, rest), (Vec::new(), "[] EACCES"));
}

// proves P-046, U-051, U-053
#[tokio::test(flavor = "multi_thread")]
async fn t04_two_sandboxes_are_blind() {
    let zygote_host = ZygoteHost::start(zygote_host_config(&RunnerSource::Embedded)).await.unwrap();
    let (mut a, mut b) = (spawn(&zygote_host).await, spawn(&zygote_host).await);
    let (inside_a, inside_b) = (Process::of(&a), Process::of(&b));
    for kind in ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"] {
        let (of_a, of_b) = (inside_a.namespace(kind).unwrap(), inside_b.namespace(kind).unwrap());
        let of_us = Process(std::process::id()).namespace(kind).unwrap();
        assert!(of_a != of_b && of_a != of_us && of_b != of_us, "{kind}: {of_a:?} {of_b:?}");
    }
    let owner = |process: Process| fs::metadata(process.path("")).unwrap().uid();
    assert_eq!(owner(inside_a) != owner(inside_b), is_root());

    let offer = "
abstract = socket.socket(socket.AF_UNIX); abstract.bind('\\0meet'); abstract.listen()
tcp = socket.create_server(('127.0.0.1', 4040))
_libc.shmget(4040, 4096, 0o1666)
open('/dev/shm/meet', 'w').close(); open('/tmp/meet', 'w').close()";
    let seek = "
def meet(family, address):
    with socket.socket(family) as one: one.connect(address)
def clock(pid): time.clock_gettime((~pid << 3) | 2)
print(outcome(lambda: meet(socket.AF_UNIX, '\\0meet')),
      outcome(lambda: meet(socket.AF_INET, ('127.0.0.1', 4040))),
      'ok' if _libc.shmget(4040, 4096, 0) >= 0 else errno.errorcode[ctypes.get_errno()],
      os.path.exists('/dev/shm/meet'), os.path.exists('/tmp/meet'))";
    printed_in(&mut b, offer).await;
    assert_eq!(printed_in(&mut b, seek).await, "ok ok ok True True");
    assert_eq!(printed_in(&mut a, seek).await, "ECONNREFUSED ECONNREFUSED ENOENT False False");
    // B by the number the host has for it, and all others by any number there is.
    let foreign = inside_b.0;
    let reach = format!(
        "def clock(pid): time.clock_gettime((~pid << 3) | 2)
others = [{foreign}] + list(range(3, 40000))
print({{outcome(lambda: os.kill(pid, 0)) for pid in others}},
      {{outcome(lambda: os.pidfd_open(pid)) for pid in others[:2000]}},
      {{outcome(lambda: clock(pid)) for pid in others[:2000]}},
      os.path.exists('/proc/{foreign}'),
      outcome(lambda: os.kill(2, 0)), outcome(lambda: clock(2)))"
    );
    assert_eq!(printed_in(&mut a, &reach).await, "{'ESRCH'} {'ESRCH'} {'EINVAL'} False ok ok");
    assert_eq!(printed_in(&mut b, "print('still here')").await, "still here");
}

// proves P-046, S-023, U-051
#[tokio::test(flavor = "multi_thread")]
async fn t05_residue_zero() {
    const LOOK: &str = "
import hashlib
for place in ('/workspace', '/tmp', '/dev/shm/', '/home/jar/', '/var/tmp/', '/run'):
    for directory, directories, files in os.walk(place):
        status = os.stat(directory)
        print(directory, oct(status.st_mode), os.listxattr(directory))
        for name in sorted(files):
            print(directory, name, hashlib.sha256(open(os.path.join(directory, name), 'rb').read()).hexdigest())
print(sorted(os.listdir('/proc')), sorted(os.listdir('/proc/self/fd')))
print(_libc.shmget(4040, 4096, 0), os.environ, sys.path, socket.gethostname())
print(outcome(lambda: socket.socket(socket.AF_UNIX).connect('\\0residue')))";
    const SOIL: &str = "
for place in ('/workspace', '/tmp', '/dev/shm', '/home/jar', '/var/tmp'):
    os.makedirs(place + '/deep/er', exist_ok=True)
    for name in ('sitecustomize.py', '.bashrc', 'deep/er/file'):
        with open(place + '/' + name, 'w') as file: file.write('raise SystemExit')
    os.chmod(place, 0o777)
    with open(place + '/unlinked', 'w') as file:
        os.unlink(place + '/unlinked')
        file.write('x' * 100000)
_libc.shmget(4040, 4096, 0o1666)
left = socket.socket(socket.AF_UNIX); left.bind('\\0residue'); left.listen()
if os.fork() == 0:
    os.setsid(); signal.pause()
print('soiled')";
    let engine = engine();
    let pristine = answer(&engine, LOOK).await;
    assert_eq!(answer(&engine, SOIL).await, "soiled");
    assert_eq!(answer(&engine, LOOK).await, pristine);
    // The twin, and the proof that the look is not blind: in the same sandbox all of it is there.
    let both = answer(&engine, &format!("{SOIL}\n{LOOK}")).await;
    assert!(both.lines().count() > pristine.lines().count() + 10, "{both}");
    still_serves(&engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t06_runtime_tree_hash_unchanged() {
    let engine = engine();
    let before = shared_files();
    assert!(before.len() > 500, "only {} files are looked at", before.len());
    let attempt = include_str!("inside/tamper.py");
    let seen = answer(&engine, attempt).await;
    let (refused, twins) = seen.split_once('\n').unwrap();
    // Extended attributes can be set nowhere.
    assert_eq!(refused, "refused: EACCES ENOTSUP EROFS EXDEV");
    assert_eq!(twins, "in the workspace: ok ok ok ok ENOTSUP ok ok ok ok ok ok ok");
    let after = shared_files();
    let changed: Vec<_> =
        after.iter().filter(|(path, hash)| before.get(*path) != Some(hash)).collect();
    assert_eq!((changed, after.len()), (Vec::new(), before.len()));
    still_serves(&engine).await;
}

/// Every file of the runtime and of the environment, and the part of the standard library that
/// every program loads, with what it holds and who may do what with it.
fn shared_files() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    hash_tree(runtime(&RunnerSource::Embedded).path(), usize::MAX, &mut files);
    hash_tree(&built("bare").directory, usize::MAX, &mut files);
    let PythonInstallation { executable, prefix, .. } = built("bare").python.clone();
    hash_tree(&executable, 0, &mut files);
    for entry in fs::read_dir(prefix.join("lib")).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("python3") {
            hash_tree(&entry.path(), 2, &mut files);
        }
    }
    files
}

fn hash_tree(path: &Path, depth: usize, files: &mut BTreeMap<String, String>) {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return;
    };
    let mut print = format!("{:o} {} {}", meta.mode(), meta.nlink(), meta.mtime());
    if meta.is_file() {
        let content = Sha256::digest(fs::read(path).unwrap());
        print += &content.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    }
    files.insert(path.display().to_string(), print);
    if meta.is_dir() && depth > 0 {
        for entry in fs::read_dir(path).unwrap().flatten() {
            hash_tree(&entry.path(), depth - 1, files);
        }
    }
}

/// The memory of what a single execution has left running is not watched, so nothing of it continues.
#[tokio::test(flavor = "multi_thread")]
async fn t135_what_code_leaves_running_ends_with_a_sandbox_for_one_execution() {
    let zygote_host = ZygoteHost::start(zygote_host_config(&RunnerSource::Embedded)).await.unwrap();
    let leaves = "
if os.fork() == 0:
    while True: time.sleep(1)
print('left')";
    let inside = |home: &Path| {
        let is_inside = |it: &Process| it.namespace("pid").is_some_and(|pid| pid == *home);
        Process::everyone().into_iter().filter(is_inside).count()
    };
    let mut once = spawn_for_one_execution(&zygote_host).await;
    let home = Process::of(&once).namespace("pid").unwrap();
    assert_eq!(printed_in(&mut once, leaves).await, "left");
    wait::until("nothing of it is left", async || inside(&home) == 0).await;
    once.end().await;
    // The twin: a session goes on, with what runs in it.
    let mut session = spawn(&zygote_host).await;
    let home = Process::of(&session).namespace("pid").unwrap();
    assert_eq!(printed_in(&mut session, leaves).await, "left");
    assert_eq!(printed_in(&mut session, "print('again')").await, "again");
    assert_eq!(inside(&home), 3, "the init, the interpreter and what it has left");
}

#[tokio::test(flavor = "multi_thread")]
async fn t09_privilege_bits_from_outside() {
    let zygote_host = ZygoteHost::start(zygote_host_config(&RunnerSource::Embedded)).await.unwrap();
    // Nothing was run in it yet: this is what the first byte of user code will find.
    let sandbox = spawn(&zygote_host).await;
    let interpreter = Process::of(&sandbox);
    let home = interpreter.namespace("pid").unwrap();
    let inside: Vec<Process> = Process::everyone()
        .into_iter()
        .filter(|process| process.namespace("pid").is_some_and(|pid| pid == home))
        .collect();
    assert_eq!(inside.len(), 2, "the init and the interpreter");
    let is_interpreter = |process: &Process| process.0 == interpreter.0;
    for process in inside {
        // The init hands the jail over first, and takes its last system calls from itself then.
        if !is_interpreter(&process) {
            let mode = async || process.status().get("Seccomp").is_some_and(|mode| mode == "2");
            wait::until("the init is sealed", mode).await;
        }
        let status = process.status();
        let field = |name: &str| status.get(name).map_or("", String::as_str);
        assert_eq!(field("NoNewPrivs"), "1");
        assert_eq!(field("Seccomp"), "2");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        let ids: Vec<&str> =
            field("Uid").split_whitespace().chain(field("Gid").split_whitespace()).collect();
        assert!(ids.iter().all(|id| *id != "0" && *id == ids[0]), "{ids:?}");
        assert_eq!(field("Groups"), "");
        assert_eq!(field("Threads"), "1");
    }
    // The twin: read in the same way, this process has not given these things up.
    let own = Process(std::process::id()).status();
    assert_eq!(own.get("Seccomp").map(String::as_str), Some("0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn t10_crash_leaves_no_core() {
    let engine = engine();
    let core_files = || {
        let here = std::env::current_dir().unwrap();
        let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        let elsewhere = Path::new(pattern.trim()).parent().map(Path::to_path_buf);
        let places = [Some(here), Some("/tmp".into()), elsewhere.filter(|path| path.is_absolute())];
        let names = places.into_iter().flatten().filter_map(|place| fs::read_dir(place).ok());
        names
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core"))
            })
            .count()
    };
    let before = core_files();
    let execution =
        harness::run(&engine, "print('so far', flush=True); import ctypes; ctypes.string_at(1)")
            .await;
    let error = execution.error.as_ref().unwrap();
    assert_eq!(error.code.to_string(), "sandbox.crashed");
    assert_eq!(error.message, "the interpreter was killed by signal 11 (segmentation fault)");
    assert_eq!(execution.exit_code, Some(139));
    assert_eq!(harness::printed(&execution, OutputStream::Stdout), "so far\n");
    assert_eq!(execution.files_out, []);
    assert_eq!(core_files(), before);

    // In a child whose end the code can look at: killed by the signal, and nothing dumped.
    let child = "
pid = os.fork()
if pid == 0:
    ctypes.string_at(1)
status = os.waitpid(pid, 0)[1]
print(os.WTERMSIG(status), os.WCOREDUMP(status), os.listdir('/workspace'),
      resource.getrlimit(resource.RLIMIT_CORE),
      outcome(lambda: resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096))),
      outcome(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))))";
    assert_eq!(answer(&engine, child).await, "11 False [] (1, 1) ValueError ok");
    // Nor can it be lowered: at zero, a host that pipes core dumps would start its handler.
    let lowered = "print(outcome(lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))))";
    assert_eq!(answer(&engine, lowered).await, "ValueError");
    still_serves(&engine).await;
}
