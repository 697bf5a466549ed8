//! Eviction inside one tenant: nobody else's objects pay for its writes.
//!
//! Near-LRU: of some shards in which the tenant has objects, the one whose front was used longest ago gives its front up;
//! what was used since its queue last looked gets a second chance. The order of the whole pool (chains, policies) would
//! serve as well, but asking it for one tenant's objects means passing over everybody else's.

use yb_types::{ByteLen, MonotonicTime};

use crate::catalog::Catalog;
use crate::key::{SHARDS, Tenant};
use crate::reclaim::{Evicted, Reclaimed};
use crate::sync::atomic::Ordering;

/// Shards whose fronts are compared for one victim. With no more occupied shards than this the order is exact.
const SAMPLE: usize = 16;
/// Records of one shard, of objects that are gone, that are passed over under one lock.
const STEPS_PER_LOCK: u32 = 16;

/// A round inside one tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenantGoal {
    pub tenant: Tenant,
    /// Bytes of its charge to give up.
    pub bytes: u64,
    /// Records to look at.
    pub budget: u32,
}

impl Catalog {
    /// Evicts objects of one tenant, soft-pinned ones last. Looks at no more than the budget of records.
    pub(crate) fn evict_inside(&self, goal: TenantGoal, now: MonotonicTime) -> Reclaimed {
        let mut done = Reclaimed::default();
        let Some(account) = self.tenants.account(goal.tenant) else { return done };
        let mut left = goal.budget;
        for take_soft_pinned in [false, true] {
            if take_soft_pinned && !self.settings.evict_soft_pinned {
                break;
            }
            // Twice around: the first look may only take a second chance away.
            let mut looks = account.objects().saturating_mul(2);
            while done.bytes.0 < goal.bytes && left > 0 && looks > 0 {
                let Some(shard) = self.oldest_of(goal.tenant) else { break };
                let mut budget = left.min(STEPS_PER_LOCK);
                let granted = budget;
                let freed = self.evict_front(shard, goal.tenant, take_soft_pinned, &mut budget, now);
                done.keys += freed.keys;
                done.bytes.0 += freed.charge;
                let looked = (granted - budget).max(1);
                left = left.saturating_sub(looked);
                looks = looks.saturating_sub(u64::from(looked));
            }
        }
        done.steps = u64::from(goal.budget - left);
        done.exhausted = done.bytes.0 < goal.bytes && left > 0;
        account.count_evicted(done.bytes.0);
        self.counters.add(|c| &c.evicted_keys, done.keys);
        self.counters.add(|c| &c.evicted_bytes, done.bytes.0);
        self.counters.add(|c| &c.eviction_steps, done.steps);
        done
    }

    /// Of the next occupied shards, the one whose front was used longest ago. The hand moves on by one shard, so that
    /// all come into the sample in turn.
    fn oldest_of(&self, tenant: Tenant) -> Option<usize> {
        let account = self.tenants.account(tenant)?;
        let from = account.hand.load(Ordering::Relaxed) as usize;
        let sampled = self.tenants.occupancy().shards(tenant, from).take(SAMPLE);
        let fronts =
            sampled.map(|shard| (self.shards[shard].state.read().tenant_front(tenant).unwrap_or(u32::MAX), shard));
        let oldest = fronts.min_by_key(|(front, shard)| (*front, (shard + SHARDS - from) % SHARDS))?.1;
        let second = self.tenants.occupancy().shards(tenant, from).nth(1).unwrap_or(from);
        account.hand.store(second as u32, Ordering::Relaxed);
        Some(oldest)
    }

    fn evict_front(
        &self,
        shard: usize,
        tenant: Tenant,
        take_soft_pinned: bool,
        budget: &mut u32,
        now: MonotonicTime,
    ) -> Evicted {
        let mut state = self.shards[shard].state.write();
        match state.next_of_tenant(tenant, now, budget) {
            Some((slot, false))
                if state.is_evictable(slot, take_soft_pinned, now) && !self.offload_first(&mut state, slot, now) =>
            {
                self.evict_victim(state, slot, take_soft_pinned, now)
            }
            _ => Evicted::default(),
        }
    }

    /// Evicts objects of a tenant so that a write of so many bytes fits its quota. Answers whether that freed anything.
    pub(crate) fn make_quota(&self, tenant: Tenant, bytes: u64, now: MonotonicTime) -> bool {
        let Some(account) = self.tenants.account(tenant) else { return false };
        let Some(quota) = account.quota() else { return false };
        let deficit = account.charged().saturating_add(bytes).saturating_sub(quota);
        let budget = self.settings.inline_eviction_budget.min(TENANT_BUDGET);
        deficit == 0 || self.evict_inside(TenantGoal { tenant, bytes: deficit, budget }, now).keys > 0
    }

    /// Makes room in the pool for a write of a tenant: those above their quota pay first, then the tenant itself.
    /// Answers whether that freed anything.
    pub(crate) fn make_room_fairly(&self, tenant: Tenant, size: ByteLen, now: MonotonicTime) -> bool {
        let budget = self.settings.inline_eviction_budget.min(TENANT_BUDGET);
        let over = self.tenants.above(1.0).into_iter().max_by_key(|(_, bytes)| *bytes);
        let payers = over.map(|(tenant, over)| (tenant, over.min(size.0))).into_iter().chain([(tenant, size.0)]);
        payers.into_iter().any(|(tenant, bytes)| self.evict_inside(TenantGoal { tenant, bytes, budget }, now).keys > 0)
    }

    /// Evicts, in the background, objects of tenants that use more of their quota than the watermark allows. Answers
    /// what was done; `exhausted` when what is above cannot go now.
    pub fn trim_tenants(&self, budget: u32, now: MonotonicTime) -> Reclaimed {
        let mut all = Reclaimed::default();
        let share = self.settings.tenant_high_watermark;
        if !self.tenants.is_multi() || share <= 0.0 {
            return all;
        }
        for (tenant, bytes) in self.tenants().above(share) {
            let left = budget.saturating_sub(u32::try_from(all.steps).unwrap_or(u32::MAX));
            let done = self.evict_inside(TenantGoal { tenant, bytes, budget: left }, now);
            all.keys += done.keys;
            all.bytes.0 += done.bytes.0;
            all.steps += done.steps;
            all.exhausted |= done.exhausted;
        }
        all
    }
}

/// Records that one write looks at for its tenant.
const TENANT_BUDGET: u32 = 1024;
