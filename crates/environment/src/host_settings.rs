//! Settings of the host: where to look for programs, and how to reach the package index.
//!
//! The only module that reads environment variables, so that tests can replace them.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

const PUBLIC_INDEX: &str = "https://pypi.org/simple";

#[derive(Debug, Clone)]
pub struct HostSettings {
    /// The directories of `PATH`, in order.
    pub search_path: Vec<PathBuf>,
    pub home: Option<PathBuf>,
    pub pyenv_root: Option<PathBuf>,
    /// The directory of the Pythons that uv installed.
    pub uv_pythons: Option<PathBuf>,
    /// The directory of the Pythons that Belljar had uv install, in its data directory.
    pub managed_pythons: Option<PathBuf>,
    pub index: IndexUrl,
    /// A directory of wheels, used in addition to the index, and instead of it if it is
    /// unreachable.
    pub wheels: Option<PathBuf>,
    /// Whether to make no request to the index.
    pub offline: bool,
    /// A file of certificate authorities to trust instead of the system's.
    pub certificates: Option<PathBuf>,
}

/// The URL of a package index. `Display` omits its credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct IndexUrl(String);

impl HostSettings {
    pub fn from_env() -> Self {
        Self::from_lookup(std::env::home_dir(), |name| std::env::var_os(name))
    }

    fn from_lookup(home: Option<PathBuf>, lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let first = |names: &[&str]| names.iter().find_map(|name| set(name));
        let below_home = |rest: &str| home.as_ref().map(|home| home.join(rest));
        let uv_data =
            set("XDG_DATA_HOME").map(PathBuf::from).or_else(|| below_home(".local/share"));
        Self {
            search_path: set("PATH")
                .map(|path| std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect())
                .unwrap_or_default(),
            pyenv_root: set("PYENV_ROOT").map(PathBuf::from).or_else(|| below_home(".pyenv")),
            uv_pythons: set("UV_PYTHON_INSTALL_DIR")
                .map(PathBuf::from)
                .or_else(|| uv_data.map(|data| data.join("uv/python"))),
            managed_pythons: None,
            index: first(&["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"])
                .and_then(|url| url.into_string().ok())
                .map_or_else(IndexUrl::default, IndexUrl),
            wheels: set("BELLJAR_WHEELS").map(PathBuf::from),
            offline: false,
            certificates: first(&["SSL_CERT_FILE", "PIP_CERT"]).map(PathBuf::from),
            home,
        }
    }
}

impl IndexUrl {
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The URL including credentials, for the program that connects to it.
    pub(crate) fn with_credentials(&self) -> &str {
        &self.0
    }
}

impl Default for IndexUrl {
    fn default() -> Self {
        Self(PUBLIC_INDEX.to_owned())
    }
}

impl fmt::Display for IndexUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        write!(formatter, "{scheme}://{host}/{path}")
    }
}

impl fmt::Debug for IndexUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "IndexUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(variables: &[(&str, &str)]) -> HostSettings {
        HostSettings::from_lookup(Some("/home/ada".into()), |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn without_settings_the_public_index_and_the_default_paths_are_used() {
        let machine = machine(&[]);
        assert_eq!(machine.index.with_credentials(), PUBLIC_INDEX);
        assert_eq!(machine.pyenv_root, Some("/home/ada/.pyenv".into()));
        assert_eq!(machine.uv_pythons, Some("/home/ada/.local/share/uv/python".into()));
        assert_eq!(machine.search_path, Vec::<PathBuf>::new());
    }

    #[test]
    fn the_index_of_uv_comes_before_the_index_of_pip() {
        let pip = ("PIP_INDEX_URL", "https://pip.example/simple");
        let uv = ("UV_DEFAULT_INDEX", "https://uv.example/simple");
        assert_eq!(machine(&[pip]).index.with_credentials(), pip.1);
        assert_eq!(machine(&[pip, uv]).index.with_credentials(), uv.1);
        assert_eq!(machine(&[pip, ("UV_DEFAULT_INDEX", "")]).index.with_credentials(), pip.1);
    }

    #[test]
    fn a_relative_entry_of_the_path_is_not_searched() {
        let machine = machine(&[("PATH", "/usr/bin:.::bin:/bin")]);
        assert_eq!(machine.search_path, ["/usr/bin", "/bin"].map(PathBuf::from));
    }

    #[test]
    fn credentials_are_never_shown() {
        let index = IndexUrl::new("https://ada:secret@index.example/simple");
        assert_eq!(index.to_string(), "https://index.example/simple");
        assert_eq!(format!("{index:?}"), "IndexUrl(https://index.example/simple)");
    }
}
