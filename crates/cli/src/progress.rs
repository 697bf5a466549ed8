//! A sign of life during long work: on a terminal, and nowhere else.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Between two movements.
const TICK: Duration = Duration::from_millis(200);

/// Does the work; meanwhile a line on standard error says what goes on and for how long. It is gone before the result is there.
pub fn during<T>(what: impl Into<String>, work: impl FnOnce() -> T) -> T {
    let bar = bar(None, "{spinner} {elapsed_precise} {msg}", what.into());
    bar.0.enable_steady_tick(TICK);
    work()
}

/// The same for work that takes about so long.
pub fn during_about<T>(what: impl Into<String>, length: Duration, work: impl FnOnce() -> T) -> T {
    let template = format!("{{spinner}} {{elapsed}} of about {:.0} s  {{msg}}", length.as_secs_f64().max(1.0));
    let bar = bar(None, &template, what.into());
    bar.0.enable_steady_tick(TICK);
    work()
}

/// A bar of bytes, on a terminal.
pub struct Bytes(Clearing);

impl Bytes {
    /// Of so many; 0: nobody knows.
    pub fn new(what: impl Into<String>, total: u64) -> Bytes {
        let known = (total > 0).then_some(total);
        let template = match known {
            Some(_) => {
                "{elapsed_precise} {bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {msg}"
            }
            None => "{spinner} {elapsed_precise} {binary_bytes}, {binary_bytes_per_sec}, {msg}",
        };
        Bytes(bar(known, template, what.into()))
    }

    /// So many more.
    pub fn add(&self, bytes: usize) {
        self.0.0.inc(bytes as u64);
    }
}

/// Draws nothing where standard error is no terminal.
fn bar(total: Option<u64>, template: &str, what: String) -> Clearing {
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    Clearing(bar.with_message(what))
}

/// The line goes also when the work breaks off.
struct Clearing(ProgressBar);

impl Drop for Clearing {
    fn drop(&mut self) {
        if !self.0.is_hidden() {
            self.0.finish_and_clear();
        }
    }
}
