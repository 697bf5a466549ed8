//! Devices and their ports.

use std::ffi::{CStr, c_int};
use std::os::fd::{BorrowedFd, RawFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::{io, mem};

use crate::abi::*;
use crate::{Verbs, VerbsError};

/// Where the kernel describes RDMA devices.
pub const SYSFS: &str = "/sys/class/infiniband";

struct DeviceList {
    verbs: Verbs,
    first: *mut *mut ibv_device,
    count: usize,
}

impl DeviceList {
    fn get(verbs: &Verbs) -> io::Result<Self> {
        let mut count: c_int = 0;
        // SAFETY: the library writes the count and returns a list that `drop` gives back.
        let first = unsafe { (verbs.0.get_device_list)(&mut count) };
        if first.is_null() {
            let error = io::Error::last_os_error();
            // A kernel without the verbs module has no devices; that is no failure.
            if error.raw_os_error() != Some(libc::ENOSYS) {
                return Err(error);
            }
        }
        Ok(DeviceList { verbs: verbs.clone(), first, count: if first.is_null() { 0 } else { count.max(0) as usize } })
    }

    fn iter(&self) -> impl Iterator<Item = (*mut ibv_device, String)> {
        (0..self.count).filter_map(|index| {
            // SAFETY: the list has `count` entries.
            let device = unsafe { *self.first.add(index) };
            if device.is_null() {
                return None;
            }
            // SAFETY: the entry is a device of the list, which is alive; its name is a C string inside it.
            let name = unsafe { CStr::from_ptr((self.verbs.0.get_device_name)(device)) };
            Some((device, name.to_string_lossy().into_owned()))
        })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: given out by `get_device_list`, given back once. Open devices hold their own reference.
            unsafe { (self.verbs.0.free_device_list)(self.first) };
        }
    }
}

impl Verbs {
    /// The names of the devices on this host, in natural order.
    ///
    /// # Errors
    /// The system's.
    pub fn devices(&self) -> io::Result<Vec<String>> {
        let list = DeviceList::get(self)?;
        let mut names: Vec<String> = list.iter().map(|(_, name)| name).collect();
        names.sort_by(|a, b| yb_topology::natural::compare(a, b));
        Ok(names)
    }

    /// Opens a device.
    ///
    /// # Errors
    /// [`VerbsError::NoDevice`]; the system's, when its device file cannot be opened.
    pub fn open(&self, name: &str) -> Result<Arc<Context>, VerbsError> {
        let call = |call, source| VerbsError::Call { device: name.to_owned(), call, source };
        let list = DeviceList::get(self).map_err(|error| call("ibv_get_device_list", error))?;
        let found = list.iter().find(|(_, other)| other == name);
        let (device, _) = found.ok_or_else(|| VerbsError::NoDevice(name.to_owned()))?;
        // SAFETY: the device is in a list that is alive.
        let context = NonNull::new(unsafe { (self.0.open_device)(device) })
            .ok_or_else(|| call("ibv_open_device", io::Error::last_os_error()))?;
        let context = Context { verbs: self.clone(), name: name.to_owned(), raw: context };
        set_nonblocking(context.async_fd()).map_err(|error| call("O_NONBLOCK on the event file", error))?;
        Ok(Arc::new(context))
    }
}

pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// An open device.
pub struct Context {
    pub(crate) verbs: Verbs,
    name: String,
    pub(crate) raw: NonNull<ibv_context>,
}

// SAFETY: the library may be called from any thread, also at the same time.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Context").field(&self.name).finish()
    }
}

/// Limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Longest memory region in bytes.
    pub max_mr_size: u64,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of a queue.
    pub max_qp_wr: u32,
    /// Pieces of a work request.
    pub max_sge: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Outstanding reads and atomics that a queue pair can answer.
    pub max_rd_atom: u32,
    /// Outstanding reads and atomics that a queue pair can start.
    pub max_init_rd_atom: u32,
    /// Physical ports.
    pub ports: u8,
}

/// How a port is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortState {
    /// Whether packets can pass.
    pub active: bool,
    /// The state's number: 1 down, 2 init, 3 armed, 4 active.
    pub state: u8,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Entries of its table of GIDs.
    pub gids: u32,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// True on Ethernet (RoCE).
    pub ethernet: bool,
    /// Speed code of a lane.
    pub speed: u8,
    /// Width code.
    pub width: u8,
    /// Longest message in bytes.
    pub max_message: u32,
}

impl PortState {
    /// Gigabits per second: the lane's rate times the lanes.
    pub fn gbps(&self) -> u32 {
        let lane = match self.speed {
            1 => 2,
            2 => 5,
            4 | 8 => 10,
            16 => 14,
            32 => 25,
            64 => 50,
            128 => 100,
            // The code of 200 Gb/s lanes does not fit into the byte of old libraries, which then say 0.
            _ => 0,
        };
        let lanes = match self.width {
            1 => 1,
            2 => 4,
            4 => 8,
            8 => 12,
            16 => 2,
            _ => 0,
        };
        lane * lanes
    }
}

