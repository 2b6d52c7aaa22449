//! Packages that code asks for while it runs: from its words to a room that only its session knows.
//!
//! Whether they may be had, and which, is decided by whoever the code runs for, who is asked each
//! time. Nothing of what the sandbox has written reaches a program before it was read as the name of
//! a package.

use crate::environments::Ready;
use environment::{
    Amount, BuildError, Choice, Environments, GiveUp, House, InstallError, Package, Requirement,
    Room, Trouble, Wish,
};
use sandbox::{InstallAnswer, Installed, NotInstalled};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use types::{Code, Fault};

/// Where a house is seen inside.
pub(crate) const INSIDE_PACKAGES: &str = "/opt/packages";
/// Each is a program that downloads, unpacks and writes.
pub(crate) const INSTALLS_AT_ONCE: usize = 4;

/// Answers code that wants packages, for somebody whose code it is.
#[derive(Clone)]
pub struct Installer(Arc<dyn Fn(Wanted) -> Adding + Send + Sync>);

type Adding = Pin<Box<dyn Future<Output = Result<Added, Fault>> + Send>>;

impl Installer {
    pub fn new<F>(answer: impl Fn(Wanted) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Added, Fault>> + Send + 'static,
    {
        Self(Arc::new(move |wanted| Box::pin(answer(wanted))))
    }
}

impl fmt::Debug for Installer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Installer")
    }
}

/// What one interpreter has installed; gone with it.
#[derive(Debug, Default)]
pub(crate) struct Packages(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    rooms: Vec<Room>,
    packages: Vec<Package>,
    amount: Amount,
}

impl Packages {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Packages {
    fn drop(&mut self) {
        let rooms = std::mem::take(&mut self.held().rooms);
        match Handle::try_current() {
            // Many files take a while, and this may be a thread that serves.
            Ok(runtime) if !rooms.is_empty() => drop(runtime.spawn_blocking(move || drop(rooms))),
            _ => drop(rooms),
        }
    }
}

/// Where the packages of a session can go.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    pub(crate) environments: Arc<Environments>,
    pub(crate) ready: Arc<Ready>,
    pub(crate) house: Arc<House>,
    pub(crate) packages: Arc<Packages>,
    pub(crate) places: Arc<Semaphore>,
}

/// Answers every request of one run.
pub(crate) fn answer(
    requirements: &[String],
    installer: Option<&Installer>,
    desk: Option<&Desk>,
) -> InstallAnswer {
    let adding = match (installer, desk) {
        (Some(installer), Some(desk)) => read(requirements)
            .map(|requirements| (installer.0)(Wanted { requirements, desk: desk.clone() })),
        _ => Err(without_agent()),
    };
    Box::pin(async {
        let Added { room, packages } = adding.map_err(told)?.await.map_err(told)?;
        let packages = packages.into_iter().map(|it| (it.name, it.version)).collect();
        Ok(Installed { path: room.map(|room| format!("{INSIDE_PACKAGES}/{room}")), packages })
    })
}

fn told(fault: Fault) -> NotInstalled {
    NotInstalled {
        denied: fault.code == Code::PackageDenied,
        message: fault.message,
        hint: fault.hint.unwrap_or_default(),
    }
}

fn read(requirements: &[String]) -> Result<Vec<Requirement>, Fault> {
    let read = |text: &String| {
        text.parse().map_err(|error: environment::RequirementError| {
            Fault::new(Code::PackageUnavailable, error.to_string())
                .hint("name a package of the index, with versions if need be, such as six>=1.16")
        })
    };
    requirements.iter().map(read).collect()
}

/// Where nobody has lent the code the right to install.
pub fn without_agent() -> Fault {
    let message = "packages can be installed only in the session of an agent whose specification \
                   has artifact_repositories in tool_resources.code_execution";
    Fault::new(Code::PackageDenied, message).hint(
        "open a session with the agent_id of such an agent, or use an environment that has them",
    )
}

/// Packages that code wants, as it has named them.
#[derive(Debug)]
pub struct Wanted {
    requirements: Vec<Requirement>,
    desk: Desk,
}

/// The exact packages that are missing; nothing of them is fetched yet.
#[derive(Debug)]
pub struct Chosen {
    choice: Choice,
    desk: Desk,
    _place: OwnedSemaphorePermit,
}

