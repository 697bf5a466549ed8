//! `yuebing bench`: load on a master or a whole store, and what the machine itself can do.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use yb_bench::memcpy::{self, MemcpyError, MemcpyLoad, MemcpyReport};
use yb_bench::process::ServerProcess;
use yb_bench::rpc::{self, BenchError, Operation, RpcBench};
use yb_bench::store::{self, StoreLoad, StoreLoadError, StoreReport};
use yb_bench::transfer::raw;
use yb_bench::transfer::submit::{self, POLLED};
use yb_env::spawn_thread;
use yb_secure::Security;

use crate::args::{BenchCommand, BenchMemcpyArgs, BenchRawTcpArgs, BenchRpcArgs, BenchStoreArgs, BenchSubmitArgs};
use crate::commands::bench_transfer;
use crate::connect::failure;
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupt::Interruptible;
use crate::output::{self, micros};
use crate::progress::{during, during_about};
use crate::signals::Signals;
use crate::size::bytes;

/// What a signal says during a measurement that is told at its end.
const NOTHING_YET: &str = "nothing was measured to the end";

/// Runs one of them.
pub fn run(command: &BenchCommand) -> Outcome {
    match command {
        BenchCommand::Rpc(args) => run_rpc(args),
        BenchCommand::Store(args) => run_store(args),
        BenchCommand::Memcpy(args) => run_memcpy(args),
        BenchCommand::Transfer(args) => bench_transfer::run(args),
        BenchCommand::RawTcp(args) => run_raw_tcp(args),
        BenchCommand::Submit(args) => run_submit(args),
    }
}

fn run_rpc(args: &BenchRpcArgs) -> Outcome {
    let operation = Operation::named(&args.operation).ok_or_else(|| Failure::usage("no such operation"))?;
    let bench = RpcBench {
        connections: args.connections,
        outstanding: args.outstanding,
        batch: args.batch,
        duration: Duration::from_secs_f64(args.seconds.clamp(0.01, 86_400.0)),
        warm_up: Duration::from_secs_f64(args.warm_up.clamp(0.0, 3_600.0)),
        keys: args.keys,
        key_bytes: args.key_bytes,
        core: args.core,
        server_pid: args.server_pid,
        security: security()?,
        ..RpcBench::new(resolve(&args.master.address()?)?, operation)
    };
    let doing = format!("{} on {}", args.operation, bench.address);
    let work =
        Interruptible::start("nothing was measured to the end; keys that were placed stay until they are evicted")?;
    let length = bench.warm_up + bench.duration;
    let measure = || {
        let prepared = rpc::prepare(&bench)?;
        work.hold();
        prepared.measure(work.flag())
    };
    let report = during_about(doing, length, measure).map_err(|error| {
        let exit = match error {
            BenchError::Setting(_) => Exit::Usage,
            BenchError::Rpc(_) => Exit::Unreachable,
            _ => Exit::Failed,
        };
        Failure::new(exit, format!("master {}: {error}", bench.address))
    })?;
    work.hold();
    let kept = "keys that were placed stay until they are evicted";
    let Some(report) = report else {
        return Err(Failure::interrupted(format_args!("nothing was measured; {kept}")));
    };
    if args.json { output::line(report.to_json()) } else { output::line(report.table().trim_end()) }?;
    match work.is_asked() {
        true => Err(Failure::interrupted(format_args!("above is what was measured until then; {kept}"))),
        false => Ok(()),
    }
}

/// As the variables of the environment say.
fn security() -> Outcome<Option<Arc<Security>>> {
    Security::from_env().map_err(|error| Failure::usage(error.to_string()))
}

fn resolve(address: &str) -> Outcome<SocketAddr> {
    let found = address.to_socket_addrs().map_err(|e| Failure::new(Exit::Unreachable, format!("{address}: {e}")))?;
    found.into_iter().next().ok_or_else(|| Failure::new(Exit::Unreachable, format!("{address}: no address")))
}

