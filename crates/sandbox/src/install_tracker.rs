//! Installs that code requests while it runs: one request at a time, with bounded size, number and total
//! time. The deadline of the run is extended by the time of an install.
//!
//! The requirements are untrusted text and are not interpreted here: the engine parses and installs
//! them.

use crate::frames::RunnerRequest;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Maximum packages in one request: more than a person lists by hand.
const REQUIREMENTS_MAX: usize = 32;
/// Maximum bytes of all requirements in one request: more than a few lines.
const REQUIREMENTS_BYTES_MAX: usize = 4 * 1024;
/// Maximum installs of one execution, each of which starts a process outside the sandbox.
const INSTALLS_MAX: usize = 16;
/// Time for all installs of one execution: enough for a large package on a slow connection.
const INSTALLS_TIME_MAX: Duration = Duration::from_secs(120);

/// Installs the requirements. The future is dropped when the run no longer waits for it.
pub type InstallCallback<'a> = &'a (dyn Fn(Vec<String>) -> InstallFuture + Send + Sync);
pub type InstallFuture =
    Pin<Box<dyn Future<Output = Result<InstallSuccess, InstallFailure>> + Send>>;

/// The packages that code can import after an install.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallSuccess {
    /// The directory of the packages in the sandbox; none if all were already installed.
    pub path: Option<String>,
    /// Names and versions of the newly installed packages.
    pub packages: Vec<(String, String)>,
}

/// The error that code gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallFailure {
    /// Whether a policy denied the install; otherwise it failed.
    pub denied: bool,
    pub message: String,
    pub hint: String,
}

impl InstallFailure {
    fn failed(message: impl Into<String>, hint: &str) -> Self {
        Self { denied: false, message: message.into(), hint: hint.to_owned() }
    }
}

/// The installs of one run.
pub(crate) struct InstallTracker<'a> {
    install: InstallCallback<'a>,
    pending: Option<(Instant, InstallFuture)>,
    requests: usize,
    spent: Duration,
    pub(crate) installed: Vec<(String, String)>,
}

/// A second request before the first was answered, which violates the protocol.
#[derive(Debug)]
pub(crate) struct ConcurrentInstall;

impl<'a> InstallTracker<'a> {
    pub(crate) fn new(install: InstallCallback<'a>) -> Self {
        Self { install, pending: None, requests: 0, spent: Duration::ZERO, installed: Vec::new() }
    }

    /// Whether an install is running, for which the code waits.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Starts an install, or returns at once why it is refused.
    pub(crate) fn begin(
        &mut self,
        requirements: Vec<String>,
    ) -> Result<Option<InstallFailure>, ConcurrentInstall> {
        if self.pending.is_some() {
            return Err(ConcurrentInstall);
        }
        self.requests += 1;
        let failure = self.check(&requirements);
        if failure.is_none() {
            let left = INSTALLS_TIME_MAX.saturating_sub(self.spent);
            let result = timeout(left, (self.install)(requirements));
            let result = async { result.await.unwrap_or_else(|_| Err(too_slow())) };
            self.pending = Some((Instant::now(), Box::pin(result)));
        }
        Ok(failure)
    }

    fn check(&self, requirements: &[String]) -> Option<InstallFailure> {
        let bytes: usize = requirements.iter().map(String::len).sum();
        let fewer = "install all packages in one request, at the beginning";
        if self.requests > INSTALLS_MAX {
            let message = format!("an execution can install packages at most {INSTALLS_MAX} times");
            return Some(InstallFailure::failed(message, fewer));
        }
        if requirements.len() > REQUIREMENTS_MAX || bytes > REQUIREMENTS_BYTES_MAX {
            let message = format!(
                "a request can have at most {REQUIREMENTS_MAX} packages and \
                 {REQUIREMENTS_BYTES_MAX} bytes"
            );
            return Some(InstallFailure::failed(message, "request fewer packages at a time"));
        }
        let nothing = "pass package names, such as belljar.install(\"six\")";
        requirements.is_empty().then(|| InstallFailure::failed("no package was requested", nothing))
    }

