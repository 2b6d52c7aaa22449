//! Builds a Python and its packages once, and tells the paths.
//!
//! An environment starts as a [`Definition`]: a small TOML file and a lock with the hash of every
//! package. [`Environments::ensure`] turns it into an [`Environment`]: a directory that holds a
//! virtual environment written for the *inside* of a sandbox, where it is mounted read-only at
//! [`INSIDE_ENVIRONMENT`], and the list of what has to be mounted where. The second time it only
//! reads one record.
//!
//! A directory is an environment when it has its record, which is written last; whatever goes wrong
//! before that leaves nothing behind. Nothing here prints, and nothing here knows of sandboxes.

mod builder;
mod bytecode;
mod choice;
mod collection;
mod definition;
mod discovery;
mod environment;
mod environments;
mod error;
mod in_use;
mod installing;
mod library;
mod lines;
mod lock;
mod locking;
mod machine;
mod program;
mod progress;
mod pruning;
mod requirement;
mod rooms;
mod script;
mod source;
mod startup;
mod unpacking;
mod uv;
mod version;
mod view;

pub use choice::PythonChoice;
pub use definition::{
    Definition, DefinitionError, Imports, ModuleName, Name, PackageIndex, Processes,
};
pub use discovery::{Discovery, Python, SkipReason, Skipped, discover};
pub use environment::{Environment, Mount, Package};
pub use environments::{Environments, Order, Prepared};
pub use error::{BuildError, Trouble};
pub use in_use::InUse;
pub use installing::{Choice, InstallError, Installing, Wish};
pub use library::{Origin, Recipe, Stamp};
pub use lock::LockError;
pub use machine::{IndexUrl, Machine};
pub use program::GiveUp;
pub use progress::Progress;
pub use requirement::{PackageName, Requirement, RequirementError};
pub use rooms::{House, Room};
pub use script::{Header, HeaderError, Unmet};
pub use source::{Draft, Line, SOURCE_BYTES_MAX, SourceError, SourceKind, kind_of};
pub use unpacking::Amount;
pub use uv::UvSource;
pub use version::{PythonVersion, VersionRange};
pub use view::{INSIDE_ENVIRONMENT, INSIDE_INTERPRETER, INSIDE_PYTHON, INSIDE_SITE};
