//! `transfer_engine_bench`: the peer's benchmark of its engine, flag for flag and line for line, over ours.
//!
//! As a target it serves a buffer until it is interrupted. As an initiator each thread submits a batch, waits for it and
//! starts the next, and one line tells the throughput. Ours adds percentiles, CPU time, and a check of the bytes.

mod initiator;
mod lines;
mod settings;
mod units;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use yb_classic::{ClassicEngine, ClassicError, ClassicOptions, Protocol, device_list};
use yb_settings::{Arguments, Values, help_gflags, parse_arguments};
use yb_transfer::{Access, MapError};

use crate::transfer::target::populated;
use initiator::{Initiator, Plan};
use lines::Log;
use settings::BENCH;
use units::ReportUnit;

/// What tells the benchmark to stop: it returns when somebody asked for it.
pub type WaitForStop = Box<dyn FnOnce() + Send>;

/// Why the benchmark ended early.
#[derive(Debug, thiserror::Error)]
pub enum PeerBenchError {
    /// A flag makes no sense.
    #[error("{0}")]
    Flag(String),
    /// The engine refused something.
    #[error(transparent)]
    Engine(#[from] ClassicError),
    /// No memory.
    #[error(transparent)]
    Map(#[from] MapError),
    /// No thread.
    #[error("starting a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The target's segment cannot be had.
    #[error("Unable to get target segment ID, please recheck ({0})")]
    NoTarget(String),
    /// A transfer failed.
    #[error("FAILED: {0}")]
    Transfer(String),
    /// Bytes were not what they must be.
    #[error("FAILED: {0}")]
    WrongBytes(String),
}

/// Runs the benchmark with the peer's flags. `wait_for_stop` is given to a target, which serves until it returns.
pub fn main(name: &str, arguments: &[String], wait_for_stop: WaitForStop) -> ExitCode {
    let environment = |variable: &str| std::env::var(variable).ok();
    let values = match parse_arguments(&BENCH, arguments, &environment) {
        Ok(Arguments::Run(given)) => BENCH.resolve(given, &environment),
        Ok(Arguments::Help(style)) => {
            println!("{}", help_gflags(&BENCH, &style));
            return ExitCode::from(1);
        }
        Ok(Arguments::Version) => {
            println!("{name} (yuebing {})", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Err(error) => Err(error),
    };
    let outcome = match values {
        Ok(values) => run(&values, wait_for_stop),
        Err(error) => {
            yb_env::complain!("ERROR: {error}");
            return ExitCode::from(1);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            Log::error(&error.to_string());
            ExitCode::from(1)
        }
    }
}

fn run(values: &Values, wait_for_stop: WaitForStop) -> Result<(), PeerBenchError> {
    let plan = Plan::from_values(values)?;
    let engine = ClassicEngine::start(options(values)?)?;
    if values.text("metadata_server") == yb_classic::P2P_HANDSHAKE {
        Log::info(&format!("Transfer Engine RPC using P2P handshake, listening on {}", engine.local_ip_and_port()));
    }
    let outcome = match values.text("mode") {
        "target" => serve(&engine, plan.buffer_bytes, wait_for_stop),
        _ => initiate(&engine, plan, values, wait_for_stop),
    };
    engine.shutdown();
    outcome
}

fn options(values: &Values) -> Result<ClassicOptions, PeerBenchError> {
    let discovers = values.flag("auto_discovery");
    let named = values.text("protocol");
    let protocol = if discovers { Protocol::preferred(named) } else { Protocol::exact(named) }?;
    let mut options = ClassicOptions::new(values.text("metadata_server"), own_name(values));
    options.protocol = protocol;
    options.matrix = Some(values.text("nic_priority_matrix")).filter(|path| !path.is_empty()).map(PathBuf::from);
    // The network is what is measured, unless "auto" asks for whatever is best.
    options.same_host = named == "auto";
    if !discovers && protocol == Protocol::Rdma {
        options.filters = device_list(values.text("device_name"));
    }
    Ok(options)
}

fn own_name(values: &Values) -> String {
    match values.text("local_server_name") {
        "" => rustix::system::uname().nodename().to_string_lossy().into_owned(),
        name => name.to_owned(),
    }
}

fn serve(engine: &ClassicEngine, bytes: u64, wait_for_stop: WaitForStop) -> Result<(), PeerBenchError> {
    let memory = engine.engine().allocate(bytes, populated(), Access::Remote)?;
    Log::info(&format!("DRAM is used, {bytes} bytes at {:#x}", memory.address()));
    wait_for_stop();
    Ok(())
}

fn initiate(
    engine: &ClassicEngine,
    plan: Plan,
    values: &Values,
    wait_for_stop: WaitForStop,
) -> Result<(), PeerBenchError> {
    let unit = ReportUnit::named(values.text("report_unit"));
    let precision = values.number("report_precision") as usize;
    let initiator = Arc::new(Initiator::new(engine.clone(), plan)?);
    let (asked, stop) = std::sync::mpsc::channel();
    let interrupted = asked.clone();
    yb_env::spawn_thread("yb-bench-stop", move || {
        wait_for_stop();
        // Fails when the run is over already.
        let _ = interrupted.send(());
    })?;
    let report = initiator.run(&asked, &stop)?;
    Log::info(&format!(
        "Test completed: duration {:.2}, batch count {}, throughput {}",
        report.seconds,
        report.batches,
        unit.rate(report.bytes, report.seconds, precision)
    ));
    Log::info(&format!(
        "Batch latency: p50 {:.1} us, p90 {:.1} us, p99 {:.1} us, max {:.1} us; CPU {:.3} s/GB",
        report.latency.p50_us,
        report.latency.p90_us,
        report.latency.p99_us,
        report.latency.max_us,
        report.cpu_seconds_per_gb
    ));
    if values.flag("verify") {
        let blocks = initiator.verify()?;
        Log::info(&format!("Verified {blocks} blocks: every byte came back"));
    }
    Ok(())
}
