//! Objects that lost a replica with its segment, or do without it while its node is away, and are still there: who they are, and where another replica could go.
//!
//! They are noted where the loss is found, by place and generation (16 bytes), and looked at when somebody has time: by then
//! the object may be gone, written anew, or complete again.

use std::collections::VecDeque;

use crate::catalog::Catalog;
use crate::entry::{Entry, Replica};
use crate::key::Tenant;
use crate::plan::{Source, other_place, source_of};
use crate::shard::ShardState;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::view::ObjectView;

/// More losses are not remembered: 24 MiB of them.
const LOSSES_MAX: usize = 1 << 20;

/// An object that has fewer replicas than it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    place: u64,
    generation: u64,
    /// Replicas that it had.
    wanted: u32,
}

/// What can be done about a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// A copy, by the owner of the source.
    Copy {
        /// Whose key.
        tenant: Tenant,
        /// The key.
        key: Box<[u8]>,
        /// What to read.
        source: Source,
        /// Name of the segment to write.
        target: String,
        /// Bytes.
        size: u64,
    },
    /// Nothing: it is gone, another write, or has its replicas.
    Done,
    /// It is being copied, written or cannot be read; ends by itself.
    Busy,
    /// No segment without it has room to spare.
    NoRoom,
}

/// The losses that nobody has looked at.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    followed: AtomicBool,
    waiting: Mutex<VecDeque<Loss>>,
    dropped: AtomicU64,
}

impl Catalog {
    /// From now on losses are noted, to be [taken](Self::take_losses).
    pub fn follow_losses(&self) {
        self.losses.followed.store(true, Ordering::Relaxed);
    }

    /// Whether somebody takes them.
    pub(crate) fn are_losses_followed(&self) -> bool {
        self.losses.followed.load(Ordering::Relaxed)
    }

    /// Takes the oldest losses, at most `limit`.
    pub fn take_losses(&self, limit: usize) -> Vec<Loss> {
        let mut waiting = self.losses.waiting.lock();
        let count = waiting.len().min(limit);
        waiting.drain(..count).collect()
    }

    /// Losses that wait, and those that were forgotten because too many did.
    pub fn losses(&self) -> (u64, u64) {
        (self.losses.waiting.lock().len() as u64, self.losses.dropped.load(Ordering::Relaxed))
    }

    /// Notes that a readable object has fewer replicas than before, or cannot count on all of them.
    pub(crate) fn note_loss(&self, state: &ShardState, slot: u32, had: usize) {
        let entry = &state.slab[slot];
        if !entry.is_finished() || !self.are_losses_followed() {
            return;
        }
        let hash = self.hash(entry.tenant, entry.key.as_slice());
        let (place, generation) = (hash.member(slot), entry.generation().0.get());
        let wanted = self.meant_replicas(place, generation).unwrap_or(u32::try_from(had).unwrap_or(u32::MAX));
        let mut waiting = self.losses.waiting.lock();
        if waiting.len() < LOSSES_MAX {
            waiting.push_back(Loss { place, generation, wanted });
        } else {
            self.losses.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What can be done about a loss now. A target is another segment, on another host if the pool has one, the least used,
    /// and not nearly full after it.
    pub fn plan_repair(&self, loss: &Loss) -> Repair {
        let (shard, slot) = ((loss.place >> 32) as usize, loss.place as u32);
        let Some(shard) = self.shards.get(shard) else { return Repair::Done };
        let state = shard.state.read();
        let is_meant = |entry: &&Entry| entry.is_finished() && entry.generation().0.get() == loss.generation;
        let Some(entry) = state.slab.get(slot).filter(is_meant) else { return Repair::Done };
        let table = self.segments.load();
        let is_there = |replica: &&Replica| self.is_at_hand(replica, &table);
        if entry.replicas.as_slice().iter().filter(is_there).count() >= loss.wanted as usize {
            return Repair::Done;
        }
        let is_copied = entry.extras().is_some_and(|extras| extras.copy.is_some());
        if is_copied || entry.is_referenced() || entry.successor().is_some() {
            return Repair::Busy;
        }
        let Some(view) = ObjectView::readable(entry, &table) else { return Repair::Busy };
        let Some(first) = view.replicas().next() else { return Repair::Busy };
        let Some(target) = other_place(entry, &view, &table) else { return Repair::NoRoom };
        Repair::Copy {
            tenant: entry.tenant,
            key: entry.key.as_slice().into(),
            source: source_of(first.segment),
            target,
            size: entry.size,
        }
    }
}
