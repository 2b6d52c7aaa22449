//! Turns observations into the reported status, error and exit code.
//!
//! An exception comes from the user's code. The supervisor's observation decides everything else,
//! and the runner's report only adds the traceback.

use crate::command::EntryPoint;
use environment::Definition;
use sandbox::{
    DeniedFeature, ExitCause, ExitReport, PythonException, ReturnedValue, RunnerOutcome,
    SpawnError, ValueEncodingError,
};
use serde_json::Value;
use types::{Error, ErrorCode, Execution, ExecutionStatus, Limits, Warning};

/// The hint for values that exceed the limits of a tool.
const AS_FUNCTION: &str = "deploy it as a function (Call Function: `belljar tool deploy DIR`)";

/// The exit code of `timeout(1)`.
const EXIT_TIME: i32 = 124;
/// The exit code that a shell reports for a process killed by SIGKILL, as for lack of memory.
const EXIT_MEMORY: i32 = 137;
const EXIT_INTERRUPTED: i32 = 130;
/// The exit code with which container runtimes report their own failure.
const EXIT_SANDBOX: i32 = 125;
const EXIT_EXCEPTION: i32 = 1;
const SIGNAL_EXIT_BASE: i32 = 128;

const ENOSPC: &str = "[Errno 28]";
const EDQUOT: &str = "[Errno 122]";

fn succeed(record: &mut Execution, value: Option<Value>) {
    record.status = ExecutionStatus::Succeeded;
    record.exit_code = Some(0);
    record.value = value;
}

fn fail(record: &mut Execution, exit_code: i32, error: Error) {
    end(record, ExecutionStatus::Failed, exit_code, error);
}

fn end(record: &mut Execution, status: ExecutionStatus, exit_code: i32, error: Error) {
    record.status = status;
    record.exit_code = Some(exit_code);
    record.error = Some(error);
}

/// Writes status, error, exit code and value into the record. `returned` is the value, if there is
/// one within its limits.
pub(crate) fn classify_exit(
    record: &mut Execution,
    ending: &ExitReport,
    returned: Option<ReturnedValue>,
    entry: &EntryPoint,
) {
    let limits = &record.limits.clone();
    match &ending.cause {
        ExitCause::Done(answer) => match (answer, entry) {
            (RunnerOutcome::Raised(error), _) => exception_outcome(record, error, ending, entry),
            (answer, EntryPoint::Call(call)) => call_outcome(record, answer, returned, call),
            (answer, _) => cell_outcome(record, answer, returned),
        },
        ExitCause::TimeLimit => timeout_outcome(
            record,
            ending,
            entry,
            format!("exceeded the wall-clock time limit of {} ms", limits.wall_ms),
        ),
        ExitCause::CpuLimit => timeout_outcome(
            record,
            ending,
            entry,
            format!("exceeded the CPU time limit of {} ms", limits.cpu_ms),
        ),
        ExitCause::MemoryLimit => fail(record, EXIT_MEMORY, memory_error(limits, entry)),
        ExitCause::ProcessSessionsLimit => fail(
            record,
            EXIT_SANDBOX,
            Error::new(
                ErrorCode::ProcessesExceeded,
                format!(
                    "more than {} concurrent process sessions (setsid)",
                    sandbox::PROCESS_SESSIONS_MAX
                ),
            )
            .hint(
                "start fewer processes with start_new_session=True at once; a server with a \
                 cgroup has no such limit",
            ),
        ),
        ExitCause::Unmeasured => fail(
            record,
            EXIT_SANDBOX,
            Error::new(
                ErrorCode::ProcessesExceeded,
                "too many processes to measure their resource usage",
            )
            .hint("run fewer processes at once; a server with a cgroup measures them together"),
        ),
        ExitCause::Stopped => {
            let failure = Error::new(ErrorCode::Cancelled, "the execution was interrupted");
            let failure = with_traceback(failure, ending.interrupt_outcome.as_ref());
            end(record, ExecutionStatus::Cancelled, EXIT_INTERRUPTED, failure);
        }
        ExitCause::NotStarted => fail(
            record,
            EXIT_SANDBOX,
            Error::new(
                ErrorCode::SandboxCrashed,
                "the interpreter had already exited; the code did not run",
            )
            .hint("run the code again: it gets a new interpreter"),
        ),
        ExitCause::Died { status } => death_outcome(record, *status, ending, entry),
        ExitCause::ProtocolViolation(error) if error.is_server_fault() => {
            let message = format!("the server could not read the results of the sandbox: {error}");
            fail(record, EXIT_SANDBOX, Error::server_fault(message))
        }
        ExitCause::ProtocolViolation(error) => fail(
            record,
            EXIT_SANDBOX,
            Error::new(
                ErrorCode::SandboxCrashed,
                format!("the runner sent an invalid message: {error}"),
            )
            .hint("the code may have written to file descriptor 3, which belongs to the runner"),
        ),
    }
}

