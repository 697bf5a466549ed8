//! `yuebing bench transfer`: a sweep over the ways between two processes, and a picture of it.
//!
//! The other process is this same command with `--serve`: it serves a buffer and leaves when its standard input ends,
//! which it does whatever becomes of us.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use yb_bench::process::ServerProcess;
use yb_bench::transfer::plot;
use yb_bench::transfer::sweep::{self, Limit, Limits, Line, Peer, Route, Sweep, SweepError, operation_name};
use yb_bench::transfer::target::Target;
use yb_env::spawn_thread;
use yb_transfer::{Engine, EngineSettings, Opcode};

use crate::args::BenchTransferArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{self, micros};
use crate::signals::Signals;
use crate::size::bytes;

/// Runs the sweep, or the other process of one.
pub fn run(args: &BenchTransferArgs) -> Outcome {
    match &args.serve {
        Some(route) => serve(route_named(route)?, args.memory.0),
        None => initiate(args),
    }
}

fn route_named(name: &str) -> Outcome<Route> {
    Route::named(name).ok_or_else(|| Failure::usage(format!("no such transport: {name}")))
}

/// What the other process says when it is ready.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    endpoint: String,
    address: u64,
}

/// Over TCP with secret and certificates, where the environment names some.
fn settings(route: Route) -> Outcome<EngineSettings> {
    route.secured_settings().map_err(|error| Failure::usage(error.to_string()))
}

fn serve(route: Route, memory: u64) -> Outcome {
    let start = if route == Route::ProcessVm { Target::start_unmappable } else { Target::start };
    let target = start(settings(route)?, memory).map_err(|e| Failure::failed(e.to_string()))?;
    output::json(&Ready { endpoint: target.endpoint().to_owned(), address: target.address() })?;
    let mut rest = Vec::new();
    // An error means that nobody is at the other end any more, too.
    let _ = std::io::stdin().read_to_end(&mut rest);
    Ok(())
}

/// The side that takes no part: in this process, a file, or in another process.
enum Served {
    Here(Target),
    File(NamedTempFile),
    There { child: Child, stdin: Option<ChildStdin>, ready: Ready },
}

impl Served {
    fn start(route: Route, memory: u64) -> Outcome<Served> {
        if route == Route::Local {
            let target = Target::start(settings(route)?, memory);
            return target.map(Served::Here).map_err(|e| Failure::failed(e.to_string()));
        }
        let failed = |e: std::io::Error| Failure::failed(format!("cannot start the target: {e}"));
        if route == Route::File {
            let file = NamedTempFile::new().map_err(failed)?;
            file.as_file().set_len(memory).map_err(failed)?;
            return Ok(Served::File(file));
        }
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .args(["bench", "transfer", "--serve", route.name(), "--memory", &memory.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let stdin = child.stdin.take();
        let mut line = String::new();
        let said = child.stdout.take().map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut line));
        match said.map_err(|e| e.to_string()).and_then(|_| serde_json::from_str(&line).map_err(|e| e.to_string())) {
            Ok(ready) => Ok(Served::There { child, stdin, ready }),
            Err(error) => {
                drop(stdin);
                let _ = child.wait();
                Err(Failure::failed(format!("the target of {} did not start: {error}", route.name())))
            }
        }
    }

    fn file(&self) -> Option<PathBuf> {
        match self {
            Served::File(file) => Some(file.path().to_owned()),
            _ => None,
        }
    }

    fn peer(&self) -> Peer {
        match self {
            Served::Here(target) => {
                Peer { endpoint: target.endpoint().to_owned(), address: target.address(), process: None }
            }
            Served::File(file) => {
                Peer { endpoint: format!("file://{}", file.path().display()), address: 0, process: None }
            }
            Served::There { child, ready, .. } => Peer {
                endpoint: ready.endpoint.clone(),
                address: ready.address,
                process: Some(ServerProcess(child.id())),
            },
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Served::There { child, stdin, .. } = self {
            drop(stdin.take());
            let _ = child.wait();
        }
    }
}

/// What a whole sweep came to.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    lines: &'a [Line],
    /// Transports that could not be measured here, and why.
    missing: &'a [(Route, String)],
}

