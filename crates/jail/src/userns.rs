//! Maps ids into user namespaces.

use crate::plan::{HostIdentity, SANDBOX_ID};
use rustix::process::{Gid, Pid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::{fs, io};

/// A range of `count` ids, with its first id inside and outside the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdMap {
    inside: u32,
    outside_uid: u32,
    outside_gid: u32,
    count: u32,
}

impl IdMap {
    /// The namespace of warden and zygote, in which they are root.
    pub(crate) fn warden(identity: HostIdentity) -> Self {
        match identity {
            HostIdentity::Range { first, count } => {
                Self { inside: 0, outside_uid: first, outside_gid: first, count }
            }
            HostIdentity::Own { uid, gid } => {
                Self { inside: 0, outside_uid: uid, outside_gid: gid, count: 1 }
            }
        }
    }

    /// The namespace of one sandbox, seen from the warden's: one unprivileged user.
    pub(crate) fn sandbox(identity: HostIdentity, slot: u32) -> Self {
        let outside = match identity {
            HostIdentity::Range { .. } => slot,
            HostIdentity::Own { .. } => 0,
        };
        Self { inside: SANDBOX_ID, outside_uid: outside, outside_gid: outside, count: 1 }
    }

    /// Writes the map of a process in a new user namespace. It denies `setgroups` first: an
    /// unprivileged writer must, and a sandbox never needs it.
    pub(crate) fn write(self, process: MapTarget) -> io::Result<()> {
        let directory = match process {
            MapTarget::Itself => "/proc/self".to_owned(),
            MapTarget::Child(pid) => format!("/proc/{}", pid.as_raw_nonzero()),
        };
        let Self { inside, outside_uid, outside_gid, count } = self;
        if count == 1 {
            fs::write(format!("{directory}/setgroups"), "deny")?;
        }
        fs::write(format!("{directory}/gid_map"), format!("{inside} {outside_gid} {count}"))?;
        fs::write(format!("{directory}/uid_map"), format!("{inside} {outside_uid} {count}"))
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum MapTarget {
    Itself,
    Child(Pid),
}

/// Switches permanently to the given user: real, effective and saved id.
pub(crate) fn become_user(id: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

pub(crate) fn drop_groups() -> io::Result<()> {
    Ok(set_thread_groups(&[])?)
}
