//! Obtains uv, the program that resolves and installs packages, and runs it so that only the lock
//! decides what is installed.
//!
//! A suitable uv of the host is used if there is one. Otherwise one pinned release is downloaded
//! from the package index, and runs only after its digest was verified.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use jail::Confinement;

use crate::error::BuildError;
use crate::host_settings::HostSettings;
use crate::progress::Progress;
use crate::subprocess::{self, CancelFlag};
use crate::version::VersionRange;

const FETCH: &str = include_str!("python/fetch_uv.py");

/// Exit status of `fetch_uv.py` for a wrong digest.
const WRONG_DIGEST: i32 = 5;

const PINNED_VERSION: &str = "0.13.7";

struct PinnedWheel {
    architecture: &'static str,
    file: &'static str,
    sha256: &'static str,
}

/// From uv's page at the public index.
const PINNED_WHEELS: [PinnedWheel; 2] = [
    PinnedWheel {
        architecture: "x86_64",
        file: "uv-0.13.7-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        sha256: "2c9bdc4a872b60a93c5f26c0791089ea11585a4f9d3b3c017d78eb8487505e25",
    },
    PinnedWheel {
        architecture: "aarch64",
        file: "uv-0.13.7-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl",
        sha256: "a90f5d95716ab83091f0f73a8e7ec64e557abf2a28537fcd719b2ac88e6f725a",
    },
];

/// The first release that has every option used below.
const OLDEST_RELEASE: [u32; 2] = [0, 5];

const VERSION_TIME: Duration = Duration::from_secs(10);

/// Variables that configure access to an index. All others are removed: those of uv could change
/// what is installed, and where, and those of the server may be secrets.
const KEPT_VARIABLES: [&str; 18] = [
    "PATH",
    "HOME",
    "NETRC",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "SSL_CLIENT_CERT",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "UV_CONCURRENT_DOWNLOADS",
    "UV_HTTP_RETRIES",
    "UV_HTTP_TIMEOUT",
    "UV_INSECURE_HOST",
    "UV_KEYRING_PROVIDER",
];

/// Where uv downloads Pythons from, if not from their publisher.
const PYTHON_MIRROR: &str = "UV_PYTHON_INSTALL_MIRROR";

/// Larger than the libraries of CUDA, which are the largest files of wheels.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// The source of the uv that installs packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UvSource {
    OnPath(PathBuf),
    /// Downloaded from the index by an earlier build.
    Fetched(PathBuf),
    /// uv is not downloaded yet; the first build with packages does it.
    Index {
        version: &'static str,
    },
}

impl UvSource {
    pub(crate) fn find(machine: &HostSettings, tools: &Path) -> Self {
        let on_path =
            subprocess::find_program(machine.search_path.iter().map(PathBuf::as_path), "uv");
        if let Some(program) = on_path.filter(|program| is_recent(program)) {
            return Self::OnPath(program);
        }
        let program = pinned_program(tools);
        if program.exists() {
            Self::Fetched(program)
        } else {
            Self::Index { version: PINNED_VERSION }
        }
    }
}

fn pinned_program(tools: &Path) -> PathBuf {
    tools.join(format!("uv-{PINNED_VERSION}")).join("uv")
}

/// A uv that can be run.
#[derive(Debug)]
pub(crate) struct Uv {
    program: PathBuf,
    cancel: CancelFlag,
}

/// Source and target of packages.
#[derive(Debug)]
pub(crate) struct Installation<'a> {
    pub(crate) lock: &'a Path,
    pub(crate) python: &'a Path,
    pub(crate) prefix: &'a Path,
    pub(crate) cache: &'a Path,
}

/// The packages to resolve, and where the lock goes.
#[derive(Debug)]
pub(crate) struct Resolution<'a> {
    /// A file with one requirement per line.
    pub(crate) requirements: &'a Path,
    /// A file with constraints on the versions of packages that are not requested themselves.
    pub(crate) constraints: Option<&'a Path>,
    pub(crate) python: &'a Path,
    pub(crate) lock: &'a Path,
    /// The directory of the lock.
    pub(crate) directory: &'a Path,
    pub(crate) cache: &'a Path,
}