/// How an entry of the table of GIDs is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    Infiniband,
    /// RoCE version 1 (Ethernet frames).
    RoceV1,
    /// RoCE version 2 (UDP).
    RoceV2,
}

/// An entry of a port's table of GIDs that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its place.
    pub index: u8,
    /// 16 bytes in network order.
    pub gid: [u8; 16],
    /// How it is sent.
    pub kind: GidKind,
    /// The network device that it belongs to.
    pub device: Option<String>,
}

/// Something that happened to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceEvent {
    /// What.
    pub kind: EventKind,
    /// The port, for events of ports.
    pub port: Option<u8>,
    /// The queue pair's number, for events of queue pairs.
    pub qp_num: Option<u32>,
}

/// The events that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A port can carry packets.
    PortActive,
    /// A port cannot carry packets any more.
    PortError,
    /// The table of GIDs has changed.
    GidChange,
    /// The local identifier has changed.
    LidChange,
    /// The device is of no more use until it is reset.
    DeviceFatal,
    /// A completion queue overflowed or broke.
    CqError,
    /// A queue pair broke.
    QpFatal,
    /// Anything else, by number.
    Other(i32),
}

impl EventKind {
    fn of(number: c_int) -> Self {
        match number {
            0 => EventKind::CqError,
            1..=3 => EventKind::QpFatal,
            8 => EventKind::DeviceFatal,
            9 => EventKind::PortActive,
            10 => EventKind::PortError,
            11 => EventKind::LidChange,
            18 => EventKind::GidChange,
            other => EventKind::Other(other),
        }
    }
}

/// Numbers of events whose element is a queue pair.
const QP_EVENTS: [c_int; 8] = [1, 2, 3, 4, 5, 6, 7, 16];
/// Numbers of events whose element is a port.
const PORT_EVENTS: [c_int; 6] = [9, 10, 11, 12, 13, 18];

impl Context {
    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The library behind it.
    pub fn verbs(&self) -> &Verbs {
        &self.verbs
    }

    pub(crate) fn error(&self, call: &'static str) -> VerbsError {
        self.failed(call, io::Error::last_os_error())
    }

    pub(crate) fn failed(&self, call: &'static str, source: io::Error) -> VerbsError {
        VerbsError::Call { device: self.name.clone(), call, source }
    }

    /// Turns a verb's number (0 or an errno) into a result.
    pub(crate) fn check(&self, call: &'static str, number: c_int) -> Result<(), VerbsError> {
        match number {
            0 => Ok(()),
            -1 => Err(self.error(call)),
            errno => Err(self.failed(call, io::Error::from_raw_os_error(errno.abs()))),
        }
    }

    /// The limits of the device.
    ///
    /// # Errors
    /// The system's.
    pub fn limits(&self) -> Result<DeviceLimits, VerbsError> {
        // SAFETY: the structure is plain numbers, for which zero is a value.
        let mut attr: ibv_device_attr = unsafe { mem::zeroed() };
        // SAFETY: the context is open and the structure is the library's.
        let number = unsafe { (self.verbs.0.query_device)(self.raw.as_ptr(), &mut attr) };
        self.check("ibv_query_device", number)?;
        let at_least_0 = |n: c_int| n.max(0) as u32;
        Ok(DeviceLimits {
            max_mr_size: attr.max_mr_size,
            max_qp: at_least_0(attr.max_qp),
            max_qp_wr: at_least_0(attr.max_qp_wr),
            max_sge: at_least_0(attr.max_sge),
            max_cq: at_least_0(attr.max_cq),
            max_cqe: at_least_0(attr.max_cqe),
            max_rd_atom: at_least_0(attr.max_qp_rd_atom),
            max_init_rd_atom: at_least_0(attr.max_qp_init_rd_atom),
            ports: attr.phys_port_cnt,
        })
    }

    /// How a port is now.
    ///
    /// # Errors
    /// The system's; `EINVAL` for a port that the device does not have.
    pub fn port(&self, port: u8) -> Result<PortState, VerbsError> {
        // SAFETY: the structure is plain numbers. The library fills the part that its oldest users knew, the rest stays zero.
        let mut attr: ibv_port_attr = unsafe { mem::zeroed() };
        // SAFETY: the context is open and the structure at least as large as what is written.
        let number = unsafe { (self.verbs.0.query_port)(self.raw.as_ptr(), port, &mut attr) };
        self.check("ibv_query_port", number)?;
        Ok(PortState {
            active: attr.state == IBV_PORT_ACTIVE,
            state: attr.state.clamp(0, 255) as u8,
            mtu: 128 << attr.active_mtu.clamp(0, 8),
            gids: attr.gid_tbl_len.max(0) as u32,
            lid: attr.lid,
            ethernet: attr.link_layer == 2,
            speed: attr.active_speed,
            width: attr.active_width,
            max_message: attr.max_msg_sz,
        })
    }