/// What the session has besides from now on.
#[derive(Debug)]
pub struct Added {
    /// None where nothing was missing.
    room: Option<String>,
    pub packages: Vec<Package>,
}

impl Wanted {
    /// Chooses versions that go with what the session has, and with these pins.
    pub async fn choose(self, pins: Vec<Package>) -> Result<Chosen, Fault> {
        let Self { requirements, desk } = self;
        let index = desk.ready.index.clone();
        let place = Arc::clone(&desk.places).acquire_owned().await;
        let place = place.map_err(|error| broken(&error))?;
        let present = desk.packages.held().packages.clone();
        let wish = Wish { requirements, present, pins, index };
        let choice =
            desk.aside(|desk, give_up| desk.installing(give_up, |it| it.choose(wish))).await?;
        Ok(Chosen { choice, desk, _place: place })
    }
}

impl Chosen {
    pub fn packages(&self) -> &[Package] {
        &self.choice.packages
    }

    pub async fn fetch(self) -> Result<Added, Fault> {
        let Self { choice, desk, _place } = self;
        if choice.packages.is_empty() {
            return Ok(Added { room: None, packages: Vec::new() });
        }
        let present = desk.packages.held().amount;
        let packages = choice.packages.clone();
        let fetched = desk.aside(move |desk, give_up| {
            let room = desk.house.room().map_err(|error| broken(&error))?;
            let target = room.directory();
            let fetch = |it: &environment::Installing<'_>| it.fetch(&choice, &target, present);
            let amount = desk.installing(give_up, fetch)?;
            Ok((room, amount))
        });
        let (room, amount) = fetched.await?;
        let name = room.name().to_owned();
        let mut held = desk.packages.held();
        held.rooms.push(room);
        held.packages.extend(packages.iter().cloned());
        held.amount = amount;
        Ok(Added { room: Some(name), packages })
    }
}

impl Desk {
    /// On a thread that may wait. What is under way there ends when nobody waits for this any more.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, GiveUp) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let (desk, waiting) = (self.clone(), Waiting::default());
        let give_up = waiting.0.clone();
        spawn_blocking(move || work(&desk, give_up))
            .await
            .unwrap_or_else(|error| Err(broken(&error)))
    }

    fn installing<T>(
        &self,
        give_up: GiveUp,
        work: impl FnOnce(&environment::Installing<'_>) -> Result<T, InstallError>,
    ) -> Result<T, Fault> {
        work(&self.environments.installing(&self.ready.environment, give_up))
            .map_err(|error| fault(&error))
    }
}

#[derive(Default)]
struct Waiting(GiveUp);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.now();
    }
}

fn broken(error: &dyn std::error::Error) -> Fault {
    Fault::new(Code::PackageUnavailable, format!("the server could not install it: {error}"))
        .hint("try again; if it persists, tell the operator")
}

fn fault(error: &InstallError) -> Fault {
    let hint = match error {
        InstallError::Unavailable { trouble, .. } => hint(*trouble),
        InstallError::NoIndex => {
            "ask for another environment, or say index = \"pypi\" in its definition"
        }
        InstallError::IndexUnreachable { .. } => "try again later, or use what the environment has",
        InstallError::TooLarge => "install less, or ask for an environment that has the packages",
        InstallError::Build(BuildError::Killed { .. }) => return broken(error).retryable(),
        InstallError::Lock(_) | InstallError::Build(_) => return broken(error),
    };
    let code = match error {
        InstallError::NoIndex => Code::PackageDenied,
        _ => Code::PackageUnavailable,
    };
    Fault::new(code, error.to_string()).hint(hint)
}

fn hint(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::Unknown => {
            "there is no such package; one is often called otherwise than the module that is imported"
        }
        Trouble::NoVersion => "there is no such version; ask for another",
        Trouble::NoWheel => {
            "it exists as source alone for this Python, and nothing is built from source, because that \
             would run a program of its author outside of any sandbox; use another version or package"
        }
        Trouble::Yanked => "its authors have taken this version back; ask for another",
        Trouble::Offline => "the server may not ask the index; use what the environment has",
        Trouble::Conflict => {
            "what the environment and the session have stays as it is; ask for versions that go with \
             it, or for another environment"
        }
    }
}
