//! What a host has, and what follows for the choice of NICs.

use crate::matrix::{Matrix, Preference};
use crate::natural;
use crate::pci::PciPath;

/// Distance of memory to a NIC on its own node, as the kernel counts it.
const LOCAL: u32 = 10;
/// Distance where nothing is known.
const FAR: u32 = 20;

/// A node of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// The kernel's number.
    pub number: u32,
    /// Distances to the host's nodes, in the order of their numbers; 10 is the node itself.
    pub distances: Vec<u32>,
}

/// What runs on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// RoCE.
    Ethernet,
    /// InfiniBand proper.
    InfiniBand,
    /// Something else.
    Other,
}

/// Speed of a link in gigabits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkSpeed(pub u32);

impl LinkSpeed {
    /// From the numbers that verbs use for the rate of a lane and the count of lanes; 0 for numbers without a meaning.
    pub fn from_verbs(active_speed: u32, active_width: u32) -> Self {
        let lane = match active_speed {
            1 => 2,
            2 => 5,
            4 | 8 => 10,
            16 => 14,
            32 => 25,
            64 => 50,
            128 => 100,
            256 => 200,
            _ => 0,
        };
        let lanes = match active_width {
            1 => 1,
            2 => 4,
            4 => 8,
            8 => 12,
            16 => 2,
            _ => 0,
        };
        LinkSpeed(lane * lanes)
    }

    /// From the text of sysfs, such as `100 Gb/sec (4X EDR)` or `2.5 Gb/sec (1X SDR)`. Rounded down.
    pub fn from_rate(text: &str) -> Option<Self> {
        let (number, unit) = text.trim().split_once(' ')?;
        let whole = number.split('.').next()?.parse().ok()?;
        unit.starts_with("Gb/sec").then_some(LinkSpeed(whole))
    }

    /// Bytes per second that the link carries at most.
    pub fn bytes_per_second(self) -> u64 {
        u64::from(self.0) * 125_000_000
    }
}

/// What kind of address a GID is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand or RoCE v1.
    V1,
    /// RoCE v2 (UDP).
    V2,
}

/// One entry of a port's table of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Place in the table.
    pub index: u32,
    /// 16 bytes in hex; pairs of bytes joined by `:`.
    pub text: String,
    /// Its kind, where the kernel tells.
    pub kind: Option<GidKind>,
    /// Network interface behind it.
    pub netdev: Option<String>,
}

/// A port of a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Counted from 1.
    pub number: u32,
    /// The link is up and carries data.
    pub active: bool,
    /// What runs on it.
    pub layer: LinkLayer,
    /// How fast.
    pub speed: LinkSpeed,
    /// Its addresses, without empty entries.
    pub gids: Vec<Gid>,
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Such as `mlx5_0`.
    pub name: String,
    /// Place in the PCI tree; software devices have none.
    pub pci: Option<PciPath>,
    /// NUMA node, where the kernel tells.
    pub numa: Option<u32>,
    /// Network interfaces of it, in natural order.
    pub netdevs: Vec<String>,
    /// Its ports.
    pub ports: Vec<Port>,
    /// A process here can open it: its character device is there.
    pub accessible: bool,
}

impl Nic {
    /// It can carry data: accessible, with an active port that has an address.
    pub fn is_usable(&self) -> bool {
        self.accessible && self.active_port().is_some()
    }

    /// The fastest active port with an address.
    pub fn active_port(&self) -> Option<&Port> {
        let ports = self.ports.iter().filter(|port| port.active && !port.gids.is_empty());
        ports.max_by_key(|port| (port.speed, std::cmp::Reverse(port.number)))
    }

    /// Speed of that port; 0 without one.
    pub fn speed(&self) -> LinkSpeed {
        self.active_port().map(|port| port.speed).unwrap_or_default()
    }
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Number in `cuda:N`, in the order of bus addresses.
    pub index: u32,
    /// Place in the PCI tree.
    pub pci: PciPath,
    /// NUMA node, where the kernel tells.
    pub numa: Option<u32>,
}

/// What a host has. Lists are ordered: nodes and GPUs by number, NICs naturally by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    pub(crate) nodes: Vec<NumaNode>,
    pub(crate) nics: Vec<Nic>,
    pub(crate) gpus: Vec<Gpu>,
}

impl Topology {
    /// Nodes of memory.
    pub fn nodes(&self) -> &[NumaNode] {
        &self.nodes
    }

    /// RDMA devices, also those that cannot be used now.
    pub fn nics(&self) -> &[Nic] {
        &self.nics
    }

