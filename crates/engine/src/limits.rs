//! The effective limits of a command, from the request's, the session's, and the operator's.

use crate::session::LiveSession;
use types::{Error, ErrorCode, Limits, LimitsRequest, OperatorCaps};

pub(crate) fn resolve_for_sandbox(
    caps: &OperatorCaps,
    request: &LimitsRequest,
) -> Result<Limits, Error> {
    request.resolve(caps).map_err(|error| Error::new(ErrorCode::ArgsInvalid, error.to_string()))
}

/// Limits that were fixed when the session's sandbox was created do not change.
pub(crate) fn resolve_for_session(
    caps: &OperatorCaps,
    session: &LiveSession,
    request: &LimitsRequest,
) -> Result<Limits, Error> {
    let asked = resolve_for_sandbox(caps, request)?;
    let fixed = session.limits;
    let changed = request.disk_bytes.is_some_and(|asked| asked != fixed.disk_bytes)
        || request.disk_inodes.is_some_and(|asked| asked != fixed.disk_inodes)
        || request.open_files.is_some_and(|asked| asked != fixed.open_files)
        || request.processes.is_some_and(|asked| asked > fixed.processes);
    if changed {
        let message = "disk_bytes, disk_inodes and open_files of a session cannot change, and its \
                       processes limit cannot be raised";
        return Err(Error::new(ErrorCode::ArgsInvalid, message)
            .hint("open another session with these limits"));
    }
    let given = |asked: Option<u64>, resolved: u64, of_session: u64| {
        if asked.is_some() { resolved } else { of_session }
    };
    Ok(Limits {
        wall_ms: given(request.wall_ms, asked.wall_ms, fixed.wall_ms),
        cpu_ms: given(request.wall_ms.or(request.cpu_ms), asked.cpu_ms, fixed.cpu_ms),
        cpu_percent: given(request.cpu_percent, asked.cpu_percent, fixed.cpu_percent),
        memory_bytes: given(request.memory_bytes, asked.memory_bytes, fixed.memory_bytes),
        processes: given(request.processes, asked.processes, fixed.processes),
        output_bytes: given(request.output_bytes, asked.output_bytes, fixed.output_bytes),
        result_bytes: given(request.result_bytes, asked.result_bytes, fixed.result_bytes),
        ..fixed
    })
}
