//! What has to happen without anyone asking: marks that nobody took away, disks that are gone, wishes.

use std::sync::atomic::Ordering;

use yb_types::MonotonicTime;

use super::disk::Disk;
use super::shelf::Record;
use crate::catalog::Catalog;

/// Overdue marks looked at in one step.
const MARKS_PER_STEP: usize = 256;

impl Catalog {
    /// Does some of the waiting work. Answers whether there is more.
    pub(crate) fn tiers_upkeep(&self, now: MonotonicTime) -> bool {
        if !self.settings.tiers.enable_offload {
            return false;
        }
        self.tiers.round.store(0, Ordering::Relaxed);
        self.grant_wishes(now);
        if let Some(before) = now.0.checked_sub(self.settings.release_timeout.as_nanos() as u64) {
            self.tiers.bury_silent(MonotonicTime(before));
        }
        if self.tiers.unswept.swap(false, Ordering::Relaxed) {
            self.sweep_shelves();
        }
        self.expire_marks(now)
    }

    /// Forgets what lay on disks that are gone, one shard at a time.
    fn sweep_shelves(&self) {
        for shard in &self.shards {
            if shard.state.read().shelf.is_empty() {
                continue;
            }
            let mut state = shard.state.write();
            let hash = |record: &Record| self.hash(record.tenant, &record.key);
            let ended: Vec<_> = state.shelf.sweep(Disk::is_gone, hash);
            for (tenant, hash, key) in ended {
                self.offload_ended(&mut state, hash, tenant, &key);
            }
        }
    }

    fn expire_marks(&self, now: MonotonicTime) -> bool {
        for _ in 0..MARKS_PER_STEP {
            let due = {
                let mut deadlines = self.tiers.deadlines.lock();
                if deadlines.front().is_none_or(|deadline| deadline.at > now) {
                    return false;
                }
                deadlines.pop_front()
            };
            let Some(due) = due else { return false };
            let mut state = self.shards[due.task.hash.shard].state.write();
            if due.promotion {
                self.unmark_promotion(&mut state, &due.task, now);
            } else {
                self.unmark_offload(&mut state, &due.task);
            }
        }
        true
    }
}
