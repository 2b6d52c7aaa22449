//! Builds the contents of one environment, in a staging directory.
//!
//! Every path that is *written into* the environment is a path inside a sandbox; every path that is
//! *used* here is a path of the host. They must never be mixed up: a host path inside would reveal
//! the host to a sandbox, and would not work.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::bytecode;
use crate::definition::{Definition, DefinitionError, built_in_text};
use crate::discovery::PythonInstallation;
use crate::disk_usage::DiskUsage;
use crate::environment::{BuiltEnvironment, PackageVersion};
use crate::error::BuildError;
use crate::host_settings::HostSettings;
use crate::progress::Progress;
use crate::sandbox_paths::{INSIDE_ENVIRONMENT, INSIDE_INTERPRETER, INSIDE_SITE, MountedPython};
use crate::startup_hooks;
use crate::subprocess;
use crate::uv::{Installation, Uv, UvError};

const FONT_CACHE: &str = include_str!("python/font_cache.py");

/// Relative to the root of an environment.
const MATPLOTLIB_CONFIG: &str = "etc/matplotlib";

/// All inputs that decide the contents of an environment.
#[derive(Debug)]
pub(crate) struct BuildPlan<'a> {
    pub(crate) definition: &'a Definition,
    pub(crate) python: PythonInstallation,
    pub(crate) digest: String,
    pub(crate) machine: &'a HostSettings,
    pub(crate) tools: PathBuf,
    pub(crate) cache: PathBuf,
    /// Bytecode cache that all environments share.
    pub(crate) bytecode: PathBuf,
    /// Cache of font lists.
    pub(crate) fonts: PathBuf,
}

/// Carries out a plan in `directory`, which exists and is empty. The caller writes the record,
/// because it knows the final path of the directory.
pub(crate) fn build(
    plan: &BuildPlan<'_>,
    directory: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<BuiltEnvironment, BuildError> {
    let view = MountedPython::new(&plan.python);
    create_venv(&view, directory)
        .map_err(BuildError::files("creating the virtual environment in", directory))?;
    let mut matplotlib_config = None;
    if !plan.definition.lock.is_empty() {
        install(plan, directory, progress)?;
        startup_hooks::remove_startup_hooks(&directory.join(view.site_packages()))
            .map_err(BuildError::files("removing startup hooks in", directory))?;
        rewrite_shebangs(&directory.join("bin"))
            .map_err(BuildError::files("rewriting shebangs in", directory))?;
        progress(Progress::Compiling);
        bytecode::compile(plan, &view, directory)?;
        matplotlib_config = cache_matplotlib_fonts(plan, &view, directory, progress);
    }
    let amount =
        make_readable(directory).map_err(BuildError::files("making readable", directory))?;
    Ok(BuiltEnvironment {
        name: plan.definition.name.clone(),
        digest: plan.digest.clone(),
        python: plan.python.clone(),
        packages: installed_packages(&directory.join(view.site_packages()))
            .map_err(BuildError::files("listing the packages in", directory))?,
        preload: plan.definition.preload.clone(),
        variables: variables(plan.definition, &view),
        matplotlib_config,
        bytes: amount.bytes,
        built_at: seconds_since_1970(),
        directory: directory.to_owned(),
    })
}

/// Creates a virtual environment without packages, as `python -m venv` would create it inside.
fn create_venv(view: &MountedPython<'_>, directory: &Path) -> io::Result<()> {
    let bin = directory.join("bin");
    let site_packages = directory.join(view.site_packages());
    fs::create_dir(&bin)?;
    fs::create_dir_all(&site_packages)?;
    // Some distributions build Pythons that look into lib64 for compiled packages.
    symlink("lib", directory.join("lib64"))?;
    fs::write(directory.join("pyvenv.cfg"), view.pyvenv_cfg())?;
    symlink(view.interpreter(), bin.join("python"))?;
    symlink("python", bin.join("python3"))?;
    symlink("python", bin.join(view.versioned_name()))?;
    fs::write(site_packages.join("belljar.pth"), format!("{INSIDE_SITE}\n"))
}

fn install(
    plan: &BuildPlan<'_>,
    directory: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), BuildError> {
    let uv = Uv::obtain(plan.machine, &plan.tools, &plan.python.executable, progress)?;
    let lock = directory.join("packages.lock");
    fs::write(&lock, plan.definition.lock.to_requirements())
        .map_err(BuildError::files("writing", &lock))?;
    progress(Progress::Resolving);
    let installation = Installation {
        lock: &lock,
        python: &plan.python.executable,
        prefix: directory,
        cache: &plan.cache,
    };
    uv.install(&installation, plan.machine, progress)?
        .map_err(|failure| build_error(plan, failure))?;
    // Only uv uses this file.
    let uv_lock = directory.join(".lock");
    if uv_lock.exists() {
        fs::remove_file(&uv_lock).map_err(BuildError::files("removing", &uv_lock))?;
    }
    Ok(())
}

fn build_error(plan: &BuildPlan<'_>, failure: UvError) -> BuildError {
    let name = plan.definition.name.clone();
    match failure {
        UvError::Failed { detail, .. } if detail.contains("Hash mismatch") => {
            let source = plan.definition.lock.hash_mismatch_error(&detail);
            DefinitionError::Lock { name, source }.into()
        }
        UvError::Failed { status, detail } => BuildError::Install { name, status, detail },
        UvError::IndexUnreachable { cause } => BuildError::IndexUnreachable {
            name,
            missing: plan.definition.packages.clone(),
            index: plan.machine.index.clone(),
            cause,
        },
    }
}

/// Makes the programs of packages start the interpreter inside.
fn rewrite_shebangs(bin: &Path) -> io::Result<()> {
    for entry in fs::read_dir(bin)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        if let Some(script) = with_inside_interpreter(&fs::read(entry.path())?) {
            // Replaced by a new file: the old one may be a link into the cache.
            let adapted = bin.join(".adapted");
            fs::write(&adapted, script)?;
            fs::set_permissions(&adapted, Permissions::from_mode(0o755))?;
            fs::rename(&adapted, entry.path())?;
        }
    }
    Ok(())
}

