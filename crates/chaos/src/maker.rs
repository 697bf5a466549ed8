//! Whose processes a pool is made of: ours, or those of the peer's wheel.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::Process;
use crate::workload::Workload;

/// Where the programs are.
#[derive(Clone, Debug)]
pub enum Maker {
    /// `yuebing`; clients are this very program, called with `client` and a [`Workload`] as JSON.
    Ours(PathBuf),
    /// A virtual environment with the peer's wheel, and the script that is its client.
    Peer {
        /// Its folder.
        venv: PathBuf,
        /// `history_client.py`.
        script: PathBuf,
    },
}

/// Ports of a master.
#[derive(Clone, Copy, Debug)]
pub struct MasterPlace {
    /// For requests.
    pub rpc: u16,
    /// For HTTP.
    pub admin: u16,
}

/// A process that lends memory.
#[derive(Clone, Debug)]
pub struct NodePlace {
    /// Its port; of ours also the port of its name.
    pub port: u16,
    /// Where it reaches the master.
    pub master: String,
    /// Memory.
    pub mib: u32,
    /// Flags of ours only.
    pub own_flags: Vec<String>,
}

impl Maker {
    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Maker::Ours(_) => "ours",
            Maker::Peer { .. } => "the peer",
        }
    }

    /// Starts a master; what it says goes to a file.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn master(&self, place: MasterPlace, flags: &[String], log: &Path) -> io::Result<Process> {
        let mut command = self.program("master", "mooncake_master");
        command
            .arg("--rpc_address=127.0.0.1")
            .args([format!("--rpc_port={}", place.rpc), format!("--metrics_port={}", place.admin)]);
        if matches!(self, Maker::Ours(_)) {
            command.arg("--metrics_host=127.0.0.1");
        }
        self.start(command.args(flags), log)
    }

    /// Starts a node.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn node(&self, place: &NodePlace, log: &Path) -> io::Result<Process> {
        let mut command = self.program("node", "mooncake_client");
        command.args(["--metadata_server=P2PHANDSHAKE", "--protocol=tcp"]).args([
            format!("--port={}", place.port),
            format!("--master_server_address={}", place.master),
            format!("--global_segment_size={} MB", place.mib),
        ]);
        if matches!(self, Maker::Ours(_)) {
            command.args(&place.own_flags);
        } else {
            command.arg("--host=127.0.0.1");
        }
        self.start(&mut command, log)
    }

    /// Starts a client that works until its time is over.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn client(&self, workload: &Workload, log: &Path) -> io::Result<Process> {
        let config = serde_json::to_string(workload)?;
        let mut command = match self {
            Maker::Ours(_) => Command::new(std::env::current_exe()?),
            Maker::Peer { venv, .. } => Command::new(venv.join("bin/python")),
        };
        match self {
            Maker::Ours(_) => command.arg("client"),
            Maker::Peer { script, .. } => command.arg(script),
        };
        self.start(command.arg(config), log)
    }

    fn program(&self, ours: &str, peers: &str) -> Command {
        match self {
            Maker::Ours(program) => {
                let mut command = Command::new(program);
                command.arg(ours);
                command
            }
            Maker::Peer { venv, .. } => Command::new(venv.join("bin").join(peers)),
        }
    }

    fn start(&self, command: &mut Command, log: &Path) -> io::Result<Process> {
        let log = File::options().create(true).append(true).open(log)?;
        for name in ["MOONCAKE_MASTER", "MOONCAKE_CONFIG_PATH", "YUEBING_ADMIN"] {
            command.env_remove(name);
        }
        command.env("PYTHONUNBUFFERED", "1").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        match self {
            Maker::Ours(_) => Process::start(command),
            Maker::Peer { .. } => Process::start_group(command),
        }
    }
}
