//! An embedded pool: one master and some nodes on this machine, as child processes of this command.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use yb_env::Clock;
use yb_types::MonotonicTime;

use crate::failure::{Exit, Failure, Outcome};
use crate::signals::Signals;
use crate::supervise::{self, Event, Member};
use crate::{admin, http};

/// How long a process may take until it answers.
const START: Duration = Duration::from_secs(30);
/// Between two looks at a process that is starting.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A free port may be taken by somebody else before the child listens on it.
const PORT_ATTEMPTS: usize = 3;
/// The smallest segment that a node can lend.
const MIN_SEGMENT_BYTES: u64 = 16 << 20;

/// What pool is wanted.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Number of nodes, at least 1.
    pub nodes: usize,
    /// Memory of all nodes together, in bytes.
    pub memory_bytes: u64,
    /// Port of the master, or any free one.
    pub port: Option<u16>,
    /// Admin port of the master, or any free one.
    pub admin_port: Option<u16>,
    /// Further flags of the master.
    pub master_flags: Vec<OsString>,
}

/// Flags that a pool sets by itself; another value would lead its nodes to nobody.
const OWN_FLAGS: &[(&str, &str)] = &[
    ("rpc_address", "the pool is on this machine only"),
    ("rpc_port", "use --port"),
    ("port", "use --port before the --"),
    ("metrics_host", "the pool is on this machine only"),
    ("metrics_port", "use --admin-port"),
];

impl PoolOptions {
    /// Refuses flags of the master that the pool sets by itself.
    fn check(&self) -> Outcome {
        for flag in self.master_flags.iter().filter_map(|flag| flag.to_str()) {
            let name = flag.trim_start_matches('-').split('=').next().unwrap_or_default();
            let own = OWN_FLAGS.iter().find(|(own, _)| flag.starts_with('-') && *own == name);
            if let Some((name, instead)) = own {
                return Err(Failure::usage(format!("--{name} is set by `up` itself: {instead}")));
            }
        }
        Ok(())
    }
}

/// A running pool. Dropping it ends its processes.
#[derive(Debug)]
pub struct EmbeddedPool {
    /// Address of the master, host:port.
    pub master: String,
    /// Address of its admin port, host:port.
    pub admin: String,
    /// Bytes that each node lends.
    pub node_bytes: u64,
    members: Vec<Member>,
    logs: Option<TempDir>,
}

impl EmbeddedPool {
    /// Starts the processes and waits until the master knows all nodes.
    ///
    /// # Errors
    /// If one of them does not come up, with the end of its log; if a signal arrives meanwhile.
    pub fn start(options: &PoolOptions, signals: &Signals) -> Outcome<EmbeddedPool> {
        options.check()?;
        let nodes = options.nodes.max(1);
        // Whole pages, so that the sizes add up to what was asked for and not more.
        let node_bytes = options.memory_bytes / nodes as u64 / 4096 * 4096;
        if node_bytes < MIN_SEGMENT_BYTES {
            let least = crate::size::bytes(MIN_SEGMENT_BYTES * nodes as u64);
            return Err(Failure::usage(format!("{nodes} nodes need at least --memory {least}")));
        }
        let logs = tempfile::Builder::new()
            .prefix("yuebing-")
            .tempdir()
            .map_err(|e| Failure::failed(format!("cannot make a directory for the logs: {e}")))?;
        let mut pool = EmbeddedPool {
            master: String::new(),
            admin: String::new(),
            node_bytes,
            members: Vec::new(),
            logs: Some(logs),
        };
        pool.start_master(options, signals)?;
        for number in 1..=nodes {
            pool.start_node(number)?;
        }
        pool.wait_until(signals, "all nodes are mounted", |pool| {
            Ok(admin::segment_names(&pool.admin).is_ok_and(|names| names.len() >= nodes))
        })?;
        Ok(pool)
    }

    /// Names and process numbers, the master first.
    pub fn members(&self) -> impl Iterator<Item = (&str, u32)> {
        self.members.iter().map(|m| (m.name.as_str(), m.pid()))
    }

    /// Waits until a signal arrives.
    ///
    /// # Errors
    /// If a process of the pool ends first.
    pub fn run(&mut self, signals: &Signals) -> Outcome {
        match supervise::wait(&mut self.members, signals, None)? {
            Event::Ended(index) => Err(self.death(index)),
            Event::Signal | Event::Timeout => Ok(()),
        }
    }

    /// An error if one of the processes has ended.
    pub fn check(&mut self) -> Outcome {
        match self.members.iter_mut().position(|m| m.ended().is_some()) {
            Some(index) => Err(self.death(index)),
            None => Ok(()),
        }
    }

    /// Ends the processes: nodes first, so that they can say goodbye.
    ///
    /// # Errors
    /// If one had to be killed.
    pub fn stop(mut self) -> Outcome {
        match supervise::end(&mut self.members).as_slice() {
            [] => Ok(()),
            killed => Err(Failure::failed(format!("did not leave in time and was killed: {}", killed.join(", ")))),
        }
    }

