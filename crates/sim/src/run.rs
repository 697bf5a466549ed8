//! One seed, from its first event to its verdict.

use std::panic::{AssertUnwindSafe, catch_unwind};

use yb_env::Rng;

use crate::log::Log;
use crate::scenario::{Scenario, Slip};
use crate::world::{Broken, Tally, World};

/// How a seed is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether what happens is written down.
    pub readable: bool,
    /// A fault that is planted in the clients and nodes.
    pub slip: Option<Slip>,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Counts.
    pub tally: Tally,
    /// The rule that did not hold.
    pub broken: Option<Broken>,
    /// What happened, when it was to be written down.
    pub lines: Vec<String>,
}

/// Runs a seed.
pub fn run(seed: u64, options: &Options) -> Outcome {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut dice = Rng::seeded(seed);
        let scenario = Scenario { slip: options.slip, ..Scenario::of(seed, &mut dice) };
        let mut log = if options.readable { Log::readable() } else { Log::mute() };
        log.note(std::time::Duration::ZERO, || format!("seed {seed}: {scenario:?}"));
        let (tally, broken, log) = World::new(scenario, dice, log).run();
        Outcome { tally, broken, lines: log.lines().to_vec() }
    }));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
        let broken = Broken { at_ms: 0, what: format!("panic: {text}") };
        Outcome { tally: Tally::default(), broken: Some(broken), lines: Vec::new() }
    })
}
