//! A peer as the RDMA transport sees it: where to connect to, and which memory has which keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use yb_topology::Matrix;

use super::gid::parse_gid;
use super::memory::Keys;
use super::plan::KeyedRange;
use crate::metadata::{Protocol, SegmentDesc};

/// A device of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteDevice {
    pub(crate) name: String,
    /// 16 hex bytes joined by colons.
    pub(crate) gid: String,
}

impl RouteDevice {
    /// False for the placeholder of a device that does not work.
    pub(crate) fn works(&self) -> bool {
        !self.name.is_empty() && parse_gid(&self.gid).is_some_and(|gid| gid != [0; 16])
    }
}

/// How a peer's devices are reached. As long as nothing of it changes, endpoints and rails stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Host part of its NIC paths.
    pub(crate) server: Arc<str>,
    /// Where its handshake listens.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) devices: Vec<RouteDevice>,
    pub(crate) matrix: Matrix,
}

impl Route {
    /// The NIC path of a device.
    pub(crate) fn path(&self, device: usize) -> Option<Arc<str>> {
        self.devices.get(device).map(|device| format!("{}@{}", self.server, device.name).into())
    }
}

/// What a peer said about itself.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) route: Arc<Route>,
    /// Its memory, by address.
    pub(crate) memory: Vec<KeyedRange>,
    /// Location names of `memory`.
    locations: Vec<String>,
    source: Arc<SegmentDesc>,
}

impl Peer {
    /// `None` when the description has nothing for RDMA.
    fn new(desc: &Arc<SegmentDesc>, (host, port): (&str, u16)) -> Option<Self> {
        if !desc.speaks(Protocol::Rdma) || desc.devices.is_empty() {
            return None;
        }
        let server = desc.rdma_server_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&desc.name);
        let device = |device: &crate::metadata::DeviceDesc| RouteDevice {
            name: device.name.clone(),
            gid: device.gid.clone().unwrap_or_default(),
        };
        let route = Route {
            server: server.into(),
            host: host.to_owned(),
            port,
            devices: desc.devices.iter().map(device).collect(),
            matrix: desc.priority_matrix.clone().unwrap_or_default(),
        };
        let mut memory: Vec<(KeyedRange, String)> = desc
            .buffers
            .iter()
            .filter(|buffer| desc.protocol_of(buffer) == Protocol::Rdma && buffer.rkeys.len() == desc.devices.len())
            .map(|buffer| {
                let keys: Keys = buffer.rkeys.iter().map(|key| u32::try_from(*key).unwrap_or(0)).collect();
                let range = KeyedRange { address: buffer.address, len: buffer.len, keys: Arc::new(keys) };
                (range, buffer.name.clone())
            })
            .collect();
        memory.sort_by_key(|(range, _)| range.address);
        let (memory, locations) = memory.into_iter().unzip();
        Some(Peer { route: Arc::new(route), memory, locations, source: Arc::clone(desc) })
    }

    /// Where the memory at `address` lives, as the peer says.
    pub(crate) fn location(&self, address: u64) -> &str {
        let after = self.memory.partition_point(|range| range.address <= address);
        after.checked_sub(1).and_then(|at| self.locations.get(at)).map_or("*", String::as_str)
    }
}

/// Most peers remembered.
const KEPT: usize = 4096;

/// What peers said, by endpoint.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<BTreeMap<Arc<str>, Arc<Peer>>>);

impl Peers {
    /// The peer behind a description; the route is the old one when nothing of it has changed.
    pub(crate) fn of(&self, endpoint: &Arc<str>, desc: &Arc<SegmentDesc>, at: (&str, u16)) -> Option<Arc<Peer>> {
        let mut peers = self.0.lock();
        let known = peers.get(endpoint);
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.source, desc)) {
            return Some(Arc::clone(known));
        }
        let mut peer = Peer::new(desc, at)?;
        if let Some(known) = known.filter(|known| known.route == peer.route) {
            peer.route = Arc::clone(&known.route);
        }
        let peer = Arc::new(peer);
        if peers.len() >= KEPT {
            peers.clear();
        }
        peers.insert(Arc::clone(endpoint), Arc::clone(&peer));
        Some(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{BufferDesc, DeviceDesc};

    fn desc(address: u64, gid: &str) -> Arc<SegmentDesc> {
        let buffer = |address, keys: &[u64]| BufferDesc {
            name: "cpu:1".to_owned(),
            address,
            len: 100,
            rkeys: keys.to_vec(),
            ..BufferDesc::default()
        };
        Arc::new(SegmentDesc {
            protocols: vec![Protocol::Rdma],
            devices: vec![DeviceDesc { name: "rxe0".to_owned(), gid: Some(gid.to_owned()), ..DeviceDesc::default() }],
            buffers: vec![buffer(address + 200, &[7]), buffer(address, &[6]), buffer(address + 400, &[1, 2])],
            ..SegmentDesc::tcp("10.0.0.1:5")
        })
    }

    #[test]
    fn a_description_is_read_once_and_its_route_kept_while_it_stays() {
        const GID: &str = "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01";
        let (peers, name): (Peers, Arc<str>) = (Peers::default(), "10.0.0.1:5".into());
        let at = ("10.0.0.1", 5);
        let first = desc(1000, GID);
        let peer = peers.of(&name, &first, at).unwrap();
        assert!(Arc::ptr_eq(&peer, &peers.of(&name, &first, at).unwrap()));
        let addresses: Vec<u64> = peer.memory.iter().map(|range| range.address).collect();
        assert_eq!(addresses, [1000, 1200], "in order, and without the one whose keys do not fit");
        assert_eq!((peer.location(1210), peer.location(1)), ("cpu:1", "*"));
        assert_eq!(peer.route.path(0).as_deref(), Some("10.0.0.1:5@rxe0"));
        let moved = peers.of(&name, &desc(5000, GID), at).unwrap();
        assert!(Arc::ptr_eq(&peer.route, &moved.route) && moved.memory[0].address == 5000);
        let zero = ["00"; 16].join(":");
        let other = peers.of(&name, &desc(5000, &zero), at).unwrap();
        assert!(!Arc::ptr_eq(&peer.route, &other.route) && !other.route.devices[0].works());
        assert!(peers.of(&name, &Arc::new(SegmentDesc::tcp("a")), at).is_none());
    }
}
