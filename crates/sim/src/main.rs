//! `yb-sim SEEDS [FIRST]` runs seeds; `yb-sim --seed N` replays one and says what happened; with the feature `planted`,
//! `yb-sim --faults [SEEDS [FAULT]]` says which seed finds each planted fault, or one.
#![forbid(unsafe_code)]

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use yb_env::Clock;
use yb_sim::{Options, Tally, run};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|text| text.parse::<u64>().ok());
    match args.first().map(String::as_str) {
        Some("--seed") => match number(1) {
            Some(seed) => replay(seed),
            None => usage(),
        },
        #[cfg(feature = "planted")]
        Some("--faults") => faults(number(1).unwrap_or(1000), args.get(2).map(String::as_str)),
        None => many(1000, 0),
        Some(_) => match number(0) {
            Some(seeds) => many(seeds, number(1).unwrap_or(0)),
            None => usage(),
        },
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: yb-sim [SEEDS [FIRST]] | yb-sim --seed SEED");
    ExitCode::from(2)
}

fn replay(seed: u64) -> ExitCode {
    let outcome = run(seed, &Options { readable: true, ..Options::default() });
    let mut out = std::io::stdout().lock();
    for line in &outcome.lines {
        // A reader that has seen enough closes the pipe.
        if writeln!(out, "{line}").is_err() {
            break;
        }
    }
    let _ = writeln!(out, "{:?}", outcome.tally);
    match outcome.broken {
        None => ExitCode::SUCCESS,
        Some(broken) => {
            eprintln!("seed {seed} at {} ms: {}", broken.at_ms, broken.what);
            ExitCode::FAILURE
        }
    }
}

#[cfg(feature = "planted")]
fn faults(seeds: u64, only: Option<&str>) -> ExitCode {
    let mut missed = 0;
    println!("| fault | found by seed | what the checker says |\n|---|---|---|");
    let is_meant = |planted: &&yb_sim::Planted| only.is_none_or(|only| planted.to_string() == only);
    for planted in yb_sim::Planted::ALL.iter().filter(is_meant) {
        match planted.find(seeds) {
            Some((seed, broken)) => println!("| `{planted}` | {seed} | {} |", broken.what),
            None => {
                missed += 1;
                println!("| `{planted}` | none of {seeds} | |");
            }
        }
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn many(seeds: u64, first: u64) -> ExitCode {
    let (clock, mut sum, mut failures) = (Clock::real(), Tally::default(), 0_u64);
    let began = clock.now();
    let shows = std::io::stderr().is_terminal();
    for (done, seed) in (1..=seeds).zip(first..) {
        let outcome = run(seed, &Options::default());
        let tally = outcome.tally;
        sum.events += tally.events;
        sum.right += tally.right;
        sum.missing += tally.missing;
        sum.failed += tally.failed;
        sum.stored += tally.stored;
        sum.unstored += tally.unstored;
        sum.evicted += tally.evicted;
        sum.relearned += tally.relearned;
        sum.faults += tally.faults;
        if let Some(broken) = outcome.broken {
            failures += 1;
            eprintln!("\nseed {seed} at {} ms: {}\n    replay: make sim SEED={seed}", broken.at_ms, broken.what);
            if failures == 10 {
                break;
            }
        }
        if shows && (done % 20 == 0 || done == seeds) {
            let bar = "#".repeat((done * 40 / seeds) as usize);
            eprint!("\r[{bar:<40}] {done}/{seeds} seeds, {failures} broken");
        }
    }
    let seconds = clock.now().since(began).as_secs_f64();
    eprintln!();
    println!(
        "{seeds} seeds from {first} on in {seconds:.1} s ({:.0} a minute): {failures} broken",
        seeds as f64 / seconds * 60.0
    );
    println!(
        "{} events, {} faults; reads: {} right, {} missing, {} failed; writes: {} stored, {} not; {} objects evicted, {} relearned",
        sum.events,
        sum.faults,
        sum.right,
        sum.missing,
        sum.failed,
        sum.stored,
        sum.unstored,
        sum.evicted,
        sum.relearned
    );
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
