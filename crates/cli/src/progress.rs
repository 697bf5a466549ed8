//! A sign of life during long work: on a terminal, and nowhere else.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Between two movements.
const TICK: Duration = Duration::from_millis(200);

/// Does the work; meanwhile a line on standard error says what goes on and for how long. It is gone before the result is there.
pub fn during<T>(what: impl Into<String>, work: impl FnOnce() -> T) -> T {
    // Draws nothing where standard error is no terminal.
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if bar.is_hidden() {
        return work();
    }
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
        bar.set_style(style);
    }
    let bar = Clearing(bar.with_message(what.into()));
    bar.0.enable_steady_tick(TICK);
    work()
}

/// The line goes also when the work breaks off.
struct Clearing(ProgressBar);

impl Drop for Clearing {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