    fn start_master(&mut self, options: &PoolOptions, signals: &Signals) -> Outcome {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let port = options.port.map_or_else(free_port, Ok)?;
            let admin_port = options.admin_port.map_or_else(free_port, Ok)?;
            self.master = format!("127.0.0.1:{port}");
            self.admin = format!("127.0.0.1:{admin_port}");
            let own = [
                "master".to_owned(),
                "--rpc_address=127.0.0.1".to_owned(),
                format!("--rpc_port={port}"),
                "--metrics_host=127.0.0.1".to_owned(),
                format!("--metrics_port={admin_port}"),
            ];
            let arguments: Vec<OsString> =
                own.into_iter().map(OsString::from).chain(options.master_flags.iter().cloned()).collect();
            self.members.clear();
            self.spawn("master", &arguments)?;
            let up = self.wait_until(signals, "the master answers", |pool| {
                Ok(http::get(&pool.admin, "/health").is_ok_and(|answer| answer.status == 200))
            });
            match up {
                Err(error) if attempt < PORT_ATTEMPTS && error.exit == Exit::Failed && self.master_ended() => continue,
                other => return other,
            }
        }
    }

    fn master_ended(&mut self) -> bool {
        self.members.first_mut().is_some_and(|m| m.ended().is_some())
    }

    fn start_node(&mut self, number: usize) -> Outcome {
        let arguments = [
            "node".to_owned(),
            "--host=127.0.0.1".to_owned(),
            format!("--port={}", free_port()?),
            format!("--master_server_address={}", self.master),
            "--metadata_server=P2PHANDSHAKE".to_owned(),
            "--protocol=tcp".to_owned(),
            format!("--global_segment_size={}", self.node_bytes),
            // All nodes end together: there is nobody to take anything.
            "--drain_seconds=0".to_owned(),
        ];
        self.spawn(&format!("node {number}"), &arguments.map(OsString::from))
    }

    fn spawn(&mut self, name: &str, arguments: &[OsString]) -> Outcome {
        let log = self.log_path(name);
        let log = File::create(&log).map_err(|e| Failure::file(&log, &e))?;
        self.members.push(Member::start(name, arguments, Stdio::from(log))?);
        Ok(())
    }

    fn wait_until(
        &mut self,
        signals: &Signals,
        what: &str,
        mut done: impl FnMut(&EmbeddedPool) -> Outcome<bool>,
    ) -> Outcome {
        let clock = Clock::real();
        let deadline = clock.now() + START;
        while !done(self)? {
            let look: MonotonicTime = clock.now() + LOOK_AGAIN;
            match supervise::wait(&mut self.members, signals, Some(look.min(deadline)))? {
                Event::Ended(index) => return Err(self.death(index)),
                Event::Signal => {
                    return Err(Failure::new(Exit::Interrupted, "interrupted while the pool was starting"));
                }
                Event::Timeout if clock.now() >= deadline => {
                    let logs = self.keep_logs();
                    return Err(Failure::failed(format!("waited {START:?} until {what}, in vain; logs: {logs}")));
                }
                Event::Timeout => {}
            }
        }
        Ok(())
    }

    /// What to say about a member that ended by itself.
    fn death(&mut self, index: usize) -> Failure {
        let Some(member) = self.members.get_mut(index) else { return Failure::failed("a process ended") };
        let (name, pid) = (member.name.clone(), member.pid());
        let how = member.ended().map_or_else(String::new, how_it_ended);
        let tail = last_lines(&self.log_path(&name), 8);
        let logs = self.keep_logs();
        Failure::failed(format!("the {name} (pid {pid}) ended: {how}\n{tail}The logs are kept in {logs}"))
    }

    fn log_path(&self, name: &str) -> PathBuf {
        let directory = self.logs.as_ref().map_or_else(std::env::temp_dir, |d| d.path().to_owned());
        directory.join(format!("{}.log", name.replace(' ', "-")))
    }

    fn keep_logs(&mut self) -> String {
        let Some(logs) = &mut self.logs else { return String::new() };
        logs.disable_cleanup(true);
        logs.path().display().to_string()
    }
}

impl Drop for EmbeddedPool {
    fn drop(&mut self) {
        supervise::end(&mut self.members);
    }
}

fn how_it_ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

fn last_lines(path: &Path, count: usize) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(count)).map(|line| format!("  | {line}\n")).collect()
}

/// A port that nobody listens on now.
fn free_port() -> Outcome<u16> {
    yb_env::free_port().map_err(|e: io::Error| Failure::failed(format!("no free port: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_would_tear_the_pool_apart_are_refused() {
        let check = |flag: &str| {
            let master_flags = vec![OsString::from(flag)];
            PoolOptions { nodes: 1, memory_bytes: 0, port: None, admin_port: None, master_flags }.check()
        };
        for bad in ["--rpc_port=5", "-rpc_port", "--metrics_port", "--rpc_address=0.0.0.0"] {
            assert_eq!(check(bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
        for good in ["--eviction_ratio=0.1", "rpc_port", "--rpc_port_range=1"] {
            assert!(check(good).is_ok(), "{good}");
        }
    }
}
