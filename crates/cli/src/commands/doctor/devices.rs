//! Hardware: RDMA devices, GPUs, memory devices.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use serde_json::{Value, json};

use super::report::Check;
use crate::size::bytes;

/// All of it. `memory_device` is what `MC_CXL_DEV_PATH` names.
pub fn check(memory_device: Option<&Path>) -> Vec<Check> {
    let mut checks = rdma(Path::new("/sys/class/infiniband"), Path::new("/dev/infiniband"));
    checks.push(gpus(Path::new("/proc/driver/nvidia/gpus")));
    checks.push(cxl(memory_device));
    checks
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn names(path: &Path) -> Vec<String> {
    let list = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = list.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    names
}

/// Whether a GID of a kind is taken, and what that is called.
type Rule = (fn(&str, &str) -> bool, &'static str);

/// A port of an RDMA device, as sysfs tells it.
struct Port {
    device: String,
    port: String,
    active: bool,
    state: String,
    rate: String,
    /// Index, GID, kind.
    gids: Vec<(String, String, String)>,
}

impl Port {
    fn read(device: &Path, name: &str, port: &str) -> Self {
        let path = device.join("ports").join(port);
        let state = text(&path.join("state")).unwrap_or_default();
        let gids = names(&path.join("gids")).into_iter().filter_map(|index| {
            let gid = text(&path.join("gids").join(&index)).filter(|gid| gid.chars().any(|c| c != '0' && c != ':'))?;
            let kind = text(&path.join("gid_attrs/types").join(&index)).unwrap_or_default();
            Some((index, gid, kind))
        });
        Port {
            device: name.to_owned(),
            port: port.to_owned(),
            active: state.contains("ACTIVE"),
            state,
            rate: text(&path.join("rate")).unwrap_or_default(),
            gids: gids.collect(),
        }
    }

    /// The GID that connections would carry, and why: routable ones first.
    fn chosen(&self) -> Option<(&(String, String, String), &'static str)> {
        let rules: [Rule; 4] = [
            (|gid, kind| kind.contains("v2") && gid.starts_with("0000:0000:0000:0000:0000:ffff:"), "RoCE v2 over IPv4"),
            (|gid, kind| kind.contains("v2") && !gid.starts_with("fe80:"), "RoCE v2 over IPv6"),
            (|_, kind| kind.contains("v2"), "RoCE v2, link-local only"),
            (|_, _| true, "the first that is set"),
        ];
        let first = |fits: fn(&str, &str) -> bool| self.gids.iter().find(|(_, gid, kind)| fits(gid, kind));
        rules.iter().find_map(|(fits, why)| first(*fits).map(|gid| (gid, *why)))
    }

    fn json(&self) -> Value {
        let chosen = self.chosen().map(|((index, gid, _), why)| json!({"index": index, "gid": gid, "reason": why}));
        let gids: Vec<Value> =
            self.gids.iter().map(|(i, gid, kind)| json!({"index": i, "gid": gid, "kind": kind})).collect();
        json!({"device": self.device, "port": self.port, "state": self.state, "rate": self.rate, "gids": gids, "chosen": chosen})
    }
}

/// `class` is `/sys/class/infiniband`, `nodes` is `/dev/infiniband`.
fn rdma(class: &Path, nodes: &Path) -> Vec<Check> {
    let mut ports = Vec::new();
    for name in names(class) {
        let device = class.join(&name);
        ports.extend(names(&device.join("ports")).iter().map(|port| Port::read(&device, &name, port)));
    }
    if ports.is_empty() {
        return vec![
            Check::ok("rdma", "no RDMA device: peers are reached over TCP").with("ports", Vec::<Value>::new()),
        ];
    }
    let details: Vec<Value> = ports.iter().map(Port::json).collect();
    let told: Vec<String> = ports.iter().map(describe).collect();
    let usable = ports.iter().any(|port| port.active && port.chosen().is_some());
    let can_open = names(nodes).iter().any(|name| name.starts_with("uverbs"));
    let check = match (usable, can_open) {
        (true, true) => Check::ok("rdma", told.join("; ")),
        (true, false) => Check::warn(
            "rdma",
            format!("{}; but there is no {}/uverbs*", told.join("; "), nodes.display()),
            "load ib_uverbs, or give the container --device /dev/infiniband",
        ),
        (false, _) => Check::warn(
            "rdma",
            format!("no port is active with a GID: {}", told.join("; ")),
            "check the cable and the switch, and that the interface of a RoCE port has an address",
        ),
    };
    vec![check.with("ports", details)]
}

fn describe(port: &Port) -> String {
    let gid = match port.chosen() {
        Some(((index, gid, _), why)) => format!("GID {index} {gid} ({why}; {} set)", port.gids.len()),
        None => "no GID".to_owned(),
    };
    format!("{}/{} {} {}, {gid}", port.device, port.port, port.state, port.rate)
}

/// `list` is `/proc/driver/nvidia/gpus`.
fn gpus(list: &Path) -> Check {
    let found = names(list);
    match found.len() {
        0 => Check::ok("cuda", "no NVIDIA GPU").with("gpus", found),
        count => Check::ok("cuda", format!("{count} NVIDIA GPUs: {}", found.join(", "))).with("gpus", found),
    }
}

fn cxl(device: Option<&Path>) -> Check {
    let Some(path) = device.filter(|path| !path.as_os_str().is_empty()) else {
        return Check::ok("cxl", "no memory device is set (MC_CXL_DEV_PATH)");
    };
    let told = path.display().to_string();
    match size_of(path) {
        Ok(0) => Check::fail(
            "cxl",
            format!("{told} has no bytes"),
            "set MC_CXL_DEV_SIZE, or make the file as large as it is to be",
        ),
        Ok(size) => Check::ok("cxl", format!("{told}: {} to map", bytes(size))).with("size", size),
        Err(error) => {
            Check::fail("cxl", format!("{told}: {error}"), "check MC_CXL_DEV_PATH and the rights of the file")
        }
    }
    .with("path", told.as_str())
}

/// Opens a device-dax node or a file as the transport would.
fn size_of(path: &Path) -> io::Result<u64> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.file_type().is_char_device() {
        return Ok(metadata.len());
    }
    let name = path.file_name().unwrap_or_default();
    let size = text(&Path::new("/sys/bus/dax/devices").join(name).join("size"));
    Ok(size.and_then(|size| size.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::report::Level::{Fail, Ok, Warn};
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_gid_of_a_port_is_chosen_and_explained() {
        let root = tempfile::tempdir().unwrap();
        let (class, nodes) = (root.path().join("class"), root.path().join("dev"));
        assert_eq!(rdma(&class, &nodes)[0].level, Ok);
        let port = class.join("mlx5_0/ports/1");
        write(&port.join("state"), "4: ACTIVE\n");
        write(&port.join("rate"), "100 Gb/sec (4X EDR)\n");
        assert_eq!(rdma(&class, &nodes)[0].level, Warn, "no GID yet");
        let gids = [
            ("0", "fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1"),
            ("1", "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2"),
            ("3", "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2"),
            ("9", "0000:0000:0000:0000:0000:0000:0000:0000", ""),
        ];
        for (index, gid, kind) in gids {
            write(&port.join("gids").join(index), gid);
            write(&port.join("gid_attrs/types").join(index), kind);
        }
        assert_eq!(rdma(&class, &nodes)[0].level, Warn, "no device node yet");
        write(&nodes.join("uverbs0"), "");
        let check = rdma(&class, &nodes).remove(0);
        assert!(
            check.level == Ok && check.text.contains("GID 3 ") && check.text.contains("IPv4; 3 set"),
            "{}",
            check.text
        );
        assert_eq!(check.details["ports"][0]["chosen"]["index"], "3");
        write(&port.join("state"), "1: DOWN");
        assert_eq!(rdma(&class, &nodes)[0].level, Warn);
    }

    #[test]
    fn a_memory_device_must_open_and_have_bytes() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("pool");
        assert_eq!([cxl(None).level, cxl(Some(&path)).level], [Ok, Fail]);
        write(&path, "");
        assert_eq!(cxl(Some(&path)).level, Fail);
        write(&path, "bytes");
        assert_eq!(cxl(Some(&path)).details["size"], 5);
    }
}
