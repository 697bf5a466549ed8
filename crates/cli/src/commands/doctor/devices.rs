//! Hardware: RDMA devices, GPUs, memory devices.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use serde_json::{Value, json};
use yb_cuda::{CudaError, Driver, Gpu};
use yb_transfer::EngineSettings;
use yb_transfer::rdma::{NicReport, survey};

use super::report::Check;
use crate::size::bytes;

/// All of it. `memory_device` is what `MC_CXL_DEV_PATH` names.
pub fn check(memory_device: Option<&Path>) -> Vec<Check> {
    let settings = EngineSettings::from_env(|name| std::env::var(name).ok());
    vec![
        rdma(Path::new("/sys/class/infiniband"), || survey(&settings.rdma)),
        gpus(Path::new("/proc/driver/nvidia/gpus"), ask_driver()),
        cxl(memory_device),
    ]
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

    fn json(&self) -> Value {
        let gids: Vec<Value> =
            self.gids.iter().map(|(i, gid, kind)| json!({"index": i, "gid": gid, "kind": kind})).collect();
        json!({"device": self.device, "port": self.port, "state": self.state, "rate": self.rate, "gids": gids})
    }
}

/// The ports in sysfs (`class` is `/sys/class/infiniband`), and what the engine would make of them.
fn rdma(class: &Path, survey: impl FnOnce() -> Result<Vec<NicReport>, String>) -> Check {
    let mut ports = Vec::new();
    for name in names(class) {
        let device = class.join(&name);
        ports.extend(names(&device.join("ports")).iter().map(|port| Port::read(&device, &name, port)));
    }
    if ports.is_empty() {
        return Check::ok("rdma", "no RDMA device: peers are reached over TCP").with("ports", Vec::<Value>::new());
    }
    let details: Vec<Value> = ports.iter().map(Port::json).collect();
    let states: Vec<String> = ports.iter().map(describe).collect();
    let check = match survey() {
        Err(reason) => Check::warn(
            "rdma",
            format!("not used: {reason}; {}", states.join("; ")),
            "install libibverbs and the provider of the device, and give containers --device /dev/infiniband",
        ),
        Ok(nics) => {
            let told: Vec<String> = nics.iter().map(chosen).collect();
            let reports: Vec<Value> = nics.iter().map(report).collect();
            let usable = nics.iter().any(|nic| nic.gid.is_ok());
            let check = match usable {
                true => Check::ok("rdma", told.join("; ")),
                false => Check::warn(
                    "rdma",
                    format!("no device is of use: {}; {}", told.join("; "), states.join("; ")),
                    "check the cable and the switch, and that the interface of a RoCE port has an address",
                ),
            };
            check.with("nics", reports)
        }
    };
    check.with("ports", details)
}

fn describe(port: &Port) -> String {
    let usable = if port.active { "" } else { ", not active" };
    format!("{}/{} {} {}, {} GIDs{usable}", port.device, port.port, port.state, port.rate, port.gids.len())
}

fn chosen(nic: &NicReport) -> String {
    match &nic.gid {
        Ok(gid) => {
            format!("{}: GID {} {} ({}), {} Gb/s, MTU {}", nic.name, gid.index, gid.text, gid.reason, nic.gbps, nic.mtu)
        }
        Err(reason) => format!("{} is not used: {reason}", nic.name),
    }
}

fn report(nic: &NicReport) -> Value {
    let gid = nic.gid.as_ref();
    let chosen = gid.ok().map(|gid| json!({"index": gid.index, "gid": gid.text, "reason": gid.reason}));
    json!({"name": nic.name, "gid": chosen, "unused": gid.err(), "gbps": nic.gbps, "mtu": nic.mtu})
}