fn initiate(args: &BenchTransferArgs) -> Outcome {
    let sweep = sweep_of(args)?;
    if let Some(path) = &args.plot {
        // Before anything is measured: a file that cannot be written costs nobody a sweep.
        write_plot(path, &[])?;
    }
    let signals = Signals::catch()?;
    let cases = sweep.cases().len();
    if cases == 0 {
        return Err(Failure::usage("no combination of block, batch and threads (each at least 1) fits into --memory"));
    }
    let run = Arc::new(Run {
        sweep,
        bar: bar(cases as u64),
        stopped: AtomicBool::new(false),
        found: Mutex::default(),
        file: Mutex::default(),
    });
    let interrupted = run_or_signal(&run, signals)?;
    run.bar.finish_and_clear();
    let Found { lines, missing } = std::mem::take(&mut *locked(&run.found));
    if args.json {
        output::json(&Answer { lines: &lines, missing: &missing })?;
    } else {
        output::line(table(&lines, &missing))?;
    }
    if let Some(path) = &args.plot {
        write_plot(path, &lines)?;
    }
    if interrupted {
        return Err(Failure::interrupted(format_args!("{} of {cases} lines were finished", lines.len())));
    }
    match lines.iter().find_map(|line| line.report.error.as_ref()) {
        Some(error) => Err(Failure::failed(format!("a transfer failed: {error}"))),
        None if lines.is_empty() => Err(Failure::failed("nothing could be measured")),
        None => Ok(()),
    }
}

fn sweep_of(args: &BenchTransferArgs) -> Outcome<Sweep> {
    let operations = args.operation.iter().map(|name| if name == "read" { Opcode::Read } else { Opcode::Write });
    Ok(Sweep {
        routes: args.transport.iter().map(|name| route_named(name)).collect::<Outcome<_>>()?,
        operations: operations.collect(),
        blocks: args.block.iter().map(|size| size.0).collect(),
        batches: args.batch.clone(),
        threads: args.threads.clone(),
        buffer_bytes: args.memory.0,
        cold: args.cold,
        warm_up: Duration::from_secs_f64(args.warm_up.clamp(0.0, 3600.0)),
        duration: Duration::from_secs_f64(args.seconds.clamp(0.001, 86_400.0)),
    })
}

/// What was measured.
#[derive(Default)]
struct Found {
    lines: Vec<Line>,
    /// Transports that could not be measured here, and why.
    missing: Vec<(Route, String)>,
}

/// A sweep under way. It is given up where it stands when a signal comes: touching memory and waiting for peers can take
/// longer than anybody wants to wait then.
struct Run {
    sweep: Sweep,
    bar: ProgressBar,
    /// What is found after that is not wanted any more.
    stopped: AtomicBool,
    found: Mutex<Found>,
    /// The file that is measured, to be taken away.
    file: Mutex<Option<PathBuf>>,
}

