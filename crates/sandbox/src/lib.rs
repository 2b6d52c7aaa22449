//! One live kernel, and the pool of them.
//!
//! A [`Nursery`] is a warm Python and its warden; it gives birth to [`Sandbox`]es, each a walled
//! interpreter with a working directory. A sandbox is used by one owner at a time, is killed when
//! it is dropped, and is never believed: what it says arrives in bounded frames, and its time,
//! memory and end are observed from outside. A [`Pool`] keeps a few warmed sandboxes waiting.

mod allowance;
mod books;
mod capture;
mod channel;
mod files;
mod frames;
mod installs;
mod live;
mod nursery;
mod pieces;
mod pool;
mod runtime;
mod shape;
mod stopper;
mod texts;
mod time_slice;
mod uids;
mod undertaker;
mod value_room;
mod view;
mod watch;
mod wires;
mod work;

pub use channel::ProtocolError;
pub use files::{Entry, FileError, Files, Listing, check_name};
pub use frames::{Answer, Arguments, Denied, PythonError, Returned, ValueError};
pub use installs::{Install, InstallAnswer, Installed, NotInstalled};
pub use jail::{Processes, StoreContent, StoreMount};
pub use live::{Cause, Ending, Sandbox};
pub use nursery::{
    BirthError, DESCRIPTORS_RESERVED, Nursery, NurseryConfig, WARDEN_ARGUMENT, Warmth,
};
pub use pool::{Pool, PoolConfig};
pub use runtime::{Kernel, Runtime};
pub use stopper::Stopper;
pub use uids::HOST_UIDS;
pub use value_room::ValueRoom;
pub use view::{View, shown};
pub use work::{Call, Cell, Work};
