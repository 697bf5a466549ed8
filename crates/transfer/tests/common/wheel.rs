//! An engine of the peer as a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The version that must be there in CI; others are tried where they are.
const NEEDED: &str = "v0.3.13.post1";

pub struct Wheel {
    pub process: Child,
    orders: ChildStdin,
    lines: BufReader<ChildStdout>,
    pub endpoint: String,
    pub address: u64,
}

impl Wheel {
    /// Starts an engine of the peer; without one, one line says so, and with `CI=true` the test fails.
    pub fn start(env: &[(&str, &str)]) -> Option<Self> {
        Wheel::of_version(NEEDED, env)
    }

    /// As [`Wheel::start`], of another version.
    pub fn of_version(version: &str, env: &[(&str, &str)]) -> Option<Self> {
        let python = std::env::var_os("YB_PEER_VENVS").map(|root| PathBuf::from(root).join(version).join("bin/python"));
        let Some(python) = python.filter(|python| python.exists()) else {
            let needed = version == NEEDED && std::env::var("CI").as_deref() == Ok("true");
            assert!(!needed, "the peer's wheel is missing");
            eprintln!("skipped: YB_PEER_VENVS names no folder with {version}");
            return None;
        };
        let mut process = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wheel_engine.py"))
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut wheel = Wheel { process, orders, lines, endpoint: String::new(), address: 0 };
        let words = wheel.answer();
        wheel.endpoint = format!("127.0.0.1:{}", words[0]);
        wheel.address = words[1].parse().unwrap();
        Some(wheel)
    }

    fn answer(&mut self) -> Vec<String> {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the peer's process ended");
            if let Some(rest) = line.strip_prefix("answer ") {
                return rest.split_whitespace().map(str::to_owned).collect();
            }
        }
    }

    pub fn order(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        self.answer().join(" ")
    }
}

impl Drop for Wheel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The same bytes as in the script.
pub fn script_pattern(len: usize, seed: usize) -> Vec<u8> {
    let unit: Vec<u8> = (0..65_521).map(|i| (seed + i * 7 + i / 251) as u8).collect();
    unit.iter().copied().cycle().take(len).collect()
}
