//! The effective limits of a command, from the request's, the session's, and the operator's.

use crate::session::LiveSession;
use types::{Error, ErrorCode, Limits, LimitsRequest, OperatorCaps};

pub(crate) fn resolve_for_sandbox(
    caps: &OperatorCaps,
    request: &LimitsRequest,
) -> Result<Limits, Error> {
    request.resolve(caps).map_err(|error| Error::new(ErrorCode::ArgsInvalid, error.to_string()))
}

/// A copy of a session's working directory has as much space as the original, if the request names no
/// other.
pub(crate) fn with_disk_of_session(request: LimitsRequest, session: &LiveSession) -> LimitsRequest {
    let Limits { disk_bytes, disk_inodes, .. } = session.limits;
    LimitsRequest {
        disk_bytes: request.disk_bytes.or(Some(disk_bytes)),
        disk_inodes: request.disk_inodes.or(Some(disk_inodes)),
        ..request
    }
}

/// Limits that were fixed when the session's sandbox was created do not change.
pub(crate) fn resolve_for_session(
    caps: &OperatorCaps,
    session: &LiveSession,
    request: &LimitsRequest,
) -> Result<Limits, Error> {
    let resolved = resolve_for_sandbox(caps, request)?;
    let fixed = session.limits;
    let changed = request.disk_bytes.is_some_and(|requested| requested != fixed.disk_bytes)
        || request.disk_inodes.is_some_and(|requested| requested != fixed.disk_inodes)
        || request.open_files.is_some_and(|requested| requested != fixed.open_files)
        || request.processes.is_some_and(|requested| requested > fixed.processes);
    if changed {
        let message = "disk_bytes, disk_inodes and open_files of a session cannot change, and its \
                       processes limit cannot be raised";
        return Err(Error::new(ErrorCode::ArgsInvalid, message)
            .hint("open another session with these limits"));
    }
    let effective = |requested: Option<u64>, resolved: u64, of_session: u64| {
        if requested.is_some() { resolved } else { of_session }
    };
    Ok(Limits {
        wall_ms: effective(request.wall_ms, resolved.wall_ms, fixed.wall_ms),
        cpu_ms: effective(request.wall_ms.or(request.cpu_ms), resolved.cpu_ms, fixed.cpu_ms),
        cpu_percent: effective(request.cpu_percent, resolved.cpu_percent, fixed.cpu_percent),
        memory_bytes: effective(request.memory_bytes, resolved.memory_bytes, fixed.memory_bytes),
        processes: effective(request.processes, resolved.processes, fixed.processes),
        output_bytes: effective(request.output_bytes, resolved.output_bytes, fixed.output_bytes),
        result_bytes: effective(request.result_bytes, resolved.result_bytes, fixed.result_bytes),
        ..fixed
    })
}
