//! Displays the progress of a build: one updated line on a terminal, plain lines elsewhere.

use engine::Progress;
use indicatif::ProgressBar;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

const SPINNER_INTERVAL: Duration = Duration::from_millis(100);

/// Returns a callback that prints progress, and nothing if there is nothing to build.
pub(super) fn progress_printer() -> impl FnMut(Progress) + Send + 'static {
    let mut bar: Option<ProgressBar> = None;
    move |progress| {
        let line = progress.to_string();
        let over = matches!(progress, Progress::Ready { .. });
        if !stderr().is_terminal() {
            eprintln!("belljar: {line}");
            return;
        }
        let bar = bar.get_or_insert_with(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(SPINNER_INTERVAL);
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
