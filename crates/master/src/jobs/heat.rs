//! Hot objects: counting hits of lookups, and proposing another copy.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use yb_catalog::{CopyLease, DynamicCall, NoPlan, Tenant};
use yb_jobs::{CopyWork, DynamicLease, Ended, HeatMode, HeatSettings, HeatTracker, Heated, Now, Purpose, Work};
use yb_types::MonotonicTime;

use super::grounds::tenant_name;
use crate::shared::Shared;

/// Proposals that may wait.
const QUEUE: usize = 50_000;
/// Proposals looked at in one round.
const BATCH: usize = 64;
/// How long a plan may wait for its copy to begin.
const PLAN_TTL: Duration = Duration::from_secs(30);
/// Parts of the tracker, each with its own lock.
const PARTS: usize = 16;

type HotKey = (u16, Box<[u8]>);

/// What is hot, in parts so that workers seldom meet.
pub(crate) struct Heat {
    settings: HeatSettings,
    parts: Vec<Mutex<HeatTracker>>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    hot: VecDeque<HotKey>,
    cooled: Vec<HotKey>,
    /// Proposals so far.
    proposed: u64,
}

impl Heat {
    pub(super) fn new(settings: HeatSettings, seed: u64) -> Heat {
        let part = HeatSettings { tracked_max: settings.tracked_max / PARTS, ..settings };
        let parts = (0..PARTS).map(|_| Mutex::new(HeatTracker::new(part, seed))).collect();
        Heat { settings, parts, waiting: Mutex::default() }
    }

    /// Whether lookups are counted.
    pub(crate) fn is_on(&self) -> bool {
        self.settings.mode != HeatMode::Off
    }

    /// Counts a hit of a lookup.
    pub(crate) fn hit(&self, tenant: Tenant, key: &[u8], now: MonotonicTime) {
        let mut cooled = Vec::new();
        let heated = self.part(key).lock().hit(tenant.0, key, now, &mut cooled);
        if heated == Heated::No && cooled.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        waiting.cooled.extend(cooled);
        if heated != Heated::No && waiting.hot.len() < QUEUE {
            waiting.proposed += 1;
            waiting.hot.push_back((tenant.0, key.into()));
        }
    }

    fn part(&self, key: &[u8]) -> &Mutex<HeatTracker> {
        let sum = key.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
        &self.parts[sum % PARTS]
    }

    /// Proposals so far, and keys counted now.
    pub(crate) fn figures(&self) -> (u64, usize) {
        (self.waiting.lock().proposed, self.parts.iter().map(|part| part.lock().tracked()).sum())
    }

    /// Plans copies of what is hot, and drops other copies of what is not hot any more.
    pub(super) fn propose(&self, shared: &Shared, now: Now) {
        if !self.is_on() {
            return;
        }
        let mut cooled = Vec::new();
        for part in &self.parts {
            part.lock().forget_some(now.mono, &mut cooled);
        }
        let hot: Vec<HotKey> = {
            let mut waiting = self.waiting.lock();
            cooled.append(&mut waiting.cooled);
            let batch = waiting.hot.len().min(BATCH);
            waiting.hot.drain(..batch).collect()
        };
        if self.settings.mode != HeatMode::Enforce {
            return;
        }
        for (tenant, key) in hot {
            self.plan(shared, Tenant(tenant), &key, now);
        }
        for (tenant, key) in cooled {
            shrink(shared, Tenant(tenant), &key, now.mono);
        }
    }

    fn plan(&self, shared: &Shared, tenant: Tenant, key: &[u8], now: Now) {
        let call = DynamicCall {
            tenant,
            key,
            max_replicas: self.settings.max_replicas,
            lease: shared.jobs.rng.lock().uuid(),
            until: now.mono + PLAN_TTL,
            now: now.mono,
        };
        let part = self.part(key);
        let plan = match shared.catalog.plan_dynamic(&call) {
            Ok(plan) if part.lock().has_grown(tenant.0, key) => {
                // The copy that was made before is gone: it was not worth its space.
                shared.catalog.drop_plan(tenant, key, plan.lease);
                return part.lock().evicted(tenant.0, key, now.mono);
            }
            Ok(plan) => plan,
            Err(NoPlan::Enough) => return part.lock().rest(tenant.0, key, now.mono),
            Err(_) => return,
        };
        let work = CopyWork {
            tenant: tenant_name(shared, tenant),
            key: key.into(),
            source: plan.source.segment,
            targets: vec![plan.target],
            dynamic: Some(DynamicLease { id: plan.lease.id, epoch: plan.lease.epoch }),
        };
        match shared.jobs.give(Work::Copy(work), Purpose::Heat, plan.source.owner, now) {
            Ok(_) => part.lock().accepted(tenant.0, key, now.mono),
            Err(_) => shared.catalog.drop_plan(tenant, key, plan.lease),
        }
    }

    /// A copy of a hot object was not made: its plan is dropped, so that others may copy the object.
    pub(super) fn task_ended(&self, shared: &Shared, ended: &Ended) {
        let Work::Copy(CopyWork { tenant, key, dynamic: Some(lease), .. }) = &ended.work else { return };
        if ended.success || ended.purpose != Purpose::Heat {
            return;
        }
        if let Ok(tenant) = shared.catalog.tenants().reader(tenant.as_bytes()) {
            shared.catalog.drop_plan(tenant, key, CopyLease { id: lease.id, epoch: lease.epoch });
            self.part(key).lock().failed(tenant.0, key);
        }
    }
}

/// Drops one of two or more replicas: that on the fullest segment.
fn shrink(shared: &Shared, tenant: Tenant, key: &[u8], now: MonotonicTime) {
    let mut fullest = None;
    shared.catalog.peek(tenant, [key], |_, found| {
        let Ok(view) = found else { return };
        let used = |segment: &yb_catalog::MountedSegment| segment.used().0 as f64 / segment.capacity().0.max(1) as f64;
        let most = view.replicas().max_by(|a, b| used(a.segment).total_cmp(&used(b.segment)));
        fullest = most.map(|replica| replica.segment.info().name.clone());
    });
    if let Some(segment) = fullest {
        shared.catalog.drop_duplicate(tenant, key, &segment, now);
    }
}
