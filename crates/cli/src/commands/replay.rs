//! `yuebing replay`: a trace against a pool, every byte checked.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use yb_client::{Client, Duplicates, Error, GetItem, PutItem, PutOutcome};
use yb_env::{Clock, spawn_thread};
use yb_replay::{
    LatencySummary, Pool, PoolError, Progress, ReadOutcome, ReplayError, ReplayOptions, Report, Stop, TraceReader,
    WriteOutcome, replay,
};
use yb_types::ReplicateConfig;

use crate::args::ReplayArgs;
use crate::connect::connect_patiently;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{self, micros};
use crate::pool::{EmbeddedPool, PoolOptions};
use crate::signals::Signals;
use crate::size::bytes;

/// Bytes of one batch of blocks, if a block is not larger.
const BATCH_BYTES: u64 = 4 << 20;
const MAX_BATCH_BLOCKS: u64 = 64;
/// How long a call may take, and what fails for want of time is tried again. An engine would go on without the block; a replay
/// is to tell how long it took, also on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);
/// Above this, counting the lines for the progress bar would take longer than it is worth.
const MAX_COUNTED_BYTES: u64 = 1 << 30;

/// Replays, prints, and answers with the exit code of what was seen.
pub fn run(args: &ReplayArgs) -> Outcome {
    if args.block_bytes.0 == 0 || args.clients == 0 {
        return Err(Failure::usage("--block-bytes and --clients must be at least 1"));
    }
    let signals = Signals::catch()?;
    let trace = open(&args.trace)?;
    let mut embedded = None;
    let master = match args.master.given() {
        Some(master) => master,
        None => {
            let options = PoolOptions {
                nodes: args.nodes,
                memory_bytes: args.memory.0,
                port: None,
                admin_port: None,
                master_flags: Vec::new(),
            };
            embedded.insert(EmbeddedPool::start(&options, &signals)?).master.clone()
        }
    };
    let report = replay_against(&master, trace, args, signals);
    if let Some(mut pool) = embedded {
        let alive = pool.check();
        pool.stop()?;
        alive?;
    }
    let report = report?;
    if args.json {
        output::json(&report)?
    } else {
        output::line(text(&report, args))?
    }
    verdict(&report)
}

fn verdict(report: &Report) -> Outcome {
    if report.wrong_bytes > 0 || report.wrong_blocks > 0 {
        return Err(Failure::new(Exit::WrongBytes, format!("{} blocks had wrong bytes", report.wrong_blocks)));
    }
    if report.failures > 0 {
        let some = report.errors.iter().take(3).map(|text| format!("\n  {text}")).collect::<String>();
        return Err(Failure::failed(format!("{} blocks or calls failed, among them:{some}", report.failures)));
    }
    if report.interrupted {
        return Err(Failure::interrupted(format_args!("{} requests of the trace were replayed", report.requests)));
    }
    Ok(())
}

/// A trace to read; `-` is standard input.
pub fn open(path: &Path) -> Outcome<Box<dyn BufRead>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|e| Failure::file(path, &e))?;
    Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
}

fn replay_against(master: &str, trace: Box<dyn BufRead>, args: &ReplayArgs, signals: Signals) -> Outcome<Report> {
    let clients = (0..args.clients).map(|_| ReplayClient::connect(master, args)).collect::<Outcome<Vec<_>>>()?;
    let options = ReplayOptions {
        block_bytes: args.block_bytes.0,
        speed: args.speed,
        max_requests: args.requests,
        key_prefix: args.key_prefix.clone(),
    };
    let stop = Stop::default();
    let asked = stop.clone();
    spawn_thread("signals", move || {
        signals.wait();
        asked.stop();
    })
    .map_err(|e| Failure::failed(format!("cannot start a thread: {e}")))?;
    let bar = progress_bar(args);
    let report = replay(TraceReader::new(trace), clients, &options, &stop, &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    report.map_err(|error| match error {
        ReplayError::Trace(error) => Failure::failed(format!("{}: {error}", args.trace.display())),
        ReplayError::PoolGone { .. } => Failure::new(Exit::Unreachable, error.to_string()),
        error => Failure::failed(error.to_string()),
    })
}

/// Draws on standard error, and only if that is a terminal.
fn progress_bar(args: &ReplayArgs) -> ProgressBar {
    if args.json {
        return ProgressBar::hidden();
    }
    let total = match (count_lines(&args.trace), args.requests) {
        (Some(lines), Some(wanted)) => Some(lines.min(wanted)),
        (lines, wanted) => lines.or(wanted),
    };
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(8));
    let template = "{elapsed_precise} {wide_bar} {pos}/{len} requests, eta {eta}, {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, progress: &Progress) {
    if bar.is_hidden() {
        return;
    }
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (blocks, hits) = (read(&progress.blocks), read(&progress.hits));
    let ratio = if blocks == 0 { 0.0 } else { hits as f64 / blocks as f64 };
    bar.set_position(read(&progress.requests));
    let wrong = read(&progress.wrong_bytes);
    bar.set_message(format!("hit ratio {ratio:.3}, {}, wrong bytes {wrong}", bytes(read(&progress.bytes))));
}

