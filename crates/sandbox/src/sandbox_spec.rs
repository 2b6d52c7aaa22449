//! The file system of a sandbox: its root directory, the paths that code may read or write, and the
//! command line of the zygote.

use jail::{PathAccess, ProcessPolicy, ProgramSpec, RootStep, VolumeContent};
use std::path::{Path, PathBuf};

/// The parts of the root that differ from environment to environment.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// The name of the environment in errors.
    pub environment: String,
    /// Directories of the host and where they appear.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// The directory of the host that has all volumes. A sandbox sees only the volumes that it was
    /// spawned with.
    pub volumes: Option<PathBuf>,
    pub interpreter: PathBuf,
    /// Environment variables that this Python or its packages need.
    pub variables: Vec<(String, String)>,
    pub preload: Vec<String>,
    pub processes: ProcessPolicy,
    /// Whether code can install more packages.
    pub installs: bool,
    /// The modules that code may import besides the standard library; all if absent.
    pub imports: Option<Vec<String>>,
}

/// The system's programs and libraries, as far as the host has them. `/usr/local` and `/opt` are
/// left out: files of an administrator must not be visible.
const SYSTEM: [&str; 7] =
    ["/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/share"];
/// Symbolic links on a merged system, directories on an older one.
const SYSTEM_LINKS: [&str; 5] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64"];
/// Configuration that programs read and that says nothing about this host.
const ETC: [&str; 8] = [
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/mime.types",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
];
const PASSWD: &str =
    "jar:x:1000:1000:jar:/home/jar:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "jar:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost jar\n::1 localhost\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files\n";

/// Not `/dev/zero`: a shared mapping of it, for which it must be open for writing, is memory that
/// can be held without being mapped.
const WRITABLE_DEVICES: [&str; 4] = ["/dev/null", "/dev/full", "/dev/random", "/dev/urandom"];

pub(crate) const HOSTNAME: &str = "jar";
const RUNTIME: &str = "/opt/belljar";
/// The path at which the root of sandboxes has all volumes; hidden in each sandbox.
const ALL_VOLUMES: &str = "/run/volumes";

/// The steps that build the root, in order.
pub(crate) fn rootfs_steps(spec: &SandboxSpec, runtime: &Path) -> Vec<RootStep> {
    let mut steps = Vec::new();
    for path in [
        "/proc",
        "/workspace",
        "/tmp",
        "/dev",
        "/etc",
        "/home",
        "/usr",
        "/opt",
        "/run",
        jail::VOLUMES,
    ] {
        steps.push(RootStep::Dir { path: path.into() });
    }
    for path in SYSTEM {
        steps.extend(same_as_host(path));
    }
    for path in SYSTEM_LINKS {
        steps.extend(link_or_bind(path));
    }
    for path in ETC {
        steps.extend(same_as_host(path));
    }
    for (from, to) in &spec.binds {
        steps.push(RootStep::Bind { from: from.clone(), to: to.clone() });
    }
    steps.push(RootStep::Bind { from: runtime.into(), to: RUNTIME.into() });
    if let Some(volumes) = &spec.volumes {
        steps.push(RootStep::Bind { from: volumes.clone(), to: ALL_VOLUMES.into() });
    }
    for (path, content) in [
        ("/etc/passwd", PASSWD),
        ("/etc/group", GROUP),
        ("/etc/hosts", HOSTS),
        ("/etc/nsswitch.conf", NSSWITCH),
        ("/etc/hostname", "jar\n"),
    ] {
        steps.push(RootStep::File { path: path.into(), content: content.into() });
    }
    for (path, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
        ("/dev/shm", "/tmp/.shm"),
        ("/home/jar", "/tmp/.home"),
        ("/home/uploaded_files", "/workspace"),
        ("/var/tmp", "/tmp"),
    ] {
        steps.push(RootStep::Symlink { path: path.into(), target: target.into() });
    }
    steps
}