    /// GPUs.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// The device of that name.
    pub fn nic(&self, name: &str) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.name == name)
    }

    /// Numbers the GPUs in the order of these bus addresses, as a driver does that hides or reorders some; GPUs that
    /// are not named are left out.
    pub fn order_gpus(&mut self, addresses: &[&str]) {
        let known = std::mem::take(&mut self.gpus);
        let named = addresses
            .iter()
            .filter_map(|address| known.iter().find(|gpu| gpu.pci.address().eq_ignore_ascii_case(address)).cloned());
        self.gpus = named.zip(0..).map(|(gpu, index)| Gpu { index, ..gpu }).collect();
    }

    /// The priority matrix of the usable NICs. A NIC is near a node that it belongs to, and near a GPU when no other
    /// NIC of the GPU's node (of any node, if the node has none) is nearer in the PCI tree.
    pub fn matrix(&self) -> Matrix {
        let usable: Vec<&Nic> = self.nics.iter().filter(|nic| nic.is_usable()).collect();
        let nodes = self.nodes.iter().map(|node| {
            let near = |nic: &Nic| nic.numa == Some(node.number);
            (format!("cpu:{}", node.number), divide(&usable, near))
        });
        let gpus = self.gpus.iter().map(|gpu| {
            let best = nearest(gpu, &usable);
            (format!("cuda:{}", gpu.index), divide(&usable, |nic| best.contains(&nic.name.as_str())))
        });
        Matrix(nodes.chain(gpus).collect())
    }

    /// How far a NIC is from memory at `location` (`cpu:N` or `cuda:N`): below 10 under one root complex, 10 on one
    /// node, else as the kernel counts between nodes, and 20 where it tells nothing. `None` for an unknown NIC or
    /// location.
    pub fn distance(&self, location: &str, nic: &str) -> Option<u32> {
        let nic = self.nic(nic)?;
        let (kind, number) = location.split_once(':')?;
        let number: u32 = number.parse().ok()?;
        if kind == "cpu" {
            return self.nodes.iter().any(|node| node.number == number).then(|| self.between(Some(number), nic.numa));
        }
        let gpu = self.gpus.iter().find(|gpu| gpu.index == number)?;
        match &nic.pci {
            Some(pci) if pci.shares_root(&gpu.pci) => Some(pci.distance(&gpu.pci).min(LOCAL - 1)),
            _ => Some(self.between(gpu.numa, nic.numa)),
        }
    }

    fn between(&self, from: Option<u32>, to: Option<u32>) -> u32 {
        let (Some(from), Some(to)) = (from, to) else { return FAR };
        if from == to {
            return LOCAL;
        }
        let place = self.nodes.iter().position(|node| node.number == to);
        let node = self.nodes.iter().find(|node| node.number == from);
        node.zip(place).and_then(|(node, place)| node.distances.get(place).copied()).unwrap_or(FAR)
    }

    pub(crate) fn sort(&mut self) {
        self.nodes.sort_by_key(|node| node.number);
        self.nics.sort_by(|a, b| natural::compare(&a.name, &b.name));
        self.gpus.sort_by_key(|gpu| gpu.index);
    }
}

fn divide(nics: &[&Nic], near: impl Fn(&Nic) -> bool) -> Preference {
    let (preferred, others): (Vec<&Nic>, Vec<&Nic>) = nics.iter().copied().partition(|nic| near(nic));
    let names = |nics: Vec<&Nic>| nics.into_iter().map(|nic| nic.name.clone()).collect();
    Preference { preferred: names(preferred), others: names(others) }
}

fn nearest<'a>(gpu: &Gpu, nics: &[&'a Nic]) -> Vec<&'a str> {
    let far = u32::MAX;
    let distance = |nic: &Nic| nic.pci.as_ref().map_or(far, |pci| pci.distance(&gpu.pci));
    let same_node: Vec<&Nic> = nics.iter().copied().filter(|nic| nic.numa == gpu.numa).collect();
    let candidates = if same_node.is_empty() { nics.to_vec() } else { same_node };
    let best = candidates.iter().map(|nic| distance(nic)).min();
    candidates.into_iter().filter(|nic| Some(distance(nic)) == best).map(|nic| nic.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_lane_rate_times_lanes() {
        assert_eq!(LinkSpeed::from_verbs(32, 2), LinkSpeed(100));
        assert_eq!(LinkSpeed::from_verbs(128, 2), LinkSpeed(400));
        assert_eq!(LinkSpeed::from_verbs(1, 1), LinkSpeed(2));
        assert_eq!(LinkSpeed::from_verbs(3, 2), LinkSpeed(0));
        assert_eq!(LinkSpeed::from_rate("200 Gb/sec (4X HDR)\n"), Some(LinkSpeed(200)));
        assert_eq!(LinkSpeed::from_rate("2.5 Gb/sec (1X SDR)"), Some(LinkSpeed(2)));
        assert_eq!(LinkSpeed::from_rate("unknown"), None);
        assert_eq!(LinkSpeed(100).bytes_per_second(), 12_500_000_000);
    }
}
