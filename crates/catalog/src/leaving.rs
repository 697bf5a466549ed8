//! Large groups that eviction takes away in steps.
//!
//! **Problem.** A group goes as a whole, whatever its size, and the worker that a put made evict it must not be held up
//! for long.
//!
//! **Shape.** The decision is one word of the group, as for small ones: from there nobody reads the members that go. The
//! members themselves wait here and are freed some at a time, by upkeep and by the puts that look for space. While a
//! group waits here, nothing else is evicted: its space is on its way.

use std::collections::VecDeque;
use std::sync::Arc;

use yb_types::MonotonicTime;

use crate::catalog::Catalog;
use crate::groups::{Group, Leaving};
use crate::reclaim::Evicted;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Members that are freed in one go.
const STEP: usize = 1024;

/// A group whose members are being freed.
struct LeavingGroup {
    group: Arc<Group>,
    how: Leaving,
    /// Those that were not looked at yet: shard and slot in one word each.
    members: Vec<u64>,
}

/// All such groups. Locked after the eviction policies and before a shard.
#[derive(Default)]
pub(crate) struct LeavingGroups {
    queue: Mutex<VecDeque<LeavingGroup>>,
    any: AtomicBool,
}

impl LeavingGroups {
    /// Whether members of a group still wait.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }
}

impl Catalog {
    /// Evicts a group: all its members but those that a pin or a reference protects, or none if one of them is leased. A
    /// large one goes in steps, and counts as freed when it is. Takes one shard after the other, so none may be locked by
    /// the caller.
    pub(crate) fn evict_group(&self, group: &Arc<Group>, take_soft_pinned: bool, now: MonotonicTime) -> Evicted {
        let how = if take_soft_pinned { Leaving::WithPinned } else { Leaving::ButPinned };
        if !group.begin_to_leave(how, now) {
            return Evicted::default();
        }
        let members = group.members();
        if members.len() <= STEP {
            let gone = self.take_members(group, how, members, now);
            group.end_to_leave();
            return gone;
        }
        let mut queue = self.leaving.queue.lock();
        queue.push_back(LeavingGroup { group: Arc::clone(group), how, members });
        self.leaving.any.store(true, Ordering::Relaxed);
        Evicted::default()
    }

    /// Frees some members of a large group that is being evicted; nothing when there is none.
    pub(crate) fn leave_on(&self, now: MonotonicTime) -> Evicted {
        let mut queue = self.leaving.queue.lock();
        let Some(first) = queue.front_mut() else { return Evicted::default() };
        let rest = first.members.len().saturating_sub(STEP);
        let members = first.members.split_off(rest);
        let gone = self.take_members(&first.group, first.how, members, now);
        if first.members.is_empty() {
            first.group.end_to_leave();
            queue.pop_front();
        }
        self.leaving.any.store(!queue.is_empty(), Ordering::Relaxed);
        self.counters.add(|c| &c.evicted_keys, gone.keys);
        self.counters.add(|c| &c.evicted_bytes, gone.freed.0);
        gone
    }

    fn take_members(&self, group: &Arc<Group>, how: Leaving, members: Vec<u64>, now: MonotonicTime) -> Evicted {
        let mut gone = Evicted::default();
        for member in members {
            gone.add(self.evict_member(group, how, member, now));
        }
        gone
    }
}
