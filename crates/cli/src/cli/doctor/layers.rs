//! The isolation layers of the host, one row each.

use super::fixes;
use super::report::{HostCheck, HostCheckState};
use engine::HostSupport;
use engine::host::{CgroupVersion, DESCRIPTORS_RESERVED, HostIds, Namespace, ProbeFailure};
use std::io;
use types::Limits;

pub(super) fn layer_checks(host: &HostSupport) -> Vec<HostCheck> {
    let mut rows: Vec<HostCheck> = host
        .namespaces
        .iter()
        .map(|(kind, answer)| {
            let found = answer.as_ref().map(|()| "made".to_owned());
            let fix = |refused: &ProbeFailure<_>| Some(fixes::namespace(refused.cause));
            row(
                &format!("{} namespace", namespace_title(*kind)),
                namespace_purpose(*kind),
                found,
                fix,
            )
        })
        .collect();
    // What is done inside namespaces cannot be had before them.
    let namespaces_fix = rows.iter().find_map(|row| row.fix.clone());
    rows.push(row(
        "/proc mount",
        "its own processes, nothing of the host",
        host.proc_mount.as_ref().map(|()| "mounted".to_owned()),
        |refused| fixes::proc_mount(refused.cause).or_else(|| namespaces_fix.clone()),
    ));
    rows.push(row(
        "Landlock",
        "a second wall around files, and signals",
        host.landlock_abi.as_ref().map(|abi| format!("ABI {abi}")),
        |refused| Some(fixes::landlock(refused.cause)),
    ));
    rows.push(row(
        "seccomp",
        "calls that Python never needs are refused",
        host.seccomp.as_ref().map(|()| "filter loaded".to_owned()),
        |refused| Some(fixes::seccomp(refused.cause)),
    ));
    rows.push(capabilities(&host.capabilities, namespaces_fix));
    rows.push(host_ids(host.ids));
    rows.push(cgroup(host));
    rows.push(descriptors(host));
    rows
}

fn namespace_title(kind: Namespace) -> &'static str {
    match kind {
        Namespace::Mount => "mount",
        Namespace::User
        | Namespace::Pid
        | Namespace::Net
        | Namespace::Ipc
        | Namespace::Uts
        | Namespace::Cgroup => kind.name(),
    }
}

fn namespace_purpose(kind: Namespace) -> &'static str {
    match kind {
        Namespace::User => "no rights outside, even for root inside",
        Namespace::Pid => "no process of others is seen",
        Namespace::Mount => "a root directory of its own, read-only",
        Namespace::Net => "no network but a loopback of its own",
        Namespace::Ipc => "no shared memory with others",
        Namespace::Uts => "a host name that says nothing",
        Namespace::Cgroup => "no view of the host's groups",
    }
}

fn row<Cause>(
    name: &str,
    gives: &'static str,
    found: Result<String, &ProbeFailure<Cause>>,
    fix: impl FnOnce(&ProbeFailure<Cause>) -> Option<String>,
) -> HostCheck {
    let name = name.to_owned();
    match found {
        Ok(found) => HostCheck { name, state: HostCheckState::Ok, found, gives, fix: None },
        Err(refused) => HostCheck {
            name,
            state: HostCheckState::Missing,
            found: os_error_text(&refused.error),
            gives,
            fix: fix(refused),
        },
    }
}

/// Returns the error text of the kernel without the number that Rust adds.
fn os_error_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn capabilities(dropped: &io::Result<()>, fix: Option<String>) -> HostCheck {
    let (state, found) = match dropped {
        Ok(()) => (HostCheckState::Ok, "all dropped".to_owned()),
        Err(error) => (HostCheckState::Missing, os_error_text(error)),
    };
    HostCheck {
        name: "capabilities".into(),
        state,
        found,
        gives: "no privileges, no_new_privs: no way to any",
        fix: fix.filter(|_| dropped.is_err()),
    }
}

fn host_ids(ids: HostIds) -> HostCheck {
    let (state, found, fix) = match ids {
        HostIds::OneEach => (HostCheckState::Ok, "one for each", None),
        HostIds::Shared => (HostCheckState::Optional, "yours, for all", Some(fixes::shared_ids())),
        HostIds::RootWithoutRights => (
            HostCheckState::Missing,
            "root without rights",
            Some(fixes::root_without_capabilities()),
        ),
    };
    HostCheck {
        name: "host user id".into(),
        state,
        found: found.into(),
        gives: "sandboxes are strangers to each other",
        fix,
    }
}

fn cgroup(host: &HostSupport) -> HostCheck {
    let (state, found, fix) = match &host.cgroup {
        Ok(CgroupVersion::V1) => (HostCheckState::Ok, "version 1", None),
        Ok(CgroupVersion::V2) => (HostCheckState::Ok, "version 2", None),
        Err(missing) => (
            HostCheckState::Optional,
            "rlimits and a watchdog",
            Some(fixes::cgroup(missing, host.ids)),
        ),
    };
    HostCheck {
        name: "cgroup".into(),
        state,
        found: found.into(),
        gives: "memory, CPU and processes held by the kernel",
        fix,
    }
}

/// Descriptors that are sent from one process to another count for all processes of a user: where
/// sandboxes have the user of the server, they are kept below its limit.
fn descriptors(host: &HostSupport) -> HostCheck {
    let needed = Limits::DEFAULT.open_files + DESCRIPTORS_RESERVED;
    let low = host.ids == HostIds::Shared && host.descriptors < needed;
    let found = if low { format!("{}, which is low", host.descriptors) } else { "enough".into() };
    HostCheck {
        name: "descriptors".into(),
        state: if low { HostCheckState::Optional } else { HostCheckState::Ok },
        found,
        gives: "open files of the server and its sandboxes",
        fix: low.then(|| fixes::descriptors(needed)),
    }
}