fn run_store(args: &BenchStoreArgs) -> Outcome {
    let too_large = |_| Failure::usage("--size is too large");
    let load = StoreLoad {
        master: args.master.address()?,
        clients: args.clients,
        value_bytes: usize::try_from(args.size.0).map_err(too_large)?,
        batch: args.batch,
        keys: args.keys,
        replicas: args.replicas,
        duration: Duration::from_secs_f64(args.seconds.clamp(0.0, 86_400.0)),
        check: args.check,
        servers: args.server_pid.iter().copied().map(ServerProcess).collect(),
        seed: yb_env::Rng::from_entropy().next_u64(),
        security: security()?,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let (signals, asked) = (Signals::catch()?, Arc::clone(&stop));
    spawn_thread("signals", move || {
        signals.wait();
        asked.store(true, Ordering::Relaxed);
    })
    .map_err(|e| Failure::failed(format!("cannot start a thread: {e}")))?;
    let doing = format!("put, get, look up and remove {} objects", load.keys);
    let report = during(doing, || store::run(&load, &stop)).map_err(|error| match error {
        StoreLoadError::Client(error) => failure(&format!("master {}", load.master), &error),
        StoreLoadError::Nothing => Failure::usage(error.to_string()),
        error => Failure::failed(error.to_string()),
    })?;
    if args.json {
        output::json(&report)?
    } else {
        output::line(store_text(&report))?
    }
    verdict(&report)?;
    match stop.load(Ordering::Relaxed) {
        true => Err(Failure::interrupted("above is what was done until then; the objects of this run were removed")),
        false => Ok(()),
    }
}

fn verdict(report: &StoreReport) -> Outcome {
    let wrong: u64 = report.phases.iter().map(|p| p.wrong_bytes).sum();
    if wrong > 0 {
        return Err(Failure::new(Exit::WrongBytes, format!("{wrong} wrong bytes")));
    }
    match report.phases.iter().find_map(|p| p.error.as_ref().map(|e| (p.phase, p.failures, e))) {
        Some((phase, count, error)) => Err(Failure::failed(format!("{phase}: {count} failed, the first: {error}"))),
        None => Ok(()),
    }
}

fn store_text(report: &StoreReport) -> String {
    let header = ["phase", "objects", "objects/s", "GB/s", "p50", "p90", "p99", "max", "cpu/object", "not served"];
    let mut table = output::table(&header, 1);
    for phase in &report.phases {
        let moves = matches!(phase.phase, "put" | "get");
        table.add_row([
            phase.phase.to_owned(),
            phase.objects.to_string(),
            format!("{:.0}", phase.objects_per_second),
            if moves { format!("{:.2}", phase.gb_per_second) } else { "-".to_owned() },
            micros(phase.latency.p50_us),
            micros(phase.latency.p90_us),
            micros(phase.latency.p99_us),
            micros(phase.latency.max_us),
            phase.server_cpu_us_per_object.map_or_else(|| "-".to_owned(), micros),
            (phase.misses + phase.refused + phase.failures).to_string(),
        ]);
    }
    format!(
        "{} an object, {} objects a call, {} clients; latencies are of calls\n\n{}",
        bytes(report.value_bytes),
        report.batch,
        report.clients,
        table.trim_fmt()
    )
}

fn run_memcpy(args: &BenchMemcpyArgs) -> Outcome {
    let duration = Duration::from_secs_f64(args.seconds.clamp(0.001, 600.0));
    let load = MemcpyLoad { block_bytes: args.size.0, destination_blocks: args.buffers, duration };
    let work = Interruptible::start(NOTHING_YET)?;
    work.hold();
    let measured = during_about("copying", duration * 3, || memcpy::measure(&load, work.flag()));
    let report = measured.map_err(|error| match error {
        MemcpyError::Stopped => Failure::interrupted(error),
        error => Failure::failed(error.to_string()),
    })?;
    if args.json { output::json(&report) } else { output::line(memcpy_text(&report)) }?;
    match work.is_asked() {
        true => Err(Failure::interrupted("above is what was measured until then")),
        false => Ok(()),
    }
}

fn memcpy_text(report: &MemcpyReport) -> String {
    output::pairs(&[
        ("block", bytes(report.block_bytes)),
        ("from", format!("{} of a second mapping of a memfd", bytes(report.source_bytes))),
        ("to", format!("{} of ordinary memory", bytes(report.destination_bytes))),
        ("last-level cache", bytes(report.cache_bytes)),
        ("memcpy", format!("{:.2} GB/s", report.gb_per_second)),
        (
            "around the caches",
            report.streaming_gb_per_second.map_or("not measured".to_owned(), |rate| format!("{rate:.2} GB/s")),
        ),
    ])
}

fn run_submit(args: &BenchSubmitArgs) -> Outcome {
    let duration = Duration::from_secs_f64(args.seconds.clamp(0.001, 600.0));
    let work = Interruptible::start(NOTHING_YET)?;
    let report = during("submitting", || submit::measure(duration)).map_err(|e| Failure::failed(e.to_string()))?;
    work.hold();
    if args.json {
        return output::json(&report);
    }
    let mut rows = vec![
        ("submit and complete, 64 B", format!("{:.0} ns", report.submit_complete_ns)),
        ("the same with a batch of its own", format!("{:.0} ns", report.batch_ns)),
    ];
    let polls = report.poll_task_ns.iter().zip(&report.poll_batch_ns).zip(POLLED);
    let texts: Vec<String> = POLLED.iter().map(|tasks| format!("a poll, batch of {tasks} tasks")).collect();
    rows.extend(polls.zip(&texts).map(|(((task, batch), _), text)| {
        (text.as_str(), format!("{task:.0} ns of a task, {batch:.0} ns of the batch"))
    }));
    output::line(output::pairs(&rows))
}

fn run_raw_tcp(args: &BenchRawTcpArgs) -> Outcome {
    let least = raw::WRITE_SIZES.first().copied().unwrap_or(1);
    let memory = usize::try_from(args.memory.0).map_err(|_| Failure::usage("--memory is too large"))?.max(least);
    let duration = Duration::from_secs_f64(args.seconds.clamp(0.001, 600.0));
    let work = Interruptible::start(NOTHING_YET)?;
    let length = duration * raw::WRITE_SIZES.len() as u32;
    let rates = during_about("sending over one connection", length, || raw::measure(memory, duration));
    let rates = rates.map_err(|e| Failure::failed(format!("one raw connection: {e}")))?;
    work.hold();
    if args.json {
        return rates.first().map_or(Ok(()), output::json);
    }
    let mut table = output::table(&["write size", "GB/s", "CPU s/GB"], 0);
    for rate in &rates {
        let (speed, cpu) = (format!("{:.3}", rate.gb_per_second), format!("{:.3}", rate.cpu_seconds_per_gb));
        table.add_row([bytes(rate.write_bytes), speed, cpu]);
    }
    output::line(table.trim_fmt())
}
