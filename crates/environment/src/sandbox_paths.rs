//! The paths of an environment inside a sandbox.
//!
//! The files of an environment contain paths that exist only inside. This module alone defines
//! those paths. A change of them invalidates every built environment, which [`LAYOUT`] expresses.

use std::path::{Path, PathBuf};

use crate::discovery::{PythonInstallation, SYSTEM_PREFIX};
use crate::environment::Mount;

/// Part of every digest: increase it with each change of an environment's contents.
pub(crate) const LAYOUT: u32 = 2;

/// Mount point of the environment, read-only.
pub const INSIDE_ENVIRONMENT: &str = "/opt/env";

/// Mount point of the Python's prefix, read-only; a Python of `/usr` stays where it is.
pub const INSIDE_PYTHON: &str = "/opt/python";

/// The program that runs in a sandbox.
pub const INSIDE_INTERPRETER: &str = "/opt/env/bin/python";

/// A directory for Belljar's own modules, on `sys.path` of every environment if it exists.
pub const INSIDE_SITE: &str = "/opt/belljar/site";

/// The Python of an environment, seen from inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountedPython<'a> {
    python: &'a PythonInstallation,
    /// The prefix of the Python inside the sandbox.
    prefix: PathBuf,
}

impl<'a> MountedPython<'a> {
    pub(crate) fn new(python: &'a PythonInstallation) -> Self {
        let stays = python.prefix == Path::new(SYSTEM_PREFIX);
        let prefix = if stays { SYSTEM_PREFIX } else { INSIDE_PYTHON };
        Self { python, prefix: prefix.into() }
    }

    /// The mount that the Python needs, if any.
    pub(crate) fn mount(&self) -> Option<Mount> {
        self.is_moved()
            .then(|| Mount { host: self.python.prefix.clone(), inside: self.prefix.clone() })
    }

    /// The directory for the dynamic linker, if the interpreter is linked to a `libpython` that it
    /// would look for at its build-time path.
    pub(crate) fn library_path(&self) -> Option<PathBuf> {
        (self.is_moved() && self.python.shared_library).then(|| self.prefix.join("lib"))
    }

    pub(crate) fn interpreter(&self) -> PathBuf {
        match self.python.executable.strip_prefix(&self.python.prefix) {
            Ok(rest) => self.prefix.join(rest),
            Err(_) => self.python.executable.clone(),
        }
    }

    /// `python3.13`: the name of a library directory and of a program.
    pub(crate) fn versioned_name(&self) -> String {
        let version = self.python.version;
        format!("python{}.{}", version.major, version.minor)
    }

    /// `cpython-313`: part of the names of bytecode files.
    pub(crate) fn cache_tag(&self) -> String {
        let version = self.python.version;
        format!("cpython-{}{}", version.major, version.minor)
    }

    /// Relative to the root of the environment.
    pub(crate) fn site_packages(&self) -> PathBuf {
        Path::new("lib").join(self.versioned_name()).join("site-packages")
    }

    pub(crate) fn pyvenv_cfg(&self) -> String {
        let interpreter = self.interpreter();
        let home = interpreter.parent().unwrap_or(&self.prefix);
        format!(
            "home = {}\ninclude-system-site-packages = false\nversion = {}\n",
            home.display(),
            self.python.version
        )
    }

    fn is_moved(&self) -> bool {
        self.python.prefix != self.prefix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(prefix: &str, shared_library: bool) -> PythonInstallation {
        PythonInstallation {
            version: "3.13.1".parse().unwrap(),
            executable: Path::new(prefix).join("bin/python3.13"),
            prefix: prefix.into(),
            shared_library,
        }
    }

    #[test]
    fn a_python_of_its_own_prefix_is_moved() {
        let python = python("/root/.pyenv/versions/3.13.1", false);
        let view = MountedPython::new(&python);
        assert_eq!(view.interpreter(), Path::new("/opt/python/bin/python3.13"));
        assert_eq!(
            view.mount(),
            Some(Mount { host: python.prefix.clone(), inside: "/opt/python".into() })
        );
        assert_eq!(view.library_path(), None);
        assert_eq!(
            view.pyvenv_cfg(),
            "home = /opt/python/bin\ninclude-system-site-packages = false\nversion = 3.13.1\n"
        );
    }

    #[test]
    fn the_python_of_the_system_stays() {
        let python = python("/usr", true);
        let view = MountedPython::new(&python);
        assert_eq!(view.interpreter(), Path::new("/usr/bin/python3.13"));
        assert_eq!(view.mount(), None);
        assert_eq!(view.library_path(), None);
        assert_eq!(
            view.pyvenv_cfg(),
            "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.13.1\n"
        );
    }

    #[test]
    fn a_moved_python_finds_its_library() {
        let python = python("/usr/local", true);
        assert_eq!(MountedPython::new(&python).library_path(), Some("/opt/python/lib".into()));
    }
}