/// Why uv failed.
#[derive(Debug)]
pub(crate) enum UvError {
    IndexUnreachable { cause: String },
    Failed { status: ExitStatus, detail: String },
}

impl Uv {
    /// Finds uv on the search path or in `tools`, or downloads it there with `python`.
    pub(crate) fn obtain(
        machine: &HostSettings,
        tools: &Path,
        python: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, BuildError> {
        let program = match UvSource::find(machine, tools) {
            UvSource::OnPath(program) | UvSource::Fetched(program) => program,
            UvSource::Index { .. } if machine.offline => {
                let (index, detail) = (machine.index.clone(), "--offline is set".to_owned());
                return Err(BuildError::UvUnavailable { index, detail });
            }
            UvSource::Index { version } => {
                let program = pinned_program(tools);
                progress(Progress::FetchingUv { version });
                fetch_uv(machine, python, &program)?;
                program
            }
        };
        Ok(Self { program, cancel: CancelFlag::default() })
    }

    /// Makes the flag cancel its work.
    pub(crate) fn with_cancel(self, cancel: CancelFlag) -> Self {
        Self { cancel, ..self }
    }

    /// Installs exactly the lock. The outer error means that uv could not be started.
    pub(crate) fn install(
        &self,
        installation: &Installation<'_>,
        machine: &HostSettings,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Result<(), UvError>, BuildError> {
        let command = |reach| self.install_command(installation, "--prefix", machine, reach);
        self.run(command, machine, &mut |line| {
            if let Some(event) = parse_progress(line) {
                progress(event);
            }
        })
    }

    /// Like `install`, into a directory of modules that is no environment.
    pub(crate) fn install_to_target(
        &self,
        installation: &Installation<'_>,
        machine: &HostSettings,
    ) -> Result<Result<(), UvError>, BuildError> {
        let command = |reach| self.install_command(installation, "--target", machine, reach);
        self.run(command, machine, &mut |_| ())
    }

    /// Pins the newest compatible versions, with the hashes of all their wheels. Returns uv's
    /// warnings.
    pub(crate) fn resolve(
        &self,
        resolution: &Resolution<'_>,
        machine: &HostSettings,
    ) -> Result<Result<Vec<String>, UvError>, BuildError> {
        let command = |reach| self.resolve_command(resolution, machine, reach);
        let mut warnings = Vec::new();
        let ended = self.run(command, machine, &mut |line| {
            warnings.extend(line.strip_prefix("warning: ").map(str::to_owned));
        })?;
        Ok(ended.map(|()| warnings))
    }

    /// If the index is unreachable, retries offline: the host's wheels may be enough.
    fn run(
        &self,
        command: impl Fn(IndexAccess) -> Result<Command, BuildError>,
        machine: &HostSettings,
        watch: &mut dyn FnMut(&str),
    ) -> Result<Result<(), UvError>, BuildError> {
        let first = if machine.offline { IndexAccess::Offline } else { IndexAccess::Index };
        let ended = self.run_command(command(first)?, watch)?;
        match ended {
            Err(UvError::IndexUnreachable { .. }) if machine.wheels.is_some() => {
                self.run_command(command(IndexAccess::Offline)?, watch)
            }
            ended => Ok(ended),
        }
    }

    fn run_command(
        &self,
        mut command: Command,
        watch: &mut dyn FnMut(&str),
    ) -> Result<Result<(), UvError>, BuildError> {
        let ended = subprocess::run_streaming_until(&mut command, &self.cancel, watch)
            .map_err(|source| BuildError::Run { program: self.program.clone(), source })?;
        if ended.status.success() {
            return Ok(Ok(()));
        }
        // The output of a killed program does not explain why the request failed. If it was
        // cancelled, Belljar killed it, and the result is ignored.
        if let Some(signal) = ended.status.signal()
            && !self.cancel.is_cancelled()
        {
            return Err(BuildError::Killed { program: self.program.clone(), signal });
        }
        Ok(Err(UvError::from_output(ended.status, &ended.last_lines)))
    }

    fn install_command(
        &self,
        installation: &Installation<'_>,
        place: &str,
        machine: &HostSettings,
        reach: IndexAccess,
    ) -> Result<Command, BuildError> {
        let places = [installation.cache, installation.prefix];
        let mut command = self.command("install", machine, reach, places)?;
        command
            .args(["--require-hashes", "--no-deps"])
            // The wheels of one cache serve every Python and every environment, on disk and in
            // memory. No process writes through a link: the environment is mounted read-only.
            .args(["--link-mode", "hardlink"])
            .arg("--python")
            .arg(installation.python)
            .arg(place)
            .arg(installation.prefix)
            .arg("--requirements")
            .arg(installation.lock);
        Ok(command)
    }

    fn resolve_command(
        &self,
        resolution: &Resolution<'_>,
        machine: &HostSettings,
        reach: IndexAccess,
    ) -> Result<Command, BuildError> {
        let places = [resolution.cache, resolution.directory];
        let mut command = self.command("compile", machine, reach, places)?;
        command
            .args(["--generate-hashes", "--no-header", "--no-annotate"])
            .arg("--python")
            .arg(resolution.python)
            .arg("--output-file")
            .arg(resolution.lock)
            .arg(resolution.requirements);
        if let Some(constraints) = resolution.constraints {
            command.arg("--constraint").arg(constraints);
        }
        Ok(command)
    }

    /// Downloads a Python into a directory of Pythons, or says why not. uv verifies its digest.
    pub(crate) fn install_python(
        &self,
        required: VersionRange,
        directory: &Path,
        cache: &Path,
        machine: &HostSettings,
    ) -> Result<(), String> {
        fs::create_dir_all(directory).map_err(|error| error.to_string())?;
        fs::create_dir_all(cache).map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.program);
        command.env_clear();
        let kept = KEPT_VARIABLES.into_iter().chain([PYTHON_MIRROR]);
        command.envs(kept.filter_map(|it| Some((it, std::env::var_os(it)?))));
        command
            .args(["--no-config", "--color", "never", "python", "install"])
            .arg(required.to_string())
            .arg("--cache-dir")
            .arg(cache)
            .env("UV_PYTHON_INSTALL_DIR", directory)
            // Nothing in the home directory of the user.
            .env("UV_PYTHON_INSTALL_BIN", "0")
            .env("UV_SYSTEM_CERTS", "true")
            .env("UV_NATIVE_TLS", "true");
        if let Some(certificates) = &machine.certificates {
            command.env("SSL_CERT_FILE", certificates);
        }
        let writable = vec![cache.into(), directory.into()];
        let bounds = Confinement { writable, file_bytes: FILE_BYTES_MAX };
        bounds.apply_to(&mut command).map_err(|error| error.to_string())?;
        match self.run_command(command, &mut |_| ()) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(UvError::IndexUnreachable { cause })) => Err(cause),
            Ok(Err(UvError::Failed { detail, .. })) => Err(detail),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Options of every call: no settings of the user, no source distributions, which would run
    /// their author's program without isolation, and writes only to the cache and one other
    /// directory.
    fn command(
        &self,
        verb: &str,
        machine: &HostSettings,
        reach: IndexAccess,
        [cache, other]: [&Path; 2],
    ) -> Result<Command, BuildError> {
        let mut command = Command::new(&self.program);
        command.env_clear();
        command.envs(KEPT_VARIABLES.into_iter().filter_map(|it| Some((it, std::env::var_os(it)?))));
        command
            .args(["--no-config", "--color", "never", "pip", verb, "--only-binary", ":all:"])
            .arg("--cache-dir")
            .arg(cache)
            // Not an argument: it may contain a password, and every user can read arguments.
            .env("UV_DEFAULT_INDEX", machine.index.with_credentials())
            .env("UV_PYTHON_DOWNLOADS", "never")
            // The same setting under its new and its old name.
            .env("UV_SYSTEM_CERTS", "true")
            .env("UV_NATIVE_TLS", "true");
        if let Some(certificates) = &machine.certificates {
            command.env("SSL_CERT_FILE", certificates);
        }
        if let Some(wheels) = &machine.wheels {
            command.arg("--find-links").arg(wheels);
        }
        if reach == IndexAccess::Offline {
            command.arg("--offline");
        }
        fs::create_dir_all(cache).map_err(BuildError::files("creating", cache))?;
        let bounds =
            Confinement { writable: vec![cache.into(), other.into()], file_bytes: FILE_BYTES_MAX };
        bounds
            .apply_to(&mut command)
            .map_err(|source| BuildError::Run { program: self.program.clone(), source })?;
        Ok(command)
    }
}

/// The index and directories in which uv may look for packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexAccess {
    Index,
    /// The cache, and the directory of wheels if there is one.
    Offline,
}

