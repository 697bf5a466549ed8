//! What another process of this machine has used so far.

use std::fs;
use std::io;
use std::time::Duration;

/// A process whose use is read from `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerProcess(pub u32);

/// Use of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time on a core, all threads, user and kernel together.
    pub cpu: Duration,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
}

impl ServerProcess {
    /// The use until now. CPU time comes from the scheduler's own account of each thread, in nanoseconds; threads that
    /// have ended since are missing, so servers with a fixed set of threads are measured best.
    ///
    /// # Errors
    /// If there is no such process, or it belongs to somebody else.
    pub fn usage(self) -> io::Result<Usage> {
        let mut cpu_ns = 0u64;
        for task in fs::read_dir(format!("/proc/{}/task", self.0))? {
            // A thread may end between the listing and the reading.
            if let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) {
                cpu_ns += first_number(&text);
            }
        }
        Ok(Usage { cpu: Duration::from_nanos(cpu_ns), resident_bytes: self.resident()? })
    }

    /// Time on a core of all threads that ever ran in it, in the kernel's ticks of 10 ms.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn cpu(self) -> io::Result<Duration> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0))?;
        // The name may hold anything; what follows its closing bracket is numbers, of which user and kernel time are
        // the 12th and 13th.
        let after = text.rsplit_once(')').map(|(_, after)| after).unwrap_or_default();
        let ticks: u64 = after.split_whitespace().skip(11).take(2).map(first_number).sum();
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    fn resident(self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or("0");
        Ok(first_number(line) * 1024)
    }
}

fn first_number(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_time_and_memory_is_seen() {
        let me = ServerProcess(std::process::id());
        let before = me.usage().unwrap();
        // Far more than the other tests of this process can give back meanwhile.
        let memory = vec![1u8; 256 << 20];
        let sum: u64 = memory[..8 << 20].iter().copied().map(u64::from).sum();
        std::hint::black_box((&memory, sum));
        let after = me.usage().unwrap();
        assert!(after.cpu > before.cpu, "{before:?} {after:?}");
        assert!(me.cpu().unwrap() > Duration::ZERO);
        assert!(after.resident_bytes > before.resident_bytes + (128 << 20), "{before:?} {after:?}");
        drop(memory);
    }

    #[test]
    fn nobody_is_an_error() {
        assert!(ServerProcess(u32::MAX - 5).usage().is_err());
        assert!(ServerProcess(u32::MAX - 5).cpu().is_err());
    }
}
