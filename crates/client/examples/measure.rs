//! Times the calls of one client against a running pool: `measure MASTER [--tcp]`.
//! The pool needs 1.5 GiB; the objects are removed at the end.
#![forbid(unsafe_code)]

use std::time::Duration;

use yb_client::{Client, ClientConfig, MemoryRange, Result};
use yb_env::Clock;
use yb_types::ReplicateConfig;

const ROUNDS: usize = 400;

/// Runs `call` with every number below `rounds`; the median and the sum.
fn time(clock: &Clock, rounds: usize, mut call: impl FnMut(usize) -> Result<()>) -> Result<(Duration, Duration)> {
    let mut took = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let before = clock.now();
        call(round)?;
        took.push(clock.now().since(before));
    }
    let sum = took.iter().sum();
    took.sort_unstable();
    Ok((took.get(rounds / 2).copied().unwrap_or_default(), sum))
}

fn report(what: &str, bytes: u64, rounds: usize, (median, sum): (Duration, Duration)) {
    let rate = bytes as f64 * rounds as f64 / sum.as_secs_f64() / 1e9;
    println!("{what:34} p50 {median:>12.1?}  {rate:7.3} GB/s");
}

fn run(client: &Client) -> Result<()> {
    let clock = Clock::real();
    let config = ReplicateConfig::default();
    let memory = client.allocate_buffer(512 << 20)?;
    let all = MemoryRange::of(&memory);
    client.remove_all(true)?;
    let touch = vec![7; 512 << 20];
    client.put("touch", &touch, &config)?;
    client.get_into_range("touch", all)?;
    client.remove_all(true)?;
    for (size, rounds) in [(4096, ROUNDS * 10), (64 << 10, ROUNDS * 2), (1 << 20, ROUNDS)] {
        let place = |round: usize| all.part((round as u64 * size) % (all.len - size), size);
        let put = time(&clock, rounds, |i| client.put_from(format!("k{size}-{i}"), place(i), &config).map(|_| ()))?;
        report(&format!("put_from {size}"), size, rounds, put);
        let get = time(&clock, rounds, |i| client.get_into_range(format!("k{size}-{i}"), place(i)).map(|_| ()))?;
        report(&format!("get_into {size}"), size, rounds, get);
        let query = time(&clock, rounds, |i| client.query(format!("k{size}-{i}")).map(|_| ()))?;
        report("  of which lookup", 0, rounds, query);
    }
    let batch = |round: usize| -> Vec<(String, MemoryRange)> {
        let place = |i: usize| all.part((((round * 32 + i) % 4096) << 16) as u64, 64 << 10);
        (0..32).map(|i| (format!("b{round}-{i}"), place(i))).collect()
    };
    let all_ok = |answers: Vec<Result<()>>| answers.into_iter().collect::<Result<()>>();
    let put = time(&clock, 100, |round| {
        all_ok(client.batch_put_from(&batch(round), &config).into_iter().map(|answer| answer.map(|_| ())).collect())
    })?;
    report("batch_put_from 32 x 64 KiB", 32 << 16, 100, put);
    let get = time(&clock, 100, |round| {
        all_ok(client.batch_get_into(&batch(round)).into_iter().map(|answer| answer.map(|_| ())).collect())
    })?;
    report("batch_get_into 32 x 64 KiB", 32 << 16, 100, get);
    println!("{:?}", client.transfer_stats());
    client.remove_all(true)?;
    Ok(())
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(master) = arguments.first() else {
        eprintln!("usage: measure MASTER [--tcp]");
        return 2.into();
    };
    let config = ClientConfig {
        local_hostname: "127.0.0.1".into(),
        master_address: master.clone(),
        shared_memory: !arguments.iter().any(|argument| argument == "--tcp"),
        ..ClientConfig::default()
    };
    match Client::connect(config).and_then(|client| run(&client)) {
        Ok(()) => 0.into(),
        Err(error) => {
            eprintln!("{error}");
            1.into()
        }
    }
}
