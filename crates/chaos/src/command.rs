//! The command line of a chaos run.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::maker::Maker;
use crate::plan::events;
use crate::run::{Run, Scene, run};
use crate::{report, slow_reads, workload};

/// Runs as told: `client JSON` is one client of a run. Else `--minutes N`, `--seconds N`, `--seed N`, `--tcp`, `--slow-reads`,
/// `--keep FOLDER` (a new one), `--peer VENV --script FILE`. Without any of them all plays of a test, briefly; other words are those of
/// a test harness and say nothing here.
pub fn main(program: PathBuf) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [client, config] = &words[..]
        && client == "client"
    {
        return told(workload::play(config));
    }
    let plan = plan(program, &words);
    let has = |name: &str| words.iter().any(|word| word == name);
    if has("--seconds") || has("--minutes") {
        return told(play(&plan, has("--slow-reads")));
    }
    let brief = |seconds, shared_memory| Run { length: Duration::from_secs(seconds), shared_memory, ..plan.clone() };
    told(play(&brief(10, false), true).and(play(&brief(10, true), true)).and(play(&brief(60, true), false)))
}

fn plan(program: PathBuf, words: &[String]) -> Run {
    let after = |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
    let number = |name: &str| after(name).and_then(|word| word.parse::<u64>().ok());
    let maker = match (after("--peer"), after("--script")) {
        (Some(venv), Some(script)) => Maker::Peer { venv: venv.into(), script: script.into() },
        _ => Maker::Ours(program),
    };
    let seconds = number("--minutes").map(|minutes| minutes * 60).or(number("--seconds")).unwrap_or(60);
    Run {
        maker,
        seed: number("--seed").unwrap_or(1),
        length: Duration::from_secs(seconds),
        shared_memory: !words.iter().any(|word| word == "--tcp"),
        keep: after("--keep").map(PathBuf::from),
    }
}

fn told(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Plays one and prints what came of it; what ours breaks is an error.
fn play(plan: &Run, slow_reads: bool) -> io::Result<()> {
    let usual = Scene::usual(&plan.maker);
    let (name, scene, events) = if slow_reads {
        ("slow reads", slow_reads::scene(), slow_reads::events(plan.length))
    } else {
        ("kills", usual, events(plan.seed, plan.length, &usual.cast))
    };
    let outcome = run(plan, &scene, &events)?;
    let way = if plan.shared_memory { "shared memory" } else { "TCP" };
    let title = format!("{name}, {}, {way}, {} s, seed {}", plan.maker.name(), plan.length.as_secs(), plan.seed);
    println!("{}", report::table(&title, &outcome));
    report::faults(&outcome).iter().for_each(|line| println!("{line}"));
    let broken = outcome.verdict.faults.len() + outcome.astray.len();
    if broken == 0 {
        return Ok(());
    }
    report::troubles(&outcome).iter().for_each(|line| println!("{line}"));
    // What the peer breaks is told, and no failure.
    match plan.maker {
        Maker::Peer { .. } => Ok(()),
        Maker::Ours(_) => Err(io::Error::other(format!("{title}: {broken} promises broken"))),
    }
}
