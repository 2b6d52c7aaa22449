//! Turning what was observed into what is reported: status, error and exit code.
//!
//! An exception is the user's own; everything else here is decided by the supervisor's
//! observation, and the kernel's word only adds the traceback.

use crate::command::Entry;
use environment::Definition;
use sandbox::{Answer, BirthError, Cause, Denied, Ending, PythonError, Returned, ValueError};
use serde_json::Value;
use types::{Code, Fault, Limits, Status, Warning};

/// Where there is more room than a tool has.
const AS_FUNCTION: &str = "deploy it as a function (Call Function: `belljar tool deploy DIR`)";

/// As `timeout(1)` has it.
const EXIT_TIME: i32 = 124;
/// As a shell reports a process that was killed for lack of memory.
const EXIT_MEMORY: i32 = 137;
const EXIT_INTERRUPTED: i32 = 130;
/// As container runtimes report that they, and not the program, have failed.
const EXIT_SANDBOX: i32 = 125;
const EXIT_EXCEPTION: i32 = 1;
const SIGNAL_EXIT_BASE: i32 = 128;

const ENOSPC: &str = "[Errno 28]";
const EDQUOT: &str = "[Errno 122]";

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    pub(crate) error: Option<Fault>,
    pub(crate) exit_code: i32,
    pub(crate) value: Option<Value>,
}

impl Outcome {
    fn succeeded(value: Option<Value>) -> Self {
        Self { status: Status::Succeeded, error: None, exit_code: 0, value }
    }

    fn failed(exit_code: i32, error: Fault) -> Self {
        Self { status: Status::Failed, error: Some(error), exit_code, value: None }
    }
}

/// `returned` is the value, if there is one that was within its bounds.
pub(crate) fn judge(
    ending: &Ending,
    returned: Option<Returned>,
    limits: &Limits,
    environment: &str,
    entry: &Entry,
) -> Outcome {
    match &ending.cause {
        Cause::Done(answer) => match (answer, entry) {
            (Answer::Raised(error), _) => raised(error, ending, limits, environment, entry),
            (answer, Entry::Call(call)) => called(answer, returned, call),
            (answer, _) => finished(answer, returned),
        },
        Cause::TimeLimit => {
            timed_out(ending, entry, format!("over the wall time of {} ms", limits.wall_ms))
        }
        Cause::CpuLimit => {
            timed_out(ending, entry, format!("over the CPU time of {} ms", limits.cpu_ms))
        }
        Cause::MemoryLimit => Outcome::failed(EXIT_MEMORY, memory(limits, entry)),
        Cause::Stopped => Outcome {
            status: Status::Cancelled,
            error: Some(with_traceback(
                Fault::new(Code::Cancelled, "the execution was interrupted"),
                ending.last_words.as_ref(),
            )),
            exit_code: EXIT_INTERRUPTED,
            value: None,
        },
        Cause::Absent => Outcome::failed(
            EXIT_SANDBOX,
            Fault::new(Code::SandboxCrashed, "the interpreter had ended before; nothing was run")
                .hint("send it again: the next execution starts with a new interpreter"),
        ),
        Cause::Died { status } => died(*status, ending, limits, entry),
        Cause::Broke(error) => Outcome::failed(
            EXIT_SANDBOX,
            Fault::new(Code::SandboxCrashed, format!("the kernel broke its protocol: {error}"))
                .hint("the code has written to a descriptor that is not its own, descriptor 3"),
        ),
    }
}

fn raised(
    error: &PythonError,
    ending: &Ending,
    limits: &Limits,
    environment: &str,
    entry: &Entry,
) -> Outcome {
    let mut fault = exception(error, ending, environment, entry);
    if fault.code == Code::MemoryExceeded && fault.message.is_empty() {
        fault.message = over_memory(limits);
    }
    let exit = if fault.code == Code::MemoryExceeded { EXIT_MEMORY } else { EXIT_EXCEPTION };
    Outcome::failed(exit, fault)
}

