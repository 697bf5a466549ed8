//! Views for people and tools: keys by pages, segments. Nothing here grants a lease.

use std::sync::Arc;

use crate::catalog::Catalog;
use crate::entry::Entry;
use crate::key::{SHARDS, Tenant};
use crate::segment::MountedSegment;
use crate::segments::SegmentTable;
use crate::view::ObjectView;

/// Where a listing goes on. A listing sees every key that exists all the time, and may or may not see others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListCursor {
    shard: usize,
}

impl ListCursor {
    /// As a number, for tools that hand it to people.
    pub fn to_u64(self) -> u64 {
        self.shard as u64
    }

    /// From such a number; one that never was a cursor is the end.
    pub fn from_u64(number: u64) -> Self {
        ListCursor { shard: usize::try_from(number).unwrap_or(usize::MAX) }
    }
}

impl Catalog {
    /// Hands out readable objects of a tenant, shard by shard, until `at_least` were handed out. Answers where to go on,
    /// `None` at the end. Start with the default cursor.
    pub fn list(
        &self,
        tenant: Tenant,
        from: ListCursor,
        at_least: usize,
        mut sink: impl FnMut(ObjectView<'_>),
    ) -> Option<ListCursor> {
        let mut listed = 0;
        for shard in from.shard..SHARDS {
            if listed >= at_least {
                return Some(ListCursor { shard });
            }
            let state = self.shards[shard].state.read();
            let table = self.segments.load();
            let entries = state.iter().filter(|entry| entry.tenant == tenant);
            for view in entries.filter_map(|entry| ObjectView::readable(entry, &table)) {
                listed += 1;
                sink(view);
            }
            for view in state.cold(&table).filter(|record| record.tenant == tenant) {
                if let Some(view) = ObjectView::on_disk(view, &table) {
                    listed += 1;
                    sink(view);
                }
            }
        }
        None
    }

    /// Hands out the readable objects of a group that are in memory, in no order. Its price is that of the group.
    pub fn group_members(&self, tenant: Tenant, id: &str, mut sink: impl FnMut(ObjectView<'_>)) {
        let Some(group) = self.groups.find(tenant, id) else { return };
        for member in group.members() {
            let (shard, slot) = ((member >> 32) as usize, member as u32);
            let state = self.shards[shard].state.read();
            let table = self.segments.load();
            // The slot may have another owner by now.
            let is_member = |entry: &&Entry| entry.membership().is_some_and(|own| Arc::ptr_eq(&own.group, &group));
            let entry = state.slab.get(slot).filter(is_member);
            if let Some(view) = entry.and_then(|entry| ObjectView::readable(entry, &table)) {
                sink(view);
            }
        }
    }

    /// The mounted segments, and those that are being forgotten with status `UNMOUNTING`.
    pub fn segments(&self) -> Vec<Arc<MountedSegment>> {
        let table: Arc<SegmentTable> = self.segments.table();
        table.iter().cloned().collect()
    }
}
