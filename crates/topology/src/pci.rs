//! Places of devices in the PCI tree.

use std::path::{Component, Path};

/// A device's folder below `/sys/devices`, such as `pci0000:00/0000:00:01.0/0000:01:00.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciPath(Vec<String>);

impl PciPath {
    /// From a path relative to `/sys/devices`. `None` when it is not in a PCI tree.
    pub fn new(below_devices: &Path) -> Option<Self> {
        let parts: Vec<String> = below_devices
            .components()
            .filter_map(|part| match part {
                Component::Normal(name) => name.to_str().map(str::to_owned),
                _ => None,
            })
            .collect();
        let root = parts.iter().position(|part| part.starts_with("pci"))?;
        let parts: Vec<String> = parts.into_iter().skip(root).collect();
        (parts.len() > 1).then_some(PciPath(parts))
    }

    /// The device's bus address, such as `0000:01:00.0`.
    pub fn address(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    /// Bridges and devices between the two, counted over the place where their ways from the root part: 0 for the same
    /// device, 2 for two behind one bridge.
    pub fn distance(&self, other: &PciPath) -> u32 {
        let common = self.0.iter().zip(&other.0).take_while(|(a, b)| a == b).count();
        (self.0.len() + other.0.len() - 2 * common) as u32
    }

    /// Whether both hang on one root complex.
    pub fn shares_root(&self, other: &PciPath) -> bool {
        self.0.first() == other.0.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_follow_the_tree() {
        let path = |text: &str| PciPath::new(Path::new(text)).unwrap();
        let nic = path("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0");
        let same_switch = path("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0");
        let same_root = path("pci0000:00/0000:00:02.0/0000:09:00.0");
        let elsewhere = path("pci0000:80/0000:80:01.0/0000:81:00.0");
        assert_eq!(nic.address(), "0000:03:00.0");
        let distances = [&nic, &same_switch, &same_root, &elsewhere].map(|other| nic.distance(other));
        assert_eq!(distances, [0, 4, 6, 8]);
        assert_eq!(nic.distance(&same_root), same_root.distance(&nic));
        assert!(nic.shares_root(&same_root) && !nic.shares_root(&elsewhere));
        assert_eq!(PciPath::new(Path::new("virtual/net/eth0")), None);
        assert_eq!(PciPath::new(Path::new("pci0000:00")), None);
    }
}