/// What the driver says, and the GPUs that the kernel's module lists (`list` is `/proc/driver/nvidia/gpus`).
fn gpus(list: &Path, driver: Result<((u32, u32), Vec<Gpu>), CudaError>) -> Check {
    let listed = names(list);
    match driver {
        Ok(((major, minor), gpus)) => {
            let told = |gpu: &Gpu| format!("{} {} ({}, {})", gpu.ordinal, gpu.name, gpu.bus_id, bytes(gpu.memory));
            let told: Vec<String> = gpus.iter().map(told).collect();
            let details: Vec<Value> = gpus
                .iter()
                .map(
                    |gpu| json!({"ordinal": gpu.ordinal, "name": gpu.name, "bus_id": gpu.bus_id, "memory": gpu.memory}),
                )
                .collect();
            Check::ok("cuda", format!("CUDA {major}.{minor}: {}", told.join(", ")))
                .with("driver", format!("{major}.{minor}"))
                .with("gpus", details)
        }
        Err(error) if listed.is_empty() => {
            Check::ok("cuda", "no NVIDIA GPU").with("gpus", listed).with("reason", error.to_string())
        }
        Err(error) => Check::warn(
            "cuda",
            format!("{} NVIDIA GPUs, but {error}", listed.len()),
            "install the driver's libcuda.so.1, or start the container with --gpus all",
        )
        .with("gpus", listed),
    }
}

/// Asks the driver. It may take a second to wake the GPUs.
fn ask_driver() -> Result<((u32, u32), Vec<Gpu>), CudaError> {
    let library = std::env::var_os("YB_CUDA_LIBRARY").filter(|path| !path.is_empty());
    let driver = Driver::open(library.as_deref())?;
    Ok((driver.version(), driver.gpus()?))
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
    use yb_transfer::rdma::NicGid;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn nic(gid: Result<NicGid, String>) -> NicReport {
        NicReport { name: "mlx5_0".to_owned(), gid, gbps: 100, mtu: 4096 }
    }

    #[test]
    fn what_the_engine_makes_of_rdma_devices_is_told_with_its_reason() {
        let root = tempfile::tempdir().unwrap();
        let class = root.path().join("class");
        let never = || -> Result<Vec<NicReport>, String> { panic!("asked without a device") };
        assert_eq!(rdma(&class, never).level, Ok);
        let port = class.join("mlx5_0/ports/1");
        write(&port.join("state"), "4: ACTIVE\n");
        write(&port.join("rate"), "100 Gb/sec (4X EDR)\n");
        write(&port.join("gids/0"), "0000:0000:0000:0000:0000:0000:0000:0000");
        write(&port.join("gids/3"), "0000:0000:0000:0000:0000:ffff:0a00:0001");
        let missing = rdma(&class, || Err("libibverbs.so.1 is missing".to_owned()));
        assert!(missing.level == Warn && missing.text.contains("missing; mlx5_0/1 4: ACTIVE"), "{}", missing.text);
        assert!(missing.text.contains("1 GIDs"), "{}", missing.text);
        let gid = NicGid { index: 3, text: "00:ff".to_owned(), reason: "RoCE v2 over IPv4".to_owned() };
        let used = rdma(&class, || std::result::Result::Ok(vec![nic(std::result::Result::Ok(gid))]));
        assert!(used.level == Ok && used.text.contains("GID 3 00:ff (RoCE v2 over IPv4), 100 Gb/s"), "{}", used.text);
        assert_eq!(used.details["nics"][0]["gid"]["index"], 3);
        let unused = rdma(&class, || std::result::Result::Ok(vec![nic(Err("its port is down".to_owned()))]));
        assert!(unused.level == Warn && unused.text.contains("its port is down"), "{}", unused.text);
    }

    #[test]
    fn gpus_without_a_driver_are_told() {
        let list = tempfile::tempdir().unwrap();
        let lost = || Err(CudaError::Library("no libcuda".to_owned()));
        assert_eq!(gpus(list.path(), lost()).level, Ok);
        write(&list.path().join("0000:3b:00.0"), "");
        let check = gpus(list.path(), lost());
        assert!(check.level == Warn && check.text.contains("no libcuda"), "{}", check.text);
        let gpu = Gpu { ordinal: 0, name: "H".to_owned(), bus_id: "0000:3b:00.0".to_owned(), memory: 1 << 30 };
        let check = gpus(list.path(), std::result::Result::Ok(((12, 4), vec![gpu])));
        assert!(check.level == Ok && check.text.contains("CUDA 12.4: 0 H (0000:3b:00.0, 1 GiB)"), "{}", check.text);
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