fn finished(answer: &Answer, returned: Option<Returned>) -> Outcome {
    match answer {
        Answer::Exited(code @ 1..) => Outcome::failed(i32::from(*code), exited(*code)),
        // Nothing to show is nothing to have, as at a prompt.
        _ => Outcome::succeeded(returned.map(|it| it.value).filter(|value| !value.is_null())),
    }
}

/// The value of a call. What the kernel says of it is believed only where it says that it failed:
/// its size was checked when it came, and its schema is checked here, outside.
fn called(answer: &Answer, returned: Option<Returned>, call: &contract::Call) -> Outcome {
    let failed = |fault: Fault| Outcome::failed(EXIT_EXCEPTION, fault);
    if let Some(Returned { value, .. }) = returned {
        return match call.check_output(&value) {
            Ok(()) => Outcome::succeeded(Some(value)),
            Err(fault) => failed(fault),
        };
    }
    match answer {
        // What a test returns is only looked at.
        Answer::NotJson(_) if call.is_test() => Outcome::succeeded(None),
        Answer::NotJson(error) => failed(not_json(error)),
        Answer::EntryMissing => failed(call.entry_missing()),
        Answer::Exited(code) => {
            let fault = exited(*code).hint("a tool ends by returning its value");
            Outcome::failed(i32::from(*code).max(EXIT_EXCEPTION), fault)
        }
        Answer::Nothing | Answer::Value(_) | Answer::Raised(_) => {
            failed(Fault::new(Code::SandboxCrashed, "the kernel has lost the value"))
        }
    }
}

fn exited(code: u8) -> Fault {
    let message = format!("the code ended itself with exit code {code}");
    let mut fault = Fault::new(Code::Python("SystemExit".into()), message);
    fault.exception = Some("SystemExit".into());
    fault
}

/// What is said of a value that could not leave, where that does not make the run a failure.
pub(crate) fn value_warning(error: &ValueError) -> Warning {
    let fault = not_json(error);
    Warning { code: fault.code.to_string(), message: fault.message }
}

fn not_json(error: &ValueError) -> Fault {
    if error.too_large {
        return too_large(error.problem.clone());
    }
    let message = match error.path.as_str() {
        "$" => format!("the returned value is not JSON: {}", error.problem),
        path => format!("the returned value is not JSON at {path}: {}", error.problem),
    };
    let fault = Fault::new(Code::ValueNotJson, message);
    match &error.fix {
        Some(fix) => fault.hint(fix.clone()),
        None => fault,
    }
}

fn too_large(message: String) -> Fault {
    Fault::new(Code::OutputTooLarge, message)
        .hint("return less: a summary, or the name of a file that has the rest")
}

fn exception(error: &PythonError, ending: &Ending, environment: &str, entry: &Entry) -> Fault {
    let mut fault = Fault::new(code_of(error, ending), error.message.clone());
    fault.exception = Some(error.exception.clone());
    fault.traceback = Some(error.traceback.clone());
    fault.assertion = error.assertion.clone();
    fault.hint = hint(&fault, error, environment, entry);
    fault
}

fn code_of(error: &PythonError, ending: &Ending) -> Code {
    let message = error.message.as_str();
    if error.syntax {
        Code::CodeSyntax
    } else if let Some(denied) = error.denied {
        match denied {
            Denied::Process => Code::ProcessDenied,
            Denied::Package => Code::PackageDenied,
            Denied::Install => Code::PackageUnavailable,
            Denied::Import => Code::ImportDenied,
            Denied::Network => Code::NetworkDenied,
        }
    } else if error.exception == "MemoryError" {
        Code::MemoryExceeded
    } else if message.contains(ENOSPC) || message.contains(EDQUOT) {
        Code::DiskExceeded
    } else if ending.forks_refused > 0
        && (error.exception == "BlockingIOError" || message.contains("can't start new thread"))
    {
        Code::ProcessesExceeded
    } else {
        Code::Python(error.exception.clone())
    }
}

