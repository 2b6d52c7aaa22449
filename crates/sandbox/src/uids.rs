//! Host user ids: as root, each sandbox has its own.

use crate::reaper::Slot;
use crate::zygote_host::DESCRIPTORS_RESERVED;
use jail::HostIdentity;
use jail::probe::HostIds;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use types::Limit;

/// Host user ids for sandboxes: above those of people, services, and the ranges that container
/// managers hand out.
const FIRST_UID: u32 = 2_000_000_000;
pub(crate) const UIDS_PER_HOST: u32 = 65_536;
const UID_RANGES: u32 = (u32::MAX - FIRST_UID) / UIDS_PER_HOST - 1;
pub const HOST_UIDS: Range<u32> = FIRST_UID..FIRST_UID + UID_RANGES * UIDS_PER_HOST;

/// The host ids of the sandboxes of this zygote host.
#[derive(Debug)]
pub(crate) enum HostUids {
    /// The listener claims the range, so that no two supervisors of a host have the same.
    Range {
        first: u32,
        _claim: UnixListener,
    },
    Own {
        uid: u32,
        gid: u32,
    },
}

impl HostUids {
    pub(crate) fn claim() -> io::Result<Self> {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        if jail::probe::host_ids(&HOST_UIDS) == HostIds::Shared {
            return Ok(Self::Own { uid: uid.as_raw(), gid: gid.as_raw() });
        }
        let start = std::process::id() % UID_RANGES;
        for index in (start..UID_RANGES).chain(0..start) {
            let name = SocketAddr::from_abstract_name(format!("belljar-uids-{index}"))?;
            match UnixListener::bind_addr(&name) {
                Ok(claim) => {
                    let first = FIRST_UID + index * UIDS_PER_HOST;
                    return Ok(Self::Range { first, _claim: claim });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::from(io::ErrorKind::AddrInUse))
    }

    pub(crate) fn identity(&self) -> HostIdentity {
        match *self {
            Self::Range { first, .. } => HostIdentity::Range { first, count: UIDS_PER_HOST },
            Self::Own { uid, gid } => HostIdentity::Own { uid, gid },
        }
    }

    /// Maximum open files of a sandbox beside the server.
    pub(crate) fn open_files_max(&self) -> u64 {
        match self {
            Self::Range { .. } => u64::MAX,
            Self::Own { .. } => {
                let held = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
                held.saturating_sub(DESCRIPTORS_RESERVED).max(Limit::OpenFiles.min_value())
            }
        }
    }

    /// The host uid of the sandbox in a slot.
    pub(crate) fn uid_of(&self, slot: &Slot) -> u32 {
        match *self {
            Self::Range { first, .. } => first + slot.number,
            Self::Own { uid, .. } => uid,
        }
    }
}
