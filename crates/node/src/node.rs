//! A running node.

use yb_client::{Client, Error, Health, MetricsSnapshot};
use yb_daemon::{Daemon, StartError};

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
    /// It could not open its doors to dummy clients.
    #[error(transparent)]
    Daemon(#[from] StartError),
}

/// A node that has joined the pool; it leaves when stopped or dropped.
#[derive(Debug)]
pub struct Node {
    /// Ends first: its calls use the client.
    daemon: Option<Daemon>,
    client: Client,
}

impl Node {
    /// Makes the memory, listens, and joins the pool.
    ///
    /// # Errors
    /// [`NodeError`]; nothing is left behind.
    pub fn start(config: &NodeConfig) -> Result<Node, NodeError> {
        let daemon = config.daemon()?;
        let client = Client::connect(config.client()?)?;
        let daemon = daemon.map(|settings| Daemon::start(&settings, client.clone())).transpose()?;
        Ok(Node { daemon, client })
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

    /// Leaves the pool.
    pub fn stop(self) {
        drop(self.daemon);
        self.client.close();
    }
}
