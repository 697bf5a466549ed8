//! Which objects are read so often that they deserve another copy.
//!
//! Hits are counted per key in fixed windows. Memory and work are bounded: so many keys, and a few outdated ones are
//! forgotten with each hit.

use std::collections::VecDeque;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::{Equivalent, HashMap};
use yb_types::MonotonicTime;

/// What is done about hot objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeatMode {
    /// Nothing is counted.
    #[default]
    Off,
    /// Counted and told, not acted upon.
    Observe,
    /// They get another copy.
    Enforce,
}

/// `dynamic_replication_*`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeatSettings {
    /// `dynamic_replication_mode`.
    pub mode: HeatMode,
    /// `dynamic_replication_heat_window_seconds`.
    pub window: Duration,
    /// `dynamic_replication_admission_qps_threshold`: hits a second over a window that make a key hot.
    pub threshold_qps: f64,
    /// `dynamic_replication_max_memory_replicas`: an object with so many gets no more.
    pub max_replicas: u32,
    /// Keys that are counted at a time; further ones are not seen.
    pub tracked_max: usize,
}

impl Default for HeatSettings {
    fn default() -> Self {
        HeatSettings {
            mode: HeatMode::Off,
            window: Duration::from_secs(10),
            threshold_qps: 0.8,
            max_replicas: 2,
            tracked_max: 50_000,
        }
    }
}

impl HeatSettings {
    /// Hits in a window that make a key hot.
    pub fn threshold(&self) -> u32 {
        (self.threshold_qps * self.window.as_secs_f64()).ceil().clamp(1.0, f64::from(u32::MAX)) as u32
    }
}

/// What a hit came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heated {
    /// Nothing to do.
    No,
    /// The key has just become hot in this window.
    Hot,
    /// It is still hot, and the last proposal is some time ago.
    Still,
}

/// After a proposal that was accepted.
const COOLDOWN: Duration = Duration::from_secs(30);
/// After another copy was evicted.
const COOLDOWN_EVICTED: Duration = Duration::from_secs(60);
/// Between two proposals of the same key.
const AGAIN: Duration = Duration::from_secs(1);
/// Outdated keys looked at with each hit.
const FORGET_PER_HIT: usize = 2;
/// Windows without much heat after which another copy is dropped.
const COOL_WINDOWS: u8 = 3;

#[derive(Clone, Copy, Debug)]
struct Heat {
    began: MonotonicTime,
    hits: u32,
    /// No proposal before this time.
    not_before: MonotonicTime,
    /// Another copy was made.
    grown: bool,
    cool_windows: u8,
}

type HotKey = (u16, Box<[u8]>);

/// A key that is only looked for. Hashes as [`HotKey`] does.
#[derive(Hash)]
struct KeyRef<'a>(u16, &'a [u8]);

impl Equivalent<HotKey> for KeyRef<'_> {
    fn equivalent(&self, key: &HotKey) -> bool {
        self.0 == key.0 && *self.1 == *key.1
    }
}

/// Counts hits.
#[derive(Debug)]
pub struct HeatTracker {
    settings: HeatSettings,
    threshold: u32,
    keys: HashMap<HotKey, Heat, FixedState>,
    /// Every key of `keys` once.
    order: VecDeque<HotKey>,
}

impl HeatTracker {
    /// Nothing is hot yet. `seed`: of the hash, so that nobody outside can make keys collide.
    pub fn new(settings: HeatSettings, seed: u64) -> Self {
        let keys = HashMap::with_hasher(FixedState::with_seed(seed));
        HeatTracker { settings, threshold: settings.threshold(), keys, order: VecDeque::new() }
    }

    /// Keys counted now.
    pub fn tracked(&self) -> usize {
        self.keys.len()
    }

    /// Counts a hit of a key. Keys that have grown another copy and are not hot any more are added to `cooled`: their
    /// other copy can go.
    pub fn hit(&mut self, tenant: u16, key: &[u8], now: MonotonicTime, cooled: &mut Vec<(u16, Box<[u8]>)>) -> Heated {
        if self.settings.mode == HeatMode::Off {
            return Heated::No;
        }
        self.forget_some(now, cooled);
        let Some(heat) = self.keys.get_mut(&KeyRef(tenant, key)) else {
            if self.keys.len() < self.settings.tracked_max {
                let id: HotKey = (tenant, Box::from(key));
                let heat = Heat { began: now, hits: 1, not_before: now, grown: false, cool_windows: 0 };
                self.keys.insert(id.clone(), heat);
                self.order.push_back(id);
                return if self.threshold <= 1 { Heated::Hot } else { Heated::No };
            }
            return Heated::No;
        };
        if now.since(heat.began) >= self.settings.window {
            (heat.began, heat.hits) = (now, 0);
        }
        heat.hits = heat.hits.saturating_add(1);
        if heat.hits < self.threshold || now < heat.not_before {
            return Heated::No;
        }
        heat.not_before = now + AGAIN;
        heat.cool_windows = 0;
        if heat.hits == self.threshold { Heated::Hot } else { Heated::Still }
    }

    /// Looks at a few keys that were not hit for a window; to be called now and then even without hits.
    pub fn forget_some(&mut self, now: MonotonicTime, cooled: &mut Vec<(u16, Box<[u8]>)>) {
        for _ in 0..FORGET_PER_HIT {
            let Some(id) = self.order.front() else { return };
            let Some(heat) = self.keys.get_mut(id) else {
                self.order.pop_front();
                continue;
            };
            if now.since(heat.began) < self.settings.window {
                return;
            }
            let Some(id) = self.order.pop_front() else { return };
            let was_cool = heat.hits < self.threshold.div_ceil(4);
            if heat.grown {
                heat.cool_windows = if was_cool { heat.cool_windows + 1 } else { 0 };
                if heat.cool_windows >= COOL_WINDOWS {
                    (heat.grown, heat.cool_windows) = (false, 0);
                    cooled.push(id.clone());
                }
            }
            if heat.grown || now < heat.not_before {
                (heat.began, heat.hits) = (now, 0);
                self.order.push_back(id);
            } else {
                self.keys.remove(&id);
            }
        }
    }

    /// A proposal was accepted: another copy is being made.
    pub fn accepted(&mut self, tenant: u16, key: &[u8], now: MonotonicTime) {
        self.change(tenant, key, |heat| {
            heat.not_before = now + COOLDOWN;
            heat.grown = true;
        });
    }

    /// There is nothing to do for this key: it is not proposed again for a while.
    pub fn rest(&mut self, tenant: u16, key: &[u8], now: MonotonicTime) {
        self.change(tenant, key, |heat| heat.not_before = now + COOLDOWN);
    }

    /// Whether another copy was made, as far as is known.
    pub fn has_grown(&self, tenant: u16, key: &[u8]) -> bool {
        self.keys.get(&KeyRef(tenant, key)).is_some_and(|heat| heat.grown)
    }

    /// The other copy of a key turned out to be gone: it is not made again at once.
    pub fn evicted(&mut self, tenant: u16, key: &[u8], now: MonotonicTime) {
        self.change(tenant, key, |heat| {
            heat.not_before = now + COOLDOWN_EVICTED;
            heat.grown = false;
        });
    }

    /// The other copy was not made after all.
    pub fn failed(&mut self, tenant: u16, key: &[u8]) {
        self.change(tenant, key, |heat| heat.grown = false);
    }

    fn change(&mut self, tenant: u16, key: &[u8], change: impl FnOnce(&mut Heat)) {
        if let Some(heat) = self.keys.get_mut(&KeyRef(tenant, key)) {
            change(heat);
        }
    }
}