fn exception_outcome(
    record: &mut Execution,
    error: &PythonException,
    ending: &ExitReport,
    entry: &EntryPoint,
) {
    let mut failure = exception_error(error, ending, &record.environment, entry);
    if failure.code == ErrorCode::MemoryExceeded && failure.message.is_empty() {
        failure.message = memory_message(&record.limits);
    }
    let exit = if failure.code == ErrorCode::MemoryExceeded { EXIT_MEMORY } else { EXIT_EXCEPTION };
    fail(record, exit, failure)
}

fn cell_outcome(record: &mut Execution, answer: &RunnerOutcome, returned: Option<ReturnedValue>) {
    match answer {
        RunnerOutcome::Exited(code @ 1..) => fail(record, i32::from(*code), exit_error(*code)),
        // An empty result is no result, as at a prompt.
        _ => succeed(record, returned.map(|it| it.value).filter(|value| !value.is_null())),
    }
}

/// The outcome of a call. The runner is trusted only when it reports a failure: the supervisor
/// checked the value's size on arrival, and this function checks its schema.
fn call_outcome(
    record: &mut Execution,
    answer: &RunnerOutcome,
    returned: Option<ReturnedValue>,
    call: &contract::ValidatedCall,
) {
    if let Some(ReturnedValue { value, .. }) = returned {
        return match call.check_output(&value) {
            Ok(()) => succeed(record, Some(value)),
            Err(failure) => fail(record, EXIT_EXCEPTION, failure),
        };
    }
    match answer {
        // The value that a test returns is ignored.
        RunnerOutcome::NotJson(_) if call.is_test() => succeed(record, None),
        RunnerOutcome::NotJson(error) => fail(record, EXIT_EXCEPTION, not_json_error(error)),
        RunnerOutcome::EntryPointMissing => {
            fail(record, EXIT_EXCEPTION, call.missing_function_error())
        }
        RunnerOutcome::Exited(code) => {
            let failure = exit_error(*code).hint("return a value instead of calling sys.exit");
            fail(record, i32::from(*code).max(EXIT_EXCEPTION), failure)
        }
        RunnerOutcome::NoValue | RunnerOutcome::Value(_) | RunnerOutcome::Raised(_) => {
            let failure =
                Error::new(ErrorCode::SandboxCrashed, "the runner did not return the value");
            fail(record, EXIT_EXCEPTION, failure)
        }
    }
}

fn exit_error(code: u8) -> Error {
    let message = format!("the code exited with exit code {code}");
    let mut failure = Error::new(ErrorCode::Python("SystemExit".into()), message);
    failure.exception = Some("SystemExit".into());
    failure
}

/// The warning for a value that could not be encoded, where that is no failure of the run.
pub(crate) fn value_warning(error: &ValueEncodingError) -> Warning {
    let failure = not_json_error(error);
    Warning { code: failure.code.to_string(), message: failure.message }
}

fn not_json_error(error: &ValueEncodingError) -> Error {
    if error.too_large {
        return too_large(error.problem.clone());
    }
    let message = match error.path.as_str() {
        "$" => format!("the returned value is not JSON: {}", error.problem),
        path => format!("the returned value is not JSON at {path}: {}", error.problem),
    };
    let failure = Error::new(ErrorCode::ValueNotJson, message);
    match &error.fix {
        Some(fix) => failure.hint(fix.clone()),
        None => failure,
    }
}

fn too_large(message: String) -> Error {
    Error::new(ErrorCode::OutputTooLarge, message)
        .hint("return less, such as a summary, or write the rest to a file and return its name")
}

