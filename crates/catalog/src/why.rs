//! What stands in the way of a call that failed: for somebody who was answered only a number.
//!
//! A look at one key that changes nothing. What it says is true at that moment, perhaps not any more when it is heard, and
//! perhaps it was not yet when the call failed.

use std::time::Duration;

use yb_types::{ByteLen, ClientId, MonotonicTime};

use crate::catalog::{Caller, Catalog};
use crate::entry::Entry;
use crate::key::Tenant;
use crate::segments::SegmentTable;
use crate::shard::ShardState;
use crate::shares;

/// A segment, as people know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// Its name, `host:port` as a rule.
    pub name: String,
    /// Where its bytes are moved from and to, `host:port`.
    pub endpoint: String,
    /// Who mounted it.
    pub owner: ClientId,
}

/// What stands in the way of those who want to read, write or remove a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// Nothing: the object can be read, or there is none.
    Nothing,
    /// It is being written, for the first time or anew.
    Written {
        /// By whom.
        writer: ClientId,
        /// Since when.
        age: Duration,
        /// Where the bytes go, the first of its places.
        node: Option<NodeName>,
    },
    /// The caller has a write of it under way that another client, or its own absence, put an end to, and has not answered for it.
    Owed,
    /// All its replicas are where readers are not sent now; this is the first of them.
    Hidden {
        /// Where it lies.
        node: NodeName,
        /// For how long nobody has heard of the node; `None`: it is heard of.
        silent: Option<Duration>,
    },
    /// Somebody may be reading it for so long.
    Leased(Duration),
    /// It is copied or moved.
    Copied {
        /// Whoever does it.
        by: ClientId,
        /// Time that is left for it.
        left: Duration,
    },
}

/// Bytes that somebody has begun to use, and those that it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In use.
    pub used: ByteLen,
    /// May be in use.
    pub limit: ByteLen,
}

impl Catalog {
    /// What stands in the way of this caller at a key, at its time.
    pub fn hindrance(&self, caller: &Caller, key: &[u8]) -> Hindrance {
        let found = self.look_for_hindrance(caller, key);
        // Locks of clients come before those of shards, so this is asked when the shard is free again.
        match found {
            Hindrance::Hidden { node, .. } => {
                let silent = self.clients.lock().silence(node.owner, caller.now);
                Hindrance::Hidden { node, silent }
            }
            found => found,
        }
    }

    /// Whether all that a key has lies where readers are not sent now.
    pub fn is_hidden(&self, tenant: Tenant, key: &[u8], now: MonotonicTime) -> bool {
        let caller = Caller { tenant, client: ClientId::default(), now };
        matches!(self.look_for_hindrance(&caller, key), Hindrance::Hidden { .. })
    }

    fn look_for_hindrance(&self, caller: &Caller, key: &[u8]) -> Hindrance {
        let hash = self.hash(caller.tenant, key);
        let state = self.shards[hash.shard].state.read();
        // Loaded under the shard's lock: see the invariants of the segment table.
        let table = self.segments.load();
        let Some(slot) = state.find(caller.tenant, hash.word, key) else {
            if state.overtaken.owes(hash.word, caller.client, caller.now) {
                return Hindrance::Owed;
            }
            let on_disk = state.shelf.get(caller.tenant, hash.word, key);
            return leased(on_disk.map(|record| record.lease_end()), caller.now).unwrap_or(Hindrance::Nothing);
        };
        hindrance_of(&state, &table, slot, caller.now).unwrap_or_else(|| {
            let owes = state.overtaken.owes(hash.word, caller.client, caller.now);
            if owes { Hindrance::Owed } else { Hindrance::Nothing }
        })
    }

    /// What a client has begun to write and not ended, or given up while it may still write, and how much it may have.
    pub fn unfinished_of(&self, client: ClientId) -> Usage {
        let limit = shares::limit(self.settings.unfinished_per_client, self.segments.capacity());
        Usage { used: ByteLen(self.shares.open(self.shares.account(client))), limit: ByteLen(limit) }
    }
}

fn hindrance_of(state: &ShardState, table: &SegmentTable, slot: u32, now: MonotonicTime) -> Option<Hindrance> {
    let entry = &state.slab[slot];
    if let Some(write) = state.write_under_way(slot).map(|write| &state.slab[write]) {
        let (writer, age) = (write.creator, now.since(write.started()));
        return Some(Hindrance::Written { writer, age, node: first_place(write, table) });
    }
    if let Some(running) = entry.extras().and_then(|extras| extras.copy.as_deref()?.running()) {
        return Some(Hindrance::Copied { by: running.client, left: running.until.since(now) });
    }
    let readable = |index: u32| table.readable(index).is_some();
    if !entry.replicas.as_slice().iter().any(|replica| replica.is_complete() && readable(replica.segment)) {
        return first_place(entry, table).map(|node| Hindrance::Hidden { node, silent: None });
    }
    leased(Some(entry.kept_until()), now)
}

fn leased(until: Option<MonotonicTime>, now: MonotonicTime) -> Option<Hindrance> {
    until.map(|until| until.since(now)).filter(|left| !left.is_zero()).map(Hindrance::Leased)
}

/// The first of its places that is still mounted.
fn first_place(entry: &Entry, table: &SegmentTable) -> Option<NodeName> {
    let segment = entry.replicas.as_slice().iter().find_map(|replica| table.live(replica.segment))?;
    let info = segment.info();
    Some(NodeName { name: info.name.clone(), endpoint: info.te_endpoint.clone(), owner: segment.owner() })
}