pub(crate) fn hidden_paths(spec: &SandboxSpec) -> Vec<PathBuf> {
    spec.volumes.iter().map(|_| ALL_VOLUMES.into()).collect()
}

/// The read-only mount of a volume, by the name of its directory.
pub fn read_only_volume(name: &str) -> VolumeContent {
    VolumeContent::Shown { from: Path::new(ALL_VOLUMES).join(name) }
}

fn same_as_host(path: &str) -> Option<RootStep> {
    let exists = Path::new(path).exists() && !Path::new(path).is_symlink();
    exists.then(|| RootStep::Bind { from: path.into(), to: path.into() })
}

fn link_or_bind(path: &str) -> Option<RootStep> {
    match std::fs::read_link(path) {
        Ok(target) => Some(RootStep::Symlink { path: path.into(), target }),
        Err(_) => same_as_host(path),
    }
}

/// The paths that Landlock allows. Anything else stays closed, even if it is mounted by mistake.
pub(crate) fn landlock_rules(root: &[RootStep]) -> Vec<(PathBuf, PathAccess)> {
    let mut rules = vec![
        (PathBuf::from("/"), PathAccess::List),
        ("/workspace".into(), PathAccess::Write),
        ("/tmp".into(), PathAccess::Write),
        ("/proc".into(), PathAccess::Read),
        ("/dev".into(), PathAccess::Read),
        ("/usr".into(), PathAccess::Read),
        ("/etc".into(), PathAccess::Read),
        // A volume that must not be written is mounted read-only.
        (jail::VOLUMES.into(), PathAccess::Write),
    ];
    rules.extend(WRITABLE_DEVICES.map(|path| (path.into(), PathAccess::Device)));
    for step in root {
        if let RootStep::Bind { to, .. } = step
            && !to.starts_with("/usr")
            && !to.starts_with("/etc")
            && to != Path::new(ALL_VOLUMES)
        {
            rules.push((to.clone(), PathAccess::Read));
        }
    }
    rules
}

/// The command line of the zygote with its complete environment: it inherits no variable.
pub(crate) fn zygote_program(spec: &SandboxSpec, warm: bool, memory_counted: bool) -> ProgramSpec {
    let mut args: Vec<String> =
        ["-I", "-B", "/opt/belljar/runner/zygote.py"].map(Into::into).into();
    args.extend(["--lib", "/opt/belljar/lib/libbelljar_jail.so"].map(Into::into));
    args.extend(["--socket", "3", "--plan", "4"].map(Into::into));
    args.extend(["--environment".into(), spec.environment.clone()]);
    if spec.processes == ProcessPolicy::Deny {
        args.push("--no-processes".into());
    }
    if !spec.installs {
        args.push("--no-installs".into());
    }
    if !memory_counted {
        args.push("--files-as-shared-memory".into());
    }
    if let Some(imports) = &spec.imports {
        args.extend(["--imports".into(), imports.join(",")]);
    }
    if warm {
        for module in &spec.preload {
            args.extend(["--preload".into(), module.clone()]);
        }
        args.push("--warm-up".into());
    }
    let env = [
        ("PATH", "/opt/env/bin:/opt/python/bin:/usr/bin:/bin"),
        ("HOME", "/home/jar"),
        ("USER", "jar"),
        ("LOGNAME", "jar"),
        ("SHELL", "/bin/sh"),
        ("LANG", "C.UTF-8"),
        ("TZ", "UTC"),
        ("TMPDIR", "/tmp"),
        ("VIRTUAL_ENV", "/opt/env"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        // A sandbox has one core by default, and a forked process must have one thread.
        ("OPENBLAS_NUM_THREADS", "1"),
        ("OMP_NUM_THREADS", "1"),
        ("MPLBACKEND", "agg"),
    ];
    let mut env: Vec<(String, String)> =
        env.map(|(name, value)| (name.into(), value.into())).into();
    env.extend(spec.variables.iter().cloned());
    ProgramSpec { path: spec.interpreter.clone(), args, env }
}
