//! Which NICs an engine has and which it takes: the report that the peer calls `showLinks`.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

use crate::matrix::Matrix;
use crate::topology::Nic;

/// A NIC in the report. The fields have the peer's names and order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LocalNic {
    /// Such as `mlx5_0`.
    pub device: String,
    /// Address in use; empty when it is not in use.
    pub gid: String,
    /// Its place in the port's table; -1 when it is not in use.
    pub gid_index: i32,
    /// NUMA node; -1 when nobody knows.
    pub numa: i32,
    /// Port in use; 0 for none.
    pub port: u32,
    /// `rdma_transport` when the NIC is in use, `topology` when it is only known.
    pub source: &'static str,
    /// Speed of the port.
    pub speed_gbps: u32,
}

impl LocalNic {
    /// A NIC that is known, but not in use.
    pub fn known(nic: &Nic) -> Self {
        LocalNic {
            device: nic.name.clone(),
            gid: String::new(),
            gid_index: -1,
            numa: nic.numa.and_then(|node| i32::try_from(node).ok()).unwrap_or(-1),
            port: nic.active_port().map_or(0, |port| port.number),
            source: "topology",
            speed_gbps: nic.speed().0,
        }
    }
}

/// The whole report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkReport {
    /// NICs, in natural order.
    pub nics: Vec<LocalNic>,
    /// Which NIC serves which memory first.
    pub matrix: Matrix,
}

impl LinkReport {
    /// For programs: the peer's JSON, indented with two spaces.
    pub fn to_json(&self) -> String {
        let report = json!({"local_nics": self.nics, "topology": self.matrix.to_json()});
        serde_json::to_string_pretty(&report).unwrap_or_default()
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut text = String::from("Local NICs\n");
        if self.nics.is_empty() {
            text.push_str("  none\n");
        }
        for nic in &self.nics {
            let _ = write!(text, "  {}: numa {}, port {}, {} Gb/s", nic.device, nic.numa, nic.port, nic.speed_gbps);
            let _ = match nic.gid.as_str() {
                "" => writeln!(text, ", not in use"),
                gid => writeln!(text, ", gid {gid} (index {})", nic.gid_index),
            };
        }
        text.push_str("Topology (NIC Selection)\n");
        for (location, row) in &self.matrix.0 {
            let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let _ = writeln!(text, "  {location}: {}; then {}", list(&row.preferred), list(&row.others));
        }
        text
    }
}
