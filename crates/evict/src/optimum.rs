//! The most that any policy could reach.

use std::collections::{BTreeSet, HashMap};

use crate::arena::mix;
use crate::policy::Key;
use crate::simulate::{Access, Score};

const NEVER: usize = usize::MAX;

/// Belady's rule: what is used last gives way, a newcomer that is used later still is not kept. Sees the future; the most
/// block hits that are possible with `capacity` blocks. The prefix hits are those that it happens to reach.
pub fn optimum(accesses: &[Access], capacity: usize, progress: &mut dyn FnMut(&Score)) -> Score {
    let next = next_uses(accesses);
    let mut resident: HashMap<u64, usize, Mixed> = HashMap::default();
    let mut by_next: BTreeSet<(usize, u64)> = BTreeSet::new();
    let mut score = Score::default();
    let mut position = 0;
    for access in accesses {
        score.requests += 1;
        let mut in_prefix = true;
        for key in &access.keys {
            let again = next[position];
            position += 1;
            let hit = resident.remove(&key.0).is_some_and(|due| by_next.remove(&(due, key.0)));
            in_prefix &= hit;
            score.count(hit, in_prefix);
            if again == NEVER || capacity == 0 {
                continue;
            }
            if resident.len() == capacity {
                match by_next.last().copied() {
                    Some((latest, other)) if latest > again => {
                        by_next.remove(&(latest, other));
                        resident.remove(&other);
                    }
                    _ => continue,
                }
            }
            resident.insert(key.0, again);
            by_next.insert((again, key.0));
        }
        progress(&score);
    }
    score
}

/// For each block of each request, where the same block comes again.
fn next_uses(accesses: &[Access]) -> Vec<usize> {
    let keys: Vec<Key> = accesses.iter().flat_map(|access| access.keys.iter().copied()).collect();
    let mut next = vec![NEVER; keys.len()];
    let mut seen: HashMap<u64, usize, Mixed> = HashMap::default();
    for (position, key) in keys.iter().enumerate().rev() {
        next[position] = seen.insert(key.0, position).unwrap_or(NEVER);
    }
    next
}

/// Hashing of ids without a seed.
pub(crate) type Mixed = std::hash::BuildHasherDefault<MixHasher>;

/// See [`Mixed`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MixHasher(u64);

impl std::hash::Hasher for MixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = mix(Key(self.0 ^ value));
    }
}
