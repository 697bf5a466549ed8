//! A running node.

use std::time::Duration;

use yb_client::{Client, Departure, Error, Health, MetricsSnapshot, patiently};
use yb_daemon::{Daemon, Doors, StartError};

use crate::vigil::Vigil;
use crate::{ConfigError, NodeConfig};

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Its addresses do not work out.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It could not join the pool.
    #[error(transparent)]
    Client(#[from] Error),
    /// Nobody answered at the master's address for as long as it was to wait.
    #[error("no master answers at {master}: {reason}")]
    NoMaster {
        /// The address.
        master: String,
        /// What the last try met.
        reason: String,
    },
    /// It was told to end while it waited for its master. Nothing had begun.
    #[error("ended while it waited for the master")]
    Ended,
    /// It could not open its doors to dummy clients.
    #[error("{0}{advice}", advice = advice(.0))]
    Daemon(#[from] StartError),
}

/// What to do where the port is taken.
fn advice(error: &StartError) -> &'static str {
    let source = match error {
        StartError::SideChannel { source, .. } => source,
        StartError::Rpc(yb_rpc::StartError::Listen { source, .. }) => source,
        StartError::Rpc(_) => return "",
    };
    match source.kind() {
        std::io::ErrorKind::AddrInUse => "; another node has it: give this one another --port (0: any free one)",
        std::io::ErrorKind::PermissionDenied => "; give another --port (0: any free one)",
        _ => "",
    }
}

/// The ports at which dummy clients call. The port is part of the node's name: without it, the name may be that of a node
/// that is well.
fn open_doors(config: &NodeConfig) -> Result<Option<Doors>, NodeError> {
    let open = |settings| {
        // Who comes after a process that was killed finds its port in use until its memory is freed.
        if config.segment_file.is_empty() { Doors::open(&settings) } else { patiently(|| Doors::open(&settings)) }
    };
    Ok(config.daemon()?.map(open).transpose()?)
}

/// A node that has joined the pool; it leaves when stopped or dropped.
#[derive(Debug)]
pub struct Node {
    /// Ends first: its calls use the client.
    daemon: Option<Daemon>,
    client: Client,
    drain: Duration,
}

impl Node {
    /// Waits for the master as long as `config` says and `goes_on` does not say no, makes the memory, listens, and joins
    /// the pool.
    ///
    /// # Errors
    /// [`NodeError`]; nothing is left behind.
    pub fn start(config: &NodeConfig, mut goes_on: impl FnMut() -> bool) -> Result<Node, NodeError> {
        // What cannot work, or a port that is taken, is told now, not when the master has come.
        config.client()?.check(None)?;
        drop(open_doors(config)?);
        let mut vigil = Vigil::begin(config);
        loop {
            vigil.keep(&mut goes_on)?;
            // Who calls while nobody serves is refused, and does not wait for an answer: the doors were shut meanwhile.
            let doors = open_doors(config)?;
            let client = match Client::connect(config.client()?) {
                // It went again.
                Err(Error::MasterUnreachable(failure)) if !failure.refused && !vigil.is_over() => continue,
                client => client?,
            };
            let daemon = doors.map(|doors| doors.serve(client.clone())).transpose()?;
            return Ok(Node { daemon, client, drain: config.drain });
        }
    }

    /// The daemon that serves dummy clients, if there is one.
    pub fn daemon(&self) -> Option<&Daemon> {
        self.daemon.as_ref()
    }

    /// Its name, `host:port`: the name of its segment.
    pub fn name(&self) -> &str {
        self.client.hostname()
    }

    /// `host:port` at which peers reach its memory.
    pub fn endpoint(&self) -> &str {
        self.client.endpoint().unwrap_or_default()
    }

    /// Bytes lent.
    pub fn lent_bytes(&self) -> u64 {
        self.client.lent_bytes()
    }

    /// Whether the master answers its pings.
    pub fn health(&self) -> Health {
        self.client.health()
    }

    /// What was counted.
    pub fn metrics(&self) -> MetricsSnapshot {
        self.client.metrics()
    }

    /// Has what the node holds moved to others, as far as its setting and `goes_on` allow. Nothing more is put here from
    /// then on: to be followed by [`Node::stop`].
    pub fn drain(&self, goes_on: impl FnMut() -> bool) {
        if self.drain.is_zero() {
            return;
        }
        match self.client.drain(self.drain, goes_on) {
            Ok(Departure { moved_objects, moved_bytes, left_objects, message, .. }) => {
                if left_objects > 0 {
                    tracing::warn!(
                        moved_objects,
                        moved_bytes,
                        left_objects,
                        message,
                        "not all was moved to other nodes: what is left goes with this node, unless there are copies"
                    );
                } else {
                    tracing::info!(moved_objects, moved_bytes, "what this node held was moved");
                }
            }
            Err(error) => tracing::warn!(%error, "nothing more is moved to other nodes"),
        }
    }

    /// Leaves the pool.
    pub fn stop(self) {
        drop(self.daemon);
        self.client.close();
    }
}
