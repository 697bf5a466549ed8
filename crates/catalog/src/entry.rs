//! One object of the catalog, kept small: every byte here is paid once for each stored key.

use std::num::NonZeroU64;

use yb_alloc::NodeId;
use yb_types::{ClientId, Generation, MonotonicTime, ReplicaId, ReplicaStatus};

use crate::copies::Running;
use crate::extras::{Extras, SoftPin};
use crate::groups::{LeaseGrant, Leaving, Membership};
use crate::key::{KeyBytes, Tenant};
use crate::sync::atomic::{AtomicU64, Ordering};

/// "No entry" in links.
pub(crate) const NIL: u32 = u32::MAX;

/// A copy of an object in one segment: 24 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replica {
    /// Id and status in one word: the id above the lowest bit, which says "complete".
    id_and_complete: NonZeroU64,
    /// From the start of the segment.
    pub offset: u64,
    /// Index in the segment table.
    pub segment: u32,
    node: u32,
}

impl Replica {
    /// A replica whose bytes are on their way.
    pub fn new(id: u64, segment: u32, extent: yb_alloc::Extent) -> Self {
        Replica { id_and_complete: id_word(id), offset: extent.offset, segment, node: extent.node.get() }
    }

    /// The same replica under its own id.
    pub fn with_id(self, id: u64) -> Self {
        Replica { id_and_complete: id_word(id), ..self }
    }

    pub fn id(&self) -> ReplicaId {
        ReplicaId(self.id_and_complete.get() >> 1)
    }

    pub fn node(&self) -> NodeId {
        NodeId::from_stored(self.node)
    }

    pub fn is_complete(&self) -> bool {
        self.id_and_complete.get() & 1 != 0
    }

    pub fn complete(&mut self) {
        self.id_and_complete |= 1;
    }

    pub fn status(&self) -> ReplicaStatus {
        if self.is_complete() { ReplicaStatus::COMPLETE } else { ReplicaStatus::PROCESSING }
    }
}

/// Ids start at 1 and count up, so they need no more than 63 bits.
fn id_word(id: u64) -> NonZeroU64 {
    NonZeroU64::new(id << 1).unwrap_or(NonZeroU64::MAX)
}

/// The copies of an object. One is the rule and costs no heap.
#[derive(Debug)]
pub(crate) enum Replicas {
    One(Replica),
    Other(Box<[Replica]>),
}

impl Replicas {
    pub fn from_slice(replicas: &[Replica]) -> Self {
        match replicas {
            [one] => Replicas::One(*one),
            other => Replicas::Other(other.into()),
        }
    }

    pub fn as_slice(&self) -> &[Replica] {
        match self {
            Replicas::One(one) => std::slice::from_ref(one),
            Replicas::Other(other) => other,
        }
    }

    pub fn as_mut_slice(&mut self) -> &mut [Replica] {
        match self {
            Replicas::One(one) => std::slice::from_mut(one),
            Replicas::Other(other) => other,
        }
    }

    /// Drops the replicas that `keep` refuses.
    pub fn retain(&mut self, mut keep: impl FnMut(&Replica) -> bool) {
        if self.as_slice().iter().all(&mut keep) {
            return;
        }
        let kept: Vec<Replica> = self.as_slice().iter().copied().filter(keep).collect();
        *self = Replicas::from_slice(&kept);
    }
}

/// Facts that are one bit each.
pub(crate) mod flag {
    /// `PutEnd` came: readable as far as its replicas are.
    pub const FINISHED: u8 = 1;
    /// Never evicted; not told to the eviction policy.
    pub const HARD_PIN: u8 = 2;
    /// Its extras have a soft pin.
    pub const SOFT_PIN: u8 = 4;
    /// `checksum` is set.
    pub const CHECKSUM: u8 = 8;
    /// This master knows it from a directory; it was written before its time.
    pub const LEARNED: u8 = 16;
    /// Its extras have a group.
    pub const GROUPED: u8 = 32;
    /// An unfinished write beside the readable object of its key: not in the table.
    pub const SUCCESSOR: u8 = 64;
}