    /// Waits for the result of the running install, with its duration; for ever if none is running.
    pub(crate) async fn next_result(
        &mut self,
    ) -> (Duration, Result<InstallSuccess, InstallFailure>) {
        let Some((started, result)) = &mut self.pending else {
            return std::future::pending().await;
        };
        let result = result.await;
        let elapsed = started.elapsed();
        self.pending = None;
        self.spent += elapsed;
        if let Ok(InstallSuccess { packages, .. }) = &result {
            self.installed.extend(packages.iter().cloned());
        }
        (elapsed, result)
    }

    /// Cancels the running install, because the code has to end; returns the error for the code.
    pub(crate) fn cancel(&mut self) -> Option<InstallFailure> {
        let (started, _) = self.pending.take()?;
        self.spent += started.elapsed();
        Some(InstallFailure::failed("the installation was interrupted", "run it again"))
    }
}

fn too_slow() -> InstallFailure {
    let message = format!("the installation took longer than {} s", INSTALLS_TIME_MAX.as_secs());
    InstallFailure::failed(
        message,
        "install fewer packages, or use an environment that contains them",
    )
}

/// The response to the runner.
pub(crate) fn to_runner_request(
    result: &Result<InstallSuccess, InstallFailure>,
) -> RunnerRequest<'_> {
    match result {
        Ok(InstallSuccess { path, packages }) => {
            RunnerRequest::Installed { path: path.as_deref(), packages }
        }
        Err(InstallFailure { denied, message, hint }) => {
            RunnerRequest::NotInstalled { denied: *denied, message, hint }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_once(_: Vec<String>) -> InstallFuture {
        let six = ("six".to_owned(), "1.17.0".to_owned());
        Box::pin(async { Ok(InstallSuccess { path: Some("/p".into()), packages: vec![six] }) })
    }

    fn never(_: Vec<String>) -> InstallFuture {
        Box::pin(std::future::pending())
    }

    fn six() -> Vec<String> {
        vec!["six".to_owned()]
    }

    #[tokio::test]
    async fn what_was_installed_is_remembered() {
        let mut installs = InstallTracker::new(&at_once);
        assert_eq!(installs.begin(six()).unwrap(), None);
        assert!(installs.next_result().await.1.is_ok());
        assert_eq!(installs.installed, [("six".to_owned(), "1.17.0".to_owned())]);
        assert!(!installs.is_pending());
    }

    #[tokio::test]
    async fn a_second_request_before_the_answer_breaks_the_protocol() {
        let mut installs = InstallTracker::new(&never);
        assert_eq!(installs.begin(six()).unwrap(), None);
        assert!(installs.begin(six()).is_err());
        assert_eq!(installs.cancel().unwrap().message, "the installation was interrupted");
        assert!(installs.cancel().is_none());
    }

    #[tokio::test]
    async fn too_many_too_long_and_too_often_start_nothing() {
        let mut installs = InstallTracker::new(&never);
        for list in [vec!["a".to_owned(); 33], vec!["a".repeat(5_000)], Vec::new()] {
            assert!(installs.begin(list).unwrap().is_some());
            assert!(!installs.is_pending());
        }
        let mut installs = InstallTracker::new(&at_once);
        for _ in 0..INSTALLS_MAX {
            assert_eq!(installs.begin(six()).unwrap(), None);
            installs.next_result().await.1.unwrap();
        }
        let failure = installs.begin(six()).unwrap().unwrap();
        assert_eq!(failure.message, "an execution can install packages at most 16 times");
    }

    #[tokio::test(start_paused = true)]
    async fn an_install_without_an_answer_times_out() {
        let mut installs = InstallTracker::new(&never);
        installs.begin(six()).unwrap();
        let (_, result) = installs.next_result().await;
        assert_eq!(result.unwrap_err().message, "the installation took longer than 120 s");
    }
}
