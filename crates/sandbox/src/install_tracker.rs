//! Packages that code asks for while it runs: one request at a time, each small, few in one run, and
//! together not longer than a limit of their own, during which the clock of the run stands still.
//!
//! The requirements are untrusted text and are not interpreted here: the engine
//! says what becomes of it.

use crate::frames::RunnerRequest;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// More than anybody names by hand.
const REQUIREMENTS_MAX: usize = 32;
/// Bytes of all requirements in one request, which is a line or two.
const REQUIREMENTS_BYTES_MAX: usize = 4 * 1024;
/// Each starts a program outside.
const INSTALLS_MAX: usize = 16;
/// Time for all installs of one execution: enough for a large package on a slow connection.
const INSTALLS_TIME_MAX: Duration = Duration::from_secs(120);

/// Answers what code asks for. An answer that is not waited for any more is dropped.
pub type InstallCallback<'a> = &'a (dyn Fn(Vec<String>) -> InstallFuture + Send + Sync);
pub type InstallFuture =
    Pin<Box<dyn Future<Output = Result<InstallSuccess, InstallFailure>> + Send>>;

/// The packages that code can import from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallSuccess {
    /// Its path inside the sandbox; none if everything was already installed.
    pub path: Option<String>,
    /// Names and versions of what was not there before.
    pub packages: Vec<(String, String)>,
}

/// The refusal that code gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallFailure {
    /// A policy refused it; otherwise it was tried, or could not be.
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
    under_way: Option<(Instant, InstallFuture)>,
    asked: usize,
    spent: Duration,
    pub(crate) installed: Vec<(String, String)>,
}

/// The runner sends one request after the other.
#[derive(Debug)]
pub(crate) struct ConcurrentInstall;

impl<'a> InstallTracker<'a> {
    pub(crate) fn new(install: InstallCallback<'a>) -> Self {
        Self { install, under_way: None, asked: 0, spent: Duration::ZERO, installed: Vec::new() }
    }

    /// Whether the supervisor is installing for the code, which meanwhile can do nothing.
    pub(crate) fn is_pending(&self) -> bool {
        self.under_way.is_some()
    }

    /// Begins it, or says at once why not.
    pub(crate) fn begin(
        &mut self,
        requirements: Vec<String>,
    ) -> Result<Option<InstallFailure>, ConcurrentInstall> {
        if self.under_way.is_some() {
            return Err(ConcurrentInstall);
        }
        self.asked += 1;
        let refused = self.check(&requirements);
        if refused.is_none() {
            let left = INSTALLS_TIME_MAX.saturating_sub(self.spent);
            let answer = timeout(left, (self.install)(requirements));
            let answer = async { answer.await.unwrap_or_else(|_| Err(too_slow())) };
            self.under_way = Some((Instant::now(), Box::pin(answer)));
        }
        Ok(refused)
    }

    fn check(&self, requirements: &[String]) -> Option<InstallFailure> {
        let bytes: usize = requirements.iter().map(String::len).sum();
        let fewer = "install all packages in one request, at the beginning";
        if self.asked > INSTALLS_MAX {
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

    /// The answer to what is under way, and how long it took; never comes if nothing is.
    pub(crate) async fn next_result(
        &mut self,
    ) -> (Duration, Result<InstallSuccess, InstallFailure>) {
        let Some((since, answer)) = &mut self.under_way else {
            return std::future::pending().await;
        };
        let answer = answer.await;
        let took = since.elapsed();
        self.under_way = None;
        self.spent += took;
        if let Ok(InstallSuccess { packages, .. }) = &answer {
            self.installed.extend(packages.iter().cloned());
        }
        (took, answer)
    }

    /// Gives up what is under way, because the code has to end; what it is told then.
    pub(crate) fn cancel(&mut self) -> Option<InstallFailure> {
        let (since, _) = self.under_way.take()?;
        self.spent += since.elapsed();
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
    answer: &Result<InstallSuccess, InstallFailure>,
) -> RunnerRequest<'_> {
    match answer {
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
        let refused = installs.begin(six()).unwrap().unwrap();
        assert_eq!(refused.message, "an execution can install packages at most 16 times");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_come_is_given_up() {
        let mut installs = InstallTracker::new(&never);
        installs.begin(six()).unwrap();
        let (_, answer) = installs.next_result().await;
        assert_eq!(answer.unwrap_err().message, "the installation took longer than 120 s");
    }
}
