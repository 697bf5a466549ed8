//! What a master said, without what may differ: addresses, ids, order of maps.

use std::collections::BTreeMap;

use yb_types::{ErrorCode, ReplicaDescriptor, ReplicaKind};
use yb_wire::messages::{ErrorOr, GetReplicaListResponse};

/// A replica as both masters should describe it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub kind: &'static str,
    /// Endpoint of the segment; of no meaning for a key without named segments.
    pub at: String,
    pub size: u64,
    pub status: i32,
}

impl Place {
    pub fn of(replica: &ReplicaDescriptor) -> Place {
        let (kind, at, size) = match &replica.kind {
            ReplicaKind::Memory(m) => ("memory", m.buffer.transport_endpoint.clone(), m.buffer.size),
            ReplicaKind::Nof(n) => ("nof", n.buffer.transport_endpoint.clone(), n.buffer.size),
            ReplicaKind::Disk(d) => ("disk", String::new(), d.object_size),
            ReplicaKind::LocalDisk(d) => ("local_disk", d.transport_endpoint.clone(), d.object_size),
            ReplicaKind::Dfs(d) => ("dfs", String::new(), d.object_size),
        };
        Place { kind, at, size, status: replica.status.0 }
    }

    pub fn all(replicas: &[ReplicaDescriptor]) -> Vec<Place> {
        let mut places: Vec<Place> = replicas.iter().map(Place::of).collect();
        places.sort();
        places
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call itself was refused by the RPC layer.
    Rpc(u16),
    Code(i32),
    Done,
    Flag(bool),
    Number(i64),
    Text(String),
    Places(Vec<Place>),
    Found {
        places: Vec<Place>,
        lease_ms: u64,
        checksum: Option<u64>,
    },
    Keys(BTreeMap<String, Vec<Place>>),
}

impl Answer {
    pub fn of<T>(result: ErrorOr<T>, then: impl FnOnce(T) -> Answer) -> Answer {
        match result {
            Ok(value) => then(value),
            Err(ErrorCode(code)) => Answer::Code(code),
        }
    }

    pub fn done(result: ErrorOr<()>) -> Answer {
        Answer::of(result, |()| Answer::Done)
    }

    pub fn flag(result: ErrorOr<bool>) -> Answer {
        Answer::of(result, Answer::Flag)
    }

    pub fn places(result: ErrorOr<Vec<ReplicaDescriptor>>) -> Answer {
        Answer::of(result, |replicas| Answer::Places(Place::all(&replicas)))
    }

    pub fn found(result: ErrorOr<GetReplicaListResponse>) -> Answer {
        Answer::of(result, |found| Answer::Found {
            places: Place::all(&found.replicas),
            lease_ms: found.lease_ttl_ms,
            checksum: found.object_checksum,
        })
    }

    /// An answer about many keys without the places of those that were put anywhere.
    pub fn named_only(mut self, is_anywhere: impl Fn(&str) -> bool) -> Answer {
        if let Answer::Keys(keys) = &mut self {
            for (_, places) in keys.iter_mut().filter(|(key, _)| is_anywhere(key)) {
                places.iter_mut().for_each(|place| place.at.clear());
                places.sort();
            }
        }
        self
    }

    /// Without the places of keys that were put anywhere.
    pub fn anywhere(mut self) -> Answer {
        match &mut self {
            Answer::Places(places) | Answer::Found { places, .. } => {
                places.iter_mut().for_each(|place| place.at.clear());
                places.sort();
            }
            _ => {}
        }
        self
    }

    pub fn is_code(&self, code: ErrorCode) -> bool {
        *self == Answer::Code(code.0)
    }

    pub fn succeeded(&self) -> bool {
        !matches!(self, Answer::Rpc(_) | Answer::Code(_))
    }
}