/// Adapts a directory of modules that uv has installed for use inside. Returns its disk usage.
pub(crate) fn finish_target_directory(directory: &Path) -> io::Result<DiskUsage> {
    let (bin, uv_lock) = (directory.join("bin"), directory.join(".lock"));
    if bin.is_dir() {
        rewrite_shebangs(&bin)?;
    }
    if uv_lock.exists() {
        fs::remove_file(uv_lock)?;
    }
    make_readable(directory)
}

/// The script with a new first line, if that line names a Python of the host.
fn with_inside_interpreter(script: &[u8]) -> Option<Vec<u8>> {
    let rest = if script.starts_with(b"#!/bin/sh\n'''exec' ") {
        // The form for an interpreter with a long path or a space in it: two lines of shell that
        // Python reads as a string.
        after_lines(script, 3)?
    } else {
        let first = script.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
        first.windows(6).any(|window| window == b"python").then(|| after_lines(script, 1))??
    };
    Some([format!("#!{INSIDE_INTERPRETER}\n").as_bytes(), rest].concat())
}

fn after_lines(text: &[u8], count: usize) -> Option<&[u8]> {
    (0..count).try_fold(text, |rest, _| {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        Some(&rest[end + 1..])
    })
}

/// Caches matplotlib's list of fonts and returns its directory as seen from inside.
///
/// A failure is no error: without the list everything works, a second slower.
fn cache_matplotlib_fonts(
    plan: &BuildPlan<'_>,
    view: &MountedPython<'_>,
    directory: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Option<PathBuf> {
    let site_packages = directory.join(view.site_packages());
    // Third-party packages never run here, because this process has no isolation.
    let is_built_in = built_in_text(plan.definition.name.as_str()).is_some();
    if !is_built_in || !site_packages.join("matplotlib").is_dir() {
        return None;
    }
    let config = directory.join(MATPLOTLIB_CONFIG);
    fs::create_dir_all(config.parent()?).ok()?;
    let version =
        installed_packages(&site_packages).ok()?.into_iter().find(|it| it.name == "matplotlib")?;
    let font_list = plan.fonts.join(format!("matplotlib-{}", version.version));
    if !font_list.is_dir() {
        progress(Progress::CachingFonts);
        list_fonts(plan, &site_packages, &font_list)?;
    }
    copy_files(&font_list, &config).ok()?;
    Some(Path::new(INSIDE_ENVIRONMENT).join(MATPLOTLIB_CONFIG))
}

/// Creates the list, which has only the fonts of matplotlib, in a separate directory.
fn list_fonts(plan: &BuildPlan<'_>, site_packages: &Path, font_list: &Path) -> Option<()> {
    fs::create_dir_all(&plan.fonts).ok()?;
    let directory = tempfile::TempDir::new_in(&plan.fonts).ok()?;
    let mut command = subprocess::isolated_python(&plan.python.executable);
    command.args(["-c", FONT_CACHE]).arg(site_packages).env("MPLCONFIGDIR", directory.path());
    let ended = subprocess::run_streaming(&mut command, |_| {}).ok()?;
    // If another process was faster, its list is the same.
    (ended.status.success()
        && (fs::rename(directory.path(), font_list).is_ok() || font_list.is_dir()))
    .then_some(())
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

fn variables(definition: &Definition, view: &MountedPython<'_>) -> BTreeMap<String, String> {
    let library_path =
        view.library_path().map(|path| ("LD_LIBRARY_PATH".to_owned(), path.display().to_string()));
    let variables =
        definition.variables.iter().map(|(name, value)| (name.to_string(), value.clone()));
    variables.chain(library_path).collect()
}

/// The packages by their own metadata, sorted by name.
fn installed_packages(site_packages: &Path) -> io::Result<Vec<PackageVersion>> {
    let mut packages = Vec::new();
    for entry in fs::read_dir(site_packages)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "dist-info") {
            packages.extend(parse_metadata(&fs::read_to_string(path.join("METADATA"))?));
        }
    }
    packages.sort();
    Ok(packages)
}

