//! Upsert: a write of a key whatever stands under it.
//!
//! **Problem.** Writing over the bytes of an object that somebody reads under a lease gives the reader a mixture.
//! Giving the old object up first loses it when the writer dies or when there is no space.
//!
//! **Shape.** The new bytes go to new space. The unfinished write is the *successor* of the readable object: a second
//! entry that the table does not know, so that nothing else sees it. Its end puts it in the place of the old one; a
//! revoke, a dead writer or a refusal leave the old one as it is. If the old one goes meanwhile, the successor is an
//! unfinished write like any other.

use std::time::Duration;

use yb_types::MonotonicTime;

use crate::catalog::Catalog;
use crate::effects::{Effects, PutRefusal};
use crate::entry::{Entry, flag};
use crate::extras::{Extras, SoftPin};
use crate::placement::Random;
use crate::put::{Batch, Facts, Item, Manner, PinChange, PutCall};
use crate::shard::ShardState;
use crate::view::ObjectView;

/// So long eviction keeps away from an object after an upsert of it found no space: rounds for that space have ended then.
const HOLD: Duration = Duration::from_secs(5);

/// What a write finds under its key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// The slot of a readable object.
    pub readable: Option<u32>,
    /// The slot of a write that has not ended.
    pub unfinished: Option<u32>,
    /// The slot of an object that nobody can read now, and that the write takes the key from.
    pub silent: Option<u32>,
}

impl Standing {
    /// What the new write takes over from.
    pub fn any(self) -> Option<u32> {
        self.readable.or(self.unfinished)
    }
}

impl Catalog {
    /// Reserves space for objects that replace what stands under their keys, or are new. `sink` gets one answer a key,
    /// in order. Until its end the write is visible to nobody; the old object is read as before.
    ///
    /// Another client's unfinished write of the key gives way at once; its space stays out of use, see
    /// [`Effects::quiesce`]. A refusal changes nothing.
    pub fn upsert_start<K: AsRef<[u8]>>(
        &self,
        call: &PutCall<'_>,
        items: impl IntoIterator<Item = (K, u64), IntoIter: ExactSizeIterator>,
        random: &mut impl Random,
        effects: &mut Effects,
        mut sink: impl FnMut(usize, Result<ObjectView<'_>, PutRefusal>),
    ) {
        self.write_start(call, Manner::Upsert, items.into_iter(), random, effects, &mut sink);
    }

    /// Keeps eviction away from the object that an upsert is to replace: while the upsert makes room, and while the
    /// janitor does because of it. Answers whether there is such an object. The hold ends by itself, so that several
    /// upserts of a key do not end each other's.
    pub(crate) fn hold(&self, state: &mut ShardState, batch: &Batch<'_>, item: &Item<'_>) -> bool {
        let Some(slot) = state.find(batch.call.caller.tenant, item.hash.word, item.key) else { return false };
        let entry = &mut state.slab[slot];
        if entry.is_finished() {
            entry.extras_mut().held_until = Some(batch.call.caller.now + HOLD);
        }
        entry.is_finished()
    }
}

/// What stands under the key of an upsert, given its slot, or why it may not be replaced.
pub(crate) fn standing(
    batch: &Batch<'_>,
    item: &Item<'_>,
    state: &ShardState,
    slot: u32,
) -> Result<Standing, PutRefusal> {
    let entry = &state.slab[slot];
    let group = entry.membership().map_or("", |membership| membership.group.id());
    if item.group.is_some_and(|named| named != group) {
        return Err(PutRefusal::OtherGroup);
    }
    if entry.is_finished() && batch.call.config.residency_affinity_ids.is_some() {
        return Err(PutRefusal::OtherGroup);
    }
    if entry.extras().is_some_and(Extras::is_copied) {
        return Err(PutRefusal::Copied);
    }
    if entry.is_referenced() {
        return Err(PutRefusal::Referenced);
    }
    let unfinished = state.write_under_way(slot);
    if unfinished.is_some_and(|write| state.slab[write].creator == batch.call.caller.client) {
        return Err(PutRefusal::OwnWriteOpen);
    }
    Ok(Standing { readable: entry.is_finished().then_some(slot), unfinished, silent: None })
}

impl Facts {
    /// Adds what a write keeps of the object that it replaces: the group, a hard pin, a soft pin that it says nothing
    /// of; with the same size also the data type and at least the number of replicas, as with the peer, which writes over the
    /// old bytes then.
    pub(crate) fn take_over(&mut self, old: &Entry, pin: PinChange, size: u64, now: MonotonicTime) {
        // Nothing is kept of a write that gives way: its key was as good as absent.
        if !old.is_finished() {
            return;
        }
        self.group = old.membership().map(|membership| membership.group.id().into());
        self.hard_pin |= old.has(flag::HARD_PIN);
        if let (PinChange::Keep, Some(SoftPin::Until(until))) = (pin, old.soft_pin())
            && until > now
        {
            self.soft_pin = Some(SoftPin::Until(until));
        }
        if old.size == size {
            // Some of the old ones may have gone with their nodes.
            self.replicas_wanted = self.replicas_wanted.max(old.replicas.as_slice().len());
            self.data_type = old.data_type;
        }
    }
}