fn count_lines(path: &Path) -> Option<u64> {
    let file = File::open(path).ok()?;
    let length = file.metadata().ok().filter(|m| m.is_file())?.len();
    if length > MAX_COUNTED_BYTES {
        return None;
    }
    let mut reader = BufReader::new(file);
    let mut buffer = vec![0; 1 << 16];
    let mut lines = 0;
    loop {
        match reader.read(&mut buffer).ok()? {
            0 => return Some(lines),
            read => lines += buffer.iter().take(read).filter(|b| **b == b'\n').count() as u64,
        }
    }
}

/// A client of the pool with memory for one batch of blocks.
struct ReplayClient {
    client: Client,
    memory: Vec<u8>,
    block: usize,
    config: ReplicateConfig,
}

impl ReplayClient {
    fn connect(master: &str, args: &ReplayArgs) -> Outcome<Self> {
        let blocks = (BATCH_BYTES / args.block_bytes.0).clamp(1, MAX_BATCH_BLOCKS);
        let too_large = || Failure::usage("--block-bytes is too large");
        let block = usize::try_from(args.block_bytes.0).map_err(|_| too_large())?;
        let length = block.checked_mul(blocks as usize).ok_or_else(too_large)?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(length).map_err(|_| too_large())?;
        memory.resize(length, 0);
        Ok(ReplayClient {
            client: connect_patiently(master, PATIENCE)?,
            memory,
            block,
            config: ReplicateConfig::default(),
        })
    }
}

impl Pool for ReplayClient {
    fn slots(&self) -> usize {
        self.memory.len() / self.block
    }

