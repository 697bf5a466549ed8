//! Reads the topology from sysfs. Whatever cannot be read is as if it were not there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::natural;
use crate::pci::PciPath;
use crate::topology::{Gid, GidKind, Gpu, LinkLayer, LinkSpeed, Nic, NumaNode, Port, Topology};

const NVIDIA: &str = "0x10de";
const DISPLAY_CLASSES: [&str; 2] = ["0x0300", "0x0302"];
const EMPTY_GID: &str = "0000:0000:0000:0000:0000:0000:0000:0000";
/// More entries than any table has.
const MAX_GIDS: u32 = 1024;

impl Topology {
    /// Reads this host's.
    pub fn discover() -> Self {
        Topology::from_sysfs(Path::new("/sys"))
    }

    /// Reads a tree that looks like `/sys`; character devices are looked for in `dev` beside it.
    pub fn from_sysfs(root: &Path) -> Self {
        let tree = Tree { sys: root, dev: root.parent().unwrap_or(root).join("dev") };
        let mut topology = Topology { nodes: tree.nodes(), nics: tree.nics(), gpus: tree.gpus() };
        if topology.nodes.is_empty() {
            // A kernel without NUMA has one kind of memory.
            topology.nodes.push(NumaNode { number: 0, distances: vec![10] });
        }
        topology.sort();
        topology
    }
}

struct Tree<'a> {
    sys: &'a Path,
    dev: PathBuf,
}

fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Names in a folder, in natural order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_by(|a, b| natural::compare(a, b));
    names
}

/// The kernel says -1 where it does not know.
fn numa(device: &Path) -> Option<u32> {
    line(&device.join("numa_node"))?.parse().ok()
}

impl Tree<'_> {
    fn nodes(&self) -> Vec<NumaNode> {
        let folder = self.sys.join("devices/system/node");
        let numbers = names(&folder).into_iter().filter_map(|name| name.strip_prefix("node")?.parse().ok());
        let distances = |number: u32| line(&folder.join(format!("node{number}/distance"))).unwrap_or_default();
        let nodes = numbers.map(|number| NumaNode {
            number,
            distances: distances(number).split_whitespace().filter_map(|distance| distance.parse().ok()).collect(),
        });
        nodes.collect()
    }

    fn pci(&self, device: &Path) -> Option<PciPath> {
        let devices = fs::canonicalize(self.sys.join("devices")).ok()?;
        PciPath::new(fs::canonicalize(device).ok()?.strip_prefix(devices).ok()?)
    }

    fn nics(&self) -> Vec<Nic> {
        let class = self.sys.join("class/infiniband");
        names(&class).into_iter().map(|name| self.nic(&class.join(&name), name)).collect()
    }

    fn nic(&self, folder: &Path, name: String) -> Nic {
        let device = folder.join("device");
        let ports = names(&folder.join("ports")).into_iter().filter_map(|number| {
            let number = number.parse().ok()?;
            Some(port(&folder.join(format!("ports/{number}")), number))
        });
        let ports: Vec<Port> = ports.collect();
        let mut netdevs = names(&device.join("net"));
        netdevs.extend(line(&folder.join("parent")));
        netdevs.extend(ports.iter().flat_map(|port| &port.gids).filter_map(|gid| gid.netdev.clone()));
        netdevs.sort_by(|a, b| natural::compare(a, b));
        netdevs.dedup();
        Nic {
            pci: self.pci(&device),
            numa: numa(&device),
            accessible: self.verbs(&name).is_some_and(|node| self.dev.join("infiniband").join(node).exists()),
            name,
            netdevs,
            ports,
        }
    }

    /// Name of the character device of a NIC, such as `uverbs0`.
    fn verbs(&self, nic: &str) -> Option<String> {
        let class = self.sys.join("class/infiniband_verbs");
        names(&class).into_iter().find(|node| line(&class.join(node).join("ibdev")).as_deref() == Some(nic))
    }

    fn gpus(&self) -> Vec<Gpu> {
        let bus = self.sys.join("bus/pci/devices");
        let devices = names(&bus).into_iter().map(|address| bus.join(address)).filter(|device| is_gpu(device));
        let mut found: Vec<(PciPath, Option<u32>)> =
            devices.filter_map(|device| Some((self.pci(&device)?, numa(&device)))).collect();
        found.sort_by(|(a, _), (b, _)| a.address().cmp(b.address()));
        found.into_iter().zip(0..).map(|((pci, numa), index)| Gpu { index, pci, numa }).collect()
    }
}

fn is_gpu(device: &Path) -> bool {
    let class = line(&device.join("class")).unwrap_or_default();
    line(&device.join("vendor")).as_deref() == Some(NVIDIA) && DISPLAY_CLASSES.iter().any(|c| class.starts_with(c))
}

fn port(folder: &Path, number: u32) -> Port {
    Port {
        number,
        active: line(&folder.join("state")).is_some_and(|state| state.starts_with("4:")),
        layer: match line(&folder.join("link_layer")).as_deref() {
            Some("Ethernet") => LinkLayer::Ethernet,
            Some("InfiniBand") => LinkLayer::InfiniBand,
            _ => LinkLayer::Other,
        },
        speed: line(&folder.join("rate")).and_then(|rate| LinkSpeed::from_rate(&rate)).unwrap_or_default(),
        gids: (0..MAX_GIDS).map_while(|index| gid(folder, index)).flatten().collect(),
    }
}

/// `None` behind the end of the table, `Some(None)` for an empty place in it.
fn gid(folder: &Path, index: u32) -> Option<Option<Gid>> {
    let path = folder.join(format!("gids/{index}"));
    // A place that a driver keeps empty may refuse to be read.
    let Ok(text) = fs::read_to_string(&path) else { return path.exists().then_some(None) };
    let text = text.trim().to_owned();
    if text.is_empty() || text == EMPTY_GID {
        return Some(None);
    }
    let kind = match line(&folder.join(format!("gid_attrs/types/{index}"))).as_deref() {
        Some("RoCE v2") => Some(GidKind::V2),
        Some(_) => Some(GidKind::V1),
        None => None,
    };
    Some(Some(Gid { index, text, kind, netdev: line(&folder.join(format!("gid_attrs/ndevs/{index}"))) }))
}
