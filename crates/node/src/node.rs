//! A running node.

use yb_client::{Client, Error, Health, MetricsSnapshot};

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
}

/// A node that has joined the pool; it leaves when stopped or dropped.
#[derive(Debug)]
pub struct Node {
    client: Client,
}

impl Node {
    /// Makes the memory, listens, and joins the pool.
    ///
    /// # Errors
    /// [`NodeError`]; nothing is left behind.
    pub fn start(config: &NodeConfig) -> Result<Node, NodeError> {
        Ok(Node { client: Client::connect(config.client()?)? })
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
        self.client.close();
    }
}
