//! `yuebing bench transfer` with its second process, and the peer's benchmark by the name it is called with.
#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn yuebing(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_yuebing")).args(arguments).output().unwrap()
}

#[test]
fn a_sweep_measures_each_way_and_draws_it() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("sweep.svg");
    let output = yuebing(&[
        "bench",
        "transfer",
        "--transport",
        "local,shm,file,tcp",
        "--operation",
        "write,read",
        "--block",
        "4KiB",
        "--batch",
        "4",
        "--threads",
        "2",
        "--seconds",
        "0.3",
        "--warm-up",
        "0.01",
        "--memory",
        "1MiB",
        "--json",
        "--plot",
        plot.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lines = answer["lines"].as_array().unwrap();
    let ways: Vec<_> = lines.iter().map(|line| (&line["case"]["route"], &line["case"]["operation"])).collect();
    assert_eq!(ways.len(), 8, "{ways:?}");
    // A busy disk may take longer for a batch than it is measured for.
    let memory = lines.iter().filter(|line| line["case"]["route"] != "file");
    assert!(memory.clone().all(|line| line["report"]["batches"].as_u64() > Some(0)), "{answer}");
    assert!(lines.iter().all(|line| line["report"]["failures"] == 0), "{answer}");
    assert!(std::fs::read_to_string(plot).unwrap().contains("shm read"));
}

#[test]
fn a_plot_that_cannot_be_written_costs_no_sweep() {
    let nowhere = yuebing(&["bench", "transfer", "--plot", "/no/such/folder/a.png"]);
    assert_eq!(nowhere.status.code(), Some(1));
    let form = yuebing(&["bench", "transfer", "--plot", "a.pdf"]);
    assert_eq!(form.status.code(), Some(2));
}

#[test]
fn an_interrupted_target_of_the_peers_benchmark_ends_well() {
    let mut target = Command::new(env!("CARGO_BIN_EXE_yuebing"))
        .arg0("/usr/bin/transfer_engine_bench")
        .args(["--mode=target", "--metadata_server=P2PHANDSHAKE", "-protocol", "tcp", "--local_server_name=127.0.0.1"])
        .args(["--buffer_size=65536", "--block_size=4096", "--batch_size=2", "--threads=1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(target.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("DRAM is used") {
        assert!(log.read_line(&mut said).unwrap() > 0, "it ended: {said}");
    }
    let listening = said.lines().find_map(|line| line.split_once("listening on ")).unwrap().1.to_owned();
    let initiator = yuebing(&[
        "transfer-engine-bench",
        "--metadata_server=P2PHANDSHAKE",
        "--protocol=tcp",
        "--local_server_name=127.0.0.1",
        &format!("--segment_id={listening}"),
        "--block_size=4096",
        "--batch_size=2",
        "--threads=1",
        "--duration=1",
        "--buffer_size=8192",
        "--verify",
    ]);
    let text = String::from_utf8_lossy(&initiator.stderr);
    assert!(initiator.status.success() && text.contains("Test completed: duration 1."), "{text}");
    kill_process(Pid::from_child(&target), Signal::INT).unwrap();
    assert_eq!(target.wait().unwrap().code(), Some(0));
    log.read_to_string(&mut said).unwrap();
    assert!(!said.contains("FAILED"), "{said}");
}