    /// The entries of a port's table of GIDs that are not empty, in order. Kind and network device are the kernel's, from
    /// sysfs.
    ///
    /// # Errors
    /// The system's.
    pub fn gids(&self, port: u8) -> Result<Vec<GidEntry>, VerbsError> {
        let state = self.port(port)?;
        let mut entries = Vec::new();
        for index in 0..state.gids.min(256) {
            let mut gid = ibv_gid { raw: [0; 16] };
            // SAFETY: the context is open and the structure the library's.
            let number = unsafe { (self.verbs.0.query_gid)(self.raw.as_ptr(), port, index as c_int, &mut gid) };
            // An entry that cannot be read is an empty one.
            if number != 0 || is_null_gid(&gid.raw) {
                continue;
            }
            let (kind, device) = describe_gid(Path::new(SYSFS), &self.name, port, index, state.ethernet);
            entries.push(GidEntry { index: index as u8, gid: gid.raw, kind, device });
        }
        Ok(entries)
    }

    /// The file that becomes readable when the device has an event.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open, and a library that opened it has set its descriptors.
        let fd: RawFd = unsafe { (*self.raw.as_ptr()).async_fd };
        // SAFETY: the descriptor is open as long as the context is.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// The next event, if there is one.
    pub fn next_event(&self) -> Option<DeviceEvent> {
        // SAFETY: the structure is a pointer and a number.
        let mut event: ibv_async_event = unsafe { mem::zeroed() };
        // SAFETY: the context is open; its file does not block (see `open`).
        if unsafe { (self.verbs.0.get_async_event)(self.raw.as_ptr(), &mut event) } != 0 {
            return None;
        }
        let number = event.event_type;
        let qp_num = (QP_EVENTS.contains(&number) && !event.element.is_null())
            // SAFETY: the element of these events is a queue pair, which cannot be destroyed before the event is
            // acknowledged.
            .then(|| unsafe { (*event.element.cast::<ibv_qp>()).qp_num });
        let port = PORT_EVENTS.contains(&number).then_some(event.element as usize as u32 as u8);
        // SAFETY: the event is the one that was got, acknowledged once.
        unsafe { (self.verbs.0.ack_async_event)(&mut event) };
        Some(DeviceEvent { kind: EventKind::of(number), port, qp_num })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed once; everything made from it holds the context.
        unsafe { (self.verbs.0.close_device)(self.raw.as_ptr()) };
    }
}

/// All zero, or the link-local prefix alone: an entry without an address.
fn is_null_gid(gid: &[u8; 16]) -> bool {
    gid.iter().all(|byte| *byte == 0) || (gid.starts_with(&[0xfe, 0x80]) && gid.iter().skip(2).all(|byte| *byte == 0))
}

/// Kind and network device of an entry, as sysfs below `root` tells.
fn describe_gid(root: &Path, device: &str, port: u8, index: u32, ethernet: bool) -> (GidKind, Option<String>) {
    let folder = root.join(device).join("ports").join(port.to_string()).join("gid_attrs");
    let read = |part: &str| std::fs::read_to_string(folder.join(part).join(index.to_string())).ok();
    let kind = match read("types").as_deref().map(str::trim) {
        Some("RoCE v2") => GidKind::RoceV2,
        Some("IB/RoCE v1") if ethernet => GidKind::RoceV1,
        Some(_) => GidKind::Infiniband,
        // Old kernels without this folder know version 1 only.
        None if ethernet => GidKind::RoceV1,
        None => GidKind::Infiniband,
    };
    let net = read("ndevs").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    (kind, net)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_are_described_by_sysfs() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("mlx5_0/ports/1/gid_attrs");
        for (part, text) in [("types", "RoCE v2\n"), ("ndevs", "eth0\n")] {
            std::fs::create_dir_all(folder.join(part)).unwrap();
            std::fs::write(folder.join(part).join("3"), text).unwrap();
        }
        std::fs::write(folder.join("types/2"), "IB/RoCE v1\n").unwrap();
        let described = |index, ethernet| describe_gid(root.path(), "mlx5_0", 1, index, ethernet);
        assert_eq!(described(3, true), (GidKind::RoceV2, Some("eth0".to_owned())));
        assert_eq!(described(2, true), (GidKind::RoceV1, None));
        assert_eq!(described(2, false), (GidKind::Infiniband, None));
        assert_eq!(described(9, true), (GidKind::RoceV1, None));
    }

    #[test]
    fn speeds_are_lanes_times_rate() {
        let port = |speed, width| PortState {
            active: true,
            state: 4,
            mtu: 4096,
            gids: 2,
            lid: 0,
            ethernet: true,
            speed,
            width,
            max_message: 1 << 30,
        };
        assert_eq!(port(32, 2).gbps(), 100);
        assert_eq!(port(128, 2).gbps(), 400);
        assert_eq!(port(0, 0).gbps(), 0);
    }

    #[test]
    fn empty_gids_are_known() {
        let mut gid = [0; 16];
        assert!(is_null_gid(&gid));
        gid[..2].copy_from_slice(&[0xfe, 0x80]);
        assert!(is_null_gid(&gid));
        gid[15] = 1;
        assert!(!is_null_gid(&gid));
    }
}