fn exception_error(
    error: &PythonException,
    ending: &ExitReport,
    environment: &str,
    entry: &EntryPoint,
) -> Error {
    let mut failure = Error::new(error_code_of(error, ending), error.message.clone());
    failure.exception = Some(error.exception.clone());
    failure.traceback = Some(error.traceback.clone());
    failure.assertion = error.assertion.clone();
    failure.hint = hint(&failure, error, environment, entry);
    failure
}

fn error_code_of(error: &PythonException, ending: &ExitReport) -> ErrorCode {
    let message = error.message.as_str();
    if error.syntax {
        ErrorCode::CodeSyntax
    } else if let Some(denied) = error.denied {
        match denied {
            DeniedFeature::Process => ErrorCode::ProcessDenied,
            DeniedFeature::Package => ErrorCode::PackageDenied,
            DeniedFeature::Install => ErrorCode::PackageUnavailable,
            DeniedFeature::Import => ErrorCode::ImportDenied,
            DeniedFeature::Network => ErrorCode::NetworkDenied,
        }
    } else if error.exception == "MemoryError" {
        ErrorCode::MemoryExceeded
    } else if message.contains(ENOSPC) || message.contains(EDQUOT) {
        ErrorCode::DiskExceeded
    } else if ending.forks_refused > 0
        && (error.exception == "BlockingIOError" || message.contains("can't start new thread"))
    {
        ErrorCode::ProcessesExceeded
    } else {
        ErrorCode::Python(error.exception.clone())
    }
}

fn hint(
    failure: &Error,
    error: &PythonException,
    environment: &str,
    entry: &EntryPoint,
) -> Option<String> {
    if error.denied.is_some() && error.hint.is_some() {
        return error.hint.clone();
    }
    let text = match (&failure.code, error.exception.as_str()) {
        (ErrorCode::PackageDenied, _) => return Some(no_install_hint(environment)),
        (ErrorCode::CodeSyntax, _) if asks_for_pip(&error.traceback) => {
            "this is a shell command, not Python: use %pip install NAME in a cell, or \
             belljar.install(\"NAME\") in a script"
        }
        (ErrorCode::ProcessDenied, _) => {
            "do it in Python, or in a function with its own environment (Call Function)"
        }
        (ErrorCode::ImportDenied, _) => {
            "use the standard library instead, or tell the user that the library is not available"
        }
        (ErrorCode::NetworkDenied, _) => return Some(network_hint(entry)),
        (ErrorCode::CodeSyntax, _) => "nothing ran; correct the line and send the whole code again",
        (ErrorCode::MemoryExceeded, _) => return Some(memory_hint(entry)),
        (ErrorCode::DiskExceeded, _) => {
            "remove files from /workspace or /tmp, or request more disk_bytes or disk_inodes"
        }
        (ErrorCode::ProcessesExceeded, _) => {
            "use fewer processes or threads, or request a higher limit (processes)"
        }
        (_, "ModuleNotFoundError") if is_deployed(entry) => {
            "add the package to requirements.txt of the function, and deploy the function again"
        }
        (_, "ModuleNotFoundError") => {
            return Some(missing_module_hint(&error.message, environment));
        }
        (_, "FileNotFoundError") => {
            "the sandbox contains only the files that you pass to it (--file PATH)"
        }
        (_, "EOFError") => "code has no interactive input: put the values into the code",
        _ => return None,
    };
    Some(text.to_owned())
}

/// `message` is Python's, with the name in quotes.
fn missing_module_hint(message: &str, environment: &str) -> String {
    let module = message.split('\'').nth(1).unwrap_or_default();
    let elsewhere = match Definition::built_in_with_module(module).as_slice() {
        [] => String::new(),
        names => format!(" (it is in `{}`)", names.join("`, `")),
    };
    format!(
        "environment `{environment}` does not have this package{elsewhere}; use a package that it \
         has, or ask the user for a custom environment with it (`belljar env build`) or for a \
         function with its own requirements.txt (Call Function: `belljar tool deploy`)"
    )
}

fn no_install_hint(environment: &str) -> String {
    format!(
        "packages cannot be installed in environment `{environment}`: use what it has, ask for \
         another environment, or use a function with its own requirements.txt (Call Function)"
    )
}

/// Whether the line that did not compile is a pip command in notebook or shell syntax.
fn asks_for_pip(traceback: &str) -> bool {
    traceback.lines().any(|line| {
        let command = line.trim_start().trim_start_matches(['!', '%']).trim_start();
        ["pip ", "pip3 ", "python -m pip ", "python3 -m pip "]
            .iter()
            .any(|installer| command.starts_with(installer))
    })
}

