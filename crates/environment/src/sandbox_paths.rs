//! How an environment looks from inside a sandbox.
//!
//! The files of an environment speak of paths that exist only in there. This module alone decides
//! those paths; changing them makes every environment that was built before invalid, which
//! [`LAYOUT`] says.

use std::path::{Path, PathBuf};

use crate::discovery::{PythonInstallation, SYSTEM_PREFIX};
use crate::environment::Mount;

/// Part of every digest: grows with each change of what is inside an environment.
pub(crate) const LAYOUT: u32 = 2;

/// Where the environment is mounted, read-only.
pub const INSIDE_ENVIRONMENT: &str = "/opt/env";

/// Where the prefix of the Python is mounted, read-only; a Python of `/usr` stays where it is.
pub const INSIDE_PYTHON: &str = "/opt/python";

/// The program that runs in a sandbox.
pub const INSIDE_INTERPRETER: &str = "/opt/env/bin/python";

/// A directory for modules of Belljar's own, on the path of every environment when it exists.
pub const INSIDE_SITE: &str = "/opt/belljar/site";

/// The Python of an environment, seen from inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountedPython<'a> {
    python: &'a PythonInstallation,
    /// Where the prefix is found.
    prefix: PathBuf,
}

impl<'a> MountedPython<'a> {
    pub(crate) fn new(python: &'a PythonInstallation) -> Self {
        let stays = python.prefix == Path::new(SYSTEM_PREFIX);
        let prefix = if stays { SYSTEM_PREFIX } else { INSIDE_PYTHON };
        Self { python, prefix: prefix.into() }
    }

    /// What has to be mounted for the Python to be there.
    pub(crate) fn mount(&self) -> Option<Mount> {
        self.is_moved()
            .then(|| Mount { host: self.python.prefix.clone(), inside: self.prefix.clone() })
    }

    /// The directory in which the dynamic linker has to look, when the interpreter is linked to a
    /// `libpython` that it would seek at the place it was built for.
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

    /// `cpython-313`: in the names of files with bytecode.
    pub(crate) fn cache_tag(&self) -> String {
        let version = self.python.version;
        format!("cpython-{}{}", version.major, version.minor)
    }

    /// Below the root of the environment.
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
