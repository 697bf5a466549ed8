//! The server seen from outside: CPU time, memory, instructions.

use std::fs;
use std::io;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};
use rustix::thread::CpuSet;

use super::BenchError;
use crate::process::ServerProcess;

/// What a server used over the measured time.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct ServerCost {
    /// CPU time of all threads in seconds, from the scheduler's own account.
    pub cpu_s: f64,
    /// Share of it in user space, counted in ticks of 10 ms.
    pub user_share: f64,
    /// Instructions in user space, by `perf stat`.
    pub user_instructions: Option<u64>,
    /// Instructions in the kernel.
    pub kernel_instructions: Option<u64>,
    /// Why there are no instructions.
    pub no_instructions_because: Option<String>,
}

fn stat_error(pid: u32) -> impl FnOnce(io::Error) -> BenchError {
    move |source| BenchError::Io {
        what: "reading /proc of the server process",
        source: io::Error::new(source.kind(), format!("pid {pid}: {source}")),
    }
}

/// CPU seconds so far, user and kernel.
fn cpu_seconds(pid: u32) -> Result<(f64, f64), BenchError> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(stat_error(pid))?;
    let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
    // The command name may hold spaces and brackets; what counts comes after the last one.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let seconds = |index: usize| fields.get(index).and_then(|f| f.parse::<f64>().ok()).map(|t| t / ticks);
    seconds(11).zip(seconds(12)).ok_or_else(|| stat_error(pid)(io::Error::other("no CPU times in it")))
}

fn scheduled_seconds(pid: u32) -> Result<f64, BenchError> {
    Ok(ServerProcess(pid).usage().map_err(stat_error(pid))?.cpu.as_secs_f64())
}

/// Bytes of memory in use.
pub(super) fn resident_bytes(pid: u32) -> Result<u64, BenchError> {
    Ok(ServerProcess(pid).usage().map_err(stat_error(pid))?.resident_bytes)
}

/// Pins the calling thread.
pub(super) fn pin(core: usize) -> Result<(), BenchError> {
    let mut set = CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| BenchError::Io { what: "pinning the generator", source: error.into() })
}

/// A measurement under way.
pub(super) struct Meter {
    pid: u32,
    ticks: (f64, f64),
    cpu: f64,
    perf: Option<Child>,
}

impl Meter {
    pub(super) fn start(pid: u32) -> Result<Self, BenchError> {
        let perf = Command::new("perf")
            .args(["stat", "-x,", "-e", "instructions:u,instructions:k", "-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        Ok(Meter { pid, ticks: cpu_seconds(pid)?, cpu: scheduled_seconds(pid)?, perf: perf.ok() })
    }

    pub(super) fn stop(self) -> Result<ServerCost, BenchError> {
        let cpu_s = scheduled_seconds(self.pid)? - self.cpu;
        let (user, system) = cpu_seconds(self.pid)?;
        let (user, system) = (user - self.ticks.0, system - self.ticks.1);
        let user_share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
        let mut cost = ServerCost { cpu_s, user_share, ..ServerCost::default() };
        match self.perf {
            None => cost.no_instructions_because = Some("perf is not installed".to_owned()),
            Some(child) => match instructions(child) {
                Ok((user, kernel)) => {
                    (cost.user_instructions, cost.kernel_instructions) = (Some(user), Some(kernel));
                }
                Err(reason) => cost.no_instructions_because = Some(reason),
            },
        }
        Ok(cost)
    }
}

fn instructions(child: Child) -> Result<(u64, u64), String> {
    if let Some(pid) = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)) {
        // perf prints its counts when interrupted. If it has gone already, its output says why.
        let _ = rustix::process::kill_process(pid, Signal::INT);
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    parse_perf(&text).ok_or_else(|| match text.contains("<not supported>") {
        true => "this machine has no instruction counter (perf stat: not supported)".to_owned(),
        false => format!("perf stat: {}", text.trim()),
    })
}

fn parse_perf(text: &str) -> Option<(u64, u64)> {
    let count = |event: &str| {
        let line = text.lines().find(|line| line.contains(event))?;
        line.split(',').next()?.parse::<u64>().ok()
    };
    count("instructions:u").zip(count("instructions:k"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_measured() {
        let pid = std::process::id();
        assert!(resident_bytes(pid).unwrap() > 100_000);
        let (user, system) = cpu_seconds(pid).unwrap();
        assert!(user + system < 1e6);
        assert!(cpu_seconds(u32::MAX).is_err());
    }

    #[test]
    fn perf_output_is_read() {
        let text = "1200,,instructions:u,100,100.00,,\n34,,instructions:k,100,100.00,,\n";
        assert_eq!(parse_perf(text), Some((1200, 34)));
        assert_eq!(parse_perf("<not supported>,,instructions:u,0,100.00,,\n"), None);
    }
}
