//! What the master can tell a policy, and what it asks of it.

use std::fmt;
use std::str::FromStr;

use yb_types::MonotonicTime;

use crate::chain::{Chain, ChainSettings};
use crate::lru::Lru;
use crate::near_lru::NearLru;
use crate::s3fifo::S3Fifo;

/// A key, by a number that stands for it: a 64-bit hash of tenant and key, or the id of a block in a trace. It need not
/// be well mixed. Two keys with one number would share their fate, never their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u64);

/// Keys in the order of the call that named them. Consecutive keys are taken for a prefix chain: each is worth nothing
/// without the one before it.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// In order of the call. A key that comes twice is a second touch.
    pub keys: &'a [Key],
    /// Number of the group that the client named. A batch of a group continues where the group's last batch ended.
    pub group: Option<u64>,
}

impl<'a> Batch<'a> {
    /// A batch without a group.
    pub fn new(keys: &'a [Key]) -> Self {
        Batch { keys, group: None }
    }
}

/// The order in which keys are given up.
pub trait Policy {
    /// Keys were looked up (exist, get), those that are not there included.
    fn looked_up(&mut self, batch: Batch<'_>, now: MonotonicTime);

    /// Keys became readable. One that is known already counts as touched.
    fn inserted(&mut self, batch: Batch<'_>, now: MonotonicTime);

    /// A key left for another reason than eviction. Unknown keys are ignored.
    fn removed(&mut self, key: Key);

    /// The next victim, which the policy forgets thereby, with the bytes that come free. `None` when nothing may go
    /// or the budget of `victims` is used up. What `victims` protects stays, behind others.
    fn victim(&mut self, now: MonotonicTime, victims: &mut Victims<'_>) -> Option<(Key, u64)>;

    /// Victims until `need` bytes are free, nothing more may go, or the budget is used up.
    fn victims(&mut self, need: u64, now: MonotonicTime, victims: &mut Victims<'_>) -> Vec<Key> {
        let (mut keys, mut freed) = (Vec::new(), 0u64);
        while freed < need
            && let Some((key, bytes)) = self.victim(now, victims)
        {
            keys.push(key);
            freed = freed.saturating_add(bytes);
        }
        keys
    }

    /// Keys that it holds.
    fn len(&self) -> usize;

    /// Whether it holds no key.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys a full pool of `capacity` equal keys is to give up, beyond what puts evict for themselves.
    fn surplus(&self, _capacity: usize) -> usize {
        0
    }

    /// Nodes, links and table cells touched so far: the cost, free of clocks.
    fn steps(&self) -> u64;
}

/// What may be evicted, and how many keys may be looked at for it.
pub struct Victims<'a> {
    budget: u32,
    bytes: &'a mut dyn FnMut(Key) -> Option<u64>,
}

impl<'a> Victims<'a> {
    /// `bytes` says what a key would free, or `None` while a lease or pin protects it.
    pub fn new(budget: u32, bytes: &'a mut dyn FnMut(Key) -> Option<u64>) -> Self {
        Victims { budget, bytes }
    }

    /// Whether another key may be looked at.
    pub fn left(&self) -> bool {
        self.budget > 0
    }

    /// Asks for one key; uses one of the budget.
    pub fn judge(&mut self, key: Key) -> Option<u64> {
        self.budget = self.budget.saturating_sub(1);
        (self.bytes)(key)
    }
}

impl fmt::Debug for Victims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Victims").field("budget", &self.budget).finish_non_exhaustive()
    }
}

/// The policies, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// [`Chain`], ours.
    #[default]
    Chain,
    /// [`Lru`].
    Lru,
    /// [`NearLru`], what the peer does.
    NearLru,
    /// [`S3Fifo`].
    S3Fifo,
}

impl PolicyKind {
    /// All of them, the default one first.
    pub const ALL: [PolicyKind; 4] = [PolicyKind::Chain, PolicyKind::Lru, PolicyKind::NearLru, PolicyKind::S3Fifo];

    /// The name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::Chain => "chain",
            PolicyKind::Lru => "lru",
            PolicyKind::NearLru => "near-lru",
            PolicyKind::S3Fifo => "s3-fifo",
        }
    }

    /// A policy for a pool that holds about `capacity` keys.
    pub fn build(self, capacity: usize) -> Box<dyn Policy> {
        match self {
            PolicyKind::Chain => Box::new(Chain::new(ChainSettings::for_capacity(capacity))),
            PolicyKind::Lru => Box::new(Lru::new()),
            PolicyKind::NearLru => Box::new(NearLru::new()),
            PolicyKind::S3Fifo => Box::new(S3Fifo::new(capacity)),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = PolicyKind::ALL.map(PolicyKind::name).join(", ");
        write!(f, "no policy is called {:?}; there are: {names}", self.0)
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        PolicyKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways_and_an_unknown_one_lists_them() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let text = "lfu".parse::<PolicyKind>().unwrap_err().to_string();
        assert!(PolicyKind::ALL.iter().all(|kind| text.contains(kind.name())), "{text}");
    }
}