fn hint(fault: &Fault, error: &PythonError, environment: &str, entry: &Entry) -> Option<String> {
    if error.denied.is_some() && error.hint.is_some() {
        return error.hint.clone();
    }
    let text = match (&fault.code, error.exception.as_str()) {
        (Code::PackageDenied, _) => return Some(no_installing(environment)),
        (Code::CodeSyntax, _) if asks_for_pip(&error.traceback) => {
            "a line of a shell is no Python: write %pip install NAME in a cell, and in a script \
             belljar.install(\"NAME\")"
        }
        (Code::ProcessDenied, _) => {
            "do it in Python itself, or in a function with an environment of its own (Call Function)"
        }
        (Code::ImportDenied, _) => {
            "use the standard library instead, or tell the user that the library is not available"
        }
        (Code::NetworkDenied, _) => return Some(no_network(entry)),
        (Code::CodeSyntax, _) => "nothing was run; correct the line and send the whole code again",
        (Code::MemoryExceeded, _) => return Some(less_memory(entry)),
        (Code::DiskExceeded, _) => {
            "remove files from /workspace or /tmp, or ask for more disk_bytes or disk_inodes"
        }
        (Code::ProcessesExceeded, _) => "use fewer processes or threads, or ask for more processes",
        (_, "ModuleNotFoundError") if is_deployed(entry) => {
            "add the package to requirements.txt of the function, and deploy it again"
        }
        (_, "ModuleNotFoundError") => return Some(no_module(&error.message, environment)),
        (_, "FileNotFoundError") => {
            "a sandbox sees none of your files but those that it is given (--file PATH)"
        }
        (_, "EOFError") => "nobody is at the keyboard: put the values into the code",
        _ => return None,
    };
    Some(text.to_owned())
}

/// `message` is Python's, with the name in quotes.
fn no_module(message: &str, environment: &str) -> String {
    let module = message.split('\'').nth(1).unwrap_or_default();
    let elsewhere = match Definition::built_in_with(module).as_slice() {
        [] => String::new(),
        names => format!(" (it is in `{}`)", names.join("`, `")),
    };
    format!(
        "environment `{environment}` does not have this package{elsewhere}; packages come with an \
         environment: use what it has, or ask the user for a custom environment that has it \
         (`belljar env build`) or for a function with its own requirements.txt (Call Function: \
         `belljar tool deploy`)"
    )
}

fn no_installing(environment: &str) -> String {
    format!(
        "packages cannot be installed in environment `{environment}`: use what it has, ask for \
         another environment, or use a function with its own requirements.txt (Call Function)"
    )
}

/// Whether the line that did not compile is a notebook's or a shell's way of installing.
fn asks_for_pip(traceback: &str) -> bool {
    traceback.lines().any(|line| {
        let command = line.trim_start().trim_start_matches(['!', '%']).trim_start();
        ["pip ", "pip3 ", "python -m pip ", "python3 -m pip "]
            .iter()
            .any(|installer| command.starts_with(installer))
    })
}

fn timed_out(ending: &Ending, entry: &Entry, message: String) -> Outcome {
    let became = if ending.alive {
        "it was interrupted, and a session keeps its variables"
    } else {
        "it did not react to an interrupt and was killed"
    };
    let fault =
        Fault::new(Code::TimeExceeded, message).hint(format!("{became}; {}", less_time(entry)));
    let error = Some(with_traceback(fault, ending.last_words.as_ref()));
    Outcome { status: Status::TimedOut, error, exit_code: EXIT_TIME, value: None }
}

fn with_traceback(mut fault: Fault, last_words: Option<&Answer>) -> Fault {
    if let Some(Answer::Raised(error)) = last_words {
        fault.traceback = Some(error.traceback.clone());
    }
    fault
}