impl UvError {
    /// uv has one exit status for every error, so its message has to tell which it was.
    fn from_output(status: ExitStatus, lines: &[String]) -> Self {
        let error = error_parts(lines);
        if error.iter().any(|part| part.starts_with("Failed to fetch")) {
            let cause = error.last().copied().unwrap_or_default().to_owned();
            return Self::IndexUnreachable { cause };
        }
        Self::Failed { status, detail: error.join(": ") }
    }
}

fn is_recent(program: &Path) -> bool {
    subprocess::run_with_timeout(Command::new(program).arg("--version"), VERSION_TIME)
        .ok()
        .flatten()
        .and_then(|ended| parse_release(&ended.stdout))
        .is_some_and(|found| found >= OLDEST_RELEASE)
}

/// `[0, 13]` of `uv 0.13.7 (x86_64-unknown-linux-gnu)`.
fn parse_release(version_line: &str) -> Option<[u32; 2]> {
    let mut parts = version_line.strip_prefix("uv ")?.split(['.', ' ', '\n']);
    Some([parts.next()?.parse().ok()?, parts.next()?.parse().ok()?])
}

fn fetch_uv(machine: &HostSettings, python: &Path, destination: &Path) -> Result<(), BuildError> {
    let architecture = std::env::consts::ARCH;
    let wheel = PINNED_WHEELS
        .iter()
        .find(|wheel| wheel.architecture == architecture)
        .ok_or(BuildError::UvUnknown { architecture })?;
    if let Some(directory) = destination.parent() {
        fs::create_dir_all(directory).map_err(BuildError::files("creating", directory))?;
    }
    let mut command = subprocess::isolated_python(python);
    command
        .args(["-c", FETCH, wheel.file, wheel.sha256])
        .arg(destination)
        .env("BELLJAR_INDEX", machine.index.with_credentials());
    if let Some(certificates) = &machine.certificates {
        command.env("SSL_CERT_FILE", certificates);
    }
    let ended = subprocess::run_streaming(&mut command, |_| {})
        .map_err(|source| BuildError::Run { program: python.to_owned(), source })?;
    let index = machine.index.clone();
    let detail = ended.last_lines.last().cloned().unwrap_or_default();
    match ended.status.code() {
        Some(0) => Ok(()),
        Some(WRONG_DIGEST) => Err(BuildError::UvDigestMismatch { index, detail }),
        _ => Err(BuildError::UvUnavailable { index, detail }),
    }
}

