//! Showing how an environment is being built: a moving line on a terminal, plain lines elsewhere.

use engine::Progress;
use indicatif::ProgressBar;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

const SPIN: Duration = Duration::from_millis(100);

/// A function to be told of the progress. It is silent until there is something to build.
pub(super) fn show() -> impl FnMut(Progress) + Send + 'static {
    let mut bar: Option<ProgressBar> = None;
    move |progress| {
        let line = describe(&progress);
        let over = matches!(progress, Progress::Ready { .. });
        if !stderr().is_terminal() {
            eprintln!("belljar: {line}");
            return;
        }
        let bar = bar.get_or_insert_with(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(SPIN);
            bar
        });
        if over {
            bar.finish_and_clear();
            eprintln!("belljar: {line}");
        } else {
            bar.set_message(line);
        }
    }
}

fn describe(progress: &Progress) -> String {
    match progress {
        Progress::Waiting => "waiting for another belljar that builds this environment".into(),
        Progress::FoundPython { python } => format!(
            "building the environment with Python {} ({}), which happens once",
            python.version,
            python.executable.display()
        ),
        Progress::FetchingUv { version } => format!("fetching uv {version}"),
        Progress::Resolving => "checking the locked packages".into(),
        Progress::Installing { packages } => format!("installing {packages} packages"),
        Progress::Downloading { package, size } => format!("downloading {package} ({size})"),
        Progress::Compiling => "compiling".into(),
        Progress::CachingFonts => "listing fonts".into(),
        Progress::Ready { took, .. } => {
            format!("the environment is ready after {:.1} s", took.as_secs_f64())
        }
    }
}
