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
            let evidence = answer.as_ref().map(|()| "created".to_owned());
            let fix = |failure: &ProbeFailure<_>| Some(fixes::namespace(failure.cause));
            row(
                &format!("{} namespace", namespace_title(*kind)),
                namespace_purpose(*kind),
                evidence,
                fix,
            )
        })
        .collect();
    // The following layers need namespaces first.
    let namespaces_fix = rows.iter().find_map(|row| row.fix.clone());
    rows.push(row(
        "/proc mount",
        "shows only processes of the sandbox",
        host.proc_mount.as_ref().map(|()| "mounted".to_owned()),
        |failure| fixes::proc_mount(failure.cause).or_else(|| namespaces_fix.clone()),
    ));
    rows.push(row(
        "Landlock",
        "a second layer for files and signals",
        host.landlock_abi.as_ref().map(|abi| format!("ABI {abi}")),
        |failure| Some(fixes::landlock(failure.cause)),
    ));
    rows.push(row(
        "seccomp",
        "denies system calls that Python never needs",
        host.seccomp.as_ref().map(|()| "filter loaded".to_owned()),
        |failure| Some(fixes::seccomp(failure.cause)),
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
        Namespace::User => "no privileges outside the sandbox",
        Namespace::Pid => "hides processes of others",
        Namespace::Mount => "its own read-only root directory",
        Namespace::Net => "no network except its own loopback",
        Namespace::Ipc => "no shared memory with others",
        Namespace::Uts => "a neutral host name",
        Namespace::Cgroup => "hides cgroups of the host",
    }
}

fn row<Cause>(
    name: &str,
    provides: &'static str,
    evidence: Result<String, &ProbeFailure<Cause>>,
    fix: impl FnOnce(&ProbeFailure<Cause>) -> Option<String>,
) -> HostCheck {
    let name = name.to_owned();
    match evidence {
        Ok(evidence) => {
            HostCheck { name, state: HostCheckState::Ok, evidence, provides, fix: None }
        }
        Err(failure) => HostCheck {
            name,
            state: HostCheckState::Missing,
            evidence: os_error_text(&failure.error),
            provides,
            fix: fix(failure),
        },
    }
}

/// Returns the error text of Linux without the number that Rust adds.
fn os_error_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn capabilities(dropped: &io::Result<()>, fix: Option<String>) -> HostCheck {
    let (state, evidence) = match dropped {
        Ok(()) => (HostCheckState::Ok, "all dropped".to_owned()),
        Err(error) => (HostCheckState::Missing, os_error_text(error)),
    };
    HostCheck {
        name: "capabilities".into(),
        state,
        evidence,
        provides: "no privileges, and no_new_privs",
        fix: fix.filter(|_| dropped.is_err()),
    }
}

fn host_ids(ids: HostIds) -> HostCheck {
    let (state, evidence, fix) = match ids {
        HostIds::OneEach => (HostCheckState::Ok, "one per sandbox", None),
        HostIds::Shared => {
            (HostCheckState::Optional, "shared: your own", Some(fixes::shared_ids()))
        }
        HostIds::RootWithoutRights => (
            HostCheckState::Missing,
            "root without SYS_ADMIN",
            Some(fixes::root_without_capabilities()),
        ),
    };
    HostCheck {
        name: "host user id".into(),
        state,
        evidence: evidence.into(),
        provides: "separates sandboxes from each other",
        fix,
    }
}

fn cgroup(host: &HostSupport) -> HostCheck {
    let (state, evidence, fix) = match &host.cgroup {
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
        evidence: evidence.into(),
        provides: "kernel limits for memory, CPU, processes",
        fix,
    }
}

/// Descriptors that are in transit between processes count for all processes of a user. If
/// sandboxes run as the user of the server, they are kept below its limit.
fn descriptors(host: &HostSupport) -> HostCheck {
    let needed = Limits::DEFAULT.open_files + DESCRIPTORS_RESERVED;
    let low = host.ids == HostIds::Shared && host.descriptors < needed;
    let evidence = if low { format!("{} (too few)", host.descriptors) } else { "enough".into() };
    HostCheck {
        name: "descriptors".into(),
        state: if low { HostCheckState::Optional } else { HostCheckState::Ok },
        evidence,
        provides: "open files of the server and its sandboxes",
        fix: low.then(|| fixes::descriptors(needed)),
    }
}