fn timeout_outcome(
    record: &mut Execution,
    ending: &ExitReport,
    entry: &EntryPoint,
    message: String,
) {
    let became = if ending.alive {
        "it was interrupted; a session keeps its variables"
    } else {
        "it did not react to an interrupt and was killed"
    };
    let failure = Error::new(ErrorCode::TimeExceeded, message)
        .hint(format!("{became}; {}", time_hint(entry)));
    let failure = with_traceback(failure, ending.interrupt_outcome.as_ref());
    end(record, ExecutionStatus::TimedOut, EXIT_TIME, failure);
}

fn with_traceback(mut failure: Error, interrupt_outcome: Option<&RunnerOutcome>) -> Error {
    if let Some(RunnerOutcome::Raised(error)) = interrupt_outcome {
        failure.traceback = Some(error.traceback.clone());
    }
    failure
}

fn death_outcome(
    record: &mut Execution,
    status: Option<i32>,
    ending: &ExitReport,
    entry: &EntryPoint,
) {
    let limits = &record.limits.clone();
    let Some(status) = status else {
        if ending.oom_kills > 0 {
            return fail(record, EXIT_MEMORY, memory_error(limits, entry));
        }
        let failure =
            Error::new(ErrorCode::SandboxCrashed, "the interpreter exited for an unknown reason");
        return fail(record, EXIT_SANDBOX, failure);
    };
    // The layout of a wait status: the signal in the low seven bits, else the code above them.
    let (signal, code) = (status & 0x7f, (status >> 8) & 0xff);
    match (signal, code) {
        (0, 0) if !matches!(entry, EntryPoint::Call(_)) => succeed(record, None),
        (0, 0) => fail(
            record,
            EXIT_EXCEPTION,
            Error::new(
                ErrorCode::SandboxCrashed,
                "the interpreter exited before the tool returned",
            )
            .hint("return a value instead of calling os._exit"),
        ),
        (0, code) => fail(
            record,
            code,
            Error::new(
                ErrorCode::SandboxCrashed,
                format!("the interpreter exited with exit code {code}"),
            )
            .hint("use sys.exit instead of os._exit to keep the session"),
        ),
        (9, _) if ending.oom_kills > 0 => fail(record, EXIT_MEMORY, memory_error(limits, entry)),
        (signal, _) => {
            let (name, hint) = describe_signal(signal);
            let message = format!("the interpreter was killed by signal {signal} ({name})");
            let failure = Error::new(ErrorCode::SandboxCrashed, message).hint(hint);
            fail(record, SIGNAL_EXIT_BASE + signal, failure);
        }
    }
}

fn memory_error(limits: &Limits, entry: &EntryPoint) -> Error {
    Error::new(ErrorCode::MemoryExceeded, memory_message(limits)).hint(memory_hint(entry))
}

fn is_deployed(entry: &EntryPoint) -> bool {
    matches!(entry, EntryPoint::Call(call) if call.is_deployed())
}

fn is_small_tool(entry: &EntryPoint) -> bool {
    entry.tool().is_some() && !is_deployed(entry)
}

fn network_hint(entry: &EntryPoint) -> String {
    let instead = "pass the data as files, or allow the session access to the host in the message";
    if is_small_tool(entry) {
        format!("{instead}, or {AS_FUNCTION} with its own integrations")
    } else {
        instead.to_owned()
    }
}

fn memory_hint(entry: &EntryPoint) -> String {
    match entry {
        EntryPoint::Call(call) if call.is_deployed() => {
            "process less data at a time, or increase memory_mb in function.toml".to_owned()
        }
        EntryPoint::Call(_) => format!(
            "process less data at a time, request more memory_bytes (--memory MIB), or \
             {AS_FUNCTION}"
        ),
        _ => "process less data at a time, or request more memory_bytes (--memory MIB)".to_owned(),
    }
}

fn time_hint(entry: &EntryPoint) -> String {
    match entry {
        EntryPoint::Call(call) if call.is_deployed() => {
            "do less in one call, or increase timeout_seconds in function.toml and maxPollingTime \
             of the tool that calls the function"
                .to_owned()
        }
        EntryPoint::Call(_) => {
            format!("do less in one run, request more wall_ms (--timeout S), or {AS_FUNCTION}")
        }
        _ => "do less in one run, or request more wall_ms (--timeout S)".to_owned(),
    }
}

