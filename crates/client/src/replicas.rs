//! Which replica of an object is read first, and which next. Pure.

use smallvec::SmallVec;
use yb_types::{BufferDescriptor, ReplicaDescriptor, ReplicaKind, ReplicaStatus};

use crate::config::split_host_port;
use crate::ops::Lookup;

/// Indices into a replica list, best first.
pub(crate) type Order = SmallVec<[u32; 4]>;

/// What the order depends on besides the list.
pub(crate) struct Viewpoint<'a> {
    /// This client's own endpoint.
    pub(crate) endpoint: &'a str,
    /// Whether a peer failed a short time ago.
    pub(crate) is_suspect: &'a dyn Fn(&str) -> bool,
}

/// The complete memory replicas: own process, own host, other hosts, suspects; in listed order among equals.
pub(crate) fn readable(replicas: &[ReplicaDescriptor], view: &Viewpoint<'_>) -> Order {
    let candidates = || {
        let complete = replicas.iter().enumerate().filter(|(_, r)| r.status == ReplicaStatus::COMPLETE);
        complete.filter_map(|(index, r)| Some((index as u32, r.memory()?)))
    };
    let mut order: Order = candidates().map(|(index, _)| index).collect();
    if order.len() > 1 {
        let mut ranked: SmallVec<[(u8, u32); 4]> =
            candidates().map(|(index, buffer)| (rank(buffer, view), index)).collect();
        ranked.sort_unstable();
        order = ranked.iter().map(|(_, index)| *index).collect();
    }
    order
}

fn rank(buffer: &BufferDescriptor, view: &Viewpoint<'_>) -> u8 {
    let endpoint = buffer.transport_endpoint.as_str();
    if endpoint == view.endpoint {
        return 0;
    }
    if (view.is_suspect)(endpoint) {
        return 3;
    }
    if split_host_port(endpoint).0 == split_host_port(view.endpoint).0 { 1 } else { 2 }
}

/// Whether the bytes of a replica are still those that were found there: the master names it as it did, for the same
/// object.
pub(crate) fn is_still_there(replica: &ReplicaDescriptor, checksum: Option<u64>, now: &Lookup) -> bool {
    let same = |other: &ReplicaDescriptor| {
        other.status == ReplicaStatus::COMPLETE && other.id == replica.id && other.kind == replica.kind
    };
    checksum == now.checksum && now.replicas.iter().any(same)
}

/// Bytes of the object according to a replica.
pub(crate) fn object_size(replica: &ReplicaDescriptor) -> u64 {
    match &replica.kind {
        ReplicaKind::Memory(memory) => memory.buffer.size,
        ReplicaKind::Nof(nof) => nof.buffer.size,
        ReplicaKind::Disk(disk) => disk.object_size,
        ReplicaKind::LocalDisk(disk) => disk.object_size,
        ReplicaKind::Dfs(dfs) => dfs.object_size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yb_types::{DiskDescriptor, MemoryDescriptor, ReplicaId};

    fn memory(endpoint: &str, status: ReplicaStatus) -> ReplicaDescriptor {
        let buffer = BufferDescriptor { size: 8, transport_endpoint: endpoint.into(), ..BufferDescriptor::default() };
        ReplicaDescriptor { id: ReplicaId(1), kind: ReplicaKind::Memory(MemoryDescriptor { buffer }), status }
    }

    fn order(replicas: &[ReplicaDescriptor], suspects: &[&str]) -> Vec<u32> {
        let is_suspect = |endpoint: &str| suspects.contains(&endpoint);
        readable(replicas, &Viewpoint { endpoint: "10.0.0.1:7", is_suspect: &is_suspect }).to_vec()
    }

    #[test]
    fn near_before_far_and_suspects_last() {
        let list = [
            memory("10.0.0.2:9", ReplicaStatus::COMPLETE),
            memory("10.0.0.3:9", ReplicaStatus::COMPLETE),
            memory("10.0.0.1:8", ReplicaStatus::COMPLETE),
            memory("10.0.0.1:7", ReplicaStatus::COMPLETE),
        ];
        assert_eq!(order(&list, &[]), [3, 2, 0, 1]);
        assert_eq!(order(&list, &["10.0.0.2:9", "10.0.0.1:8"]), [3, 1, 0, 2]);
    }

    #[test]
    fn only_complete_memory_is_read() {
        let disk = ReplicaDescriptor {
            id: ReplicaId(2),
            kind: ReplicaKind::Disk(DiskDescriptor { file_path: "/x".into(), object_size: 77 }),
            status: ReplicaStatus::COMPLETE,
        };
        let list = [disk, memory("a:1", ReplicaStatus::PROCESSING), memory("b:1", ReplicaStatus::COMPLETE)];
        assert_eq!(order(&list, &[]), [2]);
        assert_eq!(order(&list[..2], &[]), [0u32; 0]);
        assert_eq!(object_size(&list[0]), 77);
    }
}