/// Until the sweep is over, or a signal comes; whether one came.
fn run_or_signal(run: &Arc<Run>, signals: Signals) -> Outcome<bool> {
    let failed = |e: std::io::Error| Failure::failed(format!("cannot start a thread: {e}"));
    let (over, came) = (mpsc::channel(), Arc::clone(run));
    let (told, signalled) = (over.0.clone(), over.0);
    spawn_thread("sweep", move || {
        came.all();
        // Nobody waits any more after a signal.
        let _ = told.send(false);
    })
    .map_err(failed)?;
    spawn_thread("signals", move || {
        signals.wait();
        let _ = signalled.send(true);
    })
    .map_err(failed)?;
    let interrupted = over.1.recv().unwrap_or(false);
    if interrupted {
        run.stopped.store(true, Ordering::SeqCst);
        if let Some(path) = locked(&run.file).take() {
            // It is gone, or in the folder for such files.
            let _ = std::fs::remove_file(path);
        }
    }
    Ok(interrupted)
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    fn all(&self) {
        for route in &self.sweep.routes {
            if let Err(why) = self.route(*route)
                && !self.is_stopped()
            {
                locked(&self.found).missing.push((*route, why));
            }
        }
    }

    /// Measures every case of one route; gives back why not, where it cannot be taken here.
    fn route(&self, route: Route) -> Result<(), String> {
        let sweep = &self.sweep;
        let cases: Vec<_> = sweep.cases().into_iter().filter(|case| case.route == route).collect();
        if cases.is_empty() || self.is_stopped() {
            return Ok(());
        }
        // The engine first: it says in words what this machine lacks.
        let own = settings(route).map_err(|failure| failure.to_string())?;
        let engine = Engine::builder().settings(own).build().map_err(|error| error.to_string())?;
        let served = Served::start(route, sweep.buffer_bytes).map_err(|failure| failure.to_string())?;
        *locked(&self.file) = served.file();
        let (peer, mut limits) = (served.peer(), Limits::default());
        for case in cases {
            if self.is_stopped() {
                break;
            }
            let doing = format!("{} {} {}", route.name(), operation_name(case.operation), bytes(case.block_bytes));
            self.bar.set_message(doing);
            match sweep::measure(&engine, &peer, case, sweep, &mut limits) {
                Ok(line) => locked(&self.found).lines.push(line),
                Err(error @ SweepError::OtherRoute(_)) => return Err(error.to_string()),
                Err(error) => {
                    return Err(format!("{} of {}: {error}", operation_name(case.operation), bytes(case.block_bytes)));
                }
            }
            self.bar.inc(1);
        }
        engine.shutdown();
        Ok(())
    }
}

fn bar(cases: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({eta} left)");
    let bar = ProgressBar::with_draw_target(Some(cases), ProgressDrawTarget::stderr());
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn share(rate: f64, limit: f64) -> String {
    format!("{:.0} %", 100.0 * rate / limit)
}

fn table(lines: &[Line], missing: &[(Route, String)]) -> String {
    let header =
        ["transport", "op", "block", "batch", "threads", "GB/s", "of limit", "p50", "p99", "CPU s/GB", "failed"];
    let mut table = output::table(&header, 2);
    for Line { case, report, limit_gb_per_second, .. } in lines {
        table.add_row([
            case.route.name().to_owned(),
            operation_name(case.operation).to_owned(),
            bytes(case.block_bytes),
            case.batch.to_string(),
            case.threads.to_string(),
            format!("{:.3}", report.gb_per_second),
            limit_gb_per_second.map_or_else(|| "-".to_owned(), |limit| share(report.gb_per_second, limit)),
            micros(report.latency.p50_us),
            micros(report.latency.p99_us),
            format!("{:.3}", report.cpu_seconds_per_gb),
            report.failures.to_string(),
        ]);
    }
    let mut text = table.trim_fmt();
    for (name, limit) in [("one memcpy", Limit::Memcpy), ("one raw connection", Limit::RawTcp)] {
        let rates = || lines.iter().filter(|line| line.limit == Some(limit)).filter_map(|l| l.limit_gb_per_second);
        if rates().next().is_some() {
            let (least, most) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
            text.push_str(&format!("\nlimit, {name}: {least:.2} to {most:.2} GB/s for these sizes"));
        }
    }
    for (route, why) in missing {
        text.push_str(&format!("\nnot measured, {}: {why}", route.name()));
    }
    text.push_str("\nLatencies are of batches; CPU is that of both processes.");
    text
}

fn write_plot(path: &Path, lines: &[Line]) -> Outcome {
    let written = match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => std::fs::write(path, plot::svg(lines)),
        Some("png") => std::fs::write(path, plot::png(lines).map_err(|e| Failure::failed(e.to_string()))?),
        _ => return Err(Failure::usage("--plot takes a file that ends in .svg or .png")),
    };
    written.map_err(|error| Failure::file(path, &error))
}