/// An object: 136 bytes, with a key of usual length. What a lookup needs comes first, to meet few cache lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Entry {
    /// Empty for a vacant slot.
    pub key: KeyBytes,
    pub tenant: Tenant,
    flags: u8,
    pub data_type: u8,
    pub replicas: Replicas,
    /// Finished: the read lease of this generation ends here, in nanoseconds. Unfinished: the put began here, as
    /// nothing can be leased before it is readable.
    lease: AtomicU64,
    pub size: u64,
    generation: u64,
    /// Finished: the checksum. Unfinished: the neighbours among the unfinished puts, which have no checksum yet.
    /// Vacant: the next vacant slot.
    word: u64,
    pub creator: ClientId,
    /// What few objects have.
    extras: Option<Box<Extras>>,
}

/// Coarse time for the order of uses: 2^26 ns (67 ms) a tick, 9 years in a word.
pub(crate) fn tick(now: MonotonicTime) -> u32 {
    (now.0 >> 26) as u32
}

impl Entry {
    /// A slot that holds nothing, chained to the next such slot.
    pub fn vacant(next: u32) -> Self {
        Entry {
            key: KeyBytes::NONE,
            creator: ClientId::default(),
            size: 0,
            word: link_word(NIL, next),
            generation: 0,
            lease: AtomicU64::new(0),
            replicas: Replicas::Other(Box::default()),
            tenant: Tenant::DEFAULT,
            flags: 0,
            data_type: 0,
            extras: None,
        }
    }

    pub fn set_start(&mut self, generation: u64, now: MonotonicTime) {
        self.generation = generation;
        *self.lease.get_mut() = now.0;
    }

    pub fn generation(&self) -> Generation {
        Generation(NonZeroU64::new(self.generation).unwrap_or(NonZeroU64::MIN))
    }

    /// Bytes of all its memory replicas: what its tenant is charged.
    pub fn memory_bytes(&self) -> u64 {
        self.size.saturating_mul(self.replicas.as_slice().len() as u64)
    }

