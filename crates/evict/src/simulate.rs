//! Plays a trace to a policy, as the master would see it, and counts hits.

use std::collections::HashSet;

use yb_types::MonotonicTime;

use crate::keyed::Keyed;
use crate::lru::Lru;
use crate::optimum::Mixed;
use crate::policy::{Key, Policy};

/// One request of a trace: the blocks of its prompt in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// When it comes.
    pub at: MonotonicTime,
    /// Its blocks.
    pub keys: Vec<Key>,
}

/// What a simulation counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Requests.
    pub requests: u64,
    /// Blocks over all requests.
    pub blocks: u64,
    /// Blocks that were there.
    pub hits: u64,
    /// Blocks in the leading run of those that were there, which is what an engine can use.
    pub prefix_hits: u64,
    /// Blocks that found no room.
    pub refused: u64,
    /// Blocks evicted.
    pub evicted: u64,
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Score {
    /// `hits / blocks`; 0 of nothing is 0.
    pub fn block_hit_ratio(&self) -> f64 {
        ratio(self.hits, self.blocks)
    }

    /// `prefix_hits / blocks`.
    pub fn prefix_hit_ratio(&self) -> f64 {
        ratio(self.prefix_hits, self.blocks)
    }

    /// What came between an earlier score of the same run and this one.
    #[must_use]
    pub fn since(&self, earlier: &Score) -> Score {
        Score {
            requests: self.requests - earlier.requests,
            blocks: self.blocks - earlier.blocks,
            hits: self.hits - earlier.hits,
            prefix_hits: self.prefix_hits - earlier.prefix_hits,
            refused: self.refused - earlier.refused,
            evicted: self.evicted - earlier.evicted,
        }
    }

    pub(crate) fn count(&mut self, hit: bool, in_prefix: bool) {
        self.blocks += 1;
        self.hits += u64::from(hit);
        self.prefix_hits += u64::from(hit && in_prefix);
    }
}

/// Plays requests to a policy in a pool of `capacity` blocks of one size. Each request looks all its blocks up, then puts
/// those that were missing, in order; each put first makes room. The blocks of the running request are leased, so they
/// are not victims; a block for which nothing may go is not stored. `progress` gets the score after each request.
pub fn simulate<P: Policy>(
    accesses: &[Access],
    policy: &mut Keyed<P>,
    capacity: usize,
    progress: &mut dyn FnMut(&Score),
) -> Score {
    let mut pool = Pool { resident: HashSet::default(), capacity };
    let mut score = Score::default();
    for access in accesses {
        score.requests += 1;
        let mut in_prefix = true;
        let mut missing = Vec::new();
        for key in &access.keys {
            let hit = pool.resident.contains(&key.0);
            in_prefix &= hit;
            score.count(hit, in_prefix);
            if !hit {
                missing.push(*key);
            }
        }
        policy.looked_up(&access.keys, access.at);
        let stored = pool.store(&missing, access, policy, &mut score);
        policy.inserted(&stored, None, access.at);
        let surplus = policy.policy().surplus(capacity);
        score.evicted += pool.evict(surplus, access, policy) as u64;
        progress(&score);
    }
    score
}

/// Least recently used first as in a textbook: block after block, each missing one is stored at once, and nothing is
/// leased. The yardstick.
pub fn textbook_lru(accesses: &[Access], capacity: usize, progress: &mut dyn FnMut(&Score)) -> Score {
    let mut lru = Keyed::new(Lru::new());
    let mut resident: HashSet<u64, Mixed> = HashSet::default();
    let mut score = Score::default();
    for access in accesses {
        score.requests += 1;
        let mut in_prefix = true;
        for key in &access.keys {
            let hit = resident.contains(&key.0);
            in_prefix &= hit;
            score.count(hit, in_prefix);
            let one = std::slice::from_ref(key);
            if hit {
                lru.looked_up(one, access.at);
                continue;
            }
            lru.inserted(one, None, access.at);
            resident.insert(key.0);
            if resident.len() > capacity
                && let Some((victim, _)) = lru.victim(access.at, 1, &mut |_| Some(1))
            {
                resident.remove(&victim.0);
                score.evicted += 1;
            }
        }
        progress(&score);
    }
    score
}

struct Pool {
    resident: HashSet<u64, Mixed>,
    capacity: usize,
}

impl Pool {
    /// Stores what there is or can be made room for; answers with that.
    fn store<P: Policy>(
        &mut self,
        missing: &[Key],
        access: &Access,
        policy: &mut Keyed<P>,
        score: &mut Score,
    ) -> Vec<Key> {
        let over = (self.resident.len() + missing.len()).saturating_sub(self.capacity);
        score.evicted += self.evict(over, access, policy) as u64;
        let mut stored = Vec::with_capacity(missing.len());
        for key in missing {
            if self.resident.contains(&key.0) {
                continue;
            }
            if self.resident.len() >= self.capacity {
                score.refused += 1;
                continue;
            }
            self.resident.insert(key.0);
            stored.push(*key);
        }
        stored
    }

    fn evict<P: Policy>(&mut self, need: usize, access: &Access, policy: &mut Keyed<P>) -> usize {
        if need == 0 {
            return 0;
        }
        let leased: HashSet<u64, Mixed> = access.keys.iter().map(|key| key.0).collect();
        let mut bytes = |key: Key| (!leased.contains(&key.0)).then_some(1);
        let budget = u32::try_from(need + leased.len() * 2).unwrap_or(u32::MAX);
        let keys = policy.victims(need as u64, access.at, budget, &mut bytes);
        for key in &keys {
            assert!(self.resident.remove(&key.0), "the policy evicted {key:?}, which is not there");
        }
        keys.len()
    }
}