fn parse_metadata(metadata: &str) -> Option<PackageVersion> {
    let field = |name: &str| {
        metadata
            .lines()
            .take_while(|line| !line.is_empty())
            .find_map(|line| line.strip_prefix(name))
    };
    Some(PackageVersion {
        name: field("Name: ")?.to_owned(),
        version: field("Version: ")?.to_owned(),
    })
}

/// Makes all files world-readable, whatever the umask: a sandbox runs as another user. Returns the
/// disk usage.
fn make_readable(directory: &Path) -> io::Result<DiskUsage> {
    fs::set_permissions(directory, Permissions::from_mode(0o755))?;
    let mut amount = DiskUsage::default();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        amount.files += 1;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            amount = amount + make_readable(&entry.path())?;
        } else if kind.is_file() {
            let found = entry.metadata()?;
            amount.bytes += found.len();
            let executable = found.permissions().mode() & 0o111 != 0;
            let mode = if executable { 0o755 } else { 0o644 };
            if found.permissions().mode() & 0o7777 != mode {
                fs::set_permissions(entry.path(), Permissions::from_mode(mode))?;
            }
        }
    }
    Ok(amount)
}

fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapted(script: &str) -> Option<String> {
        with_inside_interpreter(script.as_bytes()).map(|script| String::from_utf8(script).unwrap())
    }

    #[test]
    fn a_script_of_the_host_python_starts_the_inside_one() {
        assert_eq!(
            adapted("#!/root/.pyenv/versions/3.13.0/bin/python3.13\nimport sys\n").as_deref(),
            Some("#!/opt/env/bin/python\nimport sys\n")
        );
    }

    #[test]
    fn a_script_that_starts_through_the_shell_is_rewritten() {
        assert_eq!(
            adapted("#!/bin/sh\n'''exec' '/a b/python3' \"$0\" \"$@\"\n' '''\nimport sys\n")
                .as_deref(),
            Some("#!/opt/env/bin/python\nimport sys\n")
        );
    }

    #[test]
    fn other_programs_stay_as_they_are() {
        assert_eq!(adapted("#!/bin/sh\necho python\n"), None);
        assert_eq!(adapted("\x7fELF python"), None);
        assert_eq!(adapted(""), None);
    }

    #[test]
    fn a_package_is_named_by_the_head_of_its_metadata() {
        let metadata = "Metadata-Version: 2.4\nName: et_xmlfile\nVersion: 2.0.0\n\nName: no\n";
        let package = PackageVersion { name: "et_xmlfile".to_owned(), version: "2.0.0".to_owned() };
        assert_eq!(parse_metadata(metadata), Some(package));
    }
}