    /// Reads a bit of every cache line that a lookup needs.
    pub fn touch(&self) -> u64 {
        u64::from(self.key.is_heap()) ^ u64::from(self.data_type) ^ self.lease.load(Ordering::Relaxed) ^ self.word
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Sets or clears one fact.
    pub fn set(&mut self, flag: u8, value: bool) {
        self.flags = if value { self.flags | flag } else { self.flags & !flag };
    }

    /// Forgets every fact, and everything rare.
    pub fn clear_facts(&mut self) {
        self.flags = 0;
        self.extras = None;
    }

    /// What few objects have, if this one has any of it.
    pub fn extras(&self) -> Option<&Extras> {
        self.extras.as_deref()
    }

    /// The same to write to; made if it is missing. Followed by [`settle_extras`](Self::settle_extras) when something
    /// was cleared.
    pub fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Drops the extras when nothing in them is set.
    pub fn settle_extras(&mut self) {
        if self.extras().is_some_and(Extras::is_empty) {
            self.extras = None;
        }
    }

    /// Whether eviction keeps away, because an upsert of the object found no space a short time ago.
    pub fn is_held(&self, now: MonotonicTime) -> bool {
        self.extras().is_some_and(|extras| extras.is_held(now))
    }

    /// Whether somebody works with the bytes without a lease (a copy reads them, a tier writes them down): such an
    /// object is neither evicted nor removed nor replaced.
    pub fn is_referenced(&self) -> bool {
        self.extras().is_some_and(Extras::is_referenced)
    }

    /// Whether a disk is to write the bytes down.
    pub fn is_being_offloaded(&self) -> bool {
        self.extras().is_some_and(|extras| extras.offloading)
    }

    /// The running copy that writes this replica.
    pub fn copier_of(&self, replica: &Replica) -> Option<&Running> {
        if replica.is_complete() {
            return None;
        }
        let running = self.extras()?.copy.as_deref()?.running()?;
        running.targets.contains(&replica.id()).then_some(running)
    }

    pub fn is_finished(&self) -> bool {
        self.has(flag::FINISHED)
    }

    /// When the put began; only of unfinished entries.
    pub fn started(&self) -> MonotonicTime {
        debug_assert!(!self.is_finished());
        MonotonicTime(self.lease.load(Ordering::Relaxed))
    }

    /// The soft pin. The flag spares the others a look at their extras.
    pub fn soft_pin(&self) -> Option<SoftPin> {
        if self.has(flag::SOFT_PIN) { self.extras()?.soft_pin } else { None }
    }

    /// The group.
    pub fn membership(&self) -> Option<&Membership> {
        if self.has(flag::GROUPED) { self.extras()?.group.as_ref() } else { None }
    }

    /// The unfinished write that is to replace this object.
    pub fn successor(&self) -> Option<u32> {
        self.extras()?.successor
    }

    /// When the last lease ends that somebody reads under; only of finished entries. A lease has ended when
    /// `now >= lease_end`.
    pub fn lease_end(&self) -> MonotonicTime {
        debug_assert!(self.is_finished());
        MonotonicTime(self.lease.load(Ordering::Relaxed))
    }

    /// When the last lease ends, those counted that reads of its group granted: the bytes are not read that long, but
    /// the object is kept.
    pub fn kept_until(&self) -> MonotonicTime {
        let by_group = self.membership().map_or(MonotonicTime(0), Membership::lease_end);
        self.lease_end().max(by_group)
    }

    /// Makes the object readable from now on, without a lease.
    pub fn finish(&mut self, now: MonotonicTime, checksum: Option<u64>) {
        *self.lease.get_mut() = now.0;
        self.set(flag::FINISHED, true);
        self.word = checksum.unwrap_or(0);
        self.set(flag::CHECKSUM, checksum.is_some());
    }

    /// Grants a lease to a reader, and with it to the group; works under a shared lock. `false` when eviction is
    /// taking the group away and this object with it: it is not to be read any more.
    pub fn read(&self, grant: LeaseGrant) -> bool {
        if let Some(membership) = self.membership()
            && let Some(leaving) = membership.group.renew(self.lease_end(), grant)
        {
            if self.goes_with_group(leaving, grant.now) {
                return false;
            }
            membership.group.renew_while_leaving(grant);
        }
        self.grant(grant.until);
        true
    }

    /// Whether eviction of its group takes this member too.
    pub fn goes_with_group(&self, leaving: Leaving, now: MonotonicTime) -> bool {
        let pinned = leaving == Leaving::ButPinned && self.soft_pin().is_some_and(|pin| pin.holds(now));
        let in_use = self.is_referenced() || self.is_held(now) || self.is_being_offloaded();
        !self.has(flag::HARD_PIN) && !pinned && !in_use
    }

    /// Moves the lease forward to `until`, never back; works under a shared lock.
    pub fn grant(&self, until: MonotonicTime) {
        if self.lease.load(Ordering::Relaxed) < until.0 {
            self.lease.fetch_max(until.0, Ordering::Relaxed);
        }
    }

    /// CRC-64 that the writer gave, if any.
    pub fn checksum(&self) -> Option<u64> {
        (self.is_finished() && self.has(flag::CHECKSUM)).then_some(self.word)
    }

    /// Neighbours before and after in the one list that the entry is in; only of what is not finished.
    pub fn links(&self) -> (u32, u32) {
        debug_assert!(!self.is_finished());
        ((self.word >> 32) as u32, self.word as u32)
    }

    /// Sets the neighbours.
    pub fn set_links(&mut self, prev: u32, next: u32) {
        debug_assert!(!self.is_finished());
        self.word = link_word(prev, next);
    }
}

fn link_word(prev: u32, next: u32) -> u64 {
    u64::from(prev) << 32 | u64::from(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_stays_small() {
        assert_eq!(size_of::<Replica>(), 24);
        assert_eq!(size_of::<Replicas>(), 24);
        assert_eq!(size_of::<Entry>(), 136);
    }
}
