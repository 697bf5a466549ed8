//! The `yuebing` command, which also answers to the peer's command names by `argv[0]`.
#![forbid(unsafe_code)]

mod admin;
mod args;
mod commands;
mod connect;
mod daemon;
mod failure;
mod files;
#[cfg(test)]
mod fuzz;
mod http;
mod interrupt;
mod output;
mod pool;
mod progress;
mod signals;
mod size;
mod supervise;
mod token;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use yb_master::CommandStyle;

use crate::args::{Command, NodeDrain, Yuebing};
use crate::failure::Outcome;

/// The system's allocator keeps what a master with millions of objects gives up; this one returns it, see
/// `docs/catalog.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    signals::outlive_file_limits();
    report_unknown_variables();
    let mut arguments = std::env::args_os();
    let called_as = arguments.next().unwrap_or_default();
    let name = Path::new(&called_as).file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let rest: Vec<OsString> = arguments.collect();
    match name {
        "mooncake_master" => daemon::master(name, CommandStyle::Peer, rest),
        "mooncake_client" => daemon::node(name, rest),
        "transfer_engine_bench" => daemon::transfer_engine_bench(name, rest),
        "mooncake_http_metadata_server" => daemon::metadata("mooncake_http_metadata_server", rest),
        "transfer_engine_topology_dump" => {
            let name = "transfer_engine_topology_dump";
            answer_as(name, commands::topology::run_as(name, rest))
        }
        _ => match Yuebing::parse().command {
            Command::Master(args) => daemon::master("yuebing master", CommandStyle::Ours, args.flags),
            Command::Node(args) if args.flags.first().is_some_and(|first| first == "drain") => {
                answer_as("yuebing node drain", commands::drain::run(&NodeDrain::parse_from(args.flags).args))
            }
            Command::Node(args) => daemon::node("yuebing node", args.flags),
            Command::MetadataServer(args) => daemon::metadata_with(&args),
            Command::TransferEngineBench(args) => {
                daemon::transfer_engine_bench("yuebing transfer-engine-bench", args.flags)
            }
            other => answer(run(&other)),
        },
    }
}

/// One line for each variable with our prefix that means nothing. Processes that another one started keep silent: it said so.
fn report_unknown_variables() {
    if std::env::var_os(supervise::PARENT).is_some() {
        return;
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    yb_settings::unknown_variables(names).iter().for_each(|unknown| yb_env::complain!("warning: {unknown}"));
}

fn run(command: &Command) -> Outcome {
    match command {
        Command::Up(args) => commands::up::run(args),
        Command::Put(args) => commands::objects::put(args),
        Command::Get(args) => commands::objects::get(args),
        Command::Stat(args) => commands::objects::stat(args),
        Command::Ls(args) => commands::objects::ls(args),
        Command::Rm(args) => commands::rm::run(args),
        Command::Replay(args) if args.simulate => commands::simulate::run(args),
        Command::Replay(args) => commands::replay::run(args),
        Command::Drain(args) => commands::drain::run(args),
        Command::Status(args) => commands::status::run(args),
        Command::Top(args) => commands::top::run(args),
        Command::Segments(args) => commands::segments::run(args),
        Command::Tenants(args) => commands::tenants::run(args),
        Command::Tasks(args) => commands::tasks::run(args),
        Command::Config(command) => commands::config::run(command),
        Command::Doctor(args) => commands::doctor::run(args),
        Command::Bench(command) => commands::bench::run(command),
        Command::Trace(command) => commands::trace::run(command),
        Command::Certs(args) => commands::certs::run(args),
        Command::Topology(args) => commands::topology::run(args),
        Command::Master(_) | Command::Node(_) | Command::MetadataServer(_) | Command::TransferEngineBench(_) => Ok(()),
    }
}

/// The one place where a failure becomes words and an exit code.
fn answer(outcome: Outcome) -> ExitCode {
    answer_as("yuebing", outcome)
}

fn answer_as(name: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string();
            if !text.is_empty() {
                yb_env::complain!("{name}: {text}");
            }
            failure.exit.into()
        }
    }
}