    fn lookup(&mut self, keys: &[String]) -> Result<Vec<bool>, PoolError> {
        let answers = self.client.batch_exists(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        answers.into_iter().map(|answer| answer.map_err(|e| PoolError(e.to_string()))).collect()
    }

    fn read(&mut self, keys: &[String]) -> Vec<ReadOutcome> {
        let block = self.block as u64;
        let answers = patiently(keys.len(), |wanted| {
            let slots = self.memory.chunks_exact_mut(self.block).enumerate();
            let slots = slots.filter(|(index, _)| wanted.contains(index));
            let items = slots.zip(wanted).map(|((_, slot), index)| GetItem::new(keys[*index].as_bytes(), slot));
            self.client.batch_get_items(items)
        });
        answers
            .into_iter()
            .map(|answer| match answer {
                Ok(bytes) if bytes == block => ReadOutcome::Read,
                Ok(bytes) => ReadOutcome::OtherSize(bytes),
                Err(Error::BufferTooSmall { object, .. }) => ReadOutcome::OtherSize(object),
                Err(Error::NotFound) => ReadOutcome::Miss,
                Err(error) => ReadOutcome::Failed(PoolError(error.to_string())),
            })
            .collect()
    }

    fn write(&mut self, keys: &[String]) -> Vec<WriteOutcome> {
        let answers = patiently(keys.len(), |wanted| {
            let item = |index: &usize| PutItem::new(keys[*index].as_bytes(), self.slot(*index));
            let items: Vec<_> = wanted.iter().map(item).collect();
            self.client.batch_put_items(&items, &self.config, Duplicates::FirstWins)
        });
        answers
            .into_iter()
            .map(|answer| match answer {
                Ok(PutOutcome::Stored) => WriteOutcome::Stored,
                // Whoever is writing it now has the same bytes.
                Ok(PutOutcome::AlreadyExists) | Err(Error::Busy(_)) => WriteOutcome::Exists,
                Err(Error::NoSpace(_)) => WriteOutcome::NoSpace,
                Err(error) => WriteOutcome::Failed(PoolError(error.to_string())),
            })
            .collect()
    }

    fn slot(&self, index: usize) -> &[u8] {
        self.memory.chunks_exact(self.block).nth(index).unwrap_or_default()
    }

    fn slot_mut(&mut self, index: usize) -> &mut [u8] {
        self.memory.chunks_exact_mut(self.block).nth(index).unwrap_or_default()
    }
}

/// Calls for all, and again for those that could not be moved in time, until all are done or patience ends.
fn patiently<T>(count: usize, mut call: impl FnMut(&[usize]) -> Vec<Result<T, Error>>) -> Vec<Result<T, Error>> {
    let clock = Clock::real();
    let until = clock.now() + PATIENCE;
    let mut answers: Vec<Result<T, Error>> = Vec::new();
    let mut wanted: Vec<usize> = (0..count).collect();
    loop {
        let mut again = Vec::new();
        for (index, answer) in wanted.iter().zip(call(&wanted)) {
            if matches!(&answer, Err(Error::Transfer(failure)) if failure.retryable) {
                again.push(*index);
            }
            match answers.get_mut(*index) {
                Some(slot) => *slot = answer,
                None => answers.push(answer),
            }
        }
        if again.is_empty() || clock.now() >= until {
            return answers;
        }
        wanted = again;
        yb_env::sleep(PAUSE);
    }
}

fn text(report: &Report, args: &ReplayArgs) -> String {
    let gb = |bytes: u64| format!("{:.2} GB", bytes as f64 / 1e9);
    let took = Duration::from_secs_f64(report.seconds);
    let mut rows = vec![
        (
            "replayed",
            format!(
                "{} requests, {} blocks of {}, {} clients, speed {}, {took:.1?}",
                report.requests,
                report.blocks,
                bytes(report.block_bytes),
                report.clients,
                args.speed
            ),
        ),
        (
            "block hit ratio",
            format!("{:.4} (never forgetting: {:.4})", report.block_hit_ratio, report.ideal_block_hit_ratio),
        ),
        ("prefix hit ratio", format!("{:.4}", report.prefix_hit_ratio)),
        (
            "read",
            format!(
                "{} blocks, {}, {:.2} GB/s over the run, {:.2} GB/s in a call",
                report.hit_blocks,
                gb(report.read_bytes),
                report.read_gb_per_second,
                report.get_call_gb_per_second
            ),
        ),
        (
            "stored",
            format!(
                "{} blocks, {}, {:.2} GB/s over the run, {:.2} GB/s in a call",
                report.stored_blocks,
                gb(report.stored_bytes),
                report.stored_gb_per_second,
                report.put_call_gb_per_second
            ),
        ),
    ];
    let counted = [
        ("stored by another", report.already_stored_blocks),
        ("refused, no room", report.refused_blocks),
        ("gone before read", report.lost_blocks),
        ("failed", report.failures),
    ];
    rows.extend(counted.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name, n.to_string())));
    let mut table = output::table(&["call", "calls", "mean", "p50", "p90", "p99", "max"], 1);
    for (name, latency) in [("lookup", &report.lookup), ("get", &report.get), ("put", &report.put)] {
        table.add_row(latency_row(name, latency));
    }
    format!("{}\n\n{}\n\nwrong bytes: {}", output::pairs(&rows), table.trim_fmt(), report.wrong_bytes)
}

fn latency_row(name: &str, latency: &LatencySummary) -> [String; 7] {
    [
        name.to_owned(),
        latency.calls.to_string(),
        micros(latency.mean_us),
        micros(latency.p50_us),
        micros(latency.p90_us),
        micros(latency.p99_us),
        micros(latency.max_us),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use yb_client::TransferFailure;

    fn failed(retryable: bool) -> Error {
        Error::Transfer(Box::new(TransferFailure {
            peer: "127.0.0.1:1".to_owned(),
            stage: "deadline".to_owned(),
            reason: "late".to_owned(),
            elapsed: Duration::ZERO,
            retryable,
        }))
    }

    #[test]
    fn what_was_late_is_asked_for_again_and_nothing_else() {
        let mut asked = Vec::new();
        let answers = patiently(4, |wanted| {
            asked.push(wanted.to_vec());
            let answer = |index: &usize| match (*index, asked.len()) {
                (1, 1..3) => Err(failed(true)),
                (2, _) => Err(failed(false)),
                (index, _) => Ok(index),
            };
            wanted.iter().map(answer).collect()
        });
        assert_eq!(asked, [vec![0, 1, 2, 3], vec![1], vec![1]]);
        assert_eq!(answers, [Ok(0), Ok(1), Err(failed(false)), Ok(3)]);
    }
}