fn memory_message(limits: &Limits) -> String {
    format!("exceeded the memory limit of {} MiB", limits.memory_bytes / (1024 * 1024))
}

/// The name of a signal, and the hint for an interpreter that it killed.
fn describe_signal(signal: i32) -> (&'static str, &'static str) {
    const NATIVE: &str = "native code crashed; the next execution gets a new interpreter";
    const SENT: &str = "code inside sent the signal, or the machine ran out of memory; the next \
                        execution gets a new interpreter";
    match signal {
        4 => ("illegal instruction", NATIVE),
        6 => ("abort", NATIVE),
        7 => ("bus error", NATIVE),
        8 => ("arithmetic error", NATIVE),
        9 => ("killed", SENT),
        11 => ("segmentation fault", NATIVE),
        15 => ("terminated", SENT),
        _ => ("unexpected", SENT),
    }
}

/// Why a sandbox could not be spawned, and what to do about it.
pub(crate) fn spawn_error(error: &SpawnError) -> Error {
    let failure =
        Error::new(ErrorCode::SandboxUnreachable, format!("cannot start a sandbox: {error}"));
    match error {
        SpawnError::Isolation(_) | SpawnError::Warden(_) => failure.hint(
            "run `belljar doctor`: it prints which isolation layer is missing and how to fix it",
        ),
        SpawnError::Zygote(_) => {
            failure.hint("run `belljar doctor`: it checks each part separately")
        }
        SpawnError::ZygoteGone
        | SpawnError::WardenGone
        | SpawnError::Timeout
        | SpawnError::NotReseeded
        | SpawnError::EndedBeforeReady
        | SpawnError::Io(_)
        | SpawnError::NoSlot => {
            failure.hint("try again; if the error persists, run `belljar doctor`").retryable()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Code;
    use sandbox::ProtocolError;

    fn failed(cause: ExitCause) -> Execution {
        let report = ExitReport { cause, ..ExitReport::cancelled_before_start() };
        let entry = EntryPoint::Cell(Code::new(b"1".to_vec()).unwrap());
        let id = types::ExecutionId::new(uuid::Uuid::nil());
        let mut record = Execution::new(id, Limits::DEFAULT, chrono::Utc::now());
        classify_exit(&mut record, &report, None, &entry);
        assert_eq!(record.status, ExecutionStatus::Failed);
        record
    }

    fn code_of(error: ProtocolError) -> ErrorCode {
        let record = failed(ExitCause::ProtocolViolation(error));
        assert_eq!(record.exit_code, Some(EXIT_SANDBOX));
        record.error.unwrap().code
    }

    #[test]
    fn the_hint_for_a_signal_says_whether_native_code_crashed_or_the_signal_was_sent() {
        for (signal, name, sender) in [
            (6, "abort", "native code crashed"),
            (7, "bus error", "native code crashed"),
            (9, "killed", "code inside sent the signal"),
            (11, "segmentation fault", "native code crashed"),
            (15, "terminated", "code inside sent the signal"),
            (12, "unexpected", "code inside sent the signal"),
        ] {
            let record = failed(ExitCause::Died { status: Some(signal) });
            assert_eq!(record.exit_code, Some(SIGNAL_EXIT_BASE + signal));
            let error = record.error.unwrap();
            assert!(error.message.ends_with(&format!("signal {signal} ({name})")), "{error:?}");
            let hint = error.hint.unwrap();
            assert!(hint.starts_with(sender), "{signal}: {hint}");
            assert!(hint.ends_with("; the next execution gets a new interpreter"), "{hint}");
        }
    }

    #[test]
    fn a_failure_to_read_is_the_servers_and_a_bad_frame_is_the_sandboxes() {
        let io = std::io::Error::from_raw_os_error(12);
        assert_eq!(code_of(ProtocolError::Read(io)), ErrorCode::ServerFault);
        assert_eq!(code_of(ProtocolError::DecodingFailed), ErrorCode::ServerFault);
        assert_eq!(code_of(ProtocolError::Incomplete), ErrorCode::SandboxCrashed);
        assert_eq!(code_of(ProtocolError::TooLarge(1 << 30)), ErrorCode::SandboxCrashed);
    }
}
