//! The transfer load as two processes, for measurements by hand.
//!
//! `target [buffer]` prints endpoint, address and process id and serves until its input ends;
//! `load ENDPOINT ADDRESS PID BLOCK BATCH THREADS SECONDS [buffer] [read] [shm]` and `raw WORKING_SET SECONDS` print JSON.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a tool for people at a terminal"
)]

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use yb_bench::process::ServerProcess;
use yb_bench::transfer::load::{TransferLoad, run};
use yb_bench::transfer::{raw, target::Target};
use yb_transfer::{Engine, EngineSettings, Opcode};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| args[index].parse::<u64>().unwrap();
    let settings = EngineSettings {
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        shm: args.iter().any(|arg| arg == "shm"),
        in_process: false,
        data_threads: std::env::var("DATA_THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(2),
        stripe_min: std::env::var("STRIPE_MIN").ok().and_then(|t| t.parse().ok()).unwrap_or(4 << 20),
        ..EngineSettings::from_env(|name| std::env::var(name).ok())
    };
    match args[0].as_str() {
        "target" => {
            let target = Target::start(settings, number(1)).unwrap();
            println!("{} {} {}", target.endpoint(), target.address(), std::process::id());
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        }
        "load" => {
            let engine = Engine::builder().settings(EngineSettings { listen: None, ..settings }).build().unwrap();
            let load = TransferLoad {
                segment: engine.open_segment(&args[1]).unwrap(),
                remote: number(2),
                op: if args.iter().any(|arg| arg == "read") { Opcode::Read } else { Opcode::Write },
                target: Some(ServerProcess(args[3].parse().unwrap())),
                block_bytes: number(4),
                batch: number(5) as usize,
                threads: number(6) as usize,
                duration: Duration::from_secs_f64(args[7].parse().unwrap()),
                warm_up: Duration::from_millis(300),
                cold: false,
                buffer_bytes: args.get(8).and_then(|text| text.parse().ok()).unwrap_or(0),
            };
            println!("{}", serde_json::to_string(&run(&engine, &load).unwrap()).unwrap());
        }
        _ => {
            for rate in raw::measure(number(1) as usize, Duration::from_secs_f64(args[2].parse().unwrap())).unwrap() {
                println!("{}", serde_json::to_string(&rate).unwrap());
            }
        }
    }
}
