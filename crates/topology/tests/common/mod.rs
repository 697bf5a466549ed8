//! Trees that look like `/sys`, made from short descriptions.

#![allow(dead_code, clippy::unwrap_used, reason = "test code")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A tree in a folder of its own.
pub struct Host {
    folder: tempfile::TempDir,
}

/// A NIC to put into it.
pub struct NicSpec<'a> {
    pub name: &'a str,
    /// Below `/sys/devices`; empty for a software device.
    pub pci: &'a str,
    pub numa: i32,
    pub state: &'a str,
    pub rate: &'a str,
}

impl<'a> NicSpec<'a> {
    pub fn new(name: &'a str, pci: &'a str, numa: i32) -> Self {
        NicSpec { name, pci, numa, state: "4: ACTIVE", rate: "200 Gb/sec (4X HDR)" }
    }
}

impl Host {
    pub fn new() -> Self {
        let host = Host { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(host.sys().join("devices/system")).unwrap();
        fs::create_dir_all(host.sys().join("bus/pci/devices")).unwrap();
        host
    }

    pub fn sys(&self) -> PathBuf {
        self.folder.path().join("sys")
    }

    pub fn put(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn node(&self, number: u32, distances: &str) {
        self.put(&format!("sys/devices/system/node/node{number}/distance"), &format!("{distances}\n"));
    }

    /// A device in the PCI tree, and its link on the bus.
    fn device(&self, pci: &str, numa: i32) -> PathBuf {
        self.put(&format!("sys/devices/{pci}/numa_node"), &format!("{numa}\n"));
        let folder = self.sys().join("devices").join(pci);
        let address = Path::new(pci).file_name().unwrap();
        let _ = symlink(&folder, self.sys().join("bus/pci/devices").join(address));
        folder
    }

    pub fn gpu(&self, pci: &str, numa: i32) {
        self.device(pci, numa);
        self.put(&format!("sys/devices/{pci}/class"), "0x030200\n");
        self.put(&format!("sys/devices/{pci}/vendor"), "0x10de\n");
    }

    pub fn nic(&self, spec: &NicSpec<'_>) {
        let name = spec.name;
        let base = if spec.pci.is_empty() {
            format!("sys/devices/virtual/infiniband/{name}")
        } else {
            self.put(&format!("sys/devices/{}/net/net_{name}/mtu", spec.pci), "9000\n");
            format!("sys/devices/{}/infiniband/{name}", spec.pci)
        };
        self.put(&format!("{base}/ports/1/state"), &format!("{}\n", spec.state));
        self.put(&format!("{base}/ports/1/rate"), &format!("{}\n", spec.rate));
        self.put(&format!("{base}/ports/1/link_layer"), "Ethernet\n");
        self.put(&format!("{base}/ports/1/gids/0"), "fe80:0000:0000:0000:0000:00ff:fe00:0001\n");
        self.put(&format!("{base}/ports/1/gids/1"), "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
        self.put(&format!("{base}/ports/1/gids/2"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
        self.put(&format!("{base}/ports/1/gid_attrs/types/0"), "IB/RoCE v1\n");
        self.put(&format!("{base}/ports/1/gid_attrs/types/1"), "RoCE v2\n");
        self.put(&format!("{base}/ports/1/gid_attrs/ndevs/1"), &format!("net_{name}\n"));
        let folder = self.folder.path().join(&base);
        if !spec.pci.is_empty() {
            symlink(self.device(spec.pci, spec.numa), folder.join("device")).unwrap();
        }
        let class = self.sys().join("class/infiniband");
        fs::create_dir_all(&class).unwrap();
        symlink(folder, class.join(name)).unwrap();
        let number = fs::read_dir(&class).unwrap().count() - 1;
        self.put(&format!("sys/class/infiniband_verbs/uverbs{number}/ibdev"), &format!("{name}\n"));
        self.put(&format!("dev/infiniband/uverbs{number}"), "");
    }
}
