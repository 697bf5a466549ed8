//! What an operator says about the topology.

use std::path::PathBuf;

use crate::matrix::{Matrix, MatrixError};
use crate::topology::Topology;

/// Where a matrix comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Read from the host.
    Discovered,
    /// Read from this file.
    Custom(PathBuf),
}

/// A matrix in a file instead of the host's, and an allow-list of NICs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// File with a priority matrix (`MC_CUSTOM_TOPO_JSON`).
    pub custom: Option<PathBuf>,
    /// Names of the NICs that may be used (`MC_TE_FILTERS`, comma separated); empty = all.
    pub filters: Vec<String>,
}

impl Choice {
    /// From the peer's environment variables.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let custom = lookup("MC_CUSTOM_TOPO_JSON").filter(|path| !path.is_empty()).map(PathBuf::from);
        Choice { custom, filters: Choice::split(&lookup("MC_TE_FILTERS").unwrap_or_default()) }
    }

    /// Names separated by commas; blanks around them and empty ones do not count.
    pub fn split(list: &str) -> Vec<String> {
        list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// Whether a NIC may be used.
    pub fn allows(&self, nic: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|name| name == nic)
    }

    /// The matrix to use. A file that cannot be read is reported, and the host's own is used then.
    ///
    /// # Errors
    /// When the file's text is not a matrix.
    pub fn matrix(&self, topology: &Topology) -> Result<(Matrix, Origin), MatrixError> {
        let text = self.custom.as_ref().and_then(|path| match std::fs::read_to_string(path) {
            Ok(text) => Some((path.clone(), text)),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the topology file cannot be read; the host's own is used");
                None
            }
        });
        let (mut matrix, origin) = match text {
            Some((path, text)) => (Matrix::parse(&text)?, Origin::Custom(path)),
            None => (topology.matrix(), Origin::Discovered),
        };
        matrix.retain(|nic| self.allows(nic));
        Ok((matrix, origin))
    }
}
