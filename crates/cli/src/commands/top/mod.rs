//! `yuebing top`: a pool as it is now, looked at again and again. Works on the peer's master too: all of it is in its metrics.

mod picture;
mod screen;
mod view;

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use yb_env::Clock;
use yb_types::MonotonicTime;

use crate::admin::{self, Sample};
use crate::args::TopArgs;
use crate::connect;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{self, quiet_pipe};
use crate::signals::Signals;
use picture::{Room, lines};
use screen::{Pressed, Screen};
use view::View;

/// Where nobody says how much fits.
const UNBOUNDED: Room = Room { columns: 500, rows: usize::MAX };

/// Looks until somebody leaves; once where nobody sees it.
pub fn run(args: &TopArgs) -> Outcome {
    let admin = connect::admin(&args.admin)?;
    let signals = Signals::catch()?;
    let mut looks = Looks::begin(&admin)?;
    let interval = Duration::from_secs_f64(args.interval);
    if args.json || args.once || !Screen::is_there() {
        if !pause(&signals, interval) {
            return Err(Failure::new(Exit::Interrupted, "interrupted"));
        }
        let view = looks.again()?;
        return match args.json {
            true => output::json(&view),
            false => output::line(lines(&view, UNBOUNDED).join("\n")),
        };
    }
    watch(&mut looks, &signals, interval)
}

/// The page, until q, Ctrl-C or the end of the terminal. A master that is away is said and waited for.
fn watch(looks: &mut Looks<'_>, signals: &Signals, interval: Duration) -> Outcome {
    let screen = match Screen::enter() {
        Ok(screen) => screen,
        Err(error) => return Err(Failure::failed(format!("the terminal: {error}"))),
    };
    let pause = Timespec::try_from(interval).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    let mut shown = vec!["the first numbers come after one interval; q leaves".to_owned()];
    loop {
        quiet_pipe(screen.show(&shown))?;
        if screen.wait(signals, pause) == Pressed::Quit {
            return Ok(());
        }
        let room = screen.room();
        match looks.again() {
            Ok(view) => shown = lines(&view, room),
            Err(failure) => {
                let text = failure.to_string();
                shown.truncate(room.rows.saturating_sub(1));
                shown.push(text.lines().next().unwrap_or_default().chars().take(room.columns).collect());
            }
        }
    }
}

/// False if a signal came first.
fn pause(signals: &Signals, interval: Duration) -> bool {
    let clock = Clock::real();
    let until = clock.now() + interval;
    loop {
        let left = until.since(clock.now());
        if signals.received() || left.is_zero() {
            return !signals.received();
        }
        let mut descriptors = [PollFd::new(signals, PollFlags::IN)];
        let _ = poll(&mut descriptors, Timespec::try_from(left).ok().as_ref());
    }
}

/// The last look, to compare the next one with.
struct Looks<'a> {
    admin: &'a str,
    clock: Clock,
    last: Sample,
    at: MonotonicTime,
}

impl<'a> Looks<'a> {
    fn begin(admin: &'a str) -> Outcome<Self> {
        let clock = Clock::real();
        let last = admin::sample(admin)?;
        let at = clock.now();
        Ok(Looks { admin, clock, last, at })
    }

    fn again(&mut self) -> Outcome<View> {
        let now = admin::sample(self.admin)?;
        let at = self.clock.now();
        let view = View::between(&self.last, &now, at.since(self.at));
        (self.last, self.at) = (now, at);
        Ok(view)
    }
}