/// uv prints for people; two of its lines show the progress.
fn parse_progress(line: &str) -> Option<Progress> {
    if let Some(rest) = line.strip_prefix("Resolved ") {
        let packages = rest.split(' ').next()?.parse().ok()?;
        return Some(Progress::Installing { packages });
    }
    let (package, size) = line.strip_prefix("Downloading ")?.split_once(" (")?;
    Some(Progress::Downloading {
        package: package.to_owned(),
        size: size.strip_suffix(')')?.to_owned(),
    })
}

/// Prefixes of the parts of an error; older releases of uv print the last.
const CAUSES: [&str; 3] = ["error: ", "cause: ", "Caused by: "];

/// uv's error with its causes, from the outermost to the innermost.
fn error_parts(lines: &[String]) -> Vec<&str> {
    let start = lines.iter().position(|line| line.starts_with("error:")).unwrap_or(0);
    lines[start..]
        .iter()
        .map(|line| CAUSES.iter().fold(line.trim(), |line, mark| line.trim_start_matches(mark)))
        .filter(|line| !line.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_line_is_read() {
        assert_eq!(parse_release("uv 0.13.7 (x86_64-unknown-linux-gnu)\n"), Some([0, 13]));
        assert_eq!(parse_release("uv 0.5.1\n"), Some([0, 5]));
        assert_eq!(parse_release("something else"), None);
    }

    #[test]
    fn the_progress_of_uv_is_read() {
        assert_eq!(
            parse_progress("Resolved 21 packages in 1.05s"),
            Some(Progress::Installing { packages: 21 })
        );
        assert_eq!(
            parse_progress("Downloading scipy (33.7MiB)"),
            Some(Progress::Downloading { package: "scipy".to_owned(), size: "33.7MiB".to_owned() })
        );
        assert_eq!(parse_progress(" Downloaded scipy"), None);
    }

    fn followed(script: &str, cancel: CancelFlag) -> Result<Result<(), UvError>, BuildError> {
        let uv = Uv { program: PathBuf::from("/bin/sh"), cancel };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        uv.run_command(command, &mut |_| ())
    }

    #[test]
    fn t117_a_killed_uv_is_a_failure_of_the_machine_and_a_refusal_is_not() {
        let words = "echo 'error: no solution, there is no version of x' >&2";
        let killed = followed(&format!("{words}; kill -9 $$"), CancelFlag::default());
        assert!(matches!(killed, Err(BuildError::Killed { signal: 9, .. })), "{killed:?}");
        let error = followed(&format!("{words}; exit 1"), CancelFlag::default());
        assert!(matches!(error, Ok(Err(UvError::Failed { .. }))), "{error:?}");
        let given_up = CancelFlag::default();
        given_up.cancel();
        let stopped = followed("exec sleep 60", given_up);
        assert!(matches!(stopped, Ok(Err(UvError::Failed { .. }))), "{stopped:?}");
    }

    fn failure(lines: &[&str]) -> UvError {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        UvError::from_output(ExitStatus::default(), &lines)
    }

    #[test]
    fn an_unreachable_index_is_reported_with_the_innermost_cause() {
        let failure = failure(&[
            "Using CPython 3.11.2",
            "error: Request failed after 3 retries",
            "  cause: Failed to fetch: http://127.0.0.1:9/simple/a/",
            "",
            "  cause: Connection refused (os error 111)",
        ]);
        let UvError::IndexUnreachable { cause } = failure else { panic!("{failure:?}") };
        assert_eq!(cause, "Connection refused (os error 111)");
    }

    #[test]
    fn any_other_error_is_reported_whole_without_earlier_output() {
        let failure = failure(&[
            "Resolved 21 packages in 5.52s",
            "error: Failed to download `cycler==0.12.1`",
            "  Caused by: Hash mismatch for `cycler==0.12.1`",
        ]);
        let UvError::Failed { detail, .. } = failure else { panic!("{failure:?}") };
        assert_eq!(
            detail,
            "Failed to download `cycler==0.12.1`: Hash mismatch for `cycler==0.12.1`"
        );
    }
}