fn died(status: Option<i32>, ending: &Ending, limits: &Limits, entry: &Entry) -> Outcome {
    let Some(status) = status else {
        if ending.oom_kills > 0 {
            return Outcome::failed(EXIT_MEMORY, memory(limits, entry));
        }
        let fault = Fault::new(Code::SandboxCrashed, "the interpreter is gone without a trace");
        return Outcome::failed(EXIT_SANDBOX, fault);
    };
    // The layout of a wait status: the signal in the low seven bits, else the code above them.
    let (signal, code) = (status & 0x7f, (status >> 8) & 0xff);
    match (signal, code) {
        (0, 0) if !matches!(entry, Entry::Call(_)) => Outcome::succeeded(None),
        (0, 0) => Outcome::failed(
            EXIT_EXCEPTION,
            Fault::new(
                Code::SandboxCrashed,
                "the interpreter ended itself before the tool returned",
            )
            .hint("return a value instead of calling os._exit"),
        ),
        (0, code) => Outcome::failed(
            code,
            Fault::new(
                Code::SandboxCrashed,
                format!("the interpreter ended itself with exit code {code}"),
            )
            .hint("use sys.exit instead of os._exit to keep the session"),
        ),
        (9, _) if ending.oom_kills > 0 => Outcome::failed(EXIT_MEMORY, memory(limits, entry)),
        (signal, _) => Outcome::failed(
            SIGNAL_EXIT_BASE + signal,
            Fault::new(
                Code::SandboxCrashed,
                format!("the interpreter was ended by signal {signal} ({})", signal_name(signal)),
            )
            .hint("native code has failed; the next execution starts with a new interpreter"),
        ),
    }
}

fn memory(limits: &Limits, entry: &Entry) -> Fault {
    Fault::new(Code::MemoryExceeded, over_memory(limits)).hint(less_memory(entry))
}

fn is_deployed(entry: &Entry) -> bool {
    matches!(entry, Entry::Call(call) if call.is_deployed())
}

fn is_small_tool(entry: &Entry) -> bool {
    entry.tool().is_some() && !is_deployed(entry)
}

fn no_network(entry: &Entry) -> String {
    let instead =
        "pass data in as files, or have opened for the session what the message says is closed";
    if is_small_tool(entry) {
        format!("{instead}, or {AS_FUNCTION} with integrations of its own")
    } else {
        instead.to_owned()
    }
}

fn less_memory(entry: &Entry) -> String {
    match entry {
        Entry::Call(call) if call.is_deployed() => {
            "work on less at a time, or give the function more memory_mb in function.toml"
                .to_owned()
        }
        Entry::Call(_) => format!(
            "work on less at a time, ask for more memory_bytes (--memory MIB), or {AS_FUNCTION}"
        ),
        _ => "work on less at a time, or ask for more memory_bytes (--memory MIB)".to_owned(),
    }
}

fn less_time(entry: &Entry) -> String {
    match entry {
        Entry::Call(call) if call.is_deployed() => {
            "do less at a time, or give it more time: timeout_seconds in function.toml, and \
             maxPollingTime of the tool that calls it"
                .to_owned()
        }
        Entry::Call(_) => {
            format!("do less at a time, ask for more wall_ms (--timeout S), or {AS_FUNCTION}")
        }
        _ => "do less at a time, or ask for more wall_ms (--timeout S)".to_owned(),
    }
}

fn over_memory(limits: &Limits) -> String {
    format!("over the memory limit of {} MiB", limits.memory_bytes / (1024 * 1024))
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => "illegal instruction",
        6 => "abort",
        7 => "bus error",
        8 => "arithmetic error",
        9 => "killed",
        11 => "segmentation fault",
        15 => "terminated",
        _ => "unexpected",
    }
}

/// Why there is no sandbox to run in, and what to do about it.
pub(crate) fn birth_fault(error: &BirthError) -> Fault {
    let fault = Fault::new(Code::SandboxUnreachable, format!("no sandbox could be made: {error}"));
    match error {
        BirthError::Wall(_) | BirthError::Warden(_) => {
            fault.hint("`belljar doctor` says which wall is missing and how to get it")
        }
        BirthError::Zygote(_) => fault.hint("`belljar doctor` tries each part by itself"),
        BirthError::ZygoteGone
        | BirthError::WardenGone
        | BirthError::Silent
        | BirthError::NotReseeded
        | BirthError::Stillborn
        | BirthError::Io(_)
        | BirthError::NoSlot => {
            fault.hint("try again; if it persists, `belljar doctor` may say why").retryable()
        }
    }
}
