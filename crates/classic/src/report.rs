//! What an engine tells about the host and its devices.

use std::path::Path;

use yb_topology::{Choice, LinkReport, LocalNic, Topology};

use crate::ClassicEngine;

/// Load of one RDMA device.
#[derive(Clone, Debug, PartialEq)]
pub struct NicLoad {
    /// Its name.
    pub device: String,
    /// Bytes handed to it and not confirmed.
    pub inflight_bytes: u64,
    /// What it moved in a second lately.
    pub bytes_per_second: f64,
}

/// What the operator and the caller allow of this host.
fn choice(filters: &[String]) -> Choice {
    let mut choice = Choice::from_env(|name| std::env::var(name).ok());
    if !filters.is_empty() {
        choice.filters = filters.to_vec();
    }
    choice
}

fn report(filters: &[String]) -> LinkReport {
    let topology = Topology::from_sysfs(Path::new("/sys"));
    let choice = choice(filters);
    let matrix = choice.matrix(&topology).map(|(matrix, _)| matrix).unwrap_or_else(|error| {
        tracing::warn!(%error, "the topology file is no matrix; the host's own is used");
        topology.matrix()
    });
    let nics = topology.nics().iter().filter(|nic| choice.allows(&nic.name)).map(LocalNic::known).collect();
    LinkReport { nics, matrix }
}

/// The priority matrix of this host as the peer prints it, with only the devices named (all, for no names). Needs no
/// engine.
pub fn topology_text(filters: &[String]) -> String {
    report(filters).matrix.to_text()
}

impl ClassicEngine {
    /// As [`topology_text`], with the devices that this engine may use.
    pub fn topology_text(&self) -> String {
        topology_text(&self.0.filters)
    }

    /// The devices of this host and which memory they serve: JSON for programs, or text for people.
    pub fn show_links(&self, json: bool) -> String {
        let mut report = report(&self.0.filters);
        for device in self.0.engine.rdma_devices() {
            let known = report.nics.iter_mut().find(|nic| nic.device == device.name);
            if let (Some(nic), Ok(gid)) = (known, device.gid) {
                (nic.gid, nic.gid_index, nic.source) = (gid.text, i32::from(gid.index), "rdma_transport");
            }
        }
        if json { report.to_json() } else { report.to_text() }
    }

    /// Load of each RDMA device in use. As with the peer's classic engine there is none: the engine keeps no account of
    /// single devices that would mean something to others.
    pub fn nic_loads(&self) -> Vec<NicLoad> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_a_matrix_with_its_memory() {
        let text = topology_text(&[]);
        assert!(text.starts_with("{\n") && text.ends_with("}\n") && text.contains("\"cpu:0\""), "{text}");
    }
}
